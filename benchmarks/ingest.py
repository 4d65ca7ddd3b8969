"""How many spans and events a second a server takes: acknowledged, committed, to be read at once.

Several clients send pre-encoded requests to a `tracer serve` process over connections that they
keep. What was acknowledged is counted in the tables right after the last answer: the spans, and the
tool calls that were made of them. The yardsticks are bare COPY and bare upsert of the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from statistics import median

import psutil
import psycopg
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from benchmarks.bare_tables import copy_rate, upsert_rate
from benchmarks.figures import Figure, Goal, at_least
from benchmarks.http_load import Sequences, load_process, otlp, post, send
from benchmarks.other_forms import (
    event_bodies,
    events_of,
    exporters,
    json_bodies,
    span_rows,
    tool_calls_of,
)
from benchmarks.surroundings import Bench, processor_seconds
from benchmarks.workload import bodies

CLIENTS = 4
SIZE = 1_000
"""How many spans a trace has where nothing else is said."""

ROUNDS = 3


@dataclass
class Load:
    """What is sent, and what is then to be found."""

    sequences: Sequences
    count: int
    """How many spans or events it has."""
    spans: int
    """How many spans are to be found: none where it is sent as events."""
    tool_calls: int


@dataclass
class Rates:
    """What several rounds took."""

    a_second: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    """Microseconds that the server worked for each."""
    postgres: list[float] = field(default_factory=list)
    """Microseconds that Postgres did."""


Encode = Callable[[list[Span]], list[bytes]]


def otlp_requests(spans: list[Span]) -> list[bytes]:
    """Return a program's spans as OTLP in protobuf."""
    return [otlp(body) for body in bodies(spans)]


def json_requests(spans: list[Span]) -> list[bytes]:
    """Return them as OTLP in JSON."""
    return [post("/v1/traces", body, "application/json") for body in json_bodies(spans)]


def event_requests(spans: list[Span]) -> list[bytes]:
    """Return them as native events."""
    return [post("/api/events", body, "application/json") for body in event_bodies(spans)]


OTHER_FORMS: dict[str, tuple[int, Encode]] = {
    "OTLP, traces of 100": (100, otlp_requests),
    "OTLP, traces of 10,000": (10_000, otlp_requests),
    "OTLP in JSON": (SIZE, json_requests),
    "events": (SIZE, event_requests),
}
"""How many spans a trace has, and as what it is sent."""


def load_of(sent: list[list[Span]], encode: Encode) -> Load:
    """Return what several programs send."""
    spans = [span for each in sent for span in each]
    is_events = encode is event_requests
    return Load(
        [encode(each) for each in sent],
        sum(len(events_of(each)) for each in sent) if is_events else len(spans),
        0 if is_events else len(spans),
        tool_calls_of(spans),
    )


class Ingest:
    """A server that is sent loads."""

    def __init__(self, bench: Bench, sender: Executor, url: str, address: str, pid: int) -> None:
        self._sender = sender
        self._url = url
        self._address = address
        self._server = psutil.Process(pid)
        self._postgres = bench.postgres_process()

    def take(self, load: Load, rates: Rates) -> None:
        """Send a load, check that all of it is there, and note what it took."""
        before = self._stored()
        worked = self._worked()
        sent = self._sender.submit(send, self._address, load.sequences, CLIENTS).result()
        worked = [after - each for after, each in zip(self._worked(), worked, strict=True)]
        stored = self._stored()  # with millions of rows, counting them is work too
        expected = (before[0] + load.spans, before[1] + load.tool_calls)
        assert stored == expected, f"{stored} spans and tool calls are stored, not {expected}"
        rates.a_second.append(load.count / sent.seconds)
        for seconds, noted in zip(worked, (rates.server, rates.postgres), strict=True):
            noted.append(1e6 * seconds / load.count)

    def _worked(self) -> list[float]:
        return [processor_seconds(each) for each in (self._server, self._postgres)]

    def _stored(self) -> tuple[int, int]:
        with psycopg.connect(self._url) as connection:
            query = "SELECT (SELECT count(*) FROM otel_span), (SELECT count(*) FROM act_tool_info)"
            found = connection.execute(query).fetchone()
        assert found is not None
        return found[0], found[1]


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure OTLP in turn with its yardsticks, then the other forms and sizes."""
    rounds = bench.sized(ROUNDS, 1)
    with (
        bench.database() as url,
        bench.server(url) as server,
        load_process() as sender,
    ):
        ingest = Ingest(bench, sender, url, server.address, server.process.pid)
        ingest.take(load_of(exporters(bench.seed, 200, 600), otlp_requests), Rates())
        rates = Rates()
        copies: list[float] = []
        upserts: list[float] = []
        for number in range(rounds):
            bench.say(f"OTLP against COPY, round {number + 1} of {rounds}")
            sent = exporters(bench.seed + 1 + number, SIZE, bench.sized(30_000, 2_000))
            rows = [row for each in sent for row in span_rows(each)]
            copies.append(copy_rate(url, rows))
            ingest.take(load_of(sent, otlp_requests), rates)
            upserts.append(upsert_rate(url, rows))
        yield Figure(name="bare COPY", value=median(copies), unit="rows/s")
        yield Figure(name="bare upsert, executemany", value=median(upserts), unit="rows/s")
        name = f"OTLP, traces of {SIZE:,}"
        yield _against(name, "spans", rates, "bare COPY", copies, goal=at_least(0.3))
        yield _against(f"{name}, over upsert", "spans", rates, "bare upsert", upserts)
        yield from _worked(name, "span", rates)
        for number, (name, (size, encode)) in enumerate(OTHER_FORMS.items()):
            bench.say(name)
            sent = exporters(bench.seed + 20 + number, size, bench.sized(20_000, size))
            rates = Rates()
            ingest.take(load_of(sent, encode), rates)
            if encode is event_requests:
                yield _against(name, "events", rates, "bare upsert", [median(upserts)])
                yield from _worked(name, "event", rates)
            else:
                yield _against(name, "spans", rates, "bare COPY", [median(copies)])
                yield from _worked(name, "span", rates)


def _against(
    name: str,
    things: str,
    rates: Rates,
    yardstick: str,
    bare: list[float],
    goal: Goal | None = None,
) -> Figure:
    """Return a rate with its ratio to a bare one: the median of the rounds' ratios."""
    ratios = [rate / each for rate, each in zip(rates.a_second, bare, strict=True)]
    return Figure(
        name=name,
        value=median(rates.a_second),
        unit=f"{things}/s",
        yardstick=yardstick,
        ratio=median(ratios),
        goal=goal,
    )


def _worked(name: str, thing: str, rates: Rates) -> Iterator[Figure]:
    """Return what the processes worked, which other programs on the machine change little."""
    for who, microseconds in (("the server", rates.server), ("Postgres", rates.postgres)):
        yield Figure(name=f"{name}: {who} worked", value=median(microseconds), unit=f"µs/{thing}")
