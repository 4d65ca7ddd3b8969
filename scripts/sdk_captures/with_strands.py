"""Strands Agents, which has spans of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from export import global_provider
from scenarios import DELEGATES, TOOLS, Scenario, result_of
from scripted_model import MODEL
from strands import Agent, tool
from strands.models.openai import OpenAIModel

PACKAGES = ("strands-agents", "openai", "opentelemetry-sdk")


def start(receiver: str, model: str) -> tuple[Any, Callable[[], object]]:
    provider = global_provider(receiver)

    async def ask(agent: str, request: str) -> str:
        client = {"base_url": model, "api_key": "none", "max_retries": 0}
        made = Agent(
            name=agent,
            system_prompt=f"You are the {agent}.",
            model=OpenAIModel(client_args=client, model_id=MODEL),
            tools=[tools[each] for each in TOOLS[agent]],
            callback_handler=None,
        )
        return str(await made.invoke_async(request)).strip()

    async def work(name: str, value: str) -> str:
        if name in DELEGATES:
            return await ask(DELEGATES[name], value)
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

    tools = {each.tool_name: each for each in (weather, search, fetch, ask_researcher, ask_reader)}

    async def run(scenario: Scenario) -> str:
        return await ask("planner", scenario.prompt)

    return run, provider.force_flush
