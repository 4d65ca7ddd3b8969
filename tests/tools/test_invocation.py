import asyncio
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from tests.tools.contexts import Caller, some_context
from tests.tools.short_times import PATIENCE, long_enough
from tracer.context import ToolContext, current_tool_context
from tracer.errors import DepthLimitReached, ToolError
from tracer.status import Status
from tracer.tools.definition import Tool, tool
from tracer.tools.ending import Ending
from tracer.tools.invocation import late_ending
from tracer.tools.threads import MAX_THREADS
from tracer.tools.waiting import has_passed, seconds_left


async def forever() -> None:
    await asyncio.Event().wait()


async def within(caller: Caller, tool: Tool, seconds: float) -> Ending:
    """Call a tool in a plan whose time is over after so many seconds."""
    return await caller.call(tool, context=some_context(time.monotonic() + seconds))


class Refused(ToolError):
    reason = "out_of_stock"


class Misspelt(ToolError):
    reason = "Out of stock!"


class Abrupt(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("x"), "tool_error"),
        (ToolError("x"), "tool_error"),
        (Refused("x"), "out_of_stock"),
        (Misspelt("x"), "tool_error"),
        (DepthLimitReached("x"), "depth_limit"),
        (TimeoutError("x"), "tool_error"),
        (StopIteration("x"), "tool_error"),
        (SystemExit("x"), "tool_error"),
        (KeyboardInterrupt("x"), "tool_error"),
        (Abrupt("x"), "tool_error"),
        (ExceptionGroup("x", [ValueError("y")]), "tool_error"),
    ],
)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_whatever_a_tool_raises_is_the_calls_failure(
    error: BaseException, reason: str, in_thread: bool
) -> None:
    async def raising() -> None:
        raise error

    def raising_in_thread() -> None:
        raise error

    ending = await Caller().call(tool(raising_in_thread if in_thread else raising))

    assert (ending.status, ending.reason) == (Status.FAILED, reason)
    assert ending.error is not None
    assert ending.error.message == str(error) or isinstance(error, StopIteration)


async def test_a_call_that_takes_too_long_is_given_up_and_ends_cleanly() -> None:
    cleaned_up = asyncio.Event()

    @tool(timeout=0.01)
    async def slow() -> None:
        try:
            await forever()
        finally:
            cleaned_up.set()

    caller = Caller()
    ending = await caller.call(slow)

    assert (ending.status, ending.reason) == (Status.FAILED, "timed_out")
    assert ending.error is not None
    assert ending.error.message == "The tool did not end within 0.01 s."
    assert cleaned_up.is_set()
    assert caller.late == []


async def test_the_deadline_of_the_plan_counts_too_and_travels_with_the_context() -> None:
    seen = []

    @tool(timeout=100)
    async def slow() -> None:
        context = current_tool_context()
        assert context is not None
        seen.append(context.deadline)
        await forever()

    deadline = time.monotonic() + 0.5
    ending = await Caller().call(slow, context=some_context(deadline))
    too_late = await Caller().call(slow, context=some_context(deadline))

    assert ending.reason == too_late.reason == "timed_out"
    assert seen == [deadline]


async def test_a_tool_that_swallows_its_cancellation_is_left_alone_and_its_late_end_known() -> None:
    let_go = asyncio.Event()

    @tool(timeout=0.01)
    async def stubborn() -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return "after all"

    caller = Caller()
    ending = await caller.call(stubborn)
    let_go.set()
    [work] = caller.late
    assert isinstance(work, asyncio.Task)
    late = await late_ending(work)

    assert ending.reason == "timed_out"
    assert late is not None
    assert (late.status, late.result) == (Status.SUCCEEDED, "after all")


async def test_a_synchronous_tool_goes_on_past_its_timeout_and_its_late_end_is_known() -> None:
    begun, let_go = threading.Event(), threading.Event()

    @tool
    def stubborn() -> str:
        begun.set()
        assert let_go.wait(PATIENCE)
        raise ValueError("late")

    caller = Caller()
    ending = await long_enough(partial(within, caller, stubborn), begun.is_set)
    let_go.set()
    *_, work = caller.late
    assert isinstance(work, asyncio.Task)
    late = await late_ending(work)

    assert ending.reason == "timed_out"
    assert late is not None
    assert (late.status, late.reason) == (Status.FAILED, "tool_error")


