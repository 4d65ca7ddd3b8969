"""How many spans and events a second a server accepts, and projects; and what a span costs.

Several clients send pre-encoded requests to a `tracer serve` process over connections that they
keep. Spans are *acknowledged* when the last request is answered: they are committed. They are
*projected* when no run is pending any more: their records are committed. Then the tables must have
all spans and all tool calls that were sent. The yardsticks are bare COPY and bare upsert of the
same rows.

With `--before REV` the server of another commit gets the same loads in the same rounds.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter

import psutil
import psycopg
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from psycopg import sql

from benchmarks import due_runs, first_read, growing_trace, projection_lag
from benchmarks.bare_tables import copy_rate, upsert_rate
from benchmarks.figures import Figure, Goal, at_least, at_most
from benchmarks.grpc_load import send_calls
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
from benchmarks.workload import bodies, trace
from tests.servers import Server

CLIENTS = 4
SINGLE_CLIENTS = 64
SIZE = 1_000
"""The default number of spans in a trace."""

ROUNDS = 5

STORED = "SELECT coalesce(sum(spans), 0)::bigint FROM otel_block"

_TABLES = (
    *("otel_block", "pending_run", "run", "plan_execution_record"),
    *("agent_execution_record", "think_act_record", "act_tool_info"),
    *("removed_record", "recorder_run", "recorder_lease"),
)
"""The tables that grow with spans; those that a commit lacks count nothing."""

_DISK = "SELECT sum(pg_total_relation_size(to_regclass(name)))::bigint FROM unnest(%s::text[]) name"

_LOG = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"

_KEYS = """
SELECT conrelid::regclass::text, conname FROM pg_constraint
WHERE contype = 'f' AND conrelid = ANY(%(tables)s::regclass[])
    AND confrelid = ANY(%(tables)s::regclass[])"""

_RECORD_TABLES = [name for name in _TABLES if name.endswith("_record") or name == "act_tool_info"]

POLL_SECONDS = 0.01
STUCK_SECONDS = 120
"""A slow machine may take any time to project a load, but not so long without any progress."""
"""How long it may take until everything is projected."""


@dataclass
class Load:
    """A load, and the numbers of items that must be stored afterwards."""

    sequences: Sequences
    count: int
    """How many spans or events it has."""
    spans: int
    """The number of spans to be stored; 0 if the load is sent as events."""
    tool_calls: int


@dataclass
class Rates:
    """The results of several rounds."""

    a_second: list[float] = field(default_factory=list)
    """Acknowledged."""
    projected: list[float] = field(default_factory=list)
    """From the first request until the last run is projected."""
    server: list[float] = field(default_factory=list)
    """Microseconds that the server and its projectors worked for each."""
    postgres: list[float] = field(default_factory=list)
    """Microseconds that Postgres did."""
    log: list[float] = field(default_factory=list)
    """Bytes of write-ahead log for each."""


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


def single_requests(spans: list[Span]) -> list[bytes]:
    """Return them as OTLP in protobuf, each in a request of its own."""
    return [otlp(body) for body in bodies(spans, batch=1)]


OTHER_FORMS: dict[str, tuple[int, Encode]] = {
    "OTLP, traces of 100": (100, otlp_requests),
    "OTLP, traces of 10,000": (10_000, otlp_requests),
    "OTLP in JSON": (SIZE, json_requests),
    "events": (SIZE, event_requests),
}
"""The number of spans in a trace, and the form in which it is sent."""


def load_of(sent: list[list[Span]], encode: Encode) -> Load:
    """Return the load of several programs."""
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

    def __init__(self, bench: Bench, sender: Executor, url: str, server: Server) -> None:
        """Take a server.

        Args:
            bench: The environment of the benchmarks.
            sender: Sends the requests.
            url: The database of the server.
            server: The server.
        """
        self._sender = sender
        self._url = url
        self._server = server
        self._process = psutil.Process(server.process.pid)
        self._postgres = bench.postgres_process()
        # The traces are cut, so the last model call may request calls that have no span.
        calls = "SELECT count(*) FROM act_tool_info WHERE reason IS DISTINCT FROM 'not_reached'"
        self._query = f"SELECT ({STORED}), ({calls})".encode()
        self._disk_before = self._disk()
        self._sent_spans = 0

    def take(
        self, load: Load, rates: Rates, clients: int = CLIENTS, by_grpc: str | None = None
    ) -> None:
        """Send a load, wait until it is projected, check that all of it is there, note the costs.

        Args:
            load: The load.
            rates: Receives the costs.
            clients: How many clients send it.
            by_grpc: The server's address for gRPC, if the load has calls instead of requests.

        Raises:
            AssertionError: Something is missing, or there twice.
        """
        way, address = (send, self._server.address) if by_grpc is None else (send_calls, by_grpc)
        with psycopg.connect(self._url, autocommit=True) as connection:
            before = self._stored(connection)
            (logged,) = connection.execute(_LOG).fetchone() or (0,)
            worked = self._worked()
            began = perf_counter()
            sent = self._sender.submit(way, address, load.sequences, clients).result()
            wait_until_projected(self._url)
            seconds = perf_counter() - began
            worked = [after - each for after, each in zip(self._worked(), worked, strict=True)]
            (logged_after,) = connection.execute(_LOG).fetchone() or (0,)
            stored = self._stored(connection)  # with millions of rows, counting is work too
        expected = (before[0] + load.spans, before[1] + load.tool_calls)
        assert stored == expected, f"{stored} spans and tool calls are stored, not {expected}"
        rates.a_second.append(load.count / sent.seconds)
        rates.projected.append(load.count / seconds)
        rates.log.append((logged_after - logged) / load.count)
        for seconds, noted in zip(worked, (rates.server, rates.postgres), strict=True):
            noted.append(1e6 * seconds / load.count)
        self._sent_spans += load.spans

    def disk(self) -> float:
        """Return the bytes of tables, indexes and TOAST for each span that was sent."""
        return (self._disk() - self._disk_before) / self._sent_spans

    def _worked(self) -> list[float]:
        return [processor_seconds(each) for each in (self._process, self._postgres)]

    def _stored(self, connection: psycopg.Connection) -> tuple[int, int]:
        row = connection.execute(self._query).fetchone()
        assert row is not None
        return row[0], row[1]

    def _disk(self) -> int:
        with psycopg.connect(self._url) as connection:
            (size,) = connection.execute(_DISK, [list(_TABLES)]).fetchone() or (0,)
        return int(size)


def wait_until_projected(url: str) -> None:
    """Return when no run of a database is pending.

    Raises:
        AssertionError: Projections make no progress, or one was given up.
    """
    least, end = None, perf_counter() + STUCK_SECONDS
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            pending, failure = connection.execute(_PENDING).fetchone() or (0, None)
            assert failure is None, f"a projection failed: {failure}"
            if not pending:
                return
            if least is None or pending < least:
                least, end = pending, perf_counter() + STUCK_SECONDS
            assert perf_counter() < end, f"{pending} runs are still pending"
            time.sleep(POLL_SECONDS)


# A projection that takes too long while others run, on a slow machine, is repeated alone.
_PENDING = """
SELECT count(*), max(failure) FILTER (WHERE due_at = 'infinity') FROM pending_run"""


def drop_keys(url: str) -> None:
    """Drop the foreign keys between records; those to runs stay."""
    with psycopg.connect(url, autocommit=True) as connection:
        for table, name in connection.execute(_KEYS, {"tables": _RECORD_TABLES}).fetchall():
            statement = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}")
            connection.execute(statement.format(sql.Identifier(table), sql.Identifier(name)))


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure ingest and projection in turn with the yardsticks; then each other part."""
    with load_process() as sender:
        yield from _rates(bench, sender)
        yield from _transports(bench, sender)
    for part in (due_runs, projection_lag, first_read, growing_trace):
        yield from part.measured(bench)


