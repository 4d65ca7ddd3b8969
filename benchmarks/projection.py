"""Processor time of one projection, from serialized spans to rows, and of decoding these spans.

Both run in alternating rounds of one process, with the server's settings for garbage collection.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from statistics import median
from time import process_time

from benchmarks.figures import Figure, at_most
from benchmarks.surroundings import Bench
from benchmarks.workload import bodies, traces
from tracer.otel.blocks import spans_of
from tracer.otel.projection.rows import project_run

TRACE_SPANS = 1_000
_YOUNG_OBJECTS = 50_000
"""How many new objects start a garbage collection, as in `api.serving`."""


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure the projection of whole runs."""
    spans = bench.sized(10_000, 2_000)
    runs = [bodies(trace) for trace in traces(bench.seed, TRACE_SPANS, spans)]
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    try:
        decoding: list[float] = []
        projecting: list[float] = []
        for round_number in range(-1, bench.sized(7, 1)):  # the first round warms up
            for work, taken in ((spans_of, decoding), (project_run, projecting)):
                microseconds = _time(work, runs) / spans * 1e6
                if round_number >= 0:
                    taken.append(microseconds)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    name = "decoding"
    yield Figure(name=name, value=median(decoding), unit="µs/span")
    yield Figure(
        name="projection",
        value=median(projecting),
        unit="µs/span",
        yardstick=name,
        ratio=median(one / other for one, other in zip(projecting, decoding, strict=True)),
        goal=at_most(4.0),
    )


def _time(work: Callable[[list[bytes]], object], runs: list[list[bytes]]) -> float:
    started = process_time()
    for messages in runs:
        work(messages)
    return process_time() - started
