from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from tests.tools.contexts import Caller, some_context
from tracer.context import ToolContext
from tracer.errors import (
    ConfigurationError,
    InvalidArguments,
    RegistrationError,
    UnknownTool,
)
from tracer.tools.definition import Tool, tool
from tracer.tools.registry import find_tool, tools_by_name


class Reading(BaseModel):
    systolic: int = Field(ge=0)
    diastolic: int


@dataclass
class Place:
    city: str


@tool
async def record(
    reading: Reading,
    when: datetime,
    place: Place | None = None,
    tags: list[str] = [],  # noqa: B006 - a tool's default is not shared between calls
    kind: Annotated[Literal["home", "clinic"], Field(description="Where.")] = "home",
) -> str:
    """Record a reading.

    It is kept for ever.

    Args:
        reading: What was measured,
            in mmHg.
        when (datetime): The time.
        tags: Words: any.

    Returns:
        Nothing of interest.
    """
    tags.append("seen")
    return f"{reading.systolic} {when.year} {place} {tags} {kind}"


def test_a_functions_signature_and_docstring_become_the_schema_that_the_model_sees() -> None:
    properties = record.parameters["properties"]

    assert record.name == "record"
    assert record.description == "Record a reading.\n\nIt is kept for ever."
    assert record.parameters["required"] == ["reading", "when"]
    assert record.parameters["additionalProperties"] is False
    assert properties["reading"]["description"] == "What was measured, in mmHg."
    assert properties["when"] == {
        "description": "The time.",
        "format": "date-time",
        "type": "string",
    }
    assert properties["tags"]["description"] == "Words: any."
    assert properties["kind"]["description"] == "Where."
    assert properties["kind"]["default"] == "home"
    assert "title" not in properties["tags"]


async def test_a_function_receives_its_arguments_as_the_types_that_it_declares() -> None:
    arguments = '{"reading": {"systolic": "120", "diastolic": 80}, "when": "2026-01-01T00:00:00Z"}'

    first, second = [await Caller().call(record, arguments) for _ in range(2)]

    assert first.result == "120 2026 None ['seen'] home"
    assert second == first


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{}", "reading: Field required; when: Field required"),
        ('{"reading": {"systolic": -1, "diastolic": 1}, "when": "2026-01-01"}', "reading.systolic"),
        ('{"reading": 1, "when": "secret-4711"}', "when: Input should be a valid datetime"),
        ('{"reading": {"systolic": 1, "diastolic": 1}, "when": "2026-01-01", "x": 1}', "x: Extra"),
        ("[]", "one JSON object"),
        ("null", "one JSON object"),
        ("{", "no valid JSON"),
        ('{"a": NaN}', "not finite"),
        ('{"a": ' + "9" * 5000 + "}", "too long"),
        ('{"a": ' + "[" * 100_000 + "}", "nested too deeply"),
    ],
)
async def test_arguments_that_do_not_fit_are_told_to_the_model_without_their_values(
    arguments: str, said: str
) -> None:
    ending = await Caller().call(record, arguments)

    assert ending.reason == "invalid_arguments"
    assert ending.error is not None
    assert said in ending.error.message
    assert "4711" not in ending.error.message


@pytest.mark.parametrize("nothing", [None, "", "  ", "{}"])
async def test_a_tool_without_parameters_takes_no_arguments_however_they_are_spelt(
    nothing: str | None,
) -> None:
    @tool
    def ping() -> str:
        return "pong"

    assert (await Caller().call(ping, nothing)).result == "pong"


async def test_the_context_is_injected_and_the_model_can_neither_see_nor_give_it() -> None:
    @tool
    async def where(context: ToolContext, again: ToolContext | None = None) -> list[object]:
        assert again is not None
        return [context.toolcallId, again.toolcallId]

    mine = some_context()

    assert where.parameters == {"additionalProperties": False, "properties": {}, "type": "object"}
    caller = Caller()
    forged = await caller.call(where, '{"context": {"depth": 0}}', mine)
    assert forged == await Caller().call(where, "{}", mine)
    assert caller.notes.forged_arguments == {"context"}
    ending = await Caller().call(where, "{}", mine)
    assert ending.result == f'["{mine.toolcallId}","{mine.toolcallId}"]'


