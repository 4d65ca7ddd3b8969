"""A run that a tool starts is separate and has the same caller."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from tests.runtime.runs import application, bench, script
from tracer.context import current_tool_context, identity
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.storage.memory import recording_in_memory
from tracer.tools import tool
from tracer.tools.parameters import UserId

CALLER = "A1"  # too short to be taken out of results


class Looking(ScriptedModel):
    """Keeps the place that it is asked in."""

    def __init__(self, *scripts: Any) -> None:
        super().__init__(scripts)
        self.contexts: list[object] = []

    async def complete(self, messages: Any, tools: Any) -> Any:
        self.contexts.append(current_tool_context())
        return await super().complete(messages, tools)


async def test_run_started_within_a_tool_is_a_separate_run_with_the_same_caller(
    tmp_path: Path,
) -> None:
    @tool
    async def who(user_id: UserId) -> str:
        return user_id

    @tool
    async def start_another() -> str:
        outcome = await on.launcher.run("Other", agent="worker")
        return str(outcome.root_plan_id)

    model = Looking(
        script("Go", [call("start_another")], "done"), script("Other", [call("who")], "fine")
    )
    store = recording_in_memory()
    async with bench(application(model, [who, start_another]), store, store, tmp_path) as on:
        with identity(token_id=CALLER):
            outcome = await on.launcher.run("Go", agent="worker")
        rows = await on.rows(outcome.root_plan_id)
        [starting] = rows.tool_calls
        other = UUID(starting["result"])
        others = await on.rows(other)

    assert other != outcome.root_plan_id
    assert [each["parentPlanId"] for each in (*rows.plans, *others.plans)] == [None, None]
    assert [each["result"] for each in others.tool_calls] == [CALLER]
    assert model.contexts == [None] * 4
