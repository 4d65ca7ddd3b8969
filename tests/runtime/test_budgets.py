"""Budgets of runs are never exceeded; a call beyond the budget fails and the agent continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.reviews import review_template
from tests.runtime.runs import Bench, application, bench, everything, script
from tests.tools.service_bench import service
from tests.tools.short_times import long_enough
from tests.trees import Node, TreeRows
from tracer.runtime import StepTemplate, subplan_tool
from tracer.runtime.chat_model import Generation
from tracer.runtime.launcher import RunOutcome
from tracer.runtime.scripted_model import ScriptedModel, Turn, call
from tracer.storage.memory import recording_in_memory
from tracer.tools import BudgetLimits, Tool, tool
from tracer.tools.call import batch_tool

OpenRun = Callable[..., Awaitable[Bench]]


@pytest.fixture
async def open_run(tmp_path: Path) -> AsyncIterator[OpenRun]:
    """Opens a bench for a model and tools."""
    async with AsyncExitStack() as stack:

        async def open_one(model: Any, tools: Sequence[Tool], **more: Any) -> Bench:
            store = recording_in_memory()
            of_agents = application(model, tools, **more)
            return await stack.enter_async_context(bench(of_agents, store, store, tmp_path))

        yield open_one


def as_chosen(rows: TreeRows) -> list[Node]:
    """Return a run's tool calls in the order in which they were chosen."""
    return sorted(rows.tool_calls, key=lambda each: str(each["toolCallId"]))


# --- Tool calls --------------------------------------------------------------------------------


@tool
async def work() -> str:
    """Works, while others do."""
    await asyncio.sleep(0)
    return "worked"


@tool
async def fails() -> None:
    raise ValueError("no")


async def test_call_beyond_the_budget_fails_and_the_agent_continues(
    open_run: OpenRun,
) -> None:
    model = ScriptedModel([script("Go", [call("work")] * 3, [call("work")], "what is known")])
    on = await open_run(model, [work], budget=BudgetLimits(tool_calls=2))

    outcome = await on.launcher.run("Go", agent="worker")

    rows = await on.rows(outcome.root_plan_id)
    assert (outcome.status, outcome.summary) == ("succeeded", "what is known")
    assert [(each["status"], each["reason"]) for each in as_chosen(rows)] == [
        ("succeeded", None),
        ("succeeded", None),
        ("failed", "budget_exhausted"),
        ("failed", "budget_exhausted"),
    ]
    [*_, last] = (await on.tree(outcome.root_plan_id))["agentExecutions"][0]["thinkActs"]
    results = [each["content"] for each in await on.messages(last) if each["role"] == "tool"]
    assert ["budget_exhausted" in each for each in results] == [False, False, True, True]


async def test_each_run_starts_with_the_full_budget(open_run: OpenRun) -> None:
    model = ScriptedModel([script("Go", [call("work")] * 2, "done", times=3)])
    on = await open_run(model, [work], budget=BudgetLimits(tool_calls=2))

    outcomes = await asyncio.gather(*(on.launcher.run("Go", agent="worker") for _ in range(3)))

    rows = [each for run in outcomes for each in (await on.rows(run.root_plan_id)).tool_calls]
    assert [each["status"] for each in rows] == ["succeeded"] * 6


LIMIT = 9


@pytest.mark.parametrize("how", ["side by side", "as a batch"])
async def test_parallel_sub_plans_stay_within_the_call_budget_of_their_parent(
    open_run: OpenRun, how: str
) -> None:
    began: list[int] = []

    @tool
    async def count(week: int) -> str:
        began.append(week)
        await asyncio.sleep(0)
        return "counted"

    review = subplan_tool(review_template())
    weeks = range(1, 9)
    one_by_one = [call("review", {"week": each}) for each in weeks]
    as_batch = [call("review_each", {"items": [{"week": each} for each in weeks]})]
    chosen = one_by_one if how == "side by side" else as_batch
    scripts = [script("Go", chosen, "what is known", times=None)]
    scripts += [
        script(f"Review week {n}.", *[[call("count", {"week": n})] * 2] * 2, "fine", times=None)
        for n in weeks
    ]
    calls_of_the_root = len(chosen) + (8 if how == "as a batch" else 0)
    limits = BudgetLimits(tool_calls=LIMIT + calls_of_the_root)
    tools = [count, review, batch_tool(review)]
    on = await open_run(ScriptedModel(scripts), tools, budget=limits)

    for _ in range(10):
        began.clear()
        outcome = await on.launcher.run("Go", agent="worker")

        rows = await on.rows(outcome.root_plan_id)
        counted = [each for each in rows.tool_calls if each["name"] == "count"]
        refused = [each for each in counted if each["reason"] == "budget_exhausted"]
        assert outcome.status == "succeeded"
        assert len(began) == LIMIT
        assert (len(counted), len(refused)) == (8 * 4, 8 * 4 - LIMIT)
        assert {each["status"] for each in rows.plans} == {"succeeded"}
        reviews = {each["toolCallId"]: each["arguments"] for each in rows.tool_calls}
        for plan in rows.plans:
            if plan["depth"]:
                # Under its own call, whatever ran beside it.
                [step] = [each for each in rows.steps if each["planId"] == plan["planId"]]
                week = step["request"].removeprefix("Review week ").removesuffix(".")
                assert reviews[plan["toolCallId"]] == f'{{"week":{week}}}'


