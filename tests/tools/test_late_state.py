"""Changes of the session state by a call that times out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.tools.service_bench import service
from tests.tools.short_times import PATIENCE, long_enough, until
from tests.tools.test_session_state import kept
from tracer.errors import StateConflict
from tracer.records.sessions import MemorySessions, State, StateChange
from tracer.tools import SessionState, tool


async def test_call_past_its_timeout_changes_no_state(tmp_path: Path) -> None:
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
        with suppress(StateConflict):
            state.set("later", True)
        return "after all"

    async with service(tmp_path, stubborn) as on:
        outcome = await long_enough(
            lambda seconds: on.tools.call("stubborn", thread_id="s", timeout=seconds), begun.is_set
        )
        let_go.set()
    row = await on.row(outcome)

    assert row["reason"] == "timed_out"
    assert await kept(on.tools, "s") == {}
    assert row["stateChanges"] is None


async def test_state_changes_in_progress_at_the_deadline_are_kept(tmp_path: Path) -> None:
    calls: list[asyncio.Task[Any]] = []

    class Slow(MemorySessions):
        async def change_state(
            self, session_id: str, initial: Mapping[str, Any], changes: Sequence[StateChange]
        ) -> State:
            await until(calls[-1].cancelling)
            return await super().change_state(session_id, initial, changes)

    @tool
    async def note(state: SessionState) -> None:
        call = asyncio.current_task()
        assert call is not None
        calls.append(call)
        state.set("noted", True)

    async with service(tmp_path, note, sessions=Slow(), grace_seconds=PATIENCE) as on:
        outcome = await long_enough(
            lambda seconds: on.tools.call("note", thread_id="s", timeout=seconds), lambda: calls
        )
    state = await kept(on.tools, "s")
    row = await on.row(outcome)

    assert state == {"noted": True}
    assert row["reason"] == "timed_out"
    assert row["stateChanges"] == '[{"op":"set","path":["noted"],"value":true}]'
