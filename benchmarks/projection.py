"""Processor time of one projection, from serialized spans to rows.

With the server's settings for garbage collection. The yardstick is parsing the same messages. With
`--before REV`, the code of another commit projects the same runs, in turn.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import process_time

from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from benchmarks.figures import Figure, at_most
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
    if bench.before:
        yield from _against_before(bench, runs)


_ROUNDS = """
import pickle, sys
from pathlib import Path
from benchmarks.projection import _time, collecting_as_a_server, project_run

runs = pickle.loads(Path(sys.argv[1]).read_bytes())
with collecting_as_a_server():
    for _ in sys.stdin:
        print(_time(project_run, runs), flush=True)
"""


def _against_before(bench: Bench, runs: list[list[bytes]]) -> Iterator[Figure]:
    """Measure two processes in turn: this code, and that of the commit before."""
    stored = bench.folder / "runs.pickle"
    stored.write_bytes(pickle.dumps(runs))
    with ExitStack() as stack:
        folders = stack.enter_context(bench.checkout_before()), Path.cwd()
        processes = [stack.enter_context(_rounds_in(folder, stored)) for folder in folders]
        seconds: list[list[float]] = [[], []]
        for _ in range(1 + bench.sized(15, 3)):
            for process, taken in zip(processes, seconds, strict=True):
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("again\n")
                process.stdin.flush()
                taken.append(float(process.stdout.readline()))
    (_, *before), (_, *now) = seconds  # the first round warms up
    spans = sum(project_run(run).spans for run in runs)
    name = f"projection of a whole run, at {bench.before}"
    yield Figure(name=name, value=median(before) / spans * 1e6, unit="µs/span")
    yield Figure(
        name="projection of a whole run, in turn",
        value=median(now) / spans * 1e6,
        unit="µs/span",
        yardstick=name,
        ratio=median(one / other for one, other in zip(now, before, strict=True)),
        goal=at_most(1.05),
    )


@contextmanager
def _rounds_in(folder: Path, stored: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the code of a checkout, which projects the stored runs for each line that it gets."""
    command = [sys.executable, "-c", _ROUNDS, str(stored)]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:  # it ends with its input
        yield process


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
