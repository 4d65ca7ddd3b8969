"""The agents of the scenarios, built with the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from openai import AsyncOpenAI
from scenarios import DELEGATES, TOOLS, Scenario, result_of
from scripted_model import MODEL

Api = type[OpenAIResponsesModel] | type[OpenAIChatCompletionsModel]


class OpenAIAgents:
    """Agents of which each calls its tools in parallel."""

    def __init__(self, model: str, api: Api = OpenAIResponsesModel) -> None:
        client = AsyncOpenAI(base_url=model, api_key="none", max_retries=0)
        tools = {each.name: each for each in self._tools()}
        self._agents = {
            name: Agent(
                name=name,
                instructions=f"You are the {name}.",
                model=api(MODEL, client),
                tools=[tools[each] for each in names],
            )
            for name, names in TOOLS.items()
        }

    async def run(self, scenario: Scenario) -> str:
        return await self._ask("planner", scenario.prompt)

    async def _ask(self, agent: str, request: str) -> str:
        result = await Runner.run(self._agents[agent], request)
        return str(result.final_output)

    def _tools(self) -> list[Any]:
        async def work(name: str, value: str) -> str:
            if name in DELEGATES:
                return await self._ask(DELEGATES[name], value)
            await asyncio.sleep(0.01)
            return result_of(name, value)

        @function_tool
        async def weather(city: str) -> str:
            return await work("weather", city)

        @function_tool
        async def search(query: str) -> str:
            return await work("search", query)

        @function_tool
        async def fetch(page: str) -> str:
            return await work("fetch", page)

        @function_tool
        async def ask_researcher(question: str) -> str:
            return await work("ask_researcher", question)

        @function_tool
        async def ask_reader(question: str) -> str:
            return await work("ask_reader", question)

        return [weather, search, fetch, ask_researcher, ask_reader]
