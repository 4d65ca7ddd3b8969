"""The tool registry: valid names, registration and look-up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from tests.tools.tables import not_rejected
from tracer.context import ToolContext
from tracer.errors import ConfigurationError, RegistrationError, UnknownTool
from tracer.runtime import Agent, Application
from tracer.runtime.agent_files import read_agents
from tracer.runtime.scripted_model import ScriptedModel
from tracer.tools import Tool, ToolRegistry, tool
from tracer.tools.mcp import McpConfig, McpServer
from tracer.tools.parameters import Hidden, TokenId
from tracer.tools.registry import RESERVED_NAMES


def named(name: str, **options: Any) -> Tool:
    async def run() -> None: ...

    return tool(name=name, **options)(run)


def test_tools_are_found_by_name_and_by_tag_in_order() -> None:
    one, two, three = named("b", tags=["x", "y"]), named("a", tags=["x"]), named("c")
    registry = ToolRegistry([one])
    assert registry.register(two) is two
    registry.register(three)

    assert registry.read("a") is registry.find("a") is two
    assert registry.find("d") is None
    assert registry.tagged("x") == (one, two)
    assert registry.tagged("z") == ()
    assert (list(registry), len(registry)) == ([one, two, three], 3)


def test_error_for_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownTool, match=r"no tool 'd'. Available: a, b\."):
        ToolRegistry([named("b"), named("a")]).read("d")
    with pytest.raises(UnknownTool, match="answer without a tool"):
        ToolRegistry().read("d")


def test_registry_cannot_be_changed_through_its_tools() -> None:
    registry = ToolRegistry([named("a")])

    with pytest.raises(TypeError):
        registry.tools()["b"] = named("b")  # type: ignore[index]
    assert len(registry) == 1


def test_second_tool_with_a_registered_name_is_rejected() -> None:
    first = named("a")
    registry = ToolRegistry([first])

    with pytest.raises(RegistrationError, match="Two tools are named"):
        registry.register(named("a"))
    assert registry.read("a") is first


def test_name_that_models_cannot_write_is_rejected() -> None:
    names = ["with space", "a.b", "naïve", "名", "a" * 65, "a\n", "a/b", "{a}"]
    for name in names:
        with pytest.raises(RegistrationError, match="invalid for models"):
            ToolRegistry([named(name)])


def test_reserved_name_is_rejected() -> None:
    for name in RESERVED_NAMES:
        with pytest.raises(RegistrationError, match="reserved"):
            ToolRegistry([named(name)])


def asks_for_token(token_id: str) -> None: ...


def asks_for_token_in_camel_case(tokenId: str) -> None: ...  # noqa: N803


def asks_for_call(toolcallId: str) -> None: ...  # noqa: N803


def asks_for_context(tool_context: dict[str, Any]) -> None: ...


def test_visible_parameter_that_the_runtime_fills_is_rejected() -> None:
    functions: list[Callable[..., Any]] = [
        asks_for_token,
        asks_for_token_in_camel_case,
        asks_for_call,
        asks_for_context,
    ]
    for function in functions:
        with pytest.raises(RegistrationError, match="Hide it"):
            ToolRegistry([tool(function)])


def test_hidden_parameter_may_have_a_reserved_name() -> None:
    @tool
    async def fine(token_id: Annotated[TokenId, Hidden()], tool_context: ToolContext) -> None: ...

    assert ToolRegistry([fine]).read("fine") is fine


def test_nested_field_that_the_runtime_fills_is_rejected() -> None:
    schema = {
        "type": "object",
        "properties": {"who": {"$ref": "#/$defs/who"}},
        "$defs": {"who": {"type": "object", "properties": {"tokenId": {"type": "string"}}}},
    }

    async def run(arguments: dict[str, Any], context: ToolContext) -> None: ...

    with pytest.raises(RegistrationError, match="Hide it"):
        ToolRegistry([Tool("look", "", schema, run)])


def unresolvable(who: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037


def by_position(who: str, /) -> None: ...


def any_number(*who: str) -> None: ...


def anything(**who: str) -> None: ...


def no_json(who: Callable[[], None]) -> None: ...


def both(user_id: TokenId, userId: Annotated[str, Field()]) -> None: ...  # noqa: N803


def test_function_with_parameters_that_cannot_be_filled_is_rejected() -> None:
    reasons: list[tuple[Callable[..., Any], str]] = [
        (unresolvable, "unresolvable"),
        (by_position, "by name"),
        (any_number, "by name"),
        (anything, "by name"),
        (no_json, "no_json"),
        (both, "both"),
    ]
    for function, reason in reasons:
        with pytest.raises(RegistrationError, match=reason) as caught:
            tool(function)

        assert function.__name__ in str(caught.value)
        assert isinstance(caught.value, ConfigurationError)


def test_tool_that_could_never_run_is_rejected() -> None:
    fitting: dict[str, Any] = {"name": "a", "description": "", "parameters": {}, "run": named}
    options: list[dict[str, Any]] = [
        {"max_attempts": 0},
        {"max_parallel": 0},
        {"name": ""},
        {"concurrency": "ledger"},
    ]
    failures = not_rejected(RegistrationError, lambda each: Tool(**(fitting | each)), options)
    assert failures == []


def test_parameter_schema_with_external_references_is_rejected() -> None:
    schemas: list[dict[str, Any]] = [
        {"type": "nonsense"},
        {"properties": {"a": {"$ref": "https://example.org/schema"}}},
        {"$ref": "#/$defs/nowhere"},
    ]
    for schema in schemas:
        with pytest.raises(RegistrationError, match="schema"):
            Tool("a", "", schema, named("b").run)


# --- Agents and their tools --------------------------------------------------------------------


def of(*agents: Agent, registry: ToolRegistry) -> Application:
    return Application(name="tests", agents=agents, model=ScriptedModel([]), registry=registry)


def test_agent_has_registered_tools_and_its_own() -> None:
    registered, own = named("registered"), named("own")
    registry = ToolRegistry([registered])
    worker = Agent("worker", "Work.", tools=("registered", own))
    of(worker, registry=registry)

    assert dict(worker.tools_now(registry)) == {"registered": registered, "own": own}


def test_agent_with_an_unknown_tool_is_rejected() -> None:
    worker = Agent("worker", "Work.", tools=("nowhere",))

    with pytest.raises(RegistrationError, match=r"'nowhere' that is not registered.*here"):
        of(worker, registry=ToolRegistry([named("here")]))


def server(**config: Any) -> ToolRegistry:
    """Return a registry with one MCP server, which is not connected."""
    return ToolRegistry([named("here")], [McpServer(McpConfig(name="m", command="x", **config))])


@pytest.mark.parametrize(
    ("config", "possible", "impossible"),
    [
        ({}, ("anything", "a-b_1"), ("", "a b", "a.b", "é", "x" * 65)),
        ({"tools": {"read.it"}}, ("read_it",), ("read.it", "read", "write_it")),
        ({"prefix": "m"}, ("m_read", "m_"), ("read", "M_read", "m")),
        ({"prefix": "m", "tools": {"read"}}, ("m_read",), ("read", "m_write")),
        ({"tools": set()}, ("here",), ("read",)),
        ({"tools": {"x" * 70}}, ("x" * 64,), ("x" * 63,)),
        ({"prefix": "p" * 70}, ("p" * 64,), ("p" * 63, "p_read")),
    ],
)
def test_agent_may_name_only_tools_that_a_server_can_provide(
    config: dict[str, Any], possible: Sequence[str], impossible: Sequence[str]
) -> None:
    registry = server(**config)
    of(*(Agent(each, "Work.", tools=(each,)) for each in possible), registry=registry)
    for each in impossible:
        with pytest.raises(RegistrationError, match=r"not registered.*MCP server"):
            of(Agent("worker", "Work.", tools=(each,)), registry=registry)


def test_agents_file_with_an_unavailable_tool_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text("worker:\n  tools: [here, get_time, get_tiem]\n")
    registry = server(tools={"get_time"})
    with pytest.raises(RegistrationError, match="'get_tiem' that is not registered"):
        of(*read_agents(path), registry=registry)


def test_agent_with_two_tools_of_one_name_is_rejected() -> None:
    with pytest.raises(RegistrationError, match="two tools"):
        Agent("worker", "Work.", tools=("a", named("a")))


def test_hooks_of_an_agent_are_checked_at_definition() -> None:
    with pytest.raises(RegistrationError, match="unknown"):
        Agent("worker", "Work.", tool_hooks=[lambda unknown: None])
