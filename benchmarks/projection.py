"""Processor time of one projection, from serialized spans to rows.

With the server's settings for garbage collection. The yardstick is parsing the same messages.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import process_time

from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from benchmarks.figures import Figure
from benchmarks.surroundings import Bench
from benchmarks.workload import bodies, traces
from tracer.otel.projection import project_run

TRACE_SPANS = 1_000
_YOUNG_OBJECTS = 50_000
"""How many new objects start a garbage collection, as in `api.main`."""


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure the projection of whole runs."""
    spans = bench.sized(10_000, 2_000)
    runs = [bodies(trace) for trace in traces(bench.seed, TRACE_SPANS, spans)]
    parsing: list[float] = []
    projecting: list[float] = []
    with collecting_as_a_server():
        for round_number in range(-1, bench.sized(7, 1)):  # the first round warms up
            for work, taken in ((_parse, parsing), (project_run, projecting)):
                microseconds = _time(work, runs) / spans * 1e6
                if round_number >= 0:
                    taken.append(microseconds)
    name = "parsing the messages"
    yield Figure(name=name, value=median(parsing), unit="µs/span")
    yield Figure(
        name="projection of a whole run",
        value=median(projecting),
        unit="µs/span",
        yardstick=name,
        ratio=median(one / other for one, other in zip(projecting, parsing, strict=True)),
    )


@contextmanager
def collecting_as_a_server() -> Iterator[None]:
    """Collect garbage inside as servers and projectors do."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _parse(messages: list[bytes]) -> None:
    for message in messages:
        TracesData.FromString(message)


def _time(work: Callable[[list[bytes]], object], runs: list[list[bytes]]) -> float:
    started = process_time()
    for messages in runs:
        work(messages)
    return process_time() - started