async def test_a_parameter_may_have_a_name_that_pydantic_keeps_for_itself() -> None:
    @tool
    def odd(model_config: int, schema: str, copy: bool, _private: str = "x") -> list[object]:
        return [model_config, schema, copy, _private]

    given = '{"model_config": 1, "schema": "s", "copy": true, "_private": "y"}'

    assert (await Caller().call(odd, given)).result == '[1,"s",true,"y"]'


def test_a_type_that_cannot_be_told_is_an_error_at_definition() -> None:
    class Local:
        pass

    def hidden(context: Local) -> None: ...

    with pytest.raises(RegistrationError, match="'hidden'"):
        tool(hidden)


def test_a_type_that_json_cannot_fill_is_an_error_at_definition() -> None:
    def odd(callback: ToolContextless) -> None: ...

    with pytest.raises(RegistrationError, match="'odd'"):
        tool(odd)


class ToolContextless:
    pass


@pytest.mark.parametrize(
    "function", [lambda *rest: None, lambda **rest: None, lambda a, /: None], ids=["*", "**", "/"]
)
def test_a_parameter_that_cannot_be_given_by_name_is_an_error_at_definition(function: Any) -> None:
    with pytest.raises(RegistrationError, match="by name"):
        tool(function)


def test_the_decorator_takes_a_name_a_description_and_a_timeout() -> None:
    @tool(name="other", description="Does other things.", timeout=3, max_attempts=2)
    def something() -> None:
        """Something."""

    assert (something.name, something.description) == ("other", "Does other things.")
    assert (something.timeout, something.max_attempts) == (3, 2)


async def _echo(arguments: dict[str, Any], context: ToolContext) -> Any:
    return arguments


def test_a_tools_own_schema_is_enforced() -> None:
    plain = Tool(
        "plain",
        "Echoes.",
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        _echo,
    )

    assert plain.checked({"n": 1, "more": "x"}) == {"n": 1, "more": "x"}
    with pytest.raises(InvalidArguments, match='n: this value is not of type "integer"') as caught:
        plain.checked({"n": "secret-4711"})
    assert "4711" not in str(caught.value)


def test_many_misfits_are_told_in_short() -> None:
    numbers = {"type": "object", "additionalProperties": {"type": "integer"}}
    plain = Tool("plain", "Echoes.", numbers, _echo)

    with pytest.raises(InvalidArguments, match="and 90 more"):
        plain.checked({str(number): "x" for number in range(100)})


def test_a_tools_schema_cannot_make_us_ask_another_server() -> None:
    with pytest.raises(RegistrationError, match="another document"):
        Tool("remote", "", {"$ref": "http://127.0.0.1:1/schema.json"}, _echo)


@pytest.mark.parametrize("wrong", [{"name": ""}, {"max_attempts": 0}])
def test_a_tool_has_a_name_and_at_least_one_attempt(wrong: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError, match="tool"):
        Tool(**{"name": "t", "description": "", "parameters": {}, "run": _echo, **wrong})


def test_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two tools with the name 'record'"):
        tools_by_name("The agent 'a'", [record, record])


def test_an_unknown_tool_is_answered_with_the_available_ones() -> None:
    tools = tools_by_name("The agent 'a'", [record])

    assert find_tool(tools, "record", ["record"]) is record
    with pytest.raises(UnknownTool, match=r"no tool 'recrod'. Available: record\."):
        find_tool(tools, "recrod", ["record"])
    with pytest.raises(UnknownTool, match="none: answer without a tool"):
        find_tool({}, "x", [])