def _rates(bench: Bench, sender: Executor) -> Iterator[Figure]:
    rounds = bench.sized(ROUNDS, 1)
    spans = bench.sized(48_000, 2_000)
    with ExitStack() as stack:
        url, without_keys = (stack.enter_context(bench.database()) for _ in range(2))
        drop_keys(without_keys)
        ingests = {
            name: Ingest(bench, sender, each, stack.enter_context(bench.server(each)))
            for name, each in (("now", url), ("without keys", without_keys))
        }
        if bench.before:
            server, old_url = stack.enter_context(bench.server_before())
            ingests["before"] = Ingest(bench, sender, old_url, server)
        for number, ingest in enumerate(ingests.values()):
            warm_up = exporters(bench.seed + 900 + number, 200, 600)
            ingest.take(load_of(warm_up, otlp_requests), Rates())
        rates = {name: Rates() for name in ingests}
        copies: list[float] = []
        upserts: list[float] = []
        for number in range(rounds):
            bench.say(f"OTLP against COPY, round {number + 1} of {rounds}")
            sent = exporters(bench.seed + 1 + number, SIZE, spans)
            rows = [row for each in sent for row in span_rows(each)]
            load = load_of(sent, otlp_requests)
            copies.append(copy_rate(url, rows))
            for name, ingest in ingests.items():
                ingest.take(load, rates[name])
            upserts.append(upsert_rate(url, rows))
        yield Figure(name="bare COPY", value=median(copies), unit="rows/s")
        yield Figure(name="bare upsert, executemany", value=median(upserts), unit="rows/s")
        name = f"OTLP, traces of {SIZE:,}"
        yield _against(f"{name}: acknowledged", rates["now"].a_second, copies, at_least(0.5))
        yield _against(f"{name}: projected", rates["now"].projected, copies, at_least(0.2))
        without = rates["without keys"].projected
        yield _against(f"{name}: projected, no keys between records", without, copies)
        yield from _worked(name, "span", rates["now"])
        yield _log(name, rates["now"], rates.get("before"))
        yield Figure(
            name=f"{name}: tables and indexes, after projection",
            value=ingests["now"].disk(),
            unit="B/span",
            goal=at_most(1_500, "value"),
        )
        if "before" in ingests:
            before = f"{name}, at {bench.before}"
            yield _against(before, rates["before"].a_second, copies)
            yield from _worked(before, "span", rates["before"])
            yield Figure(
                name=f"{before}: tables and indexes",
                value=ingests["before"].disk(),
                unit="B/span",
            )
        yield from _single(bench, ingests)
        for number, (name, (size, encode)) in enumerate(OTHER_FORMS.items()):
            bench.say(name)
            sent = exporters(bench.seed + 20 + number, size, bench.sized(20_000, size))
            of_form = Rates()
            ingests["now"].take(load_of(sent, encode), of_form)
            if encode is event_requests:
                bare = [median(upserts)]
                yield _against(name, of_form.a_second, bare, things="events", to="bare upsert")
                yield from _worked(name, "event", of_form)
            else:
                bare = [median(copies)]
                yield _against(f"{name}: acknowledged", of_form.a_second, bare)
                yield _against(f"{name}: projected", of_form.projected, bare)
                yield from _worked(name, "span", of_form)