async def test_sub_plan_budget_is_limited_by_its_parent(
    open_run: OpenRun,
) -> None:
    scripts = [
        script("Go", [call("review", {"week": 1})], [call("review", {"week": 2})], "done"),
        script("Review week 1.", [call("work")] * 3, "fine"),
        script("Review week 2.", [call("work")] * 3, "fine"),
    ]
    review = subplan_tool(review_template(budget=BudgetLimits(tool_calls=2)))
    on = await open_run(ScriptedModel(scripts), [work, review], budget=BudgetLimits(tool_calls=5))

    outcome = await on.launcher.run("Go", agent="worker")

    rows = await on.rows(outcome.root_plan_id)
    works = [each for each in as_chosen(rows) if each["name"] == "work"]
    assert [each["status"] for each in works] == ["succeeded"] * 2 + ["failed"] + [
        "succeeded",
        "failed",
        "failed",
    ]
    assert [
        "budget of 2 tool calls" in (each["error"] or {}).get("message", "") for each in works
    ] == [
        False,
        False,
        True,
        False,
        False,
        False,
    ]
    assert "budget of 5 tool calls" in works[-1]["error"]["message"]


async def test_batch_items_retries_and_nested_calls_count_against_the_call_budget(
    tmp_path: Path,
) -> None:
    tries: list[int] = []

    @tool(max_attempts=3)
    async def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        return "there"

    @tool
    async def outer() -> Any:
        return [(await on.tools.call("work")).reason for _ in range(2)]

    limits = BudgetLimits(tool_calls=6)
    async with (
        service(tmp_path, flaky, work, outer, batch_tool(work)) as on,
        on.tools.run("Few", limits=limits),
    ):
        outcomes = [
            await on.tools.call("flaky"),
            await on.tools.call("work_each", {"items": [{}, {}]}),
            await on.tools.call("outer"),
            await on.tools.call("work"),
        ]

    assert len(tries) == 3
    assert [each.reason for each in outcomes] == [None, None, None, "budget_exhausted"]
    assert outcomes[2].result == '[null,"budget_exhausted"]'


async def test_failed_and_rejected_calls_count_against_the_budget(
    open_run: OpenRun,
) -> None:
    model = ScriptedModel([script("Go", [call("fails"), call("nowhere"), call("work")], "done")])
    on = await open_run(model, [work, fails], budget=BudgetLimits(tool_calls=2))

    outcome = await on.launcher.run("Go", agent="worker")

    rows = (await on.rows(outcome.root_plan_id)).tool_calls
    reasons = [each["reason"] for each in rows]
    assert reasons == ["tool_error", "unknown_tool", None]


# --- Tokens and time ---------------------------------------------------------------------------


