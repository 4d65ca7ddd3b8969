"""An agent written by hand, as users of decorators write them: a loop around the OpenAI client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from openai import AsyncOpenAI
from scenarios import DELEGATES, PARAMETERS, TOOLS, Scenario, result_of
from scripted_model import MODEL, tool_schema

Decorator = Callable[
    [str], Callable[[Callable[..., Awaitable[str]]], Callable[..., Awaitable[str]]]
]
"""Takes a name and returns a decorator of a coroutine function."""


class OwnLoop:
    """Agents of which each calls its tools in parallel."""

    def __init__(self, client: AsyncOpenAI, agent: Decorator, tool: Decorator) -> None:
        self._client = client
        self._tools = {name: tool(name)(self._tool(name)) for name in PARAMETERS}
        self._agents = {name: agent(name)(self._agent(name)) for name in TOOLS}

    async def run(self, scenario: Scenario) -> str:
        return await self._agents["planner"](scenario.prompt)

    def _agent(self, name: str) -> Callable[[str], Awaitable[str]]:
        async def run(request: str) -> str:
            messages: list[Any] = [
                {"role": "system", "content": f"You are the {name}."},
                {"role": "user", "content": request},
            ]
            while True:
                completion = await self._client.chat.completions.create(
                    model=MODEL,
                    messages=messages,
                    tools=[tool_schema(each) for each in TOOLS[name]],
                )
                message = completion.choices[0].message
                if not message.tool_calls:
                    return message.content or ""
                messages.append(message.model_dump(exclude_none=True))
                answers = await asyncio.gather(*map(self._call, message.tool_calls))
                messages += answers

        return run

    async def _call(self, call: Any) -> dict[str, str]:
        try:
            content = await self._tools[call.function.name](**json.loads(call.function.arguments))
        except Exception as error:
            content = f"Error: {error}"
        return {"role": "tool", "tool_call_id": call.id, "content": content}

    def _tool(self, name: str) -> Callable[..., Awaitable[str]]:
        # One parameter with the tool's own name for it: decorators record the names.
        async def work(value: str) -> str:
            if name in DELEGATES:
                return await self._agents[DELEGATES[name]](value)
            await asyncio.sleep(0.01)
            return result_of(name, value)

        async def weather(city: str) -> str:
            return await work(city)

        async def search(query: str) -> str:
            return await work(query)

        async def fetch(page: str) -> str:
            return await work(page)

        async def ask_researcher(question: str) -> str:
            return await work(question)

        async def ask_reader(question: str) -> str:
            return await work(question)

        return {
            each.__name__: each for each in (weather, search, fetch, ask_researcher, ask_reader)
        }[name]
