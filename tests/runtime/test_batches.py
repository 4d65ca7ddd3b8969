"""Batch tools: each item is a call of its own."""

from typing import Any

from tests.runtime.conftest import OpenBench
from tests.runtime.reviews import review_template
from tests.runtime.runs import application, script
from tracer.runtime import subplan_tool
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.tools import tool
from tracer.tools.call import batch_tool


async def test_each_batch_item_is_recorded_as_a_call_with_its_own_sub_plan(
    open_bench: OpenBench,
) -> None:
    items = [{"week": 1}, {"week": "x"}, 7, {"week": 2}]
    model = ScriptedModel(
        [
            script("Go", [call("review_each", {"items": items})], "done"),
            script("Review week 1.", "one"),
            script("Review week 2.", "two"),
        ]
    )
    review = subplan_tool(review_template())
    on = await open_bench(application(model, [batch_tool(review, max_parallel=2)]))

    outcome = await on.launcher.run("Go", agent="worker")

    model.check_used_up()
    rows = await on.rows(outcome.root_plan_id)
    [batch] = [each for each in rows.tool_calls if each["toolType"] == "BATCH"]
    below = [each for each in rows.tool_calls if each["parentToolCallId"] == batch["toolCallId"]]
    assert batch["status"] == "succeeded"
    assert [(each["position"], each["arguments"], each["status"]) for each in below] == [
        (0, '{"week":1}', "succeeded"),
        (1, '{"week":"x"}', "failed"),
        (2, "7", "failed"),
        (3, '{"week":2}', "succeeded"),
    ]
    assert {each["toolCallId"] for each in rows.plans if each["depth"]} == {
        below[0]["toolCallId"],
        below[3]["toolCallId"],
    }
    assert [each["thinkActId"] for each in below] == [None] * 4


async def test_batch_fails_only_if_every_item_fails(open_bench: OpenBench) -> None:
    @tool
    def odd(number: int) -> int:
        if number % 2 == 0:
            raise ValueError("even")
        return number

    def items(*numbers: int) -> Any:
        return [call("odd_each", {"items": [{"number": each} for each in numbers]})]

    turns = (items(), items(1, 2), items(2, 4), [call("odd_each", {"items": 1})], "done")
    model = ScriptedModel([script("Go", *turns)])
    on = await open_bench(application(model, [batch_tool(odd)]))

    outcome = await on.launcher.run("Go", agent="worker")

    rows = await on.rows(outcome.root_plan_id)
    batches = [each for each in rows.tool_calls if each["toolType"] == "BATCH"]
    ordered = sorted(batches, key=lambda each: each["toolCallId"])
    assert [(each["status"], each["reason"]) for each in ordered] == [
        ("succeeded", None),
        ("succeeded", None),
        ("failed", "tool_error"),
        ("failed", "invalid_arguments"),
    ]
