"""Load: events of several writers, shuffled, repeated and split, and the expected records."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any
from uuid import UUID

from benchmarks.workload import request, traces
from tests.otel.decoded import spans_in
from tests.otel.projections import project
from tests.otel.sent import traces_of
from tests.recorder.test_over_http import until
from tests.recordings import rows_of_spans, run_of
from tests.sample_runs import sample_run
from tests.stored import read_spans
from tests.trees import TreeRows, plain_rows, read_tree
from tracer.errors import StoreUnavailable
from tracer.lineage import Payloads
from tracer.otel.otlp import decode_protobuf
from tracer.otel.otlp.spans import root_plan_id
from tracer.otel.projection import totals_of
from tracer.records.events import Event
from tracer.records.record_classes import Totals
from tracer.records.spans import Span
from tracer.storage.memory import recording_in_memory
from tracer.store import TraceReader, TraceWriter

WINDOW = 2_000
"""How many events in a row are shuffled: what an outage may bring out of order."""

LARGEST_BATCH = 200
TRACE_SPANS = 60
REPEATED = 0.05
WRITERS = 4
SMALLEST_PIECE = 20
AGAIN_SECONDS = 0.1
"""How long a writer waits before it goes on after a failure."""

STUCK_SECONDS = 300.0
"""How long it may take from one disturbance to the next."""

Batch = Sequence[Event] | Sequence[Span]


@dataclass
class Load:
    """Events and spans, and what became of them so far."""

    runs: list[list[Event]]
    traces: list[list[Span]]
    waiting: deque[Batch]
    total: int
    acknowledged: int = 0
    failures: int = 0
    disturbances: int = 0
    started: float = field(default_factory=monotonic)

    @property
    def seconds(self) -> float:
        return monotonic() - self.started

    def has_acknowledged(self, number: int) -> bool:
        return self.acknowledged >= number

    def figures(self, seconds: float) -> dict[str, object]:
        """Return what is to be said of it, when it took so long."""
        return {
            "acknowledged": self.acknowledged,
            "kills": self.disturbances,
            "seconds": round(seconds, 1),
            "failed_writes": self.failures,
        }

    @property
    def roots(self) -> list[UUID]:
        return [
            *(run[0].root_plan_id for run in self.runs),
            *(root_plan_id(trace[0].trace_id) for trace in self.traces),
        ]


def load_of(events: int, seed: int = 1, spans: int | None = None) -> Load:
    """Return events and spans in batches.

    Args:
        events: How many events, about.
        seed: The same seed gives the same load.
        spans: How many spans; None: a tenth of the events.
    """
    chance = random.Random(seed)
    runs: list[list[Event]] = []
    left = events
    while left > 0:
        runs.append(sample_run(sub_plans=chance.randint(1, 40)).events)
        left -= len(runs[-1])
    made = [
        spans_in(decode_protobuf(request(trace).SerializeToString()))
        for trace in traces(seed, TRACE_SPANS, events // 10 if spans is None else spans)
    ]
    by_event = list(_pieces([event for run in runs for event in run], chance))
    by_span = list(_pieces([span for trace in made for span in trace], chance))
    batches: list[Batch] = [*by_event, *by_span]
    # Traces come among the events, all over the time.
    spread = [index / max(1, len(by_event)) for index in range(len(by_event))]
    spread += [index / max(1, len(by_span)) for index in range(len(by_span))]
    order = sorted(range(len(batches)), key=lambda index: spread[index])
    waiting = deque(batches[index] for index in order)
    return Load(runs, made, waiting, sum(map(len, waiting)))


def _pieces(items: list[Any], chance: random.Random) -> Iterator[list[Any]]:
    """Yield items in batches, some of them twice, and out of order within a window."""
    for begin in range(0, len(items), WINDOW):
        window = items[begin : begin + WINDOW]
        window += chance.sample(window, int(len(window) * REPEATED))
        chance.shuffle(window)
        while window:
            size = chance.randint(1, LARGEST_BATCH)
            yield window[:size]
            del window[:size]


async def deliver(load: Load, writers: Iterable[TraceWriter]) -> None:
    """Let each writer take what waits, until all of it was acknowledged."""
    async with asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(_deliver(load, writer))


async def _deliver(load: Load, writer: TraceWriter) -> None:
    while load.waiting:
        batch = load.waiting.popleft()
        try:
            answer = await written(writer, batch)
        except StoreUnavailable:
            load.failures += 1
            # In other pieces, and after what others wait for: nothing depends on either.
            middle = len(batch) // 2 if len(batch) >= 2 * SMALLEST_PIECE else 0
            load.waiting.extend(part for part in (batch[middle:], batch[:middle]) if part)
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            assert answer == len(batch)
            load.acknowledged += answer


async def written(writer: TraceWriter, batch: Batch) -> int:
    """Write a batch, and return how much of it is stored."""
    if isinstance(batch[0], Span):
        spans = [each for each in batch if isinstance(each, Span)]
        answer = await writer.write_spans(traces_of(spans))
    else:
        answer = await writer.write([each for each in batch if not isinstance(each, Span)])
    assert answer.refused == []
    return answer.stored


async def disturb(load: Load, times: int, disturbance: Callable[[int], Awaitable[None]]) -> None:
    """Disturb so often, evenly over the load: each time while writers are about to write."""
    for number in range(times):
        due = load.total * (number + 1) // (times + 1)
        await until(partial(load.has_acknowledged, due), seconds=STUCK_SECONDS)
        await disturbance(number)
        load.disturbances += 1


@dataclass
class Difference:
    """What a store holds otherwise than one that nothing ever happened to."""

    lost: int = 0
    """Records and spans that are missing, or lack something."""
    duplicated: int = 0
    """Unexpected records and spans."""
    wrong_totals: int = 0
    """Runs whose totals are not those of their records."""

    def __add__(self, other: Difference) -> Difference:
        return Difference(
            self.lost + other.lost,
            self.duplicated + other.duplicated,
            self.wrong_totals + other.wrong_totals,
        )

    def figures(self) -> dict[str, object]:
        """Return what is to be said of it."""
        return vars(self)


async def difference(load: Load, kept: TraceReader) -> Difference:
    """Compare what a store made of the load with what its events and spans mean.

    Args:
        load: The load that was written.
        kept: Reads the store, in which nothing is pending.
    """
    found = Difference()
    runs = [await _of_events(run) for run in load.runs] + [
        _of_spans(trace) for trace in load.traces
    ]
    for root, (expected, totals) in zip(load.roots, runs, strict=True):
        spans = {("spanId", each.span_id.hex()): each.body for each in await read_spans(kept, root)}
        actual = _by_id(await read_tree(kept, root, Payloads.FULL)) | spans
        run = await kept.read_run(root)
        found.lost += sum(actual.get(key) != record for key, record in expected.items())
        found.duplicated += len(actual.keys() - expected.keys())
        found.wrong_totals += {name: getattr(run, name) for name in totals} != totals
    return found


Expected = tuple[dict[tuple[str, str], Any], dict[str, Any]]
"""The rows and spans of a run, and its totals."""


async def _of_events(events: list[Event]) -> Expected:
    recording = recording_in_memory()
    await recording.write(events)
    run_id = events[0].root_plan_id
    run = run_of(recording, run_id)
    rows = await read_tree(recording, run_id, Payloads.FULL)
    return _by_id(rows), {name: getattr(run, name) for name in Totals.model_fields}


def _of_spans(spans: list[Span]) -> Expected:
    rows = plain_rows(rows_of_spans(spans))
    found = {("spanId", span.span_id.hex()): span.body for span in spans}
    return _by_id(rows) | found, totals_of(project(spans).records)


def _by_id(rows: TreeRows) -> dict[tuple[str, str], Any]:
    by_kind = {
        "planId": rows.plans,
        "stepId": rows.steps,
        "thinkActId": rows.think_acts,
        "toolCallId": rows.tool_calls,
    }
    return {(name, row[name]): row for name, rows in by_kind.items() for row in rows}
