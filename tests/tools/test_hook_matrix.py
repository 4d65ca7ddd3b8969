"""Hook by tool by entry point: the same thing happens in every cell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.runs import bench, script
from tests.tools.service_bench import Service, service
from tests.trees import Node
from tracer.errors import Denied
from tracer.runtime.agent import Agent
from tracer.runtime.application import Application
from tracer.runtime.scripted_model import ScriptedModel
from tracer.runtime.scripted_model import call as call_of
from tracer.storage.memory_store import MemoryStore
from tracer.tools.definition import Tool, tool
from tracer.tools.tool_service import CallOutcome

Next = Callable[[dict[str, Any]], Any]


def pass_on(next: Next, arguments: dict[str, Any]) -> Any:
    return next(arguments)


def change(next: Next, arguments: dict[str, Any]) -> Any:
    return next({**arguments, "number": 7})


def short_circuit(arguments: dict[str, Any]) -> Any:
    return f"instead of {arguments['number']}"


def raise_before(next: Next, arguments: dict[str, Any]) -> Any:
    raise ValueError("before")


def raise_after(next: Next, arguments: dict[str, Any]) -> Any:
    next(arguments)
    raise ValueError("after")


def call_twice(next: Next, arguments: dict[str, Any]) -> Any:
    return f"{next(arguments)} and {next({'number': 8})}"


def deny(next: Next, arguments: dict[str, Any]) -> Any:
    raise Denied("Not today.")


def misfit(next: Next, arguments: dict[str, Any]) -> Any:
    return next({"number": "many"})


def fall_back(next: Next, arguments: dict[str, Any]) -> Any:
    try:
        return next({"number": 0})
    except ZeroDivisionError:
        return "nothing"


def mutate(next: Next, arguments: dict[str, Any]) -> Any:
    arguments["number"] += 1
    return next(arguments)


async def pass_on_async(next: Next, arguments: dict[str, Any]) -> Any:
    return await next(arguments)


async def change_async(next: Next, arguments: dict[str, Any]) -> Any:
    return await next({**arguments, "number": 7})


async def short_circuit_async(arguments: dict[str, Any]) -> Any:
    return f"instead of {arguments['number']}"


async def raise_before_async(next: Next, arguments: dict[str, Any]) -> Any:
    raise ValueError("before")


async def raise_after_async(next: Next, arguments: dict[str, Any]) -> Any:
    await next(arguments)
    raise ValueError("after")


async def call_twice_async(next: Next, arguments: dict[str, Any]) -> Any:
    return f"{await next(arguments)} and {await next({'number': 8})}"


async def deny_async(next: Next, arguments: dict[str, Any]) -> Any:
    raise Denied("Not today.")


async def misfit_async(next: Next, arguments: dict[str, Any]) -> Any:
    return await next({"number": "many"})


async def fall_back_async(next: Next, arguments: dict[str, Any]) -> Any:
    try:
        return await next({"number": 0})
    except ZeroDivisionError:
        return "nothing"


async def mutate_async(next: Next, arguments: dict[str, Any]) -> Any:
    arguments["number"] += 1
    return await next(arguments)


Expected = dict[str, Any]


def expected(
    status: str = "succeeded",
    reason: str | None = None,
    result: str | None = None,
    error: str | None = None,
    attempt: int = 1,
    effective: str | None = None,
    by: str | None = None,
    ran: list[int] | None = None,
) -> Expected:
    """Return what a cell has to come to."""
    return {
        "status": status,
        "reason": reason,
        "result": result,
        "error": error,
        "attempt": attempt,
        "effectiveArguments": effective,
        "shortCircuitedBy": by,
        "ran": [5] if ran is None else ran,
    }


BEHAVIOURS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Expected]] = {
    "pass": (pass_on, pass_on_async, expected(result="20")),
    "change": (change, change_async, expected(result="14", effective='{"number":7}', ran=[7])),
    "short-circuit": (
        short_circuit,
        short_circuit_async,
        expected(result="instead of 5", by="short_circuit", ran=[]),
    ),
    "raise before": (
        raise_before,
        raise_before_async,
        expected("failed", "tool_error", error="before", ran=[]),
    ),
    "raise after": (
        raise_after,
        raise_after_async,
        expected("failed", "tool_error", error="after"),
    ),
    "call twice": (
        call_twice,
        call_twice_async,
        expected(result="20 and 12", attempt=2, effective='{"number":8}', ran=[5, 8]),
    ),
    "deny": (deny, deny_async, expected("failed", "denied", error="Not today.", ran=[])),
    "misfit": (
        misfit,
        misfit_async,
        expected(
            "failed",
            "invalid_arguments",
            error="The arguments do not fit the tool. number: Input should be a valid integer, "
            "unable to parse string as an integer.",
            ran=[],
        ),
    ),
    "fall back": (
        fall_back,
        fall_back_async,
        expected(result="nothing", effective='{"number":0}', ran=[0]),
    ),
    "mutate": (mutate, mutate_async, expected(result="16", effective='{"number":6}', ran=[6])),
}


def dividing(hook: Callable[..., Any], is_async: bool, ran: list[int]) -> Tool:
    """Return a tool with a hook, and let it note what it is given."""

    async def divide_async(number: int) -> int:
        ran.append(number)
        await asyncio.sleep(0)
        return 100 // number

    def divide(number: int) -> int:
        ran.append(number)
        return 100 // number

    return tool(name="divide", hooks=[hook])(divide_async if is_async else divide)


async def call(on: Service) -> CallOutcome:
    return await on.tools.call("divide", {"number": 5})


async def call_sync(on: Service) -> CallOutcome:
    return await asyncio.to_thread(on.tools.call_sync, "divide", {"number": 5})


def shown(row: Node, expectation: Expected) -> Expected:
    """Return what a row says of what is expected, whatever the hook's colour."""
    found = {name: row[name] for name in expectation.keys() & row.keys()}
    found["error"] = row["error"] and row["error"]["message"]
    if found["shortCircuitedBy"]:
        found["shortCircuitedBy"] = found["shortCircuitedBy"].removesuffix("_async")
    return found


