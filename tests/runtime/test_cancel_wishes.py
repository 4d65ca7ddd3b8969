"""Runs are cancelled by a stored request, by closing the launcher, and by tools."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.runtime.busy import add
from tests.runtime.conftest import OpenBench
from tests.runtime.runs import Bench, application, bench, everything, script
from tests.trees import TreeRows
from tracer.context import ToolContext
from tracer.errors import StoreUnavailable
from tracer.runtime import PlanTemplate, StepTemplate, subplan_tool
from tracer.runtime.scripted_model import Gate, ScriptedModel, Turn, call
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import TraceReader
from tracer.tools import tool

Begun = Callable[[], Awaitable[object]]


async def cancelled_by_wish(on: Bench, begun: Begun) -> TreeRows:
    """Start a run, request its cancellation once it has begun, and return its rows at the end."""
    run = asyncio.create_task(on.launcher.run("Go", agent="worker"))
    await begun()
    [root_plan_id] = on.launcher.active_runs
    await on.writer.request_cancel(root_plan_id)
    await run
    return await on.rows(root_plan_id)


def endings(nodes: Sequence[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(each["status"], each["reason"]) for each in nodes]


ASKED = ("cancelled", "cancel_requested")


async def test_cancel_request_cancels_the_model_call_in_progress(
    open_postgres_bench: OpenBench,
) -> None:
    gate = Gate()
    on = await open_postgres_bench(application(ScriptedModel([script("Go", Turn(gate=gate))])))

    rows = await cancelled_by_wish(on, gate.reached.wait)

    assert endings(everything(rows)) == [ASKED] * 3


async def test_cancel_request_cancels_running_and_waiting_calls_at_every_depth(
    open_postgres_bench: OpenBench,
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
    on = await open_postgres_bench(application(model, [hang, review], max_parallel=1))

    rows = await cancelled_by_wish(on, begun.wait)

    assert len(rows.tool_calls) == 5
    assert set(endings([*rows.plans, *rows.steps, *rows.tool_calls])) == {ASKED}
    assert set(endings(rows.think_acts)) == {("succeeded", None)}
    queued = [each for each in rows.tool_calls if each["startedAt"] is None]
    assert len(queued) == 3


async def test_tool_that_swallows_its_cancellation_leaves_no_open_record(
    open_postgres_bench: OpenBench,
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
    on = await open_postgres_bench(application(model, [stubborn]))

    rows = await cancelled_by_wish(on, begun.wait)
    assert set(endings([*rows.plans, *rows.steps, *rows.tool_calls])) == {ASKED}

    let_go.set()
    await on.launcher.aclose()
    [row] = (await on.rows(UUID(rows.plans[0]["planId"]))).tool_calls
    assert (row["status"], row["stillRunning"], row["result"]) == ("cancelled", True, None)


async def test_synchronous_tool_that_cannot_be_stopped_leaves_no_open_record(
    open_postgres_bench: OpenBench,
) -> None:
    begun, let_go = threading.Event(), threading.Event()

    @tool
    def blocking() -> None:
        begun.set()
        assert let_go.wait(60)

    model = ScriptedModel([script("Go", [call("blocking")])])
    on = await open_postgres_bench(application(model, [blocking]))

    rows = await cancelled_by_wish(on, lambda: asyncio.to_thread(begun.wait))
    let_go.set()

    assert set(endings([*rows.plans, *rows.steps, *rows.tool_calls])) == {ASKED}


async def test_tool_that_raises_cancelled_error_cancels_only_its_own_call(
    open_bench: OpenBench,
) -> None:
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


async def test_closed_launcher_cancels_its_runs_and_refuses_new_ones(open_bench: OpenBench) -> None:
    gate = Gate()
    on = await open_bench(application(ScriptedModel([script("Go", Turn(gate=gate))])))
    root_plan_id = (await on.launcher.start("Go", agent="worker")).root_plan_id
    await gate.reached.wait()

    await on.launcher.aclose()

    rows = await on.rows(root_plan_id)
    assert endings(everything(rows)) == [("cancelled", None)] * 3
    with pytest.raises(Exception, match="this process is shutting down"):
        await on.launcher.start("Go", agent="worker")


async def test_deleting_a_run_cancels_it_and_the_process_continues(
    open_postgres_bench: OpenBench,
) -> None:
    gate = Gate()
    model = ScriptedModel([script("Go", Turn(gate=gate)), script("Other", "fine")])
    on = await open_postgres_bench(application(model))
    run = asyncio.create_task(on.launcher.run("Go", agent="worker"))
    await gate.reached.wait()
    [root_plan_id] = on.launcher.active_runs

    await on.writer.delete_run(root_plan_id)

    assert (await run).status == "cancelled"
    assert (await on.launcher.run("Other", agent="worker")).status == "succeeded"


class AwayReader:
    """A store that cannot be asked for wishes at first."""

    def __init__(self, store: TraceReader) -> None:
        self.store = store
        self.asked = asyncio.Event()

    async def find_cancel_requests(self, root_plan_ids: Any) -> set[Any]:
        if not self.asked.is_set():
            self.asked.set()
            raise StoreUnavailable
        return await self.store.find_cancel_requests(root_plan_ids)


async def test_outage_does_not_stop_polling_for_cancel_requests(
    database_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    model = ScriptedModel([script("Go", Turn(gate=gate))])

    async with open_pool(database_url) as pool:
        writer, store = postgres_writer(ProjectPool(pool)), PostgresReader(ProjectPool(pool))
        reader: Any = AwayReader(store)

        async def begun() -> None:
            await gate.reached.wait()
            await reader.asked.wait()

        async with bench(application(model), writer, reader, tmp_path) as on:
            on.reader = store
            rows = await cancelled_by_wish(on, begun)

    assert endings(rows.plans) == [ASKED]


async def test_cancelled_run_restores_the_call_context(open_bench: OpenBench) -> None:
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
    assert on.launcher.active_runs == []


async def test_waiter_gets_the_outcome_of_a_cancelled_run(open_postgres_bench: OpenBench) -> None:
    gate = Gate()
    on = await open_postgres_bench(application(ScriptedModel([script("Go", Turn(gate=gate))])))
    run = asyncio.create_task(on.launcher.run("Go", agent="worker"))
    await gate.reached.wait()
    [root_plan_id] = on.launcher.active_runs

    await on.writer.request_cancel(root_plan_id)
    outcome = await run

    assert (outcome.root_plan_id, outcome.status, outcome.reason) == (root_plan_id, *ASKED)
