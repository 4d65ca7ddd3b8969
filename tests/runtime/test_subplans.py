"""Sub-plans: each is below its opening tool call and inherits from it."""

import asyncio
from typing import Any

import pytest

from tests.runtime.conftest import OpenBench
from tests.runtime.reviews import review_template
from tests.runtime.runs import Bench, application, outline, script
from tests.tools.contexts import Caller, some_context
from tests.tools.short_times import long_enough
from tracer.context import Identity, ToolContext
from tracer.runtime import PlanTemplate, StepTemplate, subplan_tool
from tracer.runtime.launcher import RunOutcome
from tracer.runtime.scripted_model import ScriptedModel, Turn, call
from tracer.tools import Tool, tool
from tracer.tools.call import batch_tool


async def test_each_sub_plan_of_a_batch_is_linked_to_the_call_of_its_item(
    open_bench: OpenBench,
) -> None:
    calls = [call("review", {"week": week}, "same") for week in (1, 2, 3)]
    model = ScriptedModel(
        [script("Reviews", calls, "done")]
        + [script(f"Review week {week}.", f"week {week} is fine") for week in (1, 2, 3)]
    )
    on = await open_bench(application(model, [subplan_tool(review_template(version="7"))]))

    outcome = await on.launcher.run("Reviews", agent="worker")

    model.check_used_up()
    assert outline(await on.tree(outcome.root_plan_id)) == "\n".join(
        [
            "plan Reviews [succeeded]",
            "  step worker Reviews [succeeded]",
            "    think-act [succeeded]",
            '      call review {"week":1} → week 1 is fine [succeeded]',
            "        plan review [succeeded]",
            "          step worker Review week 1. [succeeded]",
            "            think-act week 1 is fine [succeeded]",
            '      call review {"week":2} → week 2 is fine [succeeded]',
            "        plan review [succeeded]",
            "          step worker Review week 2. [succeeded]",
            "            think-act week 2 is fine [succeeded]",
            '      call review {"week":3} → week 3 is fine [succeeded]',
            "        plan review [succeeded]",
            "          step worker Review week 3. [succeeded]",
            "            think-act week 3 is fine [succeeded]",
            "    think-act done [succeeded]",
        ]
    )
    rows = await on.rows(outcome.root_plan_id)
    sub_plans = [each for each in rows.plans if each["toolCallId"]]
    assert {each["toolType"] for each in rows.tool_calls} == {"SUBPLAN"}
    assert {(each["depth"], each["template"], each["templateVersion"]) for each in sub_plans} == {
        (1, "review", "7")
    }
    assert {each["parentPlanId"] for each in sub_plans} == {str(outcome.root_plan_id)}


async def test_sub_plan_is_recorded_before_its_first_step(open_bench: OpenBench) -> None:
    seen: list[Any] = []

    class Looking(ScriptedModel):
        async def complete(self, messages: Any, tools: Any) -> Any:
            [root] = on.launcher.active_runs
            rows = await on.rows(root)
            seen.append([(each["depth"], each["status"]) for each in rows.plans])
            return await super().complete(messages, tools)

    model = Looking([script("Go", [call("review", {"week": 1})], "done"), script("Review", "x")])
    on = await open_bench(application(model, [subplan_tool(review_template())]))

    await on.launcher.run("Go", agent="worker")

    assert sorted(seen[1]) == [(0, "running"), (1, "running")]


async def test_failed_sub_plan_fails_only_its_call(
    open_bench: OpenBench,
) -> None:
    model = ScriptedModel(
        [
            script("Go", [call("review", {"week": 1})], "recovered"),
            script("Review", Turn(error=ValueError("no model today"))),
        ]
    )
    on = await open_bench(application(model, [subplan_tool(review_template())]))

    outcome = await on.launcher.run("Go", agent="worker")

    rows = await on.rows(outcome.root_plan_id)
    [opener] = rows.tool_calls
    assert outcome.status == "succeeded"
    assert (opener["status"], opener["reason"]) == ("failed", "subplan_failed")
    assert "no model today" in opener["error"]["message"]
    assert [each["status"] for each in rows.plans if each["depth"]] == ["failed"]


async def test_sub_plan_timeout_does_not_end_its_parent(
    open_bench: OpenBench,
) -> None:
    begun = asyncio.Event()

    @tool
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def go(seconds: float) -> tuple[Bench, RunOutcome]:
        scripts = [
            script("Go", [call("review", {"week": 1})], "on"),
            script("Review", [call("wait")]),
        ]
        tools = [subplan_tool(review_template(timeout=seconds)), wait]
        on = await open_bench(application(ScriptedModel(scripts), tools))
        return on, await on.launcher.run("Go", agent="worker")

    on, outcome = await long_enough(go, begun.is_set)

    rows = await on.rows(outcome.root_plan_id)
    assert outcome.status == "succeeded"
    below = [each for each in rows.plans if each["depth"]]
    for each in (*rows.tool_calls, *below):
        assert (each["status"], each["reason"]) == ("failed", "timed_out")