def colour(is_async: bool) -> str:
    return "async" if is_async else "sync"


CELLS = [
    pytest.param(
        name,
        async_hook,
        async_tool,
        entry,
        id=f"{name}-{colour(async_hook)} hook-{colour(async_tool)} tool-{entry.__name__}",
    )
    for name, async_hook, async_tool, entry in product(
        BEHAVIOURS, [False, True], [False, True], [call, call_sync]
    )
]


@pytest.mark.parametrize(("behaviour", "async_hook", "async_tool", "entry"), CELLS)
async def test_the_same_comes_of_every_hook_tool_and_entry_point(
    tmp_path: Path,
    behaviour: str,
    async_hook: bool,
    async_tool: bool,
    entry: Callable[[Service], Awaitable[CallOutcome]],
) -> None:
    sync_form, async_form, expectation = BEHAVIOURS[behaviour]
    ran: list[int] = []
    hook = async_form if async_hook else sync_form
    async with service(tmp_path, dividing(hook, async_tool, ran)) as on:
        async with asyncio.timeout(60):
            outcome = await entry(on)
        row = await on.row(outcome)

    assert {**shown(row, expectation), "ran": ran} == expectation
    assert (outcome.status, outcome.reason, outcome.result) == (
        row["status"],
        row["reason"],
        row["result"],
    )
    assert len(on.endings(outcome)) == 1


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
async def test_the_same_comes_of_a_hook_that_is_an_agents(tmp_path: Path, behaviour: str) -> None:
    sync_form, async_form, expectation = BEHAVIOURS[behaviour]
    for hook, async_tool in product([sync_form, async_form], [False, True]):
        ran: list[int] = []
        model = ScriptedModel([script("Go", [call_of("divide", {"number": 5})], "done")])
        divide = replace(dividing(hook, async_tool, ran), hooks=())
        worker = Agent("worker", "Do your work.", tools=(divide,), hooks=[hook])
        application = Application(name="tests", agents=(worker,), model=model)
        store = MemoryStore()

        async with bench(application, store, store, tmp_path) as on:
            outcome = await on.launcher.run("Go", agent="worker")

        assert outcome.status == "succeeded"
        [row] = (await on.rows(outcome.root_plan_id)).tool_calls
        assert {**shown(row, expectation), "ran": ran} == expectation
