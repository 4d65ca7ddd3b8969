"""Cancelling runs whose tools have hooks, hidden parameters, session state, slots and retries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.reviews import review_template
from tests.runtime.runs import Bench, bench, everything, script
from tests.runtime.test_cancelling import CancellingStore, check_all_has_ended, let_loop_turn
from tests.tools.service_bench import NotingWriter
from tests.tools.short_times import PATIENCE
from tracer.context import identity
from tracer.runtime import Agent, Application, subplan_tool
from tracer.runtime.launcher import RunOutcome
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.storage.memory import RecordingInMemory, recording_in_memory
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import TraceReader, TraceWriter
from tracer.tools import RunContext, SessionState, ToolRegistry, tool
from tracer.tools.call import batch_tool
from tracer.tools.definition import EXCLUSIVE
from tracer.tools.parameters import UserId

Next = Callable[[dict[str, Any]], Any]


class Doors:
    """Counts who is inside of synchronous hooks."""

    def __init__(self) -> None:
        self.inside = 0
        self._changes = threading.Condition()

    def hook(self, next: Next, arguments: dict[str, Any], run_context: RunContext) -> Any:
        with self._changes:
            self.inside += 1
        try:
            run_context.session_state.append("log", "before")
            return next(arguments)
        finally:
            with self._changes:
                self.inside -= 1
                self._changes.notify_all()

    def all_are_out(self) -> bool:
        with self._changes:
            return self._changes.wait_for(lambda: not self.inside, PATIENCE)


async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
    await asyncio.sleep(0)
    try:
        return await next({**arguments})
    finally:
        await asyncio.sleep(0)


async def resolve(token_id: str) -> str:
    await asyncio.sleep(0)
    return f"user of {token_id}"


def hooked_application(doors: Doors) -> Application:
    """Return an application whose tools use all that the pipeline has."""
    tries: dict[int, int] = {}

    @tool(max_attempts=3)
    async def flaky(user_id: UserId, state: SessionState, number: int) -> str:
        """Works at its second attempt."""
        state.increment("tries")
        await asyncio.sleep(0)
        tries[number] = tries.get(number, 0) + 1
        if tries[number] % 2:
            raise ConnectionError("away")
        return "there"

    @tool(max_parallel=1, tool_hooks=[hook_async, doors.hook])
    def in_thread(user_id: UserId, state: SessionState) -> str:
        """Counts in a thread."""
        state.increment("visits")
        return "counted"

    @tool(concurrency=EXCLUSIVE)
    async def alone() -> str:
        """Waits a little."""
        await asyncio.sleep(0)
        return "alone"

    @tool(tool_hooks=[lambda arguments: "instead"])
    async def never() -> None:
        """Never runs."""

    review = subplan_tool(review_template())
    calls = [
        call("flaky", {"number": 1, "userId": "eve"}),
        call("in_thread"),
        call("in_thread"),
        call("alone"),
        call("review", {"week": 1}),
        call("in_thread_each", {"items": [{}, {}]}),
        call("never"),
    ]
    model = ScriptedModel(
        [
            script("Go", calls, "done", times=None),
            script("Review week 1.", [call("flaky", {"number": 2})], "fine", times=None),
        ]
    )
    tools = (flaky, in_thread, alone, never, review, batch_tool(in_thread))
    worker = Agent(
        "worker",
        "Work for {user_id}.",
        tools=tools,
        tool_hooks=[doors.hook, hook_async],
        max_parallel=4,
    )
    return Application(
        name="tests",
        agents=(worker,),
        model=model,
        token_resolver=resolve,
        max_parallel_calls=3,
        registry=ToolRegistry(tools),
    )


async def run_as_ann(on: Bench) -> RunOutcome:
    with identity(token_id="ann"):
        return await on.launcher.run("Go", agent="worker")


def check_endings(noting: NotingWriter) -> None:
    """Check that every record that ended did so once."""
    ended = [
        (each.type, getattr(each, "tool_call_id", None) or getattr(each, "step_id", each.type))
        for each in noting.events
        if each.type in ("tool_call_finished", "step_finished")
    ]
    assert len(ended) == len(set(ended))


@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.thorough)])
async def test_run_cancelled_at_any_turn_of_the_event_loop_leaves_no_waiting_thread(
    tmp_path: Path, step: int
) -> None:
    store = recording_in_memory()
    noting = NotingWriter(store)
    doors = Doors()
    turns = 0
    async with bench(hooked_application(doors), noting, store, tmp_path) as on:
        while True:
            run = asyncio.create_task(run_as_ann(on))
            await let_loop_turn(turns)
            roots = on.launcher.active_runs
            run.cancel()
            await asyncio.wait({run})
            for root_plan_id in roots:
                if root_plan_id in {event.root_plan_id for event in store.events}:
                    rows = await on.rows(root_plan_id)
                    check_all_has_ended(rows)
            if not run.cancelled():
                break
            turns += step * (1 + turns // 20)
        assert await asyncio.to_thread(doors.all_are_out)
        assert on.launcher.tools.resources.background_tasks == set()

    assert run.result().status == "succeeded"
    assert turns > 100
    check_endings(noting)


POINTS = [
    *(("tool_call_started", number) for number in range(8)),
    *(("tool_call_finished", number) for number in range(9)),
]
QUICK = [("tool_call_started", 0), ("tool_call_started", 5), ("tool_call_finished", 4)]


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
    noting = NotingWriter(writer)
    doors = Doors()
    async with bench(hooked_application(doors), noting, reader, spool) as on:
        run = asyncio.create_task(run_as_ann(on))
        writer.cancel = run.cancel
        await asyncio.sleep(0)
        [root_plan_id] = on.launcher.active_runs
        await asyncio.wait({run})
        rows = await on.rows(root_plan_id)

        assert writer.has_cancelled
        assert run.cancelled()
        check_all_has_ended(rows)
        assert "unknown" not in {each["status"] for each in everything(rows)}
        assert await asyncio.to_thread(doors.all_are_out)
    check_endings(noting)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("event_type", "number"),
    [
        pytest.param(*point, marks=[] if point in QUICK else pytest.mark.thorough)
        for point in POINTS
    ],
)
async def test_run_cancelled_while_a_call_is_recorded_leaves_no_open_record(
    tmp_path: Path, event_type: str, number: int, before: bool
) -> None:
    store = recording_in_memory()
    await cancel_at(store, store, tmp_path, event_type, number, before)


@pytest.mark.parametrize(
    "before",
    [True, pytest.param(False, marks=pytest.mark.thorough)],
    ids=["before", "after"],
)
async def test_run_cancelled_while_a_call_is_written_to_postgres_leaves_no_open_record(
    database_url: str, tmp_path: Path, before: bool
) -> None:
    async with open_pool(database_url) as pool:
        for event_type, number in POINTS[::4]:
            writer, reader = postgres_writer(ProjectPool(pool)), PostgresReader(ProjectPool(pool))
            await cancel_at(writer, reader, tmp_path, event_type, number, before)


async def test_synchronous_hook_of_a_cancelled_run_waits_for_the_sub_plan(
    tmp_path: Path,
) -> None:
    begun = asyncio.Event()
    after: list[str] = []

    @tool
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    def hook(next: Next, arguments: dict[str, Any], name: str) -> Any:
        try:
            return next(arguments)
        finally:
            after.append(name)

    review = subplan_tool(review_template())
    scripts = [
        script("Go", [call("review", {"week": 1})]),
        script("Review week 1.", [call("hang")]),
    ]
    worker = Agent("worker", "Do your work.", tools=(review, hang), tool_hooks=[hook])
    of_agents = Application(name="tests", agents=(worker,), model=ScriptedModel(scripts))
    store = recording_in_memory()
    async with bench(of_agents, store, store, tmp_path) as on, asyncio.timeout(PATIENCE):
        run = asyncio.create_task(on.launcher.run("Go", agent="worker"))
        await begun.wait()
        [root_plan_id] = on.launcher.active_runs
        run.cancel()
        await asyncio.wait({run})
        rows = await on.rows(root_plan_id)

    check_all_has_ended(rows)
    assert {each["status"] for each in rows.plans} == {"cancelled"}
    assert after == ["hang", "review"]
