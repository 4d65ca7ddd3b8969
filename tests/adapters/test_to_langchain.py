"""`to_langchain` turns Tracer tools into LangChain tools."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.tools import ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

from tests.tools.service_bench import service
from tracer.adapters.langchain import from_langchain, to_langchain
from tracer.context import identity
from tracer.errors import RegistrationError
from tracer.tools import Tool, tool
from tracer.tools.parameters import UserId


class Place(BaseModel):
    city: str
    title: str = "home"


@tool(tags=["notes"])
async def note(text: str, user_id: UserId, config: int = 1, run_manager: str = "") -> str:
    """Notes.

    Args:
        text: What to note.
        user_id: Whose note it is.
        config: Anything.
        run_manager: Anything.
    """
    return f"{len(user_id)} {text} {config} {run_manager}"


@tool
def visit(places: list[Place]) -> list[str]:
    """Visits."""
    return [each.city for each in places]


@tool
async def fail() -> None:
    """Fails."""
    raise ValueError("out of paper")


def call(of: Tool, arguments: dict[str, Any], call_id: str | None) -> ToolCall:
    return ToolCall(name=of.name, args=arguments, id=call_id, type="tool_call")


async def test_converted_tool_has_the_parameter_schema_of_the_original(tmp_path: Path) -> None:
    nothing = Tool(name="nothing", description="", parameters={"type": "object"}, run=fail.run)
    async with service(tmp_path, note, visit, nothing) as on:
        shown = [
            convert_to_openai_tool(to_langchain(each, on.tools))["function"]
            for each in (note, visit, nothing)
        ]

    assert shown[0] == {
        "name": "note",
        "description": "Notes.",
        "parameters": note.parameters,
    }
    # LangChain puts definitions where they are referred to, and leaves out what they are called.
    place = {**visit.parameters["$defs"]["Place"]}
    assert place.pop("title") == "Place"
    assert shown[1]["parameters"]["properties"]["places"]["items"] == place
    assert list(place["properties"]) == ["city", "title"]
    assert shown[2]["parameters"] == {"type": "object", "properties": {}}
    assert nothing.parameters == {"type": "object"}


@pytest.mark.parametrize("call_id", ["call_0", ""])
async def test_call_records_the_providers_id_and_returns_a_tool_message(
    call_id: str, tmp_path: Path
) -> None:
    arguments = {"text": "hi", "config": 2, "run_manager": "x", "user_id": "mallory"}
    async with service(tmp_path, note) as on:
        theirs = to_langchain(note, on.tools)
        with identity(token_id="alice"):
            async with on.tools.run("Go") as place:
                message = await theirs.ainvoke(call(note, arguments, call_id))
        [row] = (await on.rows(place.root_plan_id)).tool_calls

    assert message == ToolMessage("5 hi 2 x", name="note", tool_call_id=call_id)
    assert theirs.tags == ["notes"]
    assert row["providerCallId"] == call_id
    assert (row["status"], row["forgedArguments"]) == ("succeeded", ["user_id"])


async def test_failed_call_returns_an_error_message_or_raises(
    tmp_path: Path,
) -> None:
    async with service(tmp_path, fail, note) as on:
        theirs = to_langchain(fail, on.tools)
        message = await theirs.ainvoke(call(fail, {}, "call_1"))
        misfit = await to_langchain(note, on.tools).ainvoke(call(note, {"text": 1}, "call_2"))
        nameless = await theirs.ainvoke(call(fail, {}, ""))
        unanswerable: list[Any] = [{}, "no JSON", call(fail, {}, None)]
        for given in unanswerable:
            with pytest.raises(ToolException):
                await theirs.ainvoke(given)

    assert (message.status, message.tool_call_id) == ("error", "call_1")
    assert (nameless.status, nameless.tool_call_id) == ("error", "")
    assert "out of paper" in message.content
    assert (misfit.status, "text: Input should be" in misfit.content) == ("error", True)


async def test_sync_call_works_without_an_event_loop(tmp_path: Path) -> None:
    async with service(tmp_path, note, fail) as on:
        theirs, failing = to_langchain(note, on.tools), to_langchain(fail, on.tools)
        with identity(token_id="alice"):
            async with on.tools.run("Go") as place:
                good = await asyncio.to_thread(theirs.invoke, call(note, {"text": "hi"}, "a"))
                bad = await asyncio.to_thread(failing.invoke, call(fail, {}, "b"))
        rows = await on.rows(place.root_plan_id)

    assert (good.content, bad.status) == ("5 hi 1 ", "error")
    assert [(each["providerCallId"], each["status"]) for each in rows.tool_calls] == [
        ("a", "succeeded"),
        ("b", "failed"),
    ]


async def test_call_cancelled_by_langchain_is_recorded_as_cancelled(tmp_path: Path) -> None:
    begun = asyncio.Event()

    @tool
    async def hang() -> None:
        """Hangs."""
        begun.set()
        await asyncio.Event().wait()

    async with service(tmp_path, hang) as on, on.tools.run("Go") as place:
        theirs = to_langchain(hang, on.tools)
        calling = asyncio.create_task(theirs.ainvoke(call(hang, {}, "a")))
        await asyncio.wait_for(begun.wait(), 60)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        [row] = (await on.rows(place.root_plan_id)).tool_calls

    assert (row["status"], row["providerCallId"]) == ("cancelled", "a")


async def test_lone_surrogates_in_a_result_are_escaped(tmp_path: Path) -> None:
    @tool
    def surrogate() -> str:
        """Returns half a character."""
        return "\ud800"

    async with service(tmp_path, surrogate) as on:
        message = await to_langchain(surrogate, on.tools).ainvoke(call(surrogate, {}, "a"))

    assert message.content == "␛d800"


async def test_converting_an_unregistered_tool_is_rejected(tmp_path: Path) -> None:
    @tool(name="note")
    def another() -> None: ...

    async with service(tmp_path, note) as on:
        for each in (fail, another):
            with pytest.raises(RegistrationError, match="Register it first"):
                to_langchain(each, on.tools)


async def test_tool_converted_to_langchain_and_back_works(tmp_path: Path) -> None:
    async with service(tmp_path, fail, note) as on:
        wrapped = [from_langchain(to_langchain(each, on.tools)) for each in (fail, note)]
        for each in wrapped:
            on.tools.registry.register(
                Tool(
                    name=f"{each.name}_again",
                    description=each.description,
                    parameters=each.parameters,
                    run=each.run,
                )
            )
        with identity(token_id="alice"):
            bad = await on.tools.call("fail_again")
            good = await on.tools.call("note_again", {"text": "hi"})
        rows = await on.rows(good.root_plan_id)
        failed = await on.rows(bad.root_plan_id)

    assert (good.result, bad.reason) == ("5 hi 1 ", "tool_error")
    outer, inner = sorted(rows.tool_calls, key=lambda each: str(each["name"]), reverse=True)
    assert inner["parentToolCallId"] == outer["toolCallId"]
    assert [each["status"] for each in failed.tool_calls] == ["failed", "failed"]
