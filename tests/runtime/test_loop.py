"""The think-act loop: its model requests, its records, and its end."""

import asyncio
import time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tests.recordings import round_of
from tests.runtime.conftest import OpenBench
from tests.runtime.runs import application, outline, script
from tracer.context import ToolContext, current_tool_context
from tracer.errors import ModelError
from tracer.runtime.chat_model import ChosenCall, Generation
from tracer.runtime.scripted_model import ScriptedModel, Turn, call
from tracer.storage.memory import RecordingInMemory
from tracer.tools import tool


@tool
async def double(number: int) -> int:
    """Doubles."""
    return number * 2


@tool
def fail() -> None:
    """Fails."""
    raise ValueError("no luck")


async def test_records_and_results_have_the_order_in_which_the_model_chose_the_calls(
    open_bench: OpenBench,
) -> None:
    calls = [
        call("double", {"number": 1}, "call_0"),
        call("fail", {}, "call_0"),
        call("double", "{broken", ""),
        call("duoble", {"number": 2}),
        call("double", {"number": "x"}),
    ]
    model = ScriptedModel([script("Count", calls, "done")])
    on = await open_bench(application(model, [double, fail]))

    outcome = await on.launcher.run("Count", agent="worker")

    model.check_used_up()
    assert (outcome.status, outcome.summary) == ("succeeded", "done")
    assert outline(await on.tree(outcome.root_plan_id)) == "\n".join(
        [
            "plan Count [succeeded]",
            "  step worker Count [succeeded]",
            "    think-act [succeeded]",
            '      call double {"number":1} → 2 [succeeded]',
            "      call fail {} → [failed/tool_error]",
            "      call double {broken → [failed/invalid_arguments]",
            '      call duoble {"number":2} → [failed/unknown_tool]',
            '      call double {"number":"x"} → [failed/invalid_arguments]',
            "    think-act done [succeeded]",
        ]
    )
    rows = await on.rows(outcome.root_plan_id)
    assert [each["providerCallId"] for each in rows.tool_calls] == ["call_0"] * 2 + ["", None, None]
    assert [each["toolType"] for each in rows.tool_calls][3] is None
    messages = await on.messages(rows.think_acts[1])
    answers = [each for each in messages if each["role"] == "tool"]
    assert [each["tool_call_id"] for each in answers] == [
        "call_0", "call_0_2", "call_1", "call_2", "call_3",
    ]  # fmt: skip
    assert answers[0]["content"] == "2"
    assert "no luck" in answers[1]["content"]
    assert "Available: double, fail" in answers[3]["content"]


async def test_calls_above_the_limit_of_parallel_calls_wait(
    open_bench: OpenBench,
) -> None:
    running: list[int] = []
    most = 0
    two_running, let_go = asyncio.Event(), asyncio.Event()

    @tool
    async def hold(number: int) -> int:
        nonlocal most
        running.append(number)
        most = max(most, len(running))
        if len(running) == 2:
            two_running.set()
        await let_go.wait()
        running.remove(number)
        return number

    calls = [call("hold", {"number": number}) for number in range(5)]
    model = ScriptedModel([script("Hold", calls, "done")])
    on = await open_bench(application(model, [hold], max_parallel=2))
    run = asyncio.create_task(on.launcher.run("Hold", agent="worker"))
    await two_running.wait()
    root_plan_id = on.launcher.active_runs[0]
    before = (await on.rows(root_plan_id)).tool_calls
    let_go.set()
    outcome = await run
    after = (await on.rows(outcome.root_plan_id)).tool_calls

    assert [each["status"] for each in before] == ["running"] * 2 + ["pending"] * 3
    assert [each["startedAt"] is None for each in before] == [False] * 2 + [True] * 3
    assert [each["arguments"] for each in before] == [f'{{"number":{n}}}' for n in range(5)]
    assert [each["result"] for each in after] == ["0", "1", "2", "3", "4"]
    assert most == 2


async def test_end_of_a_call_is_recorded_while_other_calls_of_the_round_still_run(
    open_bench: OpenBench,
) -> None:
    let_go = asyncio.Event()
    seen: list[str] = []

    @tool
    async def quick() -> str:
        return "quick"

    @tool
    async def slow(context: ToolContext) -> str:
        while not seen:
            rows = await on.rows(context.root_plan_id)
            seen.extend(each["status"] for each in rows.tool_calls if each["status"] != "running")
            await asyncio.sleep(0)
        let_go.set()
        return "slow"

    model = ScriptedModel([script("Go", [call("slow"), call("quick")], "done")])
    on = await open_bench(application(model, [quick, slow]))

    await on.launcher.run("Go", agent="worker")

    assert seen == ["succeeded"]


