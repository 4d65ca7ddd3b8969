"""The same load on Tracer and on others, one after another on the same Postgres.

Only acknowledged spans that can be read count: the time ends when the tables contain them. A tree
is read completely, by each system's REST API.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from time import perf_counter
from uuid import UUID

import psycopg
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from benchmarks.figures import Figure, at_least
from benchmarks.http_load import get, load_process, otlp, send
from benchmarks.other_forms import exporters
from benchmarks.peer_servers import PEERS, install, running
from benchmarks.surroundings import Bench, p50_of
from benchmarks.workload import bodies, trace

CLIENTS = 4
TREE = 1_000
"""How many spans the tree has that is read."""

LEAST_BYTES = 200
"""The smallest response for each span."""

INGEST_GOALS = {"MLflow": 6.0, "Phoenix": 40.0}
TREE_GOAL = 20.0
QUERYABLE_SECONDS = 600
LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Cost:
    """The cost of the load for a system."""

    spans_a_second: float
    tree_milliseconds: float


@dataclass(frozen=True)
class System:
    """A running system, as the load sees it."""

    address: str
    database_url: str
    count: str
    tree: str
    """Reads the tree."""
    headers: tuple[str, ...] = ()


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure ours, then each of the others that can be installed."""
    sent = exporters(bench.seed + 60, TREE, bench.sized(10_000, 1_000))
    tree = trace(bench.seed + 61, TREE)
    trace_id = tree[0].trace_id
    with load_process() as sender:
        bench.say("Tracer")
        with bench.database() as url, bench.server(url) as server:
            system = System(
                server.address,
                url,
                "SELECT coalesce(sum(spans), 0)::bigint FROM otel_block"
                " WHERE NOT EXISTS (SELECT FROM pending_run)",
                f"/api/plans/{UUID(bytes=trace_id)}/tree",
            )
            ours = _cost(bench, sender, system, sent, tree)
        yield from _figures("Tracer", ours)
        failed = []
        for peer in PEERS:
            try:
                bench.say(f"{peer.name}: installing")
                installed = install(peer, upgrade=not bench.is_quick)
                bench.versions[peer.name] = installed.version
                bench.say(f"{peer.name} {installed.version}")
                with running(bench, peer, installed) as other:
                    system = System(
                        other.address,
                        other.database_url,
                        peer.count,
                        peer.tree(trace_id.hex()),
                        peer.headers,
                    )
                    theirs = _cost(bench, sender, system, sent, tree)
            except (RuntimeError, ExceptionGroup) as error:  # the next may do
                failed.append(f"{peer.name}: {error}")
                continue
            yield from _figures(peer.name, theirs)
            yield from _compared(peer.name, ours, theirs)
    if failed:
        raise RuntimeError("; ".join(failed))


def _cost(
    bench: Bench,
    sender: Executor,
    system: System,
    sent: Sequence[list[Span]],
    tree: list[Span],
) -> Cost:
    warm_up = [otlp(body, "/v1/traces", *system.headers) for body in bodies(tree)]
    sender.submit(send, system.address, [warm_up], 1).result()
    _wait_for(system, len(tree))
    requests = [
        [otlp(body, "/v1/traces", *system.headers) for body in bodies(spans)] for spans in sent
    ]
    count = sum(map(len, sent))
    taken = sender.submit(send, system.address, requests, CLIENTS).result().seconds
    began = perf_counter()
    _wait_for(system, len(tree) + count)
    taken += perf_counter() - began
    read = send(system.address, [[get(system.tree)]], 1).bytes_received
    if read < LEAST_BYTES * TREE:
        raise RuntimeError(f"the tree has only {read} bytes")
    return Cost(count / taken, p50_of(system.address, system.tree, bench.sized(15, 3)))


def _wait_for(system: System, count: int) -> None:
    """Wait until so many spans can be read.

    Raises:
        RuntimeError: They do not come.
    """
    until = perf_counter() + QUERYABLE_SECONDS
    with psycopg.connect(system.database_url, autocommit=True) as connection:
        row: tuple[int, ...] | None = None
        while perf_counter() < until:
            row = connection.execute(system.count.encode()).fetchone()
            if row == (count,):
                return
            time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"{count} spans were acknowledged, and {row} can be read")


def _figures(name: str, cost: Cost) -> Iterator[Figure]:
    yield Figure(name=f"{name}: OTLP", value=cost.spans_a_second, unit="spans/s")
    yield Figure(
        name=f"{name}: tree of {TREE:,} spans, p50", value=cost.tree_milliseconds, unit="ms"
    )


def _compared(name: str, ours: Cost, theirs: Cost) -> Iterator[Figure]:
    yield Figure(
        name=f"OTLP, Tracer over {name}",
        value=ours.spans_a_second,
        unit="spans/s",
        yardstick=name,
        ratio=ours.spans_a_second / theirs.spans_a_second,
        goal=at_least(INGEST_GOALS[name]),
    )
    yield Figure(
        name=f"trees a second, Tracer over {name}",
        value=1000 / ours.tree_milliseconds,
        unit="trees/s",
        yardstick=name,
        ratio=theirs.tree_milliseconds / ours.tree_milliseconds,
        goal=at_least(TREE_GOAL),
    )
