"""A cancelled run: everything has exactly one ending, wherever the cancellation came."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.conftest import OpenBench
from tests.runtime.runs import ENDED, Bench, application, bench, everything, script
from tracer.context import ToolContext
from tracer.errors import StoreUnavailable
from tracer.events import Event
from tracer.lineage import TreeRows
from tracer.runtime.application import Application
from tracer.runtime.batch_tool import batch_tool
from tracer.runtime.plan import PlanTemplate, StepTemplate
from tracer.runtime.scripted_model import Gate, Script, ScriptedModel, Turn, call
from tracer.runtime.subplan_tool import subplan_tool
from tracer.storage.engine import open_pool
from tracer.storage.memory_store import MemoryStore
from tracer.storage.postgres_reader import PostgresReader
from tracer.storage.postgres_writer import PostgresWriter
from tracer.store import TraceReader, TraceWriter, WriteAnswer
from tracer.tools.definition import tool

PLAN = '{"steps": [{"request": "Do it"}, {"request": "Never"}]}'


@tool
async def add(a: int, b: int) -> int:
    """Adds, with a breath."""
    await asyncio.sleep(0)
    return a + b


@tool
def add_in_thread(a: int, b: int) -> int:
    """Adds in a thread."""
    return a + b


@tool
def fail() -> None:
    """Fails."""
    raise ValueError("no")


def busy_application() -> Application:
    """Return an application that does a bit of everything."""
    review = subplan_tool(
        PlanTemplate(
            name="review",
            description="Reviews.",
            parameters={"week": int},
            steps=(StepTemplate("Review week {week}"), StepTemplate("Conclude week {week}")),
        )
    )
    calls = [
        call("add", {"a": 1, "b": 2}, "x"),
        call("review", {"week": 1}, "x"),
        call("review_each", {"items": [{"week": 2}, {"week": 3}, {"week": 4}]}, "x"),
        call("fail"),
        call("unknown"),
        call("add_in_thread", {"a": 1, "b": 2}),
    ]
    scripts = [
        Script([Turn(PLAN)], agent="planner", times=None),
        script("Do it", calls, "done", times=None),
        script("Review week", [call("add", {"a": 3, "b": 4})], "fine", times=None),
        script("Conclude week", "so be it", times=None),
        script("Never", "reached", times=None),
    ]
    tools = [add, add_in_thread, fail, review, batch_tool(review, max_parallel=2)]
    return application(ScriptedModel(scripts), tools, max_parallel=3)


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


async def test_a_run_cancelled_at_any_turn_of_the_event_loop_leaves_nothing_open(
    open_bench: OpenBench, store: MemoryStore
) -> None:
    on = await open_bench(busy_application())
    endings = set()
    turns = 0
    while True:
        run = asyncio.create_task(on.launcher.run("Everything"))
        await let_loop_turn(turns)
        roots = list(on.launcher._active)
        run.cancel()
        await asyncio.wait({run})
        for root_plan_id in roots:
            if root_plan_id in store._runs:
                rows = await on.rows(root_plan_id)
                check_all_has_ended(rows)
                endings.add(rows.plans[0]["status"])
        if turns > 5 and not roots:
            break
        # Every turn at first, where the lineage is being laid; then every fifth.
        turns += 1 if turns < 60 else 5

    assert endings == {"cancelled", "succeeded"}
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

    async def delete_run(self, root_plan_id: Any) -> None:
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
    inner: TraceWriter, reader: TraceReader, spool: Path, event_type: str, number: int, before: bool
) -> None:
    """Run, cancel at a point, and check what is stored."""
    writer = CancellingStore(inner, event_type, number, before)
    async with bench(busy_application(), writer, reader, spool) as on:
        run = asyncio.create_task(on.launcher.run("Everything"))
        writer.cancel = run.cancel
        await asyncio.sleep(0)
        [root_plan_id] = on.launcher._active
        await asyncio.wait({run})
    rows = await on.rows(root_plan_id)

    assert writer.has_cancelled
    assert run.cancelled()
    check_all_has_ended(rows)
    [root] = [each for each in rows.plans if each["depth"] == 0]
    assert root["status"] == "cancelled"


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(("event_type", "number"), POINTS)
async def test_a_run_cancelled_while_it_is_recorded_leaves_nothing_open(
    store: MemoryStore, tmp_path: Path, event_type: str, number: int, before: bool
) -> None:
    await cancel_at(store, store, tmp_path, event_type, number, before)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_run_cancelled_while_it_is_recorded_in_postgres_leaves_nothing_open(
    database_url: str, tmp_path: Path, before: bool
) -> None:
    async with open_pool(database_url) as pool:
        writer, reader = PostgresWriter(pool), PostgresReader(pool)
        for event_type, number in POINTS:
            await cancel_at(writer, reader, tmp_path, event_type, number, before)


Begun = Callable[[], Awaitable[object]]


async def cancelled_by_wish(on: Bench, store: MemoryStore, begun: Begun) -> TreeRows:
    """Start a run, wish it cancelled once it has begun, and return its rows when it has ended."""
    root_plan_id = await on.launcher.start("Go", agent="worker")
    await begun()
    await store.request_cancel(root_plan_id)
    await asyncio.wait({on.launcher._active[root_plan_id].task})
    return await on.rows(root_plan_id)


def endings(nodes: Sequence[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(each["status"], each["reason"]) for each in nodes]


ASKED = ("cancelled", "cancel_requested")


async def test_a_wish_cancels_the_model_that_is_being_asked(
    open_bench: OpenBench, store: MemoryStore
) -> None:
    gate = Gate()
    on = await open_bench(application(ScriptedModel([script("Go", Turn(gate=gate))])))

    rows = await cancelled_by_wish(on, store, gate.reached.wait)

    assert endings(everything(rows)) == [ASKED] * 3


async def test_a_wish_cancels_what_runs_and_what_queues_at_every_depth(
    open_bench: OpenBench, store: MemoryStore
) -> None:
    begun = asyncio.Event()

    @tool
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    review = subplan_tool(
        PlanTemplate(name="review", description="Reviews.", steps=(StepTemplate("Review"),))
    )
    model = ScriptedModel(
        [script("Go", [call("review"), call("hang")]), script("Review", [call("hang")] * 3)]
    )
    on = await open_bench(application(model, [hang, review], max_parallel=1))

    rows = await cancelled_by_wish(on, store, begun.wait)

    assert len(rows.tool_calls) == 5
    assert set(endings([*rows.plans, *rows.steps, *rows.tool_calls])) == {ASKED}
    assert set(endings(rows.think_acts)) == {("succeeded", None)}
    queued = [each for each in rows.tool_calls if each["startedAt"] is None]
    assert len(queued) == 3


async def test_a_tool_that_swallows_its_cancellation_leaves_no_open_row(
    open_bench: OpenBench, store: MemoryStore
) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        begun.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return "after all"

    model = ScriptedModel([script("Go", [call("stubborn")])])
    on = await open_bench(application(model, [stubborn]))

    rows = await cancelled_by_wish(on, store, begun.wait)
    assert set(endings([*rows.plans, *rows.steps, *rows.tool_calls])) == {ASKED}

    let_go.set()
    await on.launcher.aclose()
    [row] = (await on.rows(rows.plans[0]["planId"])).tool_calls
    assert (row["status"], row["lateStatus"], row["lateResult"]) == (
        "cancelled",
        "succeeded",
        "after all",
    )


async def test_a_synchronous_tool_that_cannot_be_stopped_leaves_no_open_row(
    open_bench: OpenBench, store: MemoryStore
) -> None:
    begun, let_go = threading.Event(), threading.Event()

    @tool
    def blocking() -> None:
        begun.set()
        assert let_go.wait(10)

    model = ScriptedModel([script("Go", [call("blocking")])])
    on = await open_bench(application(model, [blocking]))

    rows = await cancelled_by_wish(on, store, lambda: asyncio.to_thread(begun.wait))
    let_go.set()

    assert set(endings([*rows.plans, *rows.steps, *rows.tool_calls])) == {ASKED}


async def test_a_tool_that_cancels_itself_ends_alone(open_bench: OpenBench) -> None:
    @tool
    async def gives_up() -> None:
        raise asyncio.CancelledError

    calls = [call("gives_up"), call("add", {"a": 1, "b": 1})]
    model = ScriptedModel([script("Go", calls, "done")])
    on = await open_bench(application(model, [gives_up, add]))

    outcome = await on.launcher.run("Go", agent="worker")

    rows = await on.rows(outcome.root_plan_id)
    assert outcome.status == "succeeded"
    assert endings(rows.tool_calls) == [("cancelled", None), ("succeeded", None)]


async def test_closing_the_launcher_cancels_its_runs_and_refuses_new_ones(
    open_bench: OpenBench, store: MemoryStore
) -> None:
    gate = Gate()
    on = await open_bench(application(ScriptedModel([script("Go", Turn(gate=gate))])))
    root_plan_id = await on.launcher.start("Go", agent="worker")
    await gate.reached.wait()

    await on.launcher.aclose()

    rows = await on.rows(root_plan_id)
    assert endings(everything(rows)) == [("cancelled", None)] * 3
    with pytest.raises(Exception, match="this process is stopping"):
        await on.launcher.start("Go", agent="worker")


async def test_a_deleted_run_is_cancelled_and_the_process_goes_on(
    open_bench: OpenBench, store: MemoryStore
) -> None:
    gate = Gate()
    model = ScriptedModel([script("Go", Turn(gate=gate)), script("Other", "fine")])
    on = await open_bench(application(model))
    root_plan_id = await on.launcher.start("Go", agent="worker")
    await gate.reached.wait()
    run = on.launcher._active[root_plan_id].task

    await store.delete_run(root_plan_id)
    await asyncio.wait({run})

    assert run.cancelled()
    assert (await on.launcher.run("Other", agent="worker")).status == "succeeded"


class AwayReader:
    """A store that cannot be asked for wishes at first."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.asked = asyncio.Event()

    async def find_cancel_requests(self, root_plan_ids: Any) -> set[Any]:
        if not self.asked.is_set():
            self.asked.set()
            raise StoreUnavailable
        return await self.store.find_cancel_requests(root_plan_ids)


async def test_a_store_that_is_away_does_not_end_the_watch_for_wishes(
    store: MemoryStore, tmp_path: Path
) -> None:
    gate = Gate()
    reader: Any = AwayReader(store)
    model = ScriptedModel([script("Go", Turn(gate=gate))])
    async with bench(application(model), store, reader, tmp_path) as on:
        on.reader = store
        rows = await cancelled_by_wish(on, store, reader.asked.wait)

    assert endings(rows.plans) == [ASKED]


async def test_the_context_of_a_call_is_not_left_behind_by_a_cancelled_run(
    open_bench: OpenBench, store: MemoryStore
) -> None:
    seen: list[ToolContext] = []

    @tool
    async def hang(context: ToolContext) -> None:
        seen.append(context)
        await asyncio.Event().wait()

    model = ScriptedModel([script("Go", [call("hang")])])
    on = await open_bench(application(model, [hang]))
    run = asyncio.create_task(on.launcher.run("Go", agent="worker"))
    while not seen:  # noqa: ASYNC110 - the run is what moves on
        await asyncio.sleep(0)
    run.cancel()
    await asyncio.wait({run})

    assert run.cancelled()
    assert on.launcher._active == {}
