"""The three flows of seed 003: one tool, several tools, and tools that open sub-plans.

The document's code is Java of the runtime itself, which an application does not write. As in the
document, each call has an id of its own, is recorded before its tool runs and again
afterwards, reaches the tool as `toolcallId`, and is what its sub-plan refers to.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.runtime.conftest import OpenBench
from tests.runtime.reviews import review_template
from tests.runtime.runs import application, script
from tracer.context import ToolContext
from tracer.runtime import subplan_tool
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.tools import tool


async def test_tool_records_and_sub_plan_share_the_call_id(
    open_bench: OpenBench,
) -> None:
    before: dict[UUID, dict[str, Any]] = {}

    @tool
    async def look(place: str, context: ToolContext) -> str:
        """Look somewhere, and note the records at that moment."""
        assert context.toolcallId is not None
        rows = await on.rows(context.root_plan_id)
        [row] = [each for each in rows.tool_calls if each["toolCallId"] == str(context.toolcallId)]
        before[context.toolcallId] = row
        return f"{place} is empty"

    # The model's provider gives all calls the same id: it is no key.
    one = [call("look", {"place": "attic"}, "call_0")]
    several = [
        call("look", {"place": "cellar"}, "call_0"),
        call("review", {"week": 1}, "call_0"),
        call("review", {"week": 2}, "call_0"),
    ]
    model = ScriptedModel(
        [script("Go", one, several, "done")]
        + [script(f"Review week {week}.", f"week {week} is fine") for week in (1, 2)]
    )
    on = await open_bench(application(model, [look, subplan_tool(review_template())]))

    outcome = await on.launcher.run("Go", agent="worker")
    rows = await on.rows(outcome.root_plan_id)
    tree = await on.tree(outcome.root_plan_id)

    model.check_used_up()
    calls = {each["arguments"]: each for each in rows.tool_calls}
    assert len({each["toolCallId"] for each in rows.tool_calls}) == 4
    assert {each["providerCallId"] for each in rows.tool_calls} == {"call_0"}

    # One record each: without a result while the tool runs, updated afterwards.
    attic, cellar = calls['{"place":"attic"}'], calls['{"place":"cellar"}']
    assert [str(each) for each in before] == [attic["toolCallId"], cellar["toolCallId"]]
    assert {(each["status"], each["result"]) for each in before.values()} == {("running", None)}
    assert (attic["status"], attic["result"]) == ("succeeded", "attic is empty")

    # Each sub-plan refers to the call that opened it, and hangs below it in the tree.
    for week in (1, 2):
        opener = calls[f'{{"week":{week}}}']
        [plan] = [each for each in rows.plans if each["toolCallId"] == opener["toolCallId"]]
        assert plan["summary"] == opener["result"] == f"week {week} is fine"
        assert plan["parentPlanId"] == str(outcome.root_plan_id)
    [step] = tree["agentExecutions"]
    shown = {
        each["toolCallId"]: [plan["toolCallId"] for plan in each["subPlans"]]
        for round_ in step["thinkActs"]
        for each in round_["toolCalls"]
    }
    assert shown == {
        each["toolCallId"]: [each["toolCallId"]] if each["name"] == "review" else []
        for each in rows.tool_calls
    }
    [review] = [
        plan
        for round_ in step["thinkActs"]
        for each in round_["toolCalls"]
        if each["arguments"] == '{"week":1}'
        for plan in each["subPlans"]
    ]
    assert review["parentActToolCall"]["name"] == "review"