async def test_sub_plan_inherits_identity_and_the_earlier_deadline(open_bench: OpenBench) -> None:
    seen: list[ToolContext] = []

    @tool
    async def look(context: ToolContext) -> None:
        seen.append(context)

    model = ScriptedModel(
        [
            script("Go", [call("look"), call("review", {"week": 1})], "done"),
            script("Review", [call("look")], "fine"),
        ]
    )
    sub_plan = subplan_tool(review_template(timeout=1000))
    on = await open_bench(application(model, [look, sub_plan]))
    me = Identity("token-4711")

    outcome = await on.launcher.run("Go", agent="worker", identity=me, timeout=100)

    above, below = seen
    rows = await on.rows(outcome.root_plan_id)
    assert above.identity is below.identity
    assert above.identity is not None
    assert above.identity.reveal() == "token-4711"
    assert above.identity.is_over, "the run has ended"
    assert below.deadline == above.deadline is not None
    assert (above.depth, below.depth) == (0, 1)
    assert [each.template for each in below.path] == ["review"]
    assert "token-4711" not in repr(below) + str(rows)


async def test_sub_plans_nest_up_to_the_depth_limit(
    open_bench: OpenBench,
) -> None:
    offered: list[bool] = []

    class Looking(ScriptedModel):
        async def complete(self, messages: Any, tools: Any) -> Any:
            if len(messages) == 2:
                offered.append(any(each.name == "dig" for each in tools))
            return await super().complete(messages, tools)

    dig = subplan_tool(
        PlanTemplate(
            name="dig",
            description="Digs.",
            parameters={"level": int},
            steps=(StepTemplate("Dig at {level}."),),
        )
    )
    model = Looking(
        [script("Start", [call("dig", {"level": 1})], "out")]
        + [
            script(f"Dig at {level}.", [call("dig", {"level": level + 1})], f"out {level}")
            for level in (1, 2, 3)
        ]
    )
    on = await open_bench(application(model, [dig], max_depth=3))

    outcome = await on.launcher.run("Start", agent="worker")

    model.check_used_up()
    rows = await on.rows(outcome.root_plan_id)
    assert outcome.status == "succeeded"
    assert sorted(each["depth"] for each in rows.plans) == [0, 1, 2, 3]
    assert [each["reason"] for each in rows.tool_calls].count("depth_limit") == 1
    assert offered == [True, True, True, False]


async def test_recursive_sub_plan_is_refused(open_bench: OpenBench) -> None:
    again = [call("review", {"week": 1})]
    other = [call("review", {"week": 2})]
    model = ScriptedModel(
        [
            script("Start", again, "out"),
            script("Review week 1", again, other, "fine"),
            script("Review week 2", "fine"),
        ]
    )
    on = await open_bench(application(model, [subplan_tool(review_template())]))

    outcome = await on.launcher.run("Start", agent="worker")

    model.check_used_up()
    rows = await on.rows(outcome.root_plan_id)
    assert outcome.status == "succeeded"
    refused = [each for each in rows.tool_calls if each["reason"] == "cycle"]
    assert len(refused) == 1
    assert "never end" in refused[0]["error"]["message"]
    assert len(rows.plans) == 3


@pytest.mark.parametrize("made", [subplan_tool, lambda each: batch_tool(subplan_tool(each))])
async def test_sub_plan_tool_outside_a_run_or_without_a_tool_call_id_is_rejected(made: Any) -> None:
    opener: Tool = made(review_template())
    arguments = '{"items": [{"week": 1}]}' if opener.name == "review_each" else '{"week": 1}'
    outside = some_context()
    nowhere = ToolContext(
        tool_call_id=None,
        root_plan_id=outside.root_plan_id,
        plan_id=outside.plan_id,
        step_id=outside.step_id,
    )

    without_id = await Caller().call(opener, arguments, nowhere)
    without_run = await Caller().call(opener, arguments, outside)

    assert without_id.error is not None
    assert without_run.error is not None
    assert without_id.error.type == "MissingToolCallId"
    assert without_run.error.type == "LineageError"


async def test_plan_that_continues_after_a_failed_step_has_the_status_of_its_last_step(
    open_bench: OpenBench,
) -> None:
    template = review_template(
        steps=(StepTemplate("First {week}."), StepTemplate("Second {week}.")),
        continue_on_failure=True,
    )
    failing = Turn(error=ValueError("no"))
    calls = [call("review", {"week": week}) for week in (1, 2)]
    model = ScriptedModel(
        [
            script("Go", calls, "done"),
            script("First 1", failing),
            script("Second 1", "well"),
            script("First 2", "well"),
            script("Second 2", failing),
        ]
    )
    on = await open_bench(application(model, [subplan_tool(template)]))

    outcome = await on.launcher.run("Go", agent="worker")

    model.check_used_up()
    rows = await on.rows(outcome.root_plan_id)
    assert [each["status"] for each in rows.tool_calls] == ["succeeded", "failed"]
    assert rows.tool_calls[0]["result"] == "well"
