"""Processor time of one projection, from serialized spans to rows: in one pass, and incrementally.

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
from tracer.otel.trace_state import TraceState
from tracer.storage.projected_runs import projected_parts

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
        incremental: list[float] = []
        one_pass: list[float] = []
        for round_number in range(-1, bench.sized(7, 1)):  # the first round warms up
            for project, taken in ((_incremental, incremental), (project_run, one_pass)):
                microseconds = _time(project, runs) / spans * 1e6
                if round_number >= 0:
                    taken.append(microseconds)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    name = "incremental projection of a whole run"
    yield Figure(name=name, value=median(incremental), unit="µs/span")
    yield Figure(
        name="one-pass projection",
        value=median(one_pass),
        unit="µs/span",
        yardstick=name,
        ratio=median(one / other for one, other in zip(one_pass, incremental, strict=True)),
        goal=at_most(0.5),
    )


def _time(project: Callable[[list[bytes]], object], runs: list[list[bytes]]) -> float:
    started = process_time()
    for messages in runs:
        project(messages)
    return process_time() - started


def _incremental(messages: list[bytes]) -> None:
    state = TraceState()
    state.put(spans_of(messages))
    projected = state.project()
    assert projected.totals
    assert projected_parts(projected)
