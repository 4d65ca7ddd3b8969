"""Behaviours of hooks: the outcome is the same for every kind of hook, tool and caller.

Each test states one behaviour as a synchronous and an asynchronous hook. It runs both around a
synchronous and an asynchronous tool: as the tool's own hook, called through `call` and `call_sync`,
and as an agent's hook.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from tests.runtime.runs import bench
from tests.tools.hooked_tools import Hook, Next
from tests.tools.service_bench import service
from tests.tools.short_times import PATIENCE
from tests.trees import Node
from tracer.errors import Denied
from tracer.runtime import Agent, Application
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.storage.memory import recording_in_memory
from tracer.tools import Tool, tool


@dataclass(frozen=True)
class Expected:
    """The record of a call with the number 5, and the numbers that the tool ran with."""

    status: str = "succeeded"
    reason: str | None = None
    result: str | None = None
    error: str | None = None
    attempt: int = 1
    effective: str | None = None
    answered_by: str | None = None
    ran: tuple[int, ...] = (5,)


def _observed(row: Node, ran: list[int]) -> Expected:
    return Expected(
        status=row["status"],
        reason=row["reason"],
        result=row["result"],
        error=row["error"] and row["error"]["message"],
        attempt=row["attempt"],
        effective=row["effectiveArguments"],
        answered_by=row["shortCircuitedBy"],
        ran=tuple(ran),
    )


def _divide(name: str, is_async: bool, ran: list[int], hooks: list[Hook]) -> Tool:
    def divide(number: int) -> int:
        ran.append(number)
        return 100 // number

    async def divide_async(number: int) -> int:
        await asyncio.sleep(0)
        return divide(number)

    return tool(name=name, tool_hooks=hooks)(divide_async if is_async else divide)


async def check(tmp_path: Path, hook: Hook, hook_async: Hook, expected: Expected) -> None:
    """Call a tool with each form of a hook in each way, and compare the records."""
    failures: list[str] = []

    def compare(case: str, row: Node, ran: list[int], hook_name: str) -> None:
        wanted = expected
        if expected.answered_by is not None:
            wanted = replace(expected, answered_by=hook_name)
        observed = asdict(_observed(row, ran))
        failures.extend(
            f"{case}: {name}: expected {value!r}, got {observed[name]!r}"
            for name, value in asdict(wanted).items()
            if observed[name] != value
        )

    forms = {"sync": hook, "async": hook_async}
    ran: dict[str, list[int]] = {
        f"{form}_hook_{color}_tool": [] for form, color in product(forms, ("sync", "async"))
    }
    hook_of = {name: forms[name.partition("_")[0]] for name in ran}
    own = [_divide(name, "async_tool" in name, ran[name], [hook_of[name]]) for name in ran]
    async with service(tmp_path, *own) as on, asyncio.timeout(PATIENCE):
        for name, entry in product(ran, ("call", "call_sync")):
            ran[name].clear()
            if entry == "call":
                outcome = await on.tools.call(name, {"number": 5})
            else:
                outcome = await asyncio.to_thread(on.tools.call_sync, name, {"number": 5})
            row = await on.row(outcome)
            compare(f"{name}, {entry}", row, ran[name], hook_of[name].__name__)
            for field in ("status", "reason", "result"):
                if getattr(outcome, field) != row[field]:
                    failures.append(f"{name}, {entry}: outcome and record differ in {field}")
            if (endings := len(on.endings(outcome))) != 1:
                failures.append(f"{name}, {entry}: {endings} endings were recorded")

    agents, scripts = [], []
    for form, function in forms.items():
        tools = [replace(each, tool_hooks=()) for each in own if hook_of[each.name] is function]
        agents.append(Agent(form, "Do your work.", tools=tuple(tools), tool_hooks=[function]))
        chosen = [call(each.name, {"number": 5}) for each in tools]
        scripts.append(Script([Turn(calls=chosen), Turn("done")], request="Go", agent=form))
    application = Application(name="tests", agents=tuple(agents), model=ScriptedModel(scripts))
    store = recording_in_memory()
    for name in ran:
        ran[name].clear()
    async with bench(application, store, store, tmp_path) as launched, asyncio.timeout(PATIENCE):
        for form in forms:
            run = await launched.launcher.run("Go", agent=form)
            if run.status != "succeeded":
                failures.append(f"{form}, agent: the run {run.status}")
            for row in (await launched.rows(run.root_plan_id)).tool_calls:
                name = row["name"]
                compare(f"{name}, agent", row, ran[name], hook_of[name].__name__)

    assert failures == []


async def test_hook_that_only_calls_next_changes_nothing(tmp_path: Path) -> None:
    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        return next(arguments)

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        return await next(arguments)

    await check(tmp_path, hook, hook_async, Expected(result="20"))


async def test_hook_changes_the_arguments(tmp_path: Path) -> None:
    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        return next({**arguments, "number": 7})

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        return await next({**arguments, "number": 7})

    expected = Expected(result="14", effective='{"number":7}', ran=(7,))
    await check(tmp_path, hook, hook_async, expected)


async def test_hook_mutates_the_arguments(tmp_path: Path) -> None:
    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        arguments["number"] += 1
        return next(arguments)

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        arguments["number"] += 1
        return await next(arguments)

    expected = Expected(result="16", effective='{"number":6}', ran=(6,))
    await check(tmp_path, hook, hook_async, expected)


async def test_hook_returns_a_result_without_calling_the_tool(tmp_path: Path) -> None:
    def hook(arguments: dict[str, Any]) -> Any:
        return f"instead of {arguments['number']}"

    async def hook_async(arguments: dict[str, Any]) -> Any:
        return f"instead of {arguments['number']}"

    expected = Expected(result="instead of 5", answered_by="the hook", ran=())
    await check(tmp_path, hook, hook_async, expected)


async def test_hook_without_a_return_value_returns_null(tmp_path: Path) -> None:
    def hook(next: Next) -> None:
        return None

    async def hook_async(next: Next) -> None:
        return None

    expected = Expected(result="null", answered_by="the hook", ran=())
    await check(tmp_path, hook, hook_async, expected)


async def test_hook_that_raises_before_the_tool_fails_the_call(tmp_path: Path) -> None:
    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        raise ValueError("before")

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        raise ValueError("before")

    expected = Expected("failed", "tool_error", error="before", ran=())
    await check(tmp_path, hook, hook_async, expected)


async def test_hook_that_raises_after_the_tool_fails_the_call(tmp_path: Path) -> None:
    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        next(arguments)
        raise ValueError("after")

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        await next(arguments)
        raise ValueError("after")

    await check(tmp_path, hook, hook_async, Expected("failed", "tool_error", error="after"))


async def test_hook_calls_the_tool_twice(tmp_path: Path) -> None:
    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        return f"{next(arguments)} and {next({'number': 8})}"

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        return f"{await next(arguments)} and {await next({'number': 8})}"

    expected = Expected(result="20 and 12", attempt=2, effective='{"number":8}', ran=(5, 8))
    await check(tmp_path, hook, hook_async, expected)


async def test_hook_denies_the_call(tmp_path: Path) -> None:
    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        raise Denied("Not today.")

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        raise Denied("Not today.")

    await check(
        tmp_path, hook, hook_async, Expected("failed", "denied", error="Not today.", ran=())
    )


async def test_hook_falls_back_after_the_tool_failed(tmp_path: Path) -> None:
    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        try:
            return next({"number": 0})
        except ZeroDivisionError:
            return "nothing"

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        try:
            return await next({"number": 0})
        except ZeroDivisionError:
            return "nothing"

    expected = Expected(result="nothing", effective='{"number":0}', ran=(0,))
    await check(tmp_path, hook, hook_async, expected)


async def test_invalid_arguments_from_a_hook_fail_the_call(tmp_path: Path) -> None:
    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        return next({"number": "many"})

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        return await next({"number": "many"})

    message = (
        "The arguments are invalid. number: Input should be a valid integer, unable to "
        "parse string as an integer."
    )
    expected = Expected("failed", "invalid_arguments", error=message, ran=())
    await check(tmp_path, hook, hook_async, expected)


async def test_next_rejects_anything_but_an_object_of_arguments(tmp_path: Path) -> None:
    given: list[Any] = [None, "text", 5, [1]]
    for value in given:

        def hook(next: Next, value: Any = value) -> Any:
            return next(value)

        async def hook_async(next: Next, value: Any = value) -> Any:
            return await next(value)

        kind = type(value).__name__
        message = f"next() got a {kind}. Pass it the arguments, as one dict."
        expected = Expected("failed", "tool_error", error=message, ran=())
        await check(tmp_path, hook, hook_async, expected)
