"""Hooks that raise, hang, ignore a cancellation or continue after their call has ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.tools.hooked_tools import Hook, Next, around, around_async, doubling
from tests.tools.service_bench import service
from tests.tools.short_times import PATIENCE, long_enough
from tracer.tools import CallOutcome, tool


def raising(error: BaseException) -> tuple[Callable[[], None], Callable[[], Awaitable[None]]]:
    """Return a synchronous and an asynchronous function that raise."""

    def raise_it() -> None:
        raise error

    async def raise_it_async() -> None:
        raise error

    return raise_it, raise_it_async


async def test_system_exit_and_keyboard_interrupt_in_a_tool_fail_only_the_call(
    tmp_path: Path,
) -> None:
    def fine() -> None:
        return None

    errors: list[BaseException] = [SystemExit("3"), KeyboardInterrupt("3"), GeneratorExit("3")]
    raised: dict[str, str] = {}
    tools = []
    for error in errors:
        for color, raise_it in zip(("sync", "async"), raising(error), strict=True):
            positions: dict[str, tuple[list[Hook], Callable[..., Any]]] = {
                "hook": ([raise_it], fine),
                "tool": ([], raise_it),
                "tool_in_hook": ([around], raise_it),
                "tool_in_async_hook": ([around_async], raise_it),
            }
            for position, (hooks, function) in positions.items():
                name = f"{type(error).__name__}_{color}_{position}"
                tools.append(tool(name=name, tool_hooks=hooks)(function))
                raised[name] = type(error).__name__

    failures = []
    async with service(tmp_path, *tools) as on:
        for name, kind in raised.items():
            outcome = await on.tools.call(name)
            failure = outcome.error and (outcome.error.type, outcome.error.message)
            got = (str(outcome.status), outcome.reason, failure, len(on.endings(outcome)))
            expected = ("failed", "tool_error", (kind, "3"), 1)
            if got != expected:
                failures.append(f"{name}: expected {expected}, got {got}")

    assert failures == []


def hanging_hooks(begun: asyncio.Event) -> list[Hook]:
    """Return hooks that hang, and set an event before they do."""

    async def hangs(next: Next, arguments: dict[str, Any]) -> Any:
        begun.set()
        await asyncio.Event().wait()

    async def hangs_afterwards(next: Next, arguments: dict[str, Any]) -> Any:
        await next(arguments)
        begun.set()
        await asyncio.Event().wait()

    async def swallows(next: Next, arguments: dict[str, Any]) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "all the same"

    return [hangs, hangs_afterwards, swallows]


async def test_hanging_hook_is_cancelled_at_the_deadline(tmp_path: Path) -> None:
    # Asynchronous: a thread that runs at the deadline would swallow the cancellation.
    async def double(number: int) -> int:
        return 2 * number

    begun = asyncio.Event()
    outer_hooks: list[list[Hook]] = [[], [around_async], [around]]
    stacks = {
        "_in_".join(each.__name__ for each in (hook, *outside)): [*outside, hook]
        for hook, outside in product(hanging_hooks(begun), outer_hooks)
    }
    tools = [tool(name=name, tool_hooks=hooks)(double) for name, hooks in stacks.items()]
    async with service(tmp_path, *tools, grace_seconds=PATIENCE) as on:

        async def call(name: str, seconds: float) -> CallOutcome:
            begun.clear()
            return await on.tools.call(name, {"number": 2}, timeout=seconds)

        outcomes = {name: await long_enough(partial(call, name), begun.is_set) for name in stacks}

    failures = []
    for name, outcome in outcomes.items():
        row = await on.row(outcome)
        fields = (row["stillRunning"], row["result"], len(on.endings(outcome)))
        got = (str(outcome.status), outcome.reason, *fields)
        expected = ("failed", "timed_out", None, None, 1)
        if got != expected:
            failures.append(f"{name}: expected {expected}, got {got}")

    assert failures == []


async def test_hanging_synchronous_hook_is_recorded_as_still_running(tmp_path: Path) -> None:
    begun, let_go = threading.Event(), threading.Event()

    def hook(next: Next, arguments: dict[str, Any]) -> str:
        begun.set()
        assert let_go.wait(PATIENCE)
        return "late"

    async with service(tmp_path, doubling(hook)) as on:
        outcome = await long_enough(
            lambda seconds: on.tools.call("double", {"number": 2}, timeout=seconds), begun.is_set
        )
        let_go.set()
    row = await on.row(outcome)

    assert (outcome.status, outcome.reason) == ("failed", "timed_out")
    assert (row["stillRunning"], row["result"]) == (True, None)


async def test_timed_out_synchronous_tool_inside_hooks_is_recorded_as_still_running(
    tmp_path: Path,
) -> None:
    async def given_up(hooks: list[Hook]) -> list[Any]:
        begun, let_go = threading.Event(), threading.Event()

        @tool(tool_hooks=hooks)
        def slow() -> str:
            begun.set()
            assert let_go.wait(PATIENCE)
            return "late"

        # The tool does not end within any grace: do not wait for it.
        async with service(tmp_path, slow, grace_seconds=0) as on:
            outcome = await long_enough(
                lambda seconds: on.tools.call("slow", timeout=seconds), begun.is_set
            )
            let_go.set()
        row = await on.row(outcome)
        return [row[name] for name in ("status", "reason", "stillRunning", "result")]

    failures = []
    stacks: list[list[Hook]] = [[], [around_async], [around], [around_async, around]]
    for hooks in stacks:
        expected = ["failed", "timed_out", True, None]
        if (got := await given_up(hooks)) != expected:
            names = [each.__name__ for each in hooks]
            failures.append(f"{names}: expected {expected}, got {got}")

    assert failures == []


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


async def test_tool_that_raises_cancelled_error_is_recorded_as_cancelled_inside_any_hook(
    tmp_path: Path,
) -> None:
    tools = [
        tool(name=f"{function.__name__}_in_{hook.__name__}", tool_hooks=[hook])(function)
        for hook in (carries_on, carries_on_async)
        for function in raising(asyncio.CancelledError())
    ]
    async with service(tmp_path, *tools) as on:
        outcomes = {each.name: await on.tools.call(each.name) for each in tools}

    assert {
        name: (each.status, each.error and each.error.message) for name, each in outcomes.items()
    } == {each.name: ("cancelled", "The tool cancelled itself.") for each in tools}


@pytest.mark.parametrize("hook", [carries_on, carries_on_async])
async def test_call_is_cancelled_even_if_its_hook_catches_the_cancellation(
    tmp_path: Path, hook: Hook
) -> None:
    begun = asyncio.Event()

    @tool(tool_hooks=[hook])
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with service(tmp_path, wait) as on:
        async with on.tools.run("Waiting") as context:
            calling = asyncio.create_task(on.tools.call("wait"))
            await begun.wait()
            calling.cancel()
            await asyncio.wait({calling}, timeout=PATIENCE)
        [row] = (await on.rows(context.root_plan_id)).tool_calls

    assert calling.cancelled()
    assert (row["status"], row["stillRunning"]) == ("cancelled", None)


async def late_async(next: Next, arguments: dict[str, Any], later: list[Any]) -> str:
    later.append(partial(next, arguments))
    return "at once"


def late(next: Next, arguments: dict[str, Any], later: list[Any]) -> str:
    later.append(partial(asyncio.to_thread, next, arguments))
    return "at once"


@pytest.mark.parametrize("hook", [late, late_async])
async def test_next_raises_after_the_call_has_ended(tmp_path: Path, hook: Hook) -> None:
    later: list[Callable[[], Awaitable[Any]]] = []
    ran: list[int] = []

    @tool(tool_hooks=[partial(hook, later=later)])
    async def note() -> None:
        ran.append(1)

    async with service(tmp_path, note) as on, asyncio.timeout(PATIENCE):
        outcome = await on.tools.call("note")
        with pytest.raises(RuntimeError, match="ended"):
            await later[0]()

    assert (outcome.result, ran) == ("at once", [])


async def test_hook_that_calls_next_after_the_timeout_runs_no_tool(tmp_path: Path) -> None:
    ran: list[int] = []
    begun, let_go = threading.Event(), threading.Event()

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await next(arguments)

    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        begun.set()
        assert let_go.wait(PATIENCE)
        return next(arguments)

    async def note(number: int) -> None:
        ran.append(number)

    tools = [tool(name=each.__name__, tool_hooks=[each])(note) for each in (hook_async, hook)]
    async with service(tmp_path, *tools) as on:

        async def call(name: str, seconds: float) -> CallOutcome:
            return await on.tools.call(name, {"number": 2}, timeout=seconds)

        outcomes = []
        for each in tools:
            begun.clear()
            outcomes.append(await long_enough(partial(call, each.name), begun.is_set))
        let_go.set()

    assert [each.reason for each in outcomes] == ["timed_out"] * 2
    assert ran == []
