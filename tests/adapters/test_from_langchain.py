"""LangChain tools that `from_langchain` turned into Tracer tools, called as the runtime does."""

import threading
from typing import Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import (
    BaseTool,
    InjectedToolCallId,
    StructuredTool,
    ToolException,
)
from langchain_core.tools import Tool as SingleInputTool
from langchain_core.tools import tool as langchain_tool
from langgraph.types import Command
from pydantic import BaseModel

from tests.tools.contexts import Caller, some_context
from tracer.adapters.langchain import from_langchain
from tracer.context import current_tool_context

CANARY = "user-canary-4711"


@langchain_tool
def add(number: int, more: int = 1) -> int:
    """Adds."""
    return number + more


@langchain_tool
async def add_async(number: int, more: int = 1) -> int:
    """Adds."""
    return number + more


class Adds(BaseTool):
    name: str = "adds"
    description: str = "Adds."

    def _run(self, number: int, more: int = 1, run_manager: Any = None) -> int:
        assert run_manager is not None
        return number + more


class AddsAsync(Adds):
    async def _arun(self, number: int, more: int = 1, run_manager: Any = None) -> int:
        assert threading.current_thread() is threading.main_thread()
        return self._run(number, more, run_manager)


def plus(number: int, more: int = 1) -> int:
    return number + more


SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "more": {"default": 1, "type": "integer"}},
    "required": ["number"],
    "additionalProperties": False,
}
ADDING: list[BaseTool] = [
    add,
    add_async,
    Adds(),
    AddsAsync(),
    StructuredTool.from_function(plus, description="Adds."),
    StructuredTool.from_function(plus, description="Adds.", args_schema=SCHEMA),
]


@pytest.mark.parametrize("theirs", ADDING, ids=lambda each: f"{type(each).__name__}-{each.name}")
async def test_each_kind_of_langchain_tool_is_converted(theirs: BaseTool) -> None:
    ours = from_langchain(theirs, timeout=5, tags=["sums"])
    caller = Caller()
    good = await caller.call(ours, '{"number": 2, "more": 3}')
    by_default = await caller.call(ours, '{"number": 2}')
    misfit = await caller.call(ours, '{"number": "many"}')
    unknown = await caller.call(ours, '{"number": 2, "other": 3}')

    assert (ours.name, ours.description) == (theirs.name, "Adds.")
    assert ours.parameters == SCHEMA
    assert (ours.timeout, ours.tags) == (5, {"sums"})
    assert (good.result, by_default.result) == ("5", "3")
    assert (misfit.reason, unknown.reason) == ("invalid_arguments", "invalid_arguments")


async def test_single_input_langchain_tool_receives_the_argument_as_text() -> None:
    ours = from_langchain(SingleInputTool("shout", str.upper, "Shouts."))
    ending = await Caller().call(ours, '{"tool_input": "hello"}')

    assert list(ours.parameters["properties"]) == ["tool_input"]
    assert ending.result == "HELLO"


async def test_pydantic_models_in_a_result_are_encoded_as_json() -> None:
    class Reading(BaseModel):
        systolic: int

    @langchain_tool
    def measure() -> list[Reading]:
        """Measures."""
        return [Reading(systolic=120)]

    ending = await Caller().call(from_langchain(measure))

    assert ending.result == '[{"systolic":120}]'


async def test_result_is_the_content_of_an_artifact_pair_or_tool_message() -> None:
    @langchain_tool(response_format="content_and_artifact")
    def search() -> tuple[str, list[int]]:
        """Searches."""
        return "2 found", [1, 2]

    @langchain_tool
    async def answer(call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
        """Answers."""
        return ToolMessage("answered", tool_call_id=call_id)

    caller = Caller()

    assert (await caller.call(from_langchain(search))).result == "2 found"
    assert (await caller.call(from_langchain(answer))).result == "answered"


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (False, "no such city"),
        (True, "no such city"),
        ("Try another.", "Try another."),
        (lambda error: f"Sorry: {error}", "Sorry: no such city"),
        (lambda _: [{"type": "text", "text": "Sorry."}], '[{"type":"text","text":"Sorry."}]'),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_error_fails_the_call_even_if_the_langchain_tool_handles_it(
    handler: Any, message: str, is_async: bool
) -> None:
    def look_up() -> str:
        raise ToolException("no such city")

    async def look_up_async() -> str:
        return look_up()

    given: Any = {"coroutine": look_up_async} if is_async else {"func": look_up}
    theirs = StructuredTool.from_function(
        name="look_up", description="Looks up.", handle_tool_error=handler, **given
    )
    ending = await Caller().call(from_langchain(theirs))

    assert ending.error is not None
    assert (ending.status, ending.reason, ending.error.message) == ("failed", "tool_error", message)
    assert theirs.handle_tool_error == handler


async def test_tool_message_with_error_status_fails_the_call() -> None:
    @langchain_tool
    def look_up() -> ToolMessage:
        """Looks up."""
        return ToolMessage("no such city", tool_call_id="", status="error")

    ending = await Caller().call(from_langchain(look_up))

    assert ending.error is not None
    assert (ending.status, ending.error.message) == ("failed", "no such city")


@pytest.mark.parametrize("wrapped", [Command(goto="end"), [Command(goto="end")]])
async def test_tool_that_returns_a_graph_command_fails_with_invalid_result(wrapped: Any) -> None:
    @langchain_tool
    def hand_over() -> Any:
        """Hands over."""
        return wrapped

    ending = await Caller().call(from_langchain(hand_over))

    assert (ending.status, ending.reason) == ("failed", "invalid_result")


async def test_failed_call_is_retried_up_to_max_attempts() -> None:
    attempts = []

    @langchain_tool
    def unsteady() -> str:
        """Works at last."""
        attempts.append(1)
        if len(attempts) < 3:
            raise ToolException("not now")
        return "well"

    ending = await Caller().call(from_langchain(unsteady, max_attempts=3))

    assert (ending.result, len(attempts)) == ("well", 3)


async def test_sync_langchain_tool_runs_in_a_worker_thread_with_its_context() -> None:
    @langchain_tool
    def where() -> list[str]:
        """Tells where it is."""
        context = current_tool_context()
        assert context is not None
        return [str(context.tool_call_id), threading.current_thread().name]

    context = some_context()
    ending = await Caller().call(from_langchain(where), context=context)

    assert ending.result == f'["{context.tool_call_id}","AnyIO worker thread"]'


async def test_validation_error_raised_by_the_tool_is_a_tool_error() -> None:
    class Reading(BaseModel):
        systolic: int

    @langchain_tool
    def measure() -> Reading:
        """Measures."""
        return Reading.model_validate({})

    ending = await Caller().call(from_langchain(measure))

    assert (ending.status, ending.reason) == ("failed", "tool_error")


async def test_arguments_shaped_like_a_tool_call_are_passed_unchanged() -> None:
    def echo(type: str, id: str) -> list[str]:
        return [type, id]

    async def echo_async(type: str, id: str) -> list[str]:
        return echo(type, id)

    for given in ({"func": echo}, {"coroutine": echo_async}):
        theirs = StructuredTool.from_function(name="echo", description="Echoes.", **given)
        ending = await Caller().call(from_langchain(theirs), '{"type": "tool_call", "id": "x"}')

        assert ending.result == '["tool_call","x"]'
