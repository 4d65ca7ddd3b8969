"""Hooks of an agent wrap every tool call of the agent, outside the hooks of the tool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.reviews import review_template
from tests.runtime.runs import bench, script
from tracer.errors import Denied
from tracer.runtime import Agent, Application, subplan_tool
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.storage.memory import recording_in_memory
from tracer.tools import tool
from tracer.tools.call import batch_tool

Next = Callable[[dict[str, Any]], Any]


def noting(order: list[str], name: str, is_async: bool) -> Callable[..., Any]:
    """Return a hook that notes when it begins and ends."""

    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        order.append(f"{name} begins")
        try:
            return next(arguments)
        finally:
            order.append(f"{name} ends")

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        order.append(f"{name} begins")
        try:
            return await next(arguments)
        finally:
            order.append(f"{name} ends")

    return hook_async if is_async else hook


@pytest.mark.parametrize("is_async", [False, True])
async def test_agent_hooks_wrap_the_hooks_of_the_tool(tmp_path: Path, is_async: bool) -> None:
    order: list[str] = []

    @tool(tool_hooks=[noting(order, "tool 1", is_async), noting(order, "tool 2", not is_async)])
    async def work() -> None:
        order.append("works")

    hooks = [noting(order, "agent 1", is_async), noting(order, "agent 2", not is_async)]
    worker = Agent("worker", "Work.", tools=(work,), tool_hooks=hooks)
    model = ScriptedModel([script("Go", [call("work")], "done")])
    store = recording_in_memory()
    async with bench(
        Application(name="tests", agents=(worker,), model=model), store, store, tmp_path
    ) as on:
        await on.launcher.run("Go", agent="worker")

    names = ["agent 1", "agent 2", "tool 1", "tool 2"]
    begun, ended = [f"{each} begins" for each in names], [f"{each} ends" for each in names]
    assert order == [*begun, "works", *reversed(ended)]


async def test_agent_hook_wraps_sub_plan_batch_and_batch_item_calls(tmp_path: Path) -> None:
    seen: list[str] = []

    async def guard(next: Next, arguments: dict[str, Any], name: str) -> Any:
        await asyncio.sleep(0)
        seen.append(name)
        if arguments.get("week") == 2:
            raise Denied("Not week 2.")
        return await next(arguments)

    review = subplan_tool(review_template())
    chosen = [
        call("review", {"week": 2}),
        call("review_each", {"items": [{"week": 1}, {"week": 2}]}),
    ]
    model = ScriptedModel([script("Go", chosen, "done"), script("Review week 1.", "fine")])
    worker = Agent("worker", "Work.", tools=(review, batch_tool(review)), tool_hooks=[guard])
    store = recording_in_memory()
    async with bench(
        Application(name="tests", agents=(worker,), model=model), store, store, tmp_path
    ) as on:
        outcome = await on.launcher.run("Go", agent="worker")
        rows = await on.rows(outcome.root_plan_id)

    model.check_used_up()
    assert sorted(seen) == ["review", "review", "review", "review_each"]
    reasons = sorted((each["arguments"], each["reason"]) for each in rows.tool_calls)
    assert [reason for _, reason in reasons] == [None, None, "denied", "denied"]
    assert len(rows.plans) == 2