async def test_every_call_is_recorded_before_its_tool_runs(open_bench: OpenBench) -> None:
    found: list[Any] = []

    @tool
    async def look(context: ToolContext) -> None:
        assert current_tool_context() is context
        rows = await on.rows(context.root_plan_id)
        [mine] = [
            each for each in rows.tool_calls if each["toolCallId"] == str(context.tool_call_id)
        ]
        found.append((mine["status"], mine["arguments"], mine["thinkActId"]))
        assert mine["thinkActId"] == str(context.think_act_id)
        assert mine["stepId"] == str(context.step_id)

    model = ScriptedModel([script("Look", [call("look"), call("look")], "done")])
    on = await open_bench(application(model, [look]))

    outcome = await on.launcher.run("Look", agent="worker")

    assert outcome.status == "succeeded"
    assert [each[:2] for each in found] == [("running", "{}")] * 2


async def test_an_agent_without_an_answer_fails_at_its_round_limit(open_bench: OpenBench) -> None:
    again = [call("double", {"number": 1})]
    model = ScriptedModel([script("Loop", again, again)])
    on = await open_bench(application(model, [double], max_rounds=2))

    outcome = await on.launcher.run("Loop", agent="worker")

    rows = await on.rows(outcome.root_plan_id)
    assert (outcome.status, outcome.reason) == ("failed", "step_failed")
    assert (rows.steps[0]["status"], rows.steps[0]["reason"]) == ("failed", "round_limit")
    assert len(rows.think_acts) == 2
    assert {each["status"] for each in rows.tool_calls} == {"succeeded"}


@pytest.mark.parametrize(
    "error", [ModelError("The model is away."), KeyError("bug"), asyncio.CancelledError()]
)
async def test_model_failure_fails_the_round_step_and_plan(
    open_bench: OpenBench, error: Any
) -> None:
    model = ScriptedModel([script("Ask", Turn(error=error))])
    on = await open_bench(application(model))

    outcome = await on.launcher.run("Ask", agent="worker")

    rows = await on.rows(outcome.root_plan_id)
    assert (rows.think_acts[0]["status"], rows.think_acts[0]["reason"]) == ("failed", "model_error")
    assert (rows.steps[0]["status"], rows.steps[0]["reason"]) == ("failed", "model_error")
    assert (outcome.status, outcome.reason) == ("failed", "step_failed")


class Babbling:
    """A model whose adapter is broken."""

    name = "babbling"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def complete(self, messages: object, tools: object) -> Any:
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "text",
        Generation(text=None),  # type: ignore[arg-type]
        Generation(tool_calls=[ChosenCall(None)]),  # type: ignore[arg-type]
        Generation(tool_calls=[ChosenCall("double", {"number": 1})]),  # type: ignore[arg-type]
    ],
)
async def test_malformed_answer_of_a_model_fails_the_round(
    open_bench: OpenBench, answer: Any
) -> None:
    on = await open_bench(application(Babbling(answer), [double]))

    outcome = await on.launcher.run("Ask", agent="worker")

    rows = await on.rows(outcome.root_plan_id)
    assert (rows.think_acts[0]["status"], rows.think_acts[0]["reason"]) == ("failed", "model_error")
    assert outcome.status == "failed"


async def test_synchronous_tool_does_not_block_parallel_calls(open_bench: OpenBench) -> None:
    @tool
    def blocking() -> float:
        time.sleep(0.01)  # stands for work, nothing waits for it
        return time.monotonic()

    model = ScriptedModel([script("Go", [call("blocking")] * 4, "done")])
    on = await open_bench(application(model, [blocking]))

    outcome = await on.launcher.run("Go", agent="worker")

    rows = await on.rows(outcome.root_plan_id)
    assert [each["status"] for each in rows.tool_calls] == ["succeeded"] * 4


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"cost_usd": Decimal("1.234567E-7")}, ("cost_usd", Decimal("1.23457E-7"))),
        ({"cost_usd": 0.1 + 0.2}, ("cost_usd", Decimal("0.3"))),
        ({"cost_usd": Decimal("NaN")}, ("cost_usd", None)),
        ({"cost_usd": "free"}, ("cost_usd", None)),
        ({"input_tokens": -1}, ("input_tokens", None)),
        ({"output_tokens": 12.5}, ("output_tokens", None)),
        ({"model": 7}, ("model", None)),
    ],
)
async def test_invalid_metadata_of_a_model_answer_do_not_discard_the_answer(
    open_bench: OpenBench, store: RecordingInMemory, said: dict[str, Any], kept: tuple[str, object]
) -> None:
    on = await open_bench(application(ScriptedModel([script("Go", Turn("All well.", **said))])))

    outcome = await on.launcher.run("Go", agent="worker")

    assert (outcome.status, outcome.summary) == ("succeeded", "All well.")
    rows = await on.rows(outcome.root_plan_id)
    thought = round_of(store, UUID(rows.think_acts[0]["thinkActId"]))
    assert getattr(thought, kept[0]) == kept[1]
