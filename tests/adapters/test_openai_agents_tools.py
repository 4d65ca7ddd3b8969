"""OpenAI Agents SDK: MCP, hosted and shell tools, parallel sub-agents, and store outages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from agents import (
    Agent,
    LocalShellTool,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_trace_processors,
)
from agents.mcp import MCPServer
from agents.testing import ScriptedModel, assistant_message, function_call
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as McpTool
from openai import AsyncOpenAI
from openai.types.responses import ResponseFunctionWebSearch
from openai.types.responses.response_output_item import LocalShellCall, McpCall

from tests.adapters.installed import installed
from tests.adapters.outline import calls_of, outline
from tests.adapters.recording import RecordedStore, tree_of
from tests.recorder.stores import CommandedStore
from tests.recordings import messages_of, round_of
from tests.runtime.chat_server import ChatServer, serving
from tracer.adapters import openai_agents
from tracer.client import Tracing
from tracer.recorder import Spool
from tracer.runtime.chat_model import ChosenCall
from tracer.runtime.scripted_model import Script, Turn
from tracer.runtime.scripted_model import ScriptedModel as ServedModel

DONE = [assistant_message("done")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordedStore]:
    set_trace_processors([])
    with installed(openai_agents.install, tmp_path) as store:
        yield store


class Harbour(MCPServer):
    """A server in the same process."""

    @property
    def name(self) -> str:
        return "harbour"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[McpTool]:
        schema = {"type": "object", "properties": {}}
        return [McpTool(name=name, input_schema=schema) for name in ("open", "closed")]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> CallToolResult:
        content = [TextContent(type="text", text=f"it is {tool_name}")]
        return CallToolResult(content=list(content), is_error=tool_name == "closed")

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


async def test_error_from_an_mcp_server_fails_the_call(store: RecordedStore) -> None:
    chosen = [function_call("open", {}, call_id="x"), function_call("closed", {}, call_id="y")]
    agent = Agent(name="planner", model=ScriptedModel([chosen, DONE]), mcp_servers=[Harbour()])

    await Runner.run(agent, "Go.")

    right, wrong = calls_of(await tree_of(store))
    assert (right["status"], right["toolType"]) == ("succeeded", "MCP")
    assert (wrong["status"], wrong["reason"]) == ("failed", "tool_error")
    assert "it is closed" in wrong["result"]


async def test_tool_calls_run_by_the_provider_end_with_the_models_response(
    store: RecordedStore,
) -> None:
    search = ResponseFunctionWebSearch.model_validate(
        {
            "id": "ws_1",
            "type": "web_search_call",
            "status": "completed",
            "action": {"type": "search", "query": "tides"},
        }
    )
    roll = {"type": "mcp_call", "name": "roll", "arguments": "{}", "server_label": "dice"}
    rolled = McpCall.model_validate({**roll, "id": "m_1", "output": "4"})
    error = {"type": "mcp_tool_execution_error", "content": []}
    lost = McpCall.model_validate({**roll, "id": "m_2", "error": error})
    model = ScriptedModel([[search, rolled, lost, *DONE]])

    await Runner.run(Agent(name="planner", model=model), "Search.")

    tree = await tree_of(store)
    assert outline(tree) == [
        "plan of planner: succeeded",
        "  round: succeeded",
        '    web_search({"action":{"type":"search","query":"tides"}}): succeeded',
        "    roll({}): succeeded",
        "    roll({}): failed (tool_error)",
    ]
    assert [each["result"] for each in calls_of(tree)] == [None, "4", None]


async def test_local_shell_tool_of_openai_is_recorded_as_a_call(store: RecordedStore) -> None:
    shell = LocalShellCall.model_validate(
        {
            "id": "l_1",
            "call_id": "call_9",
            "type": "local_shell_call",
            "status": "in_progress",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        }
    )
    model = ScriptedModel([[shell], DONE])
    tool = LocalShellTool(executor=lambda request: "shells")

    await Runner.run(Agent(name="planner", model=model, tools=[tool]), "List.")

    [call] = calls_of(await tree_of(store))
    assert (call["name"], call["providerCallId"]) == ("local_shell", "call_9")
    assert (call["status"], call["result"]) == ("succeeded", "shells")


async def test_same_provider_id_in_another_round_is_another_call(
    store: RecordedStore,
) -> None:
    """The SDK refuses ids that repeat with other arguments, and repeats what it is asked again."""
    asked = [function_call("open", {}, call_id="call_0")]
    agent = Agent(name="planner", model=ScriptedModel([asked, asked, DONE]))
    agent.mcp_servers = [Harbour()]

    await Runner.run(agent, "Go.")

    assert outline(await tree_of(store)) == [
        "plan of planner: succeeded",
        "  round: succeeded",
        "    open({}): succeeded",
        "  round: succeeded",
        "    open({}): cancelled (repeated)",
        "  round: succeeded",
    ]


async def test_parallel_runs_of_one_sub_agent_are_below_their_own_calls(
    store: RecordedStore,
) -> None:
    inner = [function_call("open", {}, call_id="call_0")]
    researcher = Agent(name="researcher", model=ScriptedModel([inner, inner, DONE, DONE]))
    researcher.mcp_servers = [Harbour()]
    chosen = [
        function_call("ask", {"input": question}, call_id=f"call_{index}")
        for index, question in enumerate(("when?", "where?"))
    ]
    model = ScriptedModel([chosen, DONE])
    ask = researcher.as_tool("ask", "Ask.")

    await Runner.run(Agent(name="planner", model=model, tools=[ask]), "Plan.")

    calls = calls_of(await tree_of(store))
    assert [
        (call["arguments"], sub_plan["userRequest"], calls_of(sub_plan)[0]["providerCallId"])
        for call in calls
        for sub_plan in call["subPlans"]
    ] == [('{"input":"when?"}', "when?", "call_0"), ('{"input":"where?"}', "where?", "call_0")]


async def test_agent_run_in_a_tools_thread_is_a_sub_plan(store: RecordedStore) -> None:
    def ask(question: str) -> str:
        researcher = Agent(name="researcher", model=ScriptedModel([DONE]))
        return str(asyncio.run(Runner.run(researcher, question)).final_output)

    asked = [function_call("ask", {"question": "When?"}, call_id="x")]
    model = ScriptedModel([asked, DONE])
    await Runner.run(Agent(name="planner", model=model, tools=[function_tool(ask)]), "Plan.")

    [call] = calls_of(await tree_of(store))
    assert [each["userRequest"] for each in call["subPlans"]] == ["When?"]


async def test_round_records_the_providers_model_tokens_cost_and_messages(
    store: RecordedStore,
) -> None:
    turns = [Turn(calls=[ChosenCall("open", "{}", "x")]), Turn("Come in.")]
    with serving(ChatServer(ServedModel([Script(turns)]))) as server:
        client = AsyncOpenAI(base_url=server.base_url, api_key="none")
        model = OpenAIChatCompletionsModel(model="gpt-5-mini", openai_client=client)
        agent = Agent("planner", instructions="Be kind.", model=model, mcp_servers=[Harbour()])
        await Runner.run(agent, "Is it open?")
        await client.close()

    tree = await tree_of(store)
    first, second = tree["agentExecutions"][0]["thinkActs"]
    assert (first["model"], first["inputTokens"], first["outputTokens"]) == ("gpt-5-mini", 11, 7)
    assert (second["thought"], second["inputTokens"]) == ("Come in.", 11)
    records = [round_of(store, UUID(each["thinkActId"])) for each in (first, second)]
    assert [each.finish_reasons for each in records] == [["tool_calls"], ["stop"]]
    assert {each.provider for each in records} == {None}
    assert first["costUsd"] > 0
    messages = messages_of(store, UUID(tree["planId"]))
    assert json.loads(messages[UUID(first["thinkActId"])]) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Is it open?"},
    ]


async def test_agent_continues_while_the_store_is_down(tmp_path: Path) -> None:
    set_trace_processors([])
    store = CommandedStore()
    store.down = True
    with Tracing(
        lambda: nullcontext(store), lambda: Spool(tmp_path / "spool.sqlite3"), buffered=True
    ) as tracing:
        uninstall = openai_agents.install(tracing)
        model = ScriptedModel([[function_call("open", {}, call_id="x")], DONE])
        agent = Agent(name="planner", model=model, mcp_servers=[Harbour()])
        result = await Runner.run(agent, "Go.")
        uninstall()
        await asyncio.to_thread(tracing.flush)

    assert result.final_output == "done"
