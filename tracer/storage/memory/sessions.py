"""Session states in memory. They are lost when the process ends, so nothing is masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from tracer.records.sessions import (
    MAX_SESSION_RUNS,
    State,
    StateChange,
    apply,
    state_from,
    state_text,
    stored_session_id,
)


class MemorySessions:
    """`tracer.records.sessions.SessionStates` over a dictionary."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}  # as text, which callers cannot change
        self._runs: dict[str, list[UUID]] = {}

    async def read_state(self, session_id: str, initial: Mapping[str, Any]) -> State:
        """Return a session's state."""
        state_json = self._states.get(stored_session_id(session_id))
        return state_from(state_text(initial) if state_json is None else state_json)

    async def change_state(
        self, session_id: str, initial: Mapping[str, Any], changes: Sequence[StateChange]
    ) -> State:
        """Apply changes to a session's state."""
        # Atomic, because it has no await.
        state_json = self._states.get(stored_session_id(session_id))
        state = apply(
            state_from(state_text(initial) if state_json is None else state_json), changes
        )
        self._states[stored_session_id(session_id)] = state_text(state)
        return state

    async def add_run(
        self, session_id: str, initial: Mapping[str, Any], root_plan_id: UUID
    ) -> list[UUID]:
        """Append a run to a session."""
        session = stored_session_id(session_id)
        self._states.setdefault(session, state_text(initial))
        runs = [*self._runs.get(session, ()), root_plan_id][-MAX_SESSION_RUNS:]
        self._runs[session] = runs
        return runs[:-1]
