"""The conversation's state, where the time of the call that changes it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.tools.service_bench import service
from tests.tools.short_times import PATIENCE, long_enough
from tests.tools.test_session_state import kept
from tracer.context import ToolContext
from tracer.sessions import Change, State
from tracer.storage.memory_sessions import MemorySessions
from tracer.tools.definition import tool
from tracer.tools.session_state import SessionState
from tracer.tools.waiting import seconds_left


async def test_a_call_that_goes_on_past_its_timeout_changes_nothing(tmp_path: Path) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn(state: SessionState) -> str:
        begun.set()
        state.set("late", True)
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        state.set("later", True)
        return "after all"

    async with service(tmp_path, stubborn) as on:
        outcome = await long_enough(
            lambda seconds: on.tools.call("stubborn", thread_id="s", timeout=seconds), begun.is_set
        )
        let_go.set()
    row = await on.row(outcome)

    assert (row["reason"], row["lateStatus"]) == ("timed_out", "succeeded")
    assert await kept(on.tools, "s") == {}
    assert row["stateChanges"] is None


async def test_changes_that_are_being_kept_when_the_time_is_over_are_kept_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracer.tools.invocation.GRACE_SECONDS", PATIENCE)
    deadlines: list[float | None] = []

    class Slow(MemorySessions):
        async def change_state(
            self, session_id: str, initial: Mapping[str, Any], changes: Sequence[Change]
        ) -> State:
            await asyncio.sleep((seconds_left(deadlines[-1]) or 0) + 0.05)
            return await super().change_state(session_id, initial, changes)

    @tool
    async def note(context: ToolContext, state: SessionState) -> None:
        deadlines.append(context.deadline)
        state.set("noted", True)

    async with service(tmp_path, note, sessions=Slow()) as on:
        outcome = await long_enough(
            lambda seconds: on.tools.call("note", thread_id="s", timeout=seconds),
            lambda: deadlines,
        )
    state = await kept(on.tools, "s")
    row = await on.row(outcome)

    assert state == {"noted": True}
    assert (row["reason"], row["lateStatus"]) == ("timed_out", "succeeded")
    assert row["stateChanges"] == '[{"op":"set","path":["noted"],"value":true}]'
