"""The agents of the scenarios, built with LangChain's `create_agent`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from scenarios import DELEGATES, TOOLS, Scenario, result_of
from scripted_model import MODEL


@wrap_tool_call
async def _answer_errors(request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
    try:
        return await handler(request)
    except Exception as error:
        call_id = request.tool_call["id"]
        return ToolMessage(f"Error: {error}", tool_call_id=call_id, status="error")


class LangChainAgents:
    """Agents of which each calls its tools in parallel."""

    def __init__(self, model: str, callbacks: tuple[Any, ...] = ()) -> None:
        self._callbacks = list(callbacks)
        chat = ChatOpenAI(model=MODEL, base_url=model, api_key="none", max_retries=0)
        tools = {each.name: each for each in self._tools()}
        self._agents = {
            name: create_agent(
                chat,
                [tools[each] for each in names],
                name=name,
                system_prompt=f"You are the {name}.",
                middleware=[_answer_errors],
            )
            for name, names in TOOLS.items()
        }

    async def run(self, scenario: Scenario) -> str:
        return await self._ask("planner", scenario.prompt, {"callbacks": self._callbacks})

    async def _ask(self, agent: str, request: str, config: Any = None) -> str:
        messages = {"messages": [{"role": "user", "content": request}]}
        state = await self._agents[agent].ainvoke(messages, config)
        return str(state["messages"][-1].content)

    def _tools(self) -> list[Any]:
        async def work(name: str, value: str) -> str:
            if name in DELEGATES:
                return await self._ask(DELEGATES[name], value)
            await asyncio.sleep(0.01)
            return result_of(name, value)

        @tool
        async def weather(city: str) -> str:
            """Return the weather."""
            return await work("weather", city)

        @tool
        async def search(query: str) -> str:
            """Search."""
            return await work("search", query)

        @tool
        async def fetch(page: str) -> str:
            """Fetch a page."""
            return await work("fetch", page)

        @tool
        async def ask_researcher(question: str) -> str:
            """Ask the researcher."""
            return await work("ask_researcher", question)

        @tool
        async def ask_reader(question: str) -> str:
            """Ask the reader."""
            return await work("ask_reader", question)

        return [weather, search, fetch, ask_researcher, ask_reader]
