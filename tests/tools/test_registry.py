"""The registry: what may be registered under which name, and how it is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import Field

from tracer.context import ToolContext
from tracer.errors import ConfigurationError, RegistrationError, UnknownTool
from tracer.runtime.agent import Agent
from tracer.runtime.application import Application
from tracer.runtime.scripted_model import ScriptedModel
from tracer.tools.definition import Tool, tool
from tracer.tools.hidden import Hidden, TokenId
from tracer.tools.registry import RESERVED_NAMES, ToolRegistry


def named(name: str, **options: Any) -> Tool:
    async def run() -> None: ...

    return tool(name=name, **options)(run)


def test_tools_are_found_by_name_and_by_label_in_the_order_of_their_registration() -> None:
    one, two, three = named("b", tags=["x", "y"]), named("a", tags=["x"]), named("c")
    registry = ToolRegistry([one])
    assert registry.register(two) is two
    registry.register(three)

    assert registry.read("a") is registry.find("a") is two
    assert registry.find("d") is None
    assert registry.tagged("x") == (one, two)
    assert registry.tagged("z") == ()
    assert (list(registry), len(registry)) == ([one, two, three], 3)


def test_the_error_of_an_unknown_name_tells_those_that_there_are() -> None:
    with pytest.raises(UnknownTool, match=r"no tool 'd'. Available: a, b\."):
        ToolRegistry([named("b"), named("a")]).read("d")
    with pytest.raises(UnknownTool, match="answer without a tool"):
        ToolRegistry().read("d")


def test_what_the_registry_gives_out_cannot_change_it() -> None:
    registry = ToolRegistry([named("a")])

    with pytest.raises(TypeError):
        registry.tools()["b"] = named("b")  # type: ignore[index]
    assert len(registry) == 1


def test_two_tools_of_one_name_are_refused_and_the_first_stays() -> None:
    first = named("a")
    registry = ToolRegistry([first])

    with pytest.raises(RegistrationError, match="already"):
        registry.register(named("a"))
    assert registry.read("a") is first


@pytest.mark.parametrize(
    "name", ["with space", "a.b", "naïve", "名", "a" * 65, "a\n", "a/b", "{a}"]
)
def test_a_name_that_models_cannot_write_is_refused(name: str) -> None:
    with pytest.raises(RegistrationError, match="can't write"):
        ToolRegistry([named(name)])


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_a_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(RegistrationError, match="reserved"):
        ToolRegistry([named(name)])


def asks_for_token(token_id: str) -> None: ...


def asks_for_token_in_camel_case(tokenId: str) -> None: ...  # noqa: N803


def asks_for_call(toolcallId: str) -> None: ...  # noqa: N803


def asks_for_context(tool_context: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    "function",
    [asks_for_token, asks_for_token_in_camel_case, asks_for_call, asks_for_context],
)
def test_a_tool_that_asks_a_model_for_what_the_runtime_gives_is_refused(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(RegistrationError, match="hide it"):
        ToolRegistry([tool(function)])


def test_what_the_runtime_gives_may_be_called_by_its_own_name_where_it_is_hidden() -> None:
    @tool
    async def fine(token_id: Annotated[TokenId, Hidden()], tool_context: ToolContext) -> None: ...

    assert ToolRegistry([fine]).read("fine") is fine


def test_a_nested_field_that_asks_for_a_token_is_refused_too() -> None:
    schema = {
        "type": "object",
        "properties": {"who": {"$ref": "#/$defs/who"}},
        "$defs": {"who": {"type": "object", "properties": {"tokenId": {"type": "string"}}}},
    }

    async def run(arguments: dict[str, Any], context: ToolContext) -> None: ...

    with pytest.raises(RegistrationError, match="hide it"):
        ToolRegistry([Tool("look", "", schema, run)])


def unresolvable(who: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037


def by_position(who: str, /) -> None: ...


def any_number(*who: str) -> None: ...


def anything(**who: str) -> None: ...


def no_json(who: Callable[[], None]) -> None: ...


def both(user_id: TokenId, userId: Annotated[str, Field()]) -> None: ...  # noqa: N803


@pytest.mark.parametrize(
    "function", [unresolvable, by_position, any_number, anything, no_json, both]
)
def test_a_function_whose_parameters_nobody_could_fill_is_no_tool(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(RegistrationError) as caught:
        tool(function)

    assert function.__name__ in str(caught.value)
    assert isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize("options", [{"max_attempts": 0}, {"max_parallel": 0}, {"name": ""}])
def test_a_tool_that_could_never_run_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError):
        Tool(**{"name": "a", "description": "", "parameters": {}, "run": named, **options})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"properties": {"a": {"$ref": "https://example.org/schema"}}},
        {"$ref": "#/$defs/nowhere"},
    ],
)
def test_parameters_that_are_no_schema_of_their_own_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError, match="schema"):
        Tool("a", "", schema, lambda arguments, context: named("b").run(arguments, context))


# --- Agents and their tools --------------------------------------------------------------------


def of(*agents: Agent, registry: ToolRegistry) -> Application:
    return Application(name="tests", agents=agents, model=ScriptedModel([]), registry=registry)


def test_an_agent_names_registered_tools_or_brings_its_own() -> None:
    registered, own = named("registered"), named("own")
    registry = ToolRegistry([registered])
    worker = Agent("worker", "Work.", tools=("registered", own))
    of(worker, registry=registry)

    assert dict(worker.tools_now(registry)) == {"registered": registered, "own": own}


def test_an_agent_that_names_a_tool_that_there_is_not_is_refused() -> None:
    worker = Agent("worker", "Work.", tools=("nowhere",))

    with pytest.raises(RegistrationError, match=r"'nowhere' that is not registered.*here"):
        of(worker, registry=ToolRegistry([named("here")]))


def test_an_agent_with_two_tools_of_one_name_is_refused() -> None:
    with pytest.raises(RegistrationError, match="two tools"):
        Agent("worker", "Work.", tools=("a", named("a")))


def test_an_agents_hooks_are_looked_at_where_it_is_defined() -> None:
    with pytest.raises(RegistrationError, match="unknown"):
        Agent("worker", "Work.", hooks=[lambda unknown: None])
