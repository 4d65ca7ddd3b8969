"""Recording with blocks: the ends that they record, their children, and invalid values."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.recording import PLENTY_SECONDS, RecordedStore, recording, tree_of, trees_of
from tests.recordings import run_of, runs_of
from tracer.client import Tracing
from tracer.client.work import Chosen, current_work
from tracer.errors import Denied
from tracer.text import unescape

Recording = tuple[Tracing, RecordedStore]


@pytest.fixture(params=[False, True], ids=["durable", "buffered"])
def recorded(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Recording]:
    with recording(tmp_path, buffered=request.param) as both:
        yield both


async def test_exception_in_a_block_is_recorded_as_its_error(recorded: Recording) -> None:
    tracing, store = recorded

    errors = (
        ValueError("no cuff"),
        Denied("not yours"),
        asyncio.CancelledError(),
        GeneratorExit(),
        ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
    )
    with suppress(LookupError), tracing.plan("all"):
        for error in errors:
            with suppress(type(error)):
                async with tracing.tool_call(type(error).__name__):
                    raise error
        raise LookupError
    tree = await tree_of(store)

    ends = {
        call["name"]: (call["status"], call["reason"], (call["error"] or {}).get("message"))
        for call in tree["agentExecutions"][0]["toolCalls"]
    }
    assert tree["status"] == "failed"
    assert ends == {
        "ValueError": ("failed", "tool_error", "no cuff"),
        "Denied": ("failed", "denied", "not yours"),
        "CancelledError": ("cancelled", None, None),
        "GeneratorExit": ("cancelled", None, None),
        "ExceptionGroup": ("failed", "tool_error", "two (2 sub-exceptions)"),
    }


async def test_cancelled_task_records_its_open_work_as_cancelled(recorded: Recording) -> None:
    tracing, store = recorded
    entered = asyncio.Event()

    async def work() -> None:
        async with tracing.plan("one"), tracing.tool_call("hang"):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    tree = await tree_of(store)

    [call] = tree["agentExecutions"][0]["toolCalls"]
    assert (tree["status"], call["status"]) == ("cancelled", "cancelled")


async def test_block_whose_task_is_cancelled_on_entry_is_recorded_as_cancelled(
    tmp_path: Path,
) -> None:
    is_held, goes_on = threading.Event(), threading.Event()

    async def hold(_: object) -> None:
        is_held.set()
        goes_on.wait(PLENTY_SECONDS)  # blocks the recorder's thread: nothing becomes durable

    with recording(tmp_path) as (tracing, store):

        async def work() -> None:
            async with tracing.plan("one"):
                raise AssertionError("it was cancelled before")

        tracing.run(hold)
        assert await asyncio.to_thread(is_held.wait, PLENTY_SECONDS)
        task = asyncio.create_task(work())
        await asyncio.sleep(0)  # it has entered, and waits for its record
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        goes_on.set()
        tree = await tree_of(store)

    assert tree["status"] == "cancelled"


async def test_requested_call_that_never_starts_is_cancelled_as_not_reached(
    recorded: Recording,
) -> None:
    tracing, store = recorded
    with tracing.plan("one"):
        with tracing.think_act() as thought:
            first, _ = thought.finish(tool_calls=[("a", "{}", "call_0"), Chosen("b")])
        with first:
            pass
    tree = await tree_of(store)

    [step] = tree["agentExecutions"]
    [thought_node] = step["thinkActs"]
    assert [(each["status"], each["reason"]) for each in thought_node["toolCalls"]] == [
        ("succeeded", None),
        ("cancelled", "not_reached"),
    ]


async def test_malformed_requested_call_is_recorded_as_a_call(recorded: Recording) -> None:
    tracing, store = recorded
    too_much = ("look", "{}", "id", "type", "more")
    odd: list[Any] = [5, {"id": "call_0"}, None, ["look", "{}"], too_much]
    with tracing.plan("one"):
        with tracing.think_act() as thought:
            calls = thought.finish(tool_calls=odd)
        with tracing.think_act() as thought:
            none: Any = None
            assert thought.finish(tool_calls=none) == []
    tree = await tree_of(store)

    round_ = tree["agentExecutions"][0]["thinkActs"][0]
    named = [(each["name"], each["arguments"]) for each in round_["toolCalls"]]
    assert len(calls) == len(odd)
    assert named == [
        ("5", None),
        ('{"id":"call_0"}', None),
        ("", None),
        ("look", "{}"),
        ("look", "{}"),
    ]


@pytest.mark.parametrize(
    ("given", "kept"),
    [(None, []), (5, []), ([1], []), ("night", ["night"]), ({"night"}, ["night"])],
)
async def test_invalid_tags_are_omitted_and_other_fields_are_recorded(
    recorded: Recording, given: Any, kept: list[str]
) -> None:
    tracing, store = recorded
    with tracing.plan("one", tags=given) as plan:
        pass
    tree = await tree_of(store)

    assert (tree["title"], tree["status"]) == ("one", "succeeded")
    assert run_of(store, plan.root_plan_id).tags == kept


async def test_malformed_planned_step_is_recorded_as_a_step(recorded: Recording) -> None:
    tracing, store = recorded
    odd: list[Any] = ["Look.", ("nurse",), ("nurse", "Look.", "more"), ["nurse", None], None]
    none: Any = None
    with tracing.plan("one", steps=odd), tracing.plan("two", steps=none):
        pass
    tree = await tree_of(store)

    steps = [(each["agentName"], each["request"]) for each in tree["agentExecutions"]]
    assert steps[: len(odd)] == [
        (None, "Look."),
        ("nurse", None),
        ("nurse", "Look."),
        ("nurse", None),
        (None, None),
    ]


async def test_requested_tool_calls_may_be_given_as_tool_names(recorded: Recording) -> None:
    tracing, store = recorded
    nothing: Any = ()
    with tracing.plan("one"):
        with tracing.think_act() as thought:
            thought.finish(tool_calls=["look", nothing])
        with tracing.think_act() as thought:
            thought.finish(tool_calls="look")
        with tracing.think_act() as thought:
            thought.finish(tool_calls=Chosen("look", "{}"))
        with tracing.think_act() as thought:
            number: Any = 5
            assert len(thought.finish(tool_calls=number)) == 1
    tree = await tree_of(store)

    rounds = tree["agentExecutions"][0]["thinkActs"]
    named = [[(each["name"], each["arguments"]) for each in one["toolCalls"]] for one in rounds]
    assert named == [
        [("look", None), ("", None)],
        [("look", None)],
        [("look", "{}")],
        [("5", None)],
    ]


@pytest.mark.parametrize(
    ("answer", "cost"),
    [
        ({"model": "gpt-5-mini-2025-08-07", "input_tokens": 1000, "output_tokens": 1000}, 0.00225),
        ({"input_tokens": 1000, "output_tokens": 1000}, 0.00225),
        ({"input_tokens": 1000, "output_tokens": 1000, "cost_usd": None}, None),
        ({"input_tokens": 1000, "output_tokens": 1000, "cost_usd": 0.5}, 0.5),
        ({"model": "our-own", "input_tokens": 1000, "output_tokens": 1000}, None),
        ({"input_tokens": 1000}, None),
        ({"input_tokens": -1, "output_tokens": "many"}, None),
        ({"cost_usd": "little"}, None),
        ({"cost_usd": float("inf")}, None),
        ({"cost_usd": 10**5000}, None),
        ({"cost_usd": 1e17}, None),
    ],
)
async def test_cost_is_computed_from_the_price_list_if_it_is_not_given(
    recorded: Recording, answer: dict[str, Any], cost: float | None
) -> None:
    tracing, store = recorded
    with tracing.plan("one"), tracing.think_act(model="gpt-5-mini") as thought:
        thought.finish("Well.", **answer)
    tree = await tree_of(store)

    [thought_node] = tree["agentExecutions"][0]["thinkActs"]
    assert (thought_node["thought"], thought_node["costUsd"]) == ("Well.", cost)


async def test_work_that_outlives_its_block_is_recorded_below_the_block(
    recorded: Recording,
) -> None:
    tracing, store = recorded
    goes_on = asyncio.Event()

    async def late() -> None:
        await goes_on.wait()
        async with tracing.plan("late"):
            pass

    async with tracing.plan("root"), tracing.tool_call("spawn"):
        task = asyncio.create_task(late())
    goes_on.set()
    await task
    tree = await tree_of(store)

    [call] = tree["agentExecutions"][0]["toolCalls"]
    assert [each["title"] for each in call["subPlans"]] == ["late"]


async def test_open_work_of_an_abandoned_generator_does_not_stay_current(
    recorded: Recording,
) -> None:
    tracing, store = recorded

    def numbers() -> Iterator[int]:
        with tracing.tool_call("generate"):
            yield 1
            yield 2

    with tracing.plan("one"):
        left = numbers()
        assert next(left) == 1
    assert current_work() is None
    del left
    gc.collect()
    assert current_work() is None
    with tracing.plan("two"):
        pass

    one, two = await trees_of(store)
    assert (one["title"], two["title"]) == ("one", "two")
    assert one["agentExecutions"][0]["toolCalls"][0]["status"] == "cancelled"


async def test_async_generator_may_be_closed_in_another_context(recorded: Recording) -> None:
    tracing, store = recorded

    async def numbers() -> AsyncIterator[int]:
        async with tracing.tool_call("generate"):
            yield 1
            yield 2

    async with tracing.plan("one"):
        generator: Any = numbers()
        await anext(generator)
        await asyncio.create_task(generator.aclose())
        async with tracing.tool_call("after"):
            pass
    tree = await tree_of(store)

    calls = tree["agentExecutions"][0]["toolCalls"]
    assert [(each["name"], each["status"]) for each in calls] == [
        ("generate", "cancelled"),
        ("after", "succeeded"),
    ]


async def test_invalid_values_are_omitted_and_other_fields_are_recorded(
    recorded: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    tracing, store = recorded
    values: Any = {"text": "a\0b\ud800c", "self": float("nan"), "object": object()}
    wrong: Any = -1
    no_text: Any = 7
    with tracing.plan(no_text, request=values, agent="a\0", tags=["x"]) as plan:
        with tracing.think_act("no array", model=no_text) as thought:
            [call] = thought.finish(
                "\ud800",
                input_tokens=wrong,
                output_tokens=3,
                cost_usd=0.1 + 0.2,
                tool_calls=[("measure", values, no_text)],
            )
        with call:
            call.fail("x" * 3_000_000, reason="No Reason!")
        plan.finish(values)
    tree = await tree_of(store)

    [step] = tree["agentExecutions"]
    [thought_node] = step["thinkActs"]
    [call_node] = thought_node["toolCalls"]
    assert (tree["title"], tree["status"], step["agentName"]) == ("7", "succeeded", "a␛0000")
    assert (thought_node["inputTokens"], thought_node["outputTokens"]) == (None, 3)
    assert thought_node["costUsd"] == 0.3
    assert unescape(thought_node["thought"]) == "\ud800"
    assert (call_node["status"], call_node["reason"]) == ("failed", None)
    assert len(call_node["error"]["message"]) == 3_000_000
    assert "fields_left_out" in caplog.text


async def test_only_the_first_end_of_a_plan_is_recorded(recorded: Recording) -> None:
    tracing, store = recorded
    with suppress(ValueError), tracing.plan("one") as plan:
        plan.finish("done")
        plan.fail("too late")
        plan.cancel()
        raise ValueError("afterwards")
    tree = await tree_of(store)

    assert (tree["status"], tree["summary"]) == ("succeeded", "done")


async def test_block_that_is_never_entered_leaves_no_record(recorded: Recording) -> None:
    tracing, store = recorded
    tracing.tool_call("never")
    tracing.step("never")
    tracing.think_act()

    assert await trees_of(store) == []


async def test_planned_step_that_never_starts_is_cancelled_as_not_reached(
    recorded: Recording,
) -> None:
    tracing, store = recorded
    steps = [("nurse", "Measure."), ("doctor", "Judge.")]
    with tracing.plan("one", steps=steps) as plan, plan.steps[0] as step:
        step.finish("121/79")
    tree = await tree_of(store)

    assert [
        (each["agentName"], each["status"], each["reason"]) for each in tree["agentExecutions"]
    ] == [("nurse", "succeeded", None), ("doctor", "cancelled", "not_reached")]


async def test_tool_call_inside_a_tool_call_is_its_child(recorded: Recording) -> None:
    tracing, store = recorded
    with tracing.tool_call("batch") as batch:
        for _ in range(2):
            with tracing.tool_call("item"):
                pass
        batch.start(attempt=2)
    tree = await tree_of(store)

    [call] = tree["agentExecutions"][0]["toolCalls"]
    assert (call["name"], call["attempt"]) == ("batch", 2)
    assert [(each["name"], each["position"]) for each in call["toolCalls"]] == [
        ("item", 0),
        ("item", 1),
    ]


async def test_run_records_the_opentelemetry_service_of_the_process(
    recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracing, store = recorded
    monkeypatch.setenv(
        "OTEL_RESOURCE_ATTRIBUTES",
        "service.name=other,service.version=1%2C4, deployment.environment.name = prod ,broken",
    )
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")

    with tracing.plan("root"), tracing.tool_call("ask"), tracing.plan("sub-plan"):
        pass
    await tree_of(store)
    [run] = runs_of(store)

    service = run.service_name, run.service_version, run.deployment_environment
    assert service == ("shop", "1,4", "prod")
