"""Definition of function tools: schemas, argument types, and rejected signatures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from tests.runtime.runs import bench
from tests.tools.contexts import Caller, some_context
from tracer.context import ToolContext
from tracer.errors import (
    ConfigurationError,
    InvalidArguments,
    RegistrationError,
)
from tracer.runtime import Agent, Application
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.storage.memory import recording_in_memory
from tracer.tools import Tool, tool, tools_by_name


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


def test_schema_is_made_from_signature_and_docstring() -> None:
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


async def test_arguments_are_converted_to_the_declared_types() -> None:
    arguments = '{"reading": {"systolic": "120", "diastolic": 80}, "when": "2026-01-01T00:00:00Z"}'

    first, second = [await Caller().call(record, arguments) for _ in range(2)]

    assert first.result == "120 2026 None ['seen'] home"
    assert second == first


async def test_argument_error_for_the_model_has_reasons_without_values() -> None:
    reading = '"reading": {"systolic": 1, "diastolic": 1}'
    expected = {
        "{}": "reading: Field required; when: Field required",
        '{"reading": {"systolic": -1, "diastolic": 1}, "when": "2026-01-01"}': "reading.systolic",
        '{"reading": 1, "when": "secret-4711"}': "when: Input should be a valid datetime",
        f'{{{reading}, "when": "2026-01-01", "x": 1}}': "x: Extra",
        "[]": "one JSON object",
        "null": "one JSON object",
        "{": "not valid JSON",
        '{"a": NaN}': "not finite",
        '{"a": ' + "9" * 5000 + "}": "too long",
        '{"a": ' + "[" * 100_000 + "}": "nested too deeply",
    }
    failures = []
    for arguments, said in expected.items():
        ending = await Caller().call(record, arguments)
        message = str(ending.error and ending.error.message)
        if ending.reason != "invalid_arguments" or said not in message or "4711" in message:
            failures.append(f"{arguments[:80]}: expected {said!r}, got {ending.reason} {message!r}")

    assert failures == []


async def test_tool_without_parameters_accepts_every_form_of_empty_arguments() -> None:
    @tool
    def ping() -> str:
        return "pong"

    results = [(await Caller().call(ping, nothing)).result for nothing in (None, "", "  ", "{}")]
    assert results == ["pong"] * 4


async def test_tool_context_is_injected_and_not_in_the_schema() -> None:
    @tool
    async def where(context: ToolContext, again: ToolContext | None = None) -> list[object]:
        assert again is not None
        return [context.tool_call_id, again.tool_call_id]

    mine = some_context()

    assert where.parameters == {"additionalProperties": False, "properties": {}, "type": "object"}
    caller = Caller()
    forged = await caller.call(where, '{"context": {"depth": 0}}', mine)
    assert forged == await Caller().call(where, "{}", mine)
    assert caller.notes.forged_arguments == {"context"}
    ending = await Caller().call(where, "{}", mine)
    assert ending.result == f'["{mine.tool_call_id}","{mine.tool_call_id}"]'


async def test_parameter_may_have_a_name_reserved_by_pydantic() -> None:
    @tool
    def odd(model_config: int, schema: str, copy: bool, _private: str = "x") -> list[object]:
        return [model_config, schema, copy, _private]

    given = '{"model_config": 1, "schema": "s", "copy": true, "_private": "y"}'

    assert (await Caller().call(odd, given)).result == '[1,"s",true,"y"]'


def test_unresolvable_type_annotation_is_rejected_at_definition() -> None:
    class Local:
        pass

    def hidden(context: Local) -> None: ...

    with pytest.raises(RegistrationError, match="'hidden'"):
        tool(hidden)


def test_parameter_type_without_json_schema_is_rejected_at_definition() -> None:
    def odd(callback: ToolContextless) -> None: ...

    with pytest.raises(RegistrationError, match="'odd'"):
        tool(odd)


class ToolContextless:
    pass


def test_tool_decorator_accepts_options() -> None:
    @tool(name="other", description="Does other things.", timeout=3, max_attempts=2)
    def something() -> None:
        """Something."""

    assert (something.name, something.description) == ("other", "Does other things.")
    assert (something.timeout, something.max_attempts) == (3, 2)


async def _echo(arguments: dict[str, Any], context: ToolContext) -> Any:
    return arguments


def test_arguments_are_validated_against_an_explicit_schema() -> None:
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


def test_error_for_many_invalid_arguments_is_a_summary() -> None:
    numbers = {"type": "object", "additionalProperties": {"type": "integer"}}
    plain = Tool("plain", "Echoes.", numbers, _echo)

    with pytest.raises(InvalidArguments, match="and 90 more"):
        plain.checked({str(number): "x" for number in range(100)})


def test_schema_with_a_remote_reference_is_rejected() -> None:
    with pytest.raises(RegistrationError, match="another document"):
        Tool("remote", "", {"$ref": "http://127.0.0.1:1/schema.json"}, _echo)


def test_two_tools_with_the_same_name_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="two tools named 'record'"):
        tools_by_name("The agent 'a'", [record, record])


async def test_parameter_without_a_type_has_the_type_of_its_default() -> None:
    def find(name, limit=10, deep=False, near=None, tags=()):  # type: ignore[no-untyped-def]
        return [name, limit, deep, near, tags]

    found = tool(find)
    properties = found.parameters["properties"]

    assert [each.get("type") for each in properties.values()] == [
        *("string", "integer", "boolean", None, "array")
    ]
    assert found.parameters["required"] == ["name"]
    assert found.checked({"name": "Ann", "near": "Bern"})["near"] == "Bern"
    with pytest.raises(InvalidArguments, match="limit"):
        found.checked({"name": "Ann", "limit": "many"})


@pytest.mark.parametrize("name", ["agent", "team", "context", "run_context"])
async def test_parameter_that_the_runtime_fills_by_name_is_hidden(
    name: str, tmp_path: Path
) -> None:
    scope: dict[str, Any] = {}
    exec(f"def look({name}, number: int): return type({name}).__name__", scope)
    exec(f"def visible({name}: str): return {name}", scope)
    look, visible = tool(scope["look"]), tool(scope["visible"])
    kinds = {"agent": "Agent", "context": "ToolContext", "run_context": "RunContext"}
    chosen = [call("look", {"number": 1, name: "forged"}), call("visible", {name: "shown"})]
    model = ScriptedModel([Script([Turn(calls=chosen), Turn("done")])])
    agent = Agent(model=model, tools=[look, visible])
    store = recording_in_memory()

    async with bench(
        Application(name="tests", agents=(agent,), model=model), store, store, tmp_path
    ) as on:
        run = await on.launcher.run("Go", agent="agent")
        rows = (await on.rows(run.root_plan_id)).tool_calls

    assert list(look.parameters["properties"]) == ["number"]
    assert list(visible.parameters["properties"]) == [name]
    assert [each["result"] for each in rows] == [kinds.get(name, "NoneType"), "shown"]
    assert rows[0]["forgedArguments"] == [name]


def test_parameter_of_the_type_agent_is_hidden() -> None:
    @tool
    def look(agent: Agent, other: Agent | None = None) -> str:
        return agent.name

    assert look.parameters["properties"] == {}