def _transports(bench: Bench, sender: Executor) -> Iterator[Figure]:
    """Measure spans by gRPC and log records by HTTP, in turn with the same spans by HTTP."""
    rounds, count = bench.sized(ROUNDS, 1), bench.sized(24_000, 2_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings = {"TRACER_GRPC_PORT": str(port)}
    sides: dict[str, tuple[Encode, str | None]] = {
        "spans by HTTP": (otlp_requests, None),
        "spans by gRPC": (bodies, f"127.0.0.1:{port}"),
        "log records by HTTP": (log_requests, None),
    }
    rates = {name: Rates() for name in sides}
    with bench.database() as url, bench.server(url, settings=settings) as server:
        ingest = Ingest(bench, sender, url, server)
        for number in range(-1, rounds):
            bench.say(f"HTTP, gRPC and logs, round {number + 1} of {rounds}")
            for place, (name, (encode, address)) in enumerate(sides.items()):
                sent = exporters(bench.seed + 500 + 10 * number + place, SIZE, count)
                load = load_of(sent, encode)
                if encode is log_requests:
                    load = replace(load, tool_calls=0)
                noted = rates[name] if number >= 0 else Rates()
                ingest.take(load, noted, by_grpc=address)
    by_http = rates["spans by HTTP"].a_second
    goals = {"spans by gRPC": at_least(0.9), "log records by HTTP": at_least(1.0)}
    for name, each in rates.items():
        yield _against(name, each.a_second, by_http, goals.get(name), to="spans by HTTP")
        yield from _worked(name, "item", each)


def log_requests(spans: list[Span]) -> list[bytes]:
    """Return requests of log records that have the attributes of spans."""
    return [otlp(as_logs(body), "/v1/logs") for body in bodies(spans)]


def as_logs(body: bytes) -> bytes:
    """Return a trace request as a log request with the same resources, scopes and attributes."""
    request = ExportLogsServiceRequest()
    for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource_logs = request.resource_logs.add(resource=resource_spans.resource)
        for scope_spans in resource_spans.scope_spans:
            scope_logs = resource_logs.scope_logs.add(scope=scope_spans.scope)
            scope_logs.log_records.extend(
                LogRecord(
                    trace_id=span.trace_id,
                    span_id=span.span_id,
                    time_unix_nano=span.start_time_unix_nano,
                    event_name=span.name,
                    attributes=span.attributes,
                )
                for span in scope_spans.spans
            )
    return request.SerializeToString()


def _single(bench: Bench, ingests: dict[str, Ingest]) -> Iterator[Figure]:
    """Measure requests with one span from 64 clients, in turn with the commit before."""
    rounds, spans = bench.sized(ROUNDS, 1), bench.sized(50, 3)
    sides = {name: Rates() for name in ingests if name != "without keys"}
    for number in range(rounds):
        bench.say(f"single spans, round {number + 1} of {rounds}")
        first = (bench.seed + number) * 1_000
        sent = [trace(first + client, spans) for client in range(SINGLE_CLIENTS)]
        load = load_of(sent, single_requests)
        for name, rates in sides.items():
            ingests[name].take(load, rates, SINGLE_CLIENTS)
    name = f"single spans, {SINGLE_CLIENTS} clients"
    rates = sides["now"]
    if "before" in sides:
        before = sides["before"].a_second
        yield _against(name, rates.a_second, before, at_least(1.7), to=bench.before or "")
        yield Figure(name=f"{name}, at {bench.before}", value=median(before), unit="spans/s")
        yield from _worked(f"{name}, at {bench.before}", "span", sides["before"])
    else:
        yield Figure(name=name, value=median(rates.a_second), unit="spans/s")
    yield Figure(name=f"{name}: projected", value=median(rates.projected), unit="spans/s")
    yield from _worked(name, "span", rates)


def _against(
    name: str,
    a_second: list[float],
    bare: list[float],
    goal: Goal | None = None,
    *,
    things: str = "spans",
    to: str = "bare COPY",
) -> Figure:
    """Return a rate with its ratio to another: the median of the rounds' ratios."""
    ratios = [rate / each for rate, each in zip(a_second, bare, strict=True)]
    return Figure(
        name=name,
        value=median(a_second),
        unit=f"{things}/s",
        yardstick=to,
        ratio=median(ratios),
        goal=goal,
    )


def _log(name: str, rates: Rates, before: Rates | None) -> Figure:
    """Return the write-ahead log of a span; the goal is half of the earlier value."""
    figure = Figure(name=f"{name}: log", value=median(rates.log), unit="B/span")
    if before is None:
        return figure
    ratios = [one / other for one, other in zip(rates.log, before.log, strict=True)]
    compared = {"yardstick": "the commit before", "ratio": median(ratios), "goal": at_most(0.5)}
    return figure.model_copy(update=compared)


def _worked(name: str, thing: str, rates: Rates) -> Iterator[Figure]:
    """Return what the processes worked, which other programs on the machine change little."""
    who_worked = (("server and projectors", rates.server), ("Postgres", rates.postgres))
    for who, microseconds in who_worked:
        yield Figure(name=f"{name}: {who} worked", value=median(microseconds), unit=f"µs/{thing}")