async def test_a_tool_that_cancels_itself_is_cancelled_and_its_caller_is_not() -> None:
    @tool
    async def gives_up() -> None:
        raise asyncio.CancelledError

    @tool
    def gives_up_in_thread() -> None:
        raise asyncio.CancelledError

    for each in (gives_up, gives_up_in_thread):
        ending = await Caller().call(each)

        assert ending.status is Status.CANCELLED
        assert ending.error is not None
        assert ending.error.message == "The tool cancelled itself."


async def test_being_cancelled_ends_the_call_as_cancelled() -> None:
    begun = asyncio.Event()

    @tool
    async def slow() -> None:
        begun.set()
        await forever()

    work = asyncio.create_task(Caller().call(slow))
    await begun.wait()
    work.cancel()

    assert (await work).status is Status.CANCELLED


async def test_a_failure_is_tried_again_as_often_as_the_tool_says() -> None:
    outcomes: list[Callable[[], str]] = [lambda: str(1 / 0), lambda: str(1 / 0), lambda: "third"]

    @tool(max_attempts=3)
    def flaky() -> str:
        return outcomes.pop(0)()

    caller = Caller()

    assert (await caller.call(flaky)).result == "third"
    assert caller.retries == [2, 3]


async def test_a_refusal_is_not_tried_again() -> None:
    @tool(max_attempts=3)
    def refusing() -> None:
        raise ToolError("No.")

    caller = Caller()
    ending = await caller.call(refusing)

    assert ending.error is not None
    assert ending.error.message == "No."
    assert caller.retries == []


async def test_what_a_plain_function_hands_back_to_wait_for_is_waited_for() -> None:
    async def later() -> str:
        return "later"

    @tool
    def handing() -> Any:
        return later()

    assert (await Caller().call(handing)).result == "later"


async def test_a_call_that_waits_for_a_thread_in_vain_never_begins() -> None:
    let_go = threading.Event()
    all_taken = threading.Barrier(MAX_THREADS + 1)
    begun: list[str] = []

    @tool
    def hog() -> None:
        all_taken.wait(PATIENCE)
        assert let_go.wait(PATIENCE)

    @tool(timeout=0.01)
    def waiting() -> None:
        begun.append("waiting")

    hogs = [asyncio.create_task(Caller().call(hog)) for _ in range(MAX_THREADS)]
    await asyncio.to_thread(all_taken.wait, PATIENCE)
    caller = Caller()
    ending = await caller.call(waiting)
    let_go.set()
    await asyncio.gather(*hogs)

    assert ending.reason == "timed_out"
    assert caller.late == []
    assert begun == []


async def test_a_tool_that_ends_by_itself_is_not_given_up_at_its_deadline() -> None:
    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        await asyncio.to_thread(time.sleep, seconds_left(context.deadline) or 0)
        return "done" if has_passed(context.deadline) else "early"

    ours = Tool("ours", "", {}, run, timeout=0.001, ends_by_itself=True)

    assert (await Caller().call(ours)).result == "done"


def test_recursion_without_end_is_the_tools_failure() -> None:
    @tool
    def endless() -> Any:
        return endless_inner(0)

    def endless_inner(depth: int) -> int:
        return endless_inner(depth + 1)

    ending = asyncio.run(Caller().call(endless))

    assert ending.error is not None
    assert ending.error.type == "RecursionError"
    assert len(ending.error.stack or "") < 20_001
    assert sys.getrecursionlimit() < 10**6


async def test_a_call_that_was_given_up_is_not_tried_again() -> None:
    begun, let_go = threading.Event(), threading.Event()

    @tool(max_attempts=3)
    def stubborn() -> None:
        begun.set()
        let_go.wait(PATIENCE)
        raise ValueError("too late")

    caller = Caller()
    ending = await long_enough(partial(within, caller, stubborn), begun.is_set)
    let_go.set()
    await asyncio.wait(cast("list[asyncio.Task[Ending]]", caller.late))

    assert ending.reason == "timed_out"
    assert caller.retries == []
