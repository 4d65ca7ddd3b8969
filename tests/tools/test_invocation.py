"""One call of a tool: exceptions, timeouts, cancellation and retries."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, cast

from tests.tools.contexts import Caller, some_context
from tests.tools.short_times import PATIENCE, long_enough
from tracer.concurrency import MAX_THREADS, has_passed, seconds_left
from tracer.context import ToolContext, current_tool_context
from tracer.errors import DepthLimitReached, ToolError
from tracer.records import Status
from tracer.records.results import Ending
from tracer.tools import Tool, tool


async def forever() -> None:
    await asyncio.Event().wait()


async def call_with_deadline(caller: Caller, tool: Tool, seconds: float) -> Ending:
    """Call a tool in a plan whose time is over after so many seconds."""
    return await caller.call(tool, context=some_context(time.monotonic() + seconds))


class Refused(ToolError):
    reason = "out_of_stock"


class Misspelt(ToolError):
    reason = "Out of stock!"


class Abrupt(BaseException):
    pass


async def test_any_exception_of_a_tool_fails_its_call() -> None:
    reasons: list[tuple[BaseException, str]] = [
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
    ]
    raising: list[BaseException] = []

    @tool
    async def raise_it() -> None:
        raise raising[-1]

    @tool
    def raise_it_in_thread() -> None:
        raise raising[-1]

    failures = []
    for (error, reason), each in product(reasons, (raise_it, raise_it_in_thread)):
        raising.append(error)
        ending = await Caller().call(each)
        message = ending.error and ending.error.message
        if (ending.status, ending.reason) != (Status.FAILED, reason):
            failures.append(f"{error!r}: expected {reason}, got {ending.status} {ending.reason}")
        # A coroutine cannot raise StopIteration: Python replaces it.
        if message != str(error) and not isinstance(error, StopIteration):
            failures.append(f"{error!r}: the message is {message!r}")

    assert failures == []


async def test_call_that_times_out_is_cancelled_and_cleans_up() -> None:
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


async def test_call_ends_at_the_deadline_of_its_plan() -> None:
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


async def test_tool_that_ignores_its_cancellation_is_recorded_as_still_running() -> None:
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

    assert (ending.reason, caller.notes.still_running, len(caller.late)) == ("timed_out", True, 1)


async def test_synchronous_tool_is_recorded_as_still_running_after_its_timeout() -> None:
    begun, let_go = threading.Event(), threading.Event()

    @tool
    def stubborn() -> str:
        begun.set()
        assert let_go.wait(PATIENCE)
        raise ValueError("late")

    caller = Caller()
    ending = await long_enough(partial(call_with_deadline, caller, stubborn), begun.is_set)
    let_go.set()

    assert (ending.reason, caller.notes.still_running) == ("timed_out", True)


async def test_tool_that_cancels_itself_does_not_cancel_its_caller() -> None:
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


async def test_cancelled_call_ends_as_cancelled() -> None:
    begun = asyncio.Event()

    @tool
    async def slow() -> None:
        begun.set()
        await forever()

    work = asyncio.create_task(Caller().call(slow))
    await begun.wait()
    work.cancel()

    assert (await work).status is Status.CANCELLED


async def test_failure_is_retried_up_to_the_limit_of_the_tool() -> None:
    outcomes: list[Callable[[], str]] = [lambda: str(1 / 0), lambda: str(1 / 0), lambda: "third"]

    @tool(max_attempts=3)
    def flaky() -> str:
        return outcomes.pop(0)()

    caller = Caller()

    assert (await caller.call(flaky)).result == "third"
    assert caller.retries == [2, 3]


async def test_denied_call_is_not_retried() -> None:
    @tool(max_attempts=3)
    def refusing() -> None:
        raise ToolError("No.")

    caller = Caller()
    ending = await caller.call(refusing)

    assert ending.error is not None
    assert ending.error.message == "No."
    assert caller.retries == []


async def test_awaitable_returned_by_a_plain_function_is_awaited() -> None:
    async def later() -> str:
        return "later"

    @tool
    def handing() -> Any:
        return later()

    assert (await Caller().call(handing)).result == "later"


async def test_call_that_times_out_waiting_for_a_thread_never_starts() -> None:
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


async def test_tool_that_handles_its_own_timeout_is_not_cancelled_at_the_deadline() -> None:
    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        await asyncio.to_thread(time.sleep, seconds_left(context.deadline) or 0)
        return "done" if has_passed(context.deadline) else "early"

    ours = Tool("ours", "", {}, run, timeout=0.001, ends_by_itself=True)

    assert (await Caller().call(ours)).result == "done"


def test_recursion_error_of_a_tool_fails_the_call() -> None:
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


async def test_call_that_timed_out_is_not_retried() -> None:
    begun, let_go = threading.Event(), threading.Event()

    @tool(max_attempts=3)
    def stubborn() -> None:
        begun.set()
        let_go.wait(PATIENCE)
        raise ValueError("too late")

    caller = Caller()
    ending = await long_enough(partial(call_with_deadline, caller, stubborn), begun.is_set)
    let_go.set()
    await asyncio.wait(cast("list[asyncio.Task[Ending]]", caller.late))

    assert ending.reason == "timed_out"
    assert caller.retries == []
