"""The nurse's tools, called as the runtime calls them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from health.agents import health_application
from health.diary import Diary
from tracer.context import ToolContext
from tracer.ids import new_id
from tracer.tools.ending import Ending
from tracer.tools.invocation import call_tool

CallNurse = Callable[..., Awaitable[Ending]]
"""Calls a tool by its name, with arguments by keyword."""


def nurse_over(diary: Diary) -> CallNurse:
    """Return what calls the nurse's tools over a diary."""
    tools = health_application(diary).agent("nurse").tools_by_name

    async def no_retry(attempt: int) -> None:
        raise AssertionError(f"attempt {attempt}")

    def no_late_end(work: asyncio.Task[Ending]) -> None:
        raise AssertionError(work)

    async def call(name: str, /, **arguments: Any) -> Ending:
        place = ToolContext(
            toolcallId=new_id(), root_plan_id=new_id(), plan_id=new_id(), step_id=new_id()
        )
        text = json.dumps(arguments)
        return await call_tool(tools[name], text, place, before_retry=no_retry, on_late=no_late_end)

    return call


def rows(ending: Ending) -> Any:
    """Return what a call that succeeded came to."""
    assert ending.error is None, ending.error
    assert ending.result is not None
    return json.loads(ending.result)
