"""Hooks that raise, hang, swallow or go on for too long: none breaks more than its call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from tests.tools.service_bench import service
from tests.tools.short_times import PATIENCE, long_enough
from tracer.tools.definition import Tool, tool

Next = Callable[[dict[str, Any]], Any]


def doubling(*hooks: Callable[..., Any], **options: Any) -> Tool:
    """Return a synchronous tool with hooks around it."""

    @tool(hooks=hooks, **options)
    def double(number: int) -> int:
        return 2 * number

    return double


async def around(next: Next, arguments: dict[str, Any]) -> Any:
    return f"<{await next(arguments)}>"


def around_in_thread(next: Next, arguments: dict[str, Any]) -> Any:
    return f"<{next(arguments)}>"


def raising(error: BaseException) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a synchronous and an asynchronous function that raise."""

    def raise_it() -> None:
        raise error

    async def raise_it_async() -> None:
        raise error

    return raise_it, raise_it_async


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("where", ["hook", "tool", "tool in a hook", "tool in an async hook"])
@pytest.mark.parametrize("error", [SystemExit("3"), KeyboardInterrupt("3"), GeneratorExit("3")])
async def test_what_would_end_the_program_ends_the_call_alone(
    tmp_path: Path, error: BaseException, where: str, is_async: bool
) -> None:
    raise_it = raising(error)[is_async]
    around_it: dict[str, list[Callable[..., Any]]] = {
        "hook": [raise_it],
        "tool": [],
        "tool in a hook": [lambda next: next({})],
        "tool in an async hook": [around],
    }

    def fine() -> None:
        return None

    made = tool(name="made", hooks=around_it[where])(fine if where == "hook" else raise_it)
    async with service(tmp_path, made) as on:
        outcome = await on.tools.call("made")

    assert (outcome.status, outcome.reason) == ("failed", "tool_error")
    assert outcome.error is not None
    assert (outcome.error.type, outcome.error.message) == (type(error).__name__, "3")
    assert len(on.endings(outcome)) == 1


async def hangs(next: Next, arguments: dict[str, Any]) -> Any:
    await asyncio.Event().wait()


async def hangs_afterwards(next: Next, arguments: dict[str, Any]) -> Any:
    await next(arguments)
    await asyncio.Event().wait()


async def swallows(next: Next, arguments: dict[str, Any]) -> Any:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "all the same"


