"""A run that is cancelled at any moment leaves each record with exactly one ending."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.busy import busy_application
from tests.runtime.conftest import OpenBench
from tests.runtime.runs import ENDED, bench, everything
from tests.trees import TreeRows
from tracer.records.events import Event
from tracer.storage.memory import RecordingInMemory
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import TraceReader, TraceWriter, WriteAnswer


def check_all_has_ended(rows: TreeRows) -> None:
    """Check that nothing is open, and that no row lacks what says what it is."""
    assert {each["status"] for each in everything(rows)} <= ENDED
    for plan in rows.plans:
        below = [each for each in rows.steps if each["planId"] == plan["planId"]]
        assert plan["title"] is not None
        if plan["status"] == "cancelled":
            assert "cancelled" in {each["status"] for each in below} or all(
                each["status"] == "succeeded" for each in below
            )
    for call_row in rows.tool_calls:
        assert call_row["name"] is not None
        assert call_row["arguments"] is not None
    for step in rows.steps:
        assert step["request"] is not None
        assert (step["reason"] == "not_reached") == (step["startedAt"] is None)


async def let_loop_turn(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("step", "reached"),
    [
        (8, {"cancelled"}),
        pytest.param(1, {"cancelled", "succeeded"}, marks=pytest.mark.thorough),
    ],
    ids=["every eighth", "every"],
)
async def test_run_cancelled_at_any_turn_of_the_event_loop_leaves_no_open_record(
    open_bench: OpenBench, store: RecordingInMemory, step: int, reached: set[str]
) -> None:
    on = await open_bench(busy_application())
    endings = set()
    turns = 0
    while True:
        run = asyncio.create_task(on.launcher.run("Everything"))
        await let_loop_turn(turns)
        roots = on.launcher.active_runs
        run.cancel()
        await asyncio.wait({run})
        for root_plan_id in roots:
            if root_plan_id in {event.root_plan_id for event in store.events}:
                rows = await on.rows(root_plan_id)
                check_all_has_ended(rows)
                endings.add(rows.plans[0]["status"])
        if turns > 5 and not roots:
            break
        # Every turn at first, where the lineage is being laid; then every fifth.
        turns += step * (1 if turns < 60 else 5)

    assert reached <= endings <= {"cancelled", "succeeded"}
    assert turns > 100


Cancel = Callable[[], object]


class CancellingStore:
    """Passes on what it is given, and cancels the run at one event, before or after it is kept."""

    def __init__(self, inner: TraceWriter, event_type: str, number: int, before: bool) -> None:
        self.inner = inner
        self.event_type = event_type
        self.number = number
        self.before = before
        self.cancel: Cancel = lambda: None
        self.has_cancelled = False

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        self.number -= sum(event.type == self.event_type for event in events)
        is_now = self.number < 0 and not self.has_cancelled
        if is_now and self.before:
            self.has_cancelled = True
            self.cancel()
            await asyncio.sleep(0)
        answer = await self.inner.write(events)
        if is_now and not self.before:
            self.has_cancelled = True
            self.cancel()
        return answer

    async def renew(self, recorder_id: Any) -> Any:
        return await self.inner.renew(recorder_id)

    async def delete_run(self, root_plan_id: Any, *, all_parts: bool = True) -> None:
        raise NotImplementedError

    async def delete_subject(self, subject: Any) -> Any:
        raise NotImplementedError

    async def delete_session(self, session_id: Any) -> Any:
        raise NotImplementedError

    async def write_spans(self, traces: Any) -> Any:
        raise NotImplementedError

    async def request_cancel(self, root_plan_id: Any) -> Any:
        raise NotImplementedError


POINTS = [
    ("plan_started", 0),
    ("plan_started", 1),  # again, with its steps
    ("plan_started", 2),  # a sub-plan
    ("step_started", 0),
    ("step_started", 2),
    ("thought_started", 0),
    ("thought_started", 2),
    ("thought_recorded", 0),
    ("thought_recorded", 1),
    ("tool_call_started", 0),
    ("tool_call_started", 3),
    ("tool_call_finished", 0),
    ("tool_call_finished", 4),
    ("step_finished", 0),
    ("step_finished", 1),
    ("plan_finished", 0),
]


async def cancel_at(
    inner: TraceWriter,
    reader: TraceReader | RecordingInMemory,
    spool: Path,
    event_type: str,
    number: int,
    before: bool,
) -> None:
    """Run, cancel at a point, and check what is stored."""
    writer = CancellingStore(inner, event_type, number, before)
    async with bench(busy_application(), writer, reader, spool) as on:
        run = asyncio.create_task(on.launcher.run("Everything"))
        writer.cancel = run.cancel
        await asyncio.sleep(0)
        [root_plan_id] = on.launcher.active_runs
        await asyncio.wait({run})
    rows = await on.rows(root_plan_id)

    assert writer.has_cancelled
    assert run.cancelled()
    check_all_has_ended(rows)
    [root] = [each for each in rows.plans if each["depth"] == 0]
    assert root["status"] == "cancelled"


@pytest.mark.parametrize(
    "before",
    [True, pytest.param(False, marks=pytest.mark.thorough)],
    ids=["before", "after"],
)
@pytest.mark.parametrize(("event_type", "number"), POINTS)
async def test_run_cancelled_while_an_event_is_recorded_leaves_no_open_record(
    store: RecordingInMemory, tmp_path: Path, event_type: str, number: int, before: bool
) -> None:
    await cancel_at(store, store, tmp_path, event_type, number, before)


@pytest.mark.thorough
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_run_cancelled_while_an_event_is_written_to_postgres_leaves_no_open_record(
    database_url: str, tmp_path: Path, before: bool
) -> None:
    async with open_pool(database_url) as pool:
        writer, reader = postgres_writer(ProjectPool(pool)), PostgresReader(ProjectPool(pool))
        for event_type, number in POINTS:
            await cancel_at(writer, reader, tmp_path, event_type, number, before)
