"""Calling a tool: arguments in, an ending out, whatever the tool does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from tracer.context import ToolContext, tool_context_bound
from tracer.errors import LineageError, ToolError
from tracer.tools.arguments import read_arguments
from tracer.tools.definition import Tool
from tracer.tools.ending import Ending, cancelled, failed, succeeded, timed_out
from tracer.tools.results import result_text
from tracer.tools.waiting import GRACE_SECONDS, Waited, earlier, has_passed, wait_for_end

_ESCAPING = (SystemExit, KeyboardInterrupt)
"""What a task would pass on to the event loop: a tool that calls `exit()` would end the agent."""


async def call_tool(
    tool: Tool,
    arguments: str | None,
    context: ToolContext,
    *,
    before_retry: Callable[[int], Awaitable[None]],
    on_late: Callable[[asyncio.Task[Ending]], None],
) -> Ending:
    """Call a tool and return how the call ended.

    Never raises: to be cancelled is an ending too, which the caller has to heed.

    Args:
        tool: The tool.
        arguments: The text that the model wrote.
        context: The call's place; current while the tool runs, with the tool's own deadline.
        before_retry: Awaited with the attempt's number, from 2, before each further attempt.
        on_late: Receives the task of a call that was given up and went on, or ended by itself.
    """
    deadline = earlier(context.deadline, tool.timeout)
    if has_passed(deadline):
        return timed_out("The time was over before the tool could start.")
    context = replace(context, deadline=deadline)
    work = asyncio.create_task(_run(tool, arguments, context, before_retry))
    if tool.ends_by_itself:
        waited = await wait_for_end(work, deadline=None, grace=None)
    else:
        waited = await wait_for_end(work, deadline, GRACE_SECONDS)
    if waited is Waited.ENDED or not work.cancelling():
        return _ending_of(work)
    if not tool.ends_by_itself and not work.cancelled():
        on_late(work)
    if waited is Waited.CANCELLED:
        return cancelled()
    if tool.timeout is not None:
        return timed_out(f"The tool did not end within {tool.timeout:g} s.")
    return timed_out("The time was over before the tool ended.")


async def late_ending(work: asyncio.Task[Ending]) -> Ending | None:
    """Wait for a call that was given up and return how it ended; None if it was just cancelled."""
    await asyncio.wait({work})
    return None if work.cancelled() else _ending_of(work)


def _ending_of(work: asyncio.Task[Ending]) -> Ending:
    if work.cancelled():
        return cancelled(message="The tool cancelled itself.")
    error = work.exception()
    return work.result() if error is None else failed(error)


async def _run(
    tool: Tool,
    text: str | None,
    context: ToolContext,
    before_retry: Callable[[int], Awaitable[None]],
) -> Ending:
    number = 0

    async def attempt() -> Any:
        nonlocal number
        number += 1
        if number > 1:
            await before_retry(number)
        return await tool.run(dict(arguments), context)

    retrying = AsyncRetrying(
        stop=stop_after_attempt(tool.max_attempts),
        wait=wait_exponential_jitter(multiplier=0.1, max=5, jitter=0.1),
        retry=retry_if_exception(_may_pass),
        reraise=True,
    )
    try:
        with tool_context_bound(context):
            arguments = tool.checked(read_arguments(text))
            return succeeded(result_text(await retrying(attempt)))
    except (Exception, *_ESCAPING) as error:
        return failed(error)


def _may_pass(error: BaseException) -> bool:
    """Return whether another attempt may go better: not where the tool itself refused.

    And not where the call was given up meanwhile: its ending is recorded.
    """
    task = asyncio.current_task()
    given_up = task is not None and task.cancelling() > 0
    is_refusal = isinstance(error, (ToolError, LineageError))
    return isinstance(error, Exception) and not is_refusal and not given_up
