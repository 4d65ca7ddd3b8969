"""Deadlines, late ends and further attempts."""

import asyncio
from typing import Any

import pytest

from tests.runtime.conftest import OpenBench
from tests.runtime.runs import Bench, application, script
from tests.tools.short_times import long_enough
from tracer.context import Identity, ToolContext
from tracer.runtime import Agent, Application
from tracer.runtime.launcher import RunOutcome
from tracer.runtime.scripted_model import Gate, ScriptedModel, Turn, call
from tracer.tools import tool


async def test_run_whose_model_call_times_out_ends_as_timed_out(
    open_bench: OpenBench,
) -> None:
    gate = Gate()
    model = ScriptedModel([script("Ask", Turn(gate=gate), times=None)])

    async def ask(seconds: float) -> tuple[Bench, RunOutcome]:
        on = await open_bench(application(model, run_timeout=seconds))
        return on, await on.launcher.run("Ask", agent="worker")

    on, outcome = await long_enough(ask, gate.reached.is_set)

    rows = await on.rows(outcome.root_plan_id)
    for each in (rows.think_acts[0], rows.steps[0], rows.plans[0]):
        assert (each["status"], each["reason"]) == ("failed", "timed_out")


async def test_run_that_times_out_within_a_tool_ends_as_timed_out(
    open_bench: OpenBench,
) -> None:
    begun = asyncio.Event()

    @tool
    async def slow() -> None:
        begun.set()
        await asyncio.Event().wait()

    model = ScriptedModel([script("Wait", [call("slow")], times=None)])
    on = await open_bench(application(model, [slow]))

    outcome = await long_enough(
        lambda seconds: on.launcher.run("Wait", agent="worker", timeout=seconds), begun.is_set
    )

    rows = await on.rows(outcome.root_plan_id)
    for each in (rows.tool_calls[0], rows.steps[0], rows.plans[0]):
        assert (each["status"], each["reason"]) == ("failed", "timed_out")
    assert rows.think_acts[0]["status"] == "succeeded"


async def test_tool_timeout_is_reported_to_the_model_and_recorded(
    open_bench: OpenBench,
) -> None:
    let_go = asyncio.Event()

    @tool(timeout=0.01)
    async def stubborn() -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return "after all"

    @tool
    async def release() -> None:
        let_go.set()

    model = ScriptedModel([script("Go", [call("stubborn")], [call("release")], "done")])
    on = await open_bench(application(model, [stubborn, release]))

    outcome = await on.launcher.run("Go", agent="worker")
    await on.launcher.aclose()

    assert outcome.status == "succeeded"
    row = (await on.rows(outcome.root_plan_id)).tool_calls[0]
    assert (row["status"], row["reason"], row["result"]) == ("failed", "timed_out", None)
    assert row["stillRunning"] is True


async def test_retry_keeps_the_id_of_the_call_and_increments_its_attempts(
    open_bench: OpenBench,
) -> None:
    seen: list[Any] = []

    @tool(max_attempts=2)
    async def flaky(context: ToolContext) -> str:
        rows = await on.rows(context.root_plan_id)
        seen.append((context.tool_call_id, rows.tool_calls[0]["attempt"]))
        if len(seen) == 1:
            raise ConnectionError("away")
        return "there"

    model = ScriptedModel([script("Try", [call("flaky", {}, "c")], "done")])
    on = await open_bench(application(model, [flaky]))

    outcome = await on.launcher.run("Try", agent="worker")

    [row] = (await on.rows(outcome.root_plan_id)).tool_calls
    assert len({each[0] for each in seen}) == 1
    assert [each[1] for each in seen] == [1, 2]
    assert (row["status"], row["attempt"], row["result"]) == ("succeeded", 2, "there")
    assert row["providerCallId"] == "c"


@pytest.mark.parametrize("instructions", ["You serve {user_id}.", "You know {note}."])
async def test_run_timeout_bounds_the_token_resolver(
    open_bench: OpenBench, instructions: str
) -> None:
    steps: list[dict[str, Any]] = []

    async def hangs(token_id: str) -> str:
        await asyncio.Event().wait()
        return token_id

    async def ask(seconds: float) -> dict[str, Any]:
        on = await open_bench(
            Application(
                name="tests",
                agents=(Agent("worker", instructions),),
                model=ScriptedModel([]),
                token_resolver=hangs,
                run_timeout=seconds,
                history_characters=0,
            )
        )
        outcome = await on.launcher.run(
            "Ask", agent="worker", session_id="s", identity=Identity("token")
        )
        rows = await on.rows(outcome.root_plan_id)
        steps[:] = rows.steps
        plan: dict[str, Any] = rows.plans[0]
        return plan

    # That the resolver was called does not show it: the run asks for its user, too.
    plan = await long_enough(ask, lambda: steps[0]["reason"] != "not_reached")

    for each in (steps[0], plan):
        assert (each["status"], each["reason"]) == ("failed", "timed_out")
