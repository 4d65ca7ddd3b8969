"""Agents of the OpenAI Agents SDK with scripted models, and tools for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agents import Agent, function_tool
from agents.items import TResponseOutputItem
from agents.testing import ScriptedModel, assistant_message, function_call

DONE = [assistant_message("done")]


def call_of(name: str, arguments: Any = "{}", call_id: str = "c") -> TResponseOutputItem:
    return function_call(name, arguments, call_id=call_id)


def agent_of(*answers: Sequence[TResponseOutputItem] | Exception, **options: Any) -> Agent[Any]:
    return Agent(**{"name": "planner", "model": ScriptedModel(answers), **options})


@function_tool
def divide(a: int, b: int) -> float:
    return a / b


class Tide:
    """A tool that never answers; a test can wait until it is asked."""

    def __init__(self) -> None:
        self.asked = asyncio.Semaphore(0)

        @function_tool
        async def tide() -> None:
            self.asked.release()
            await asyncio.Event().wait()

        self.tool = tide