@pytest.mark.parametrize("hook", [hangs, hangs_afterwards, swallows])
@pytest.mark.parametrize("outside", [None, around, around_in_thread])
async def test_a_hook_that_hangs_is_given_up_at_the_deadline(
    tmp_path: Path,
    hook: Callable[..., Any],
    outside: Callable[..., Any] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As long as the threads around it take to end on a machine that is busy.
    monkeypatch.setattr("tracer.tools.invocation.GRACE_SECONDS", PATIENCE)
    begun = asyncio.Event()

    @wraps(hook)
    async def noted(next: Next, arguments: dict[str, Any]) -> Any:
        begun.set()
        return await hook(next, arguments)

    hooks = [noted] if outside is None else [outside, noted]
    async with service(tmp_path, doubling(*hooks)) as on:
        outcome = await long_enough(
            lambda seconds: on.tools.call("double", {"number": 2}, timeout=seconds), begun.is_set
        )
    row = await on.row(outcome)

    assert (outcome.status, outcome.reason) == ("failed", "timed_out")
    assert row["stillRunning"] is None
    assert row["lateStatus"] == ("succeeded" if hook is swallows else None)
    assert len(on.endings(outcome)) == 1


async def test_a_synchronous_hook_that_hangs_is_recorded_as_still_running_until_it_ends(
    tmp_path: Path,
) -> None:
    begun, let_go = threading.Event(), threading.Event()

    def hook(next: Next, arguments: dict[str, Any]) -> str:
        begun.set()
        assert let_go.wait(PATIENCE)
        return "late"

    async with service(tmp_path, doubling(hook)) as on:
        outcome = await long_enough(
            lambda seconds: on.tools.call("double", {"number": 2}, timeout=seconds), begun.is_set
        )
        before = await on.row(outcome)
        let_go.set()
    after = await on.row(outcome)

    assert (outcome.status, outcome.reason) == ("failed", "timed_out")
    assert (before["stillRunning"], before["lateStatus"]) == (True, None)
    assert (after["lateStatus"], after["lateResult"]) == ("succeeded", "late")


@pytest.mark.parametrize("hooks", [[], [around], [around_in_thread], [around, around_in_thread]])
async def test_a_synchronous_tool_past_its_timeout_is_still_running_whatever_stands_around_it(
    tmp_path: Path, hooks: list[Callable[..., Any]]
) -> None:
    begun, let_go = threading.Event(), threading.Event()

    @tool(hooks=hooks)
    def slow() -> str:
        begun.set()
        assert let_go.wait(PATIENCE)
        return "late"

    async with service(tmp_path, slow) as on:
        outcome = await long_enough(
            lambda seconds: on.tools.call("slow", timeout=seconds), begun.is_set
        )
        before = await on.row(outcome)
        let_go.set()
    after = await on.row(outcome)

    assert (before["status"], before["reason"]) == ("failed", "timed_out")
    assert (before["stillRunning"], before["lateStatus"]) == (True, None)
    assert after["lateStatus"] == "succeeded"
    assert after["lateResult"] == "<" * len(hooks) + "late" + ">" * len(hooks)


def carries_on(next: Next, arguments: dict[str, Any]) -> Any:
    try:
        return next(arguments)
    except Exception:
        return "as if nothing had happened"


async def carries_on_async(next: Next, arguments: dict[str, Any]) -> Any:
    try:
        return await next(arguments)
    except Exception:
        return "as if nothing had happened"


@pytest.mark.parametrize("hook", [carries_on, carries_on_async])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_tool_that_cancels_itself_is_cancelled_whatever_stands_around_it(
    tmp_path: Path, hook: Callable[..., Any], is_async: bool
) -> None:
    gives_up = tool(name="give_up", hooks=[hook])(raising(asyncio.CancelledError())[is_async])
    async with service(tmp_path, gives_up) as on:
        outcome = await on.tools.call("give_up")

    assert (outcome.status, outcome.error and outcome.error.message) == (
        "cancelled",
        "The tool cancelled itself.",
    )


@pytest.mark.parametrize("hook", [carries_on, carries_on_async])
async def test_a_cancelled_call_is_no_failure_that_a_hook_may_carry_on_from(
    tmp_path: Path, hook: Callable[..., Any]
) -> None:
    begun = asyncio.Event()

    @tool(hooks=[hook])
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with service(tmp_path, wait) as on:
        async with on.tools.run("Waiting") as place:
            calling = asyncio.create_task(on.tools.call("wait"))
            await begun.wait()
            calling.cancel()
            await asyncio.wait({calling}, timeout=PATIENCE)
        [row] = (await on.rows(place.root_plan_id)).tool_calls
    [after] = (await on.rows(place.root_plan_id)).tool_calls

    assert calling.cancelled()
    assert (row["status"], row["stillRunning"]) == ("cancelled", None)
    assert after["lateStatus"] is None


async def late_async(next: Next, arguments: dict[str, Any], later: list[Any]) -> str:
    later.append(partial(next, arguments))
    return "at once"


def late(next: Next, arguments: dict[str, Any], later: list[Any]) -> str:
    later.append(partial(asyncio.to_thread, next, arguments))
    return "at once"


@pytest.mark.parametrize("hook", [late, late_async])
async def test_next_is_over_when_its_call_is(tmp_path: Path, hook: Callable[..., Any]) -> None:
    later: list[Callable[[], Awaitable[Any]]] = []
    ran: list[int] = []

    @tool(hooks=[partial(hook, later=later)])
    async def note() -> None:
        ran.append(1)

    async with service(tmp_path, note) as on, asyncio.timeout(PATIENCE):
        outcome = await on.tools.call("note")
        with pytest.raises(RuntimeError, match="over"):
            await later[0]()

    assert (outcome.result, ran) == ("at once", [])


async def test_a_hook_that_goes_on_after_its_call_was_given_up_runs_no_tool(tmp_path: Path) -> None:
    ran: list[int] = []
    begun = asyncio.Event()

    async def hook(next: Next, arguments: dict[str, Any]) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await next(arguments)

    @tool(hooks=[hook])
    async def note(number: int) -> None:
        ran.append(number)

    async with service(tmp_path, note) as on:
        outcome = await long_enough(
            lambda seconds: on.tools.call("note", {"number": 2}, timeout=seconds), begun.is_set
        )
        row = await on.row(outcome)

    assert (outcome.reason, row["lateStatus"], ran) == ("timed_out", None, [])