class MeteredModel(ScriptedModel):
    """Notes how many are asked at once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.now = self.most = self.asked = 0

    async def complete(self, messages: Any, tools: Any) -> Generation:
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(20):
            await asyncio.sleep(0)
        self.now -= 1
        return await super().complete(messages, tools)


async def test_model_is_not_called_beyond_the_token_budget(
    open_run: OpenRun,
) -> None:
    turn = Turn(calls=[call("work")], input_tokens=300, output_tokens=700)
    model = MeteredModel([script("Go", turn, "never")])
    on = await open_run(model, [work], budget=BudgetLimits(tokens=1000))

    outcome = await on.launcher.run("Go", agent="worker")

    rows = await on.rows(outcome.root_plan_id)
    assert model.asked == 1
    assert (outcome.status, outcome.reason) == ("failed", "step_failed")
    assert "budget of 1000 tokens is used up" in (outcome.error.message if outcome.error else "")
    assert [each["reason"] for each in rows.think_acts] == [None, "budget_exhausted"]
    assert rows.steps[0]["reason"] == "budget_exhausted"
    assert not {each["status"] for each in everything(rows)} & {"running", "pending", "unknown"}


async def test_sub_plans_reserve_estimated_tokens_before_they_call_the_model(
    open_run: OpenRun,
) -> None:
    long = "x" * 4000  # a thousand tokens, as estimated
    review = subplan_tool(review_template(steps=(StepTemplate("Review week {week}. " + long),)))
    weeks = range(1, 9)
    scripts = [script("Go", [call("review", {"week": each}) for each in weeks], "done")]
    scripts += [
        script(f"Review week {n}.", Turn("fine", input_tokens=1200, output_tokens=0), times=None)
        for n in weeks
    ]
    model = MeteredModel(scripts)
    on = await open_run(model, [review], budget=BudgetLimits(tokens=4000))

    outcome = await on.launcher.run("Go", agent="worker")

    rows = (await on.rows(outcome.root_plan_id)).tool_calls
    assert outcome.status == "failed"  # nor is there enough left to ask for an answer
    assert model.most <= 3
    assert sorted(str(each["reason"]) for each in rows) == ["None"] * 3 + ["subplan_failed"] * 5
    assert all("tokens is used up" in each["error"]["message"] for each in rows if each["error"])


async def test_parallel_sub_plans_stay_within_the_token_budget_of_their_parent(
    open_run: OpenRun,
) -> None:
    review = subplan_tool(review_template())
    weeks = range(1, 9)
    scripts = [script("Go", [call("review", {"week": each}) for each in weeks], "done")]
    scripts += [
        script(f"Review week {n}.", Turn("fine", input_tokens=100, output_tokens=1100), times=None)
        for n in weeks
    ]
    on = await open_run(MeteredModel(scripts), [review], budget=BudgetLimits(tokens=4000))

    outcome = await on.launcher.run("Go", agent="worker")

    rows = await on.rows(outcome.root_plan_id)
    taken = sum(
        (each["inputTokens"] or 0) + (each["outputTokens"] or 0) for each in rows.think_acts
    )
    assert 2400 <= taken <= 4000
    reasons = {each["reason"] for each in rows.think_acts}
    assert reasons == {None, "budget_exhausted"}


async def test_sub_plan_without_remaining_tokens_fails_only_the_call_that_opened_it(
    open_run: OpenRun,
) -> None:
    review = subplan_tool(review_template(budget=BudgetLimits(tokens=0)))
    model = ScriptedModel([script("Go", [call("review", {"week": 1})], "without it")])
    on = await open_run(model, [review])

    outcome = await on.launcher.run("Go", agent="worker")

    [row] = (await on.rows(outcome.root_plan_id)).tool_calls
    assert (outcome.status, outcome.summary) == ("succeeded", "without it")
    assert (row["status"], row["reason"]) == ("failed", "subplan_failed")


async def test_run_and_sub_plan_each_end_at_their_own_time_limit(open_run: OpenRun) -> None:
    begun = asyncio.Event()

    @tool
    async def hang() -> None:
        await asyncio.Event().wait()

    @tool
    async def hang_after_review() -> None:
        begun.set()
        await asyncio.Event().wait()

    review = subplan_tool(review_template(budget=BudgetLimits(seconds=0.05)))
    scripts = [
        script("Go", [call("review", {"week": 1})], [call("hang_after_review")]),
        script("Review week 1.", [call("hang")]),
    ]

    async def go(seconds: float) -> tuple[Bench, RunOutcome]:
        tools = [hang, hang_after_review, review]
        limits = BudgetLimits(seconds=seconds)
        on = await open_run(ScriptedModel(scripts), tools, budget=limits)
        return on, await on.launcher.run("Go", agent="worker")

    on, outcome = await long_enough(go, begun.is_set)

    rows = await on.rows(outcome.root_plan_id)
    assert (outcome.status, outcome.reason) == ("failed", "timed_out")
    reviewed = next(each for each in rows.tool_calls if each["name"] == "review")
    assert reviewed["reason"] == "timed_out"
    assert {each["status"] for each in rows.plans} == {"failed"}


# --- Depth -------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_depth", [1, 2, 4])
async def test_sub_plan_beyond_the_depth_limit_of_the_budget_is_refused(
    open_run: OpenRun, max_depth: int
) -> None:
    review = subplan_tool(review_template())
    scripts = [script("Go", [call("review", {"week": 1})], "done")]
    for week in range(1, max_depth + 1):
        deeper = [call("review", {"week": week + 1})]
        scripts.append(script(f"Review week {week}.", deeper, f"{week} is fine"))
    on = await open_run(ScriptedModel(scripts), [review], max_depth=max_depth)

    outcome = await on.launcher.run("Go", agent="worker")

    rows = await on.rows(outcome.root_plan_id)
    assert outcome.status == "succeeded"
    plans = sorted(rows.plans, key=lambda each: each["depth"])
    assert [each["depth"] for each in plans] == list(range(max_depth + 1))
    reasons = {each["arguments"]: each["reason"] for each in rows.tool_calls}
    assert reasons.pop(f'{{"week":{max_depth + 1}}}') == "depth_limit"
    assert set(reasons.values()) == {None}
    plan_of = {each["stepId"]: each["planId"] for each in rows.steps}
    opened_by = {each["toolCallId"]: plan_of[each["stepId"]] for each in rows.tool_calls}
    for above, below in pairwise(plans):
        assert below["parentPlanId"] == above["planId"] == opened_by[below["toolCallId"]]
