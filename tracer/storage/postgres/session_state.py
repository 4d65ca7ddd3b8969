"""Session states in Postgres: one row each, which is locked while it is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from tracer.clock import Clock, utc_now
from tracer.records.sessions import (
    MAX_SESSION_RUNS,
    State,
    StateChange,
    apply,
    state_from,
    state_text,
    stored_session_id,
)
from tracer.storage.postgres.connection.pool import store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool, in_project
from tracer.storage.write_redaction import WriteRedactor


class PostgresSessions:
    """`tracer.records.sessions.SessionStates` over a project's connections."""

    def __init__(
        self,
        project: ProjectPool,
        clock: Clock = utc_now,
        redactor: WriteRedactor | None = None,
    ) -> None:
        self._project = project
        self._clock = clock
        self._redactor = redactor or WriteRedactor()

    async def read_state(self, session_id: str, initial: Mapping[str, Any]) -> State:
        """Return a session's state."""
        with store_errors():
            async with in_project(self._project) as connection:
                cursor = await connection.execute(_READ, self._values(session_id))
                row = await cursor.fetchone()
        return state_from(state_text(initial) if row is None else row[0])

    async def change_state(
        self, session_id: str, initial: Mapping[str, Any], changes: Sequence[StateChange]
    ) -> State:
        """Apply changes to a session's state."""
        first = self._redactor.state(state_text(initial))
        values = self._values(session_id) | {"state": first, "now": self._clock()}
        with store_errors():
            async with in_project(self._project) as connection:
                cursor = await connection.execute(_CREATE_OR_LOCK, values)
                [(text,)] = await cursor.fetchall()
                state = apply(state_from(text), changes)
                state_json = self._redactor.state(state_text(state))
                await connection.execute(_STORE, values | {"state": state_json})
        return state_from(state_json)

    async def add_run(
        self, session_id: str, initial: Mapping[str, Any], root_plan_id: UUID
    ) -> list[UUID]:
        """Append a run to a session."""
        values = self._values(session_id) | {
            "state": self._redactor.state(state_text(initial)),
            "now": self._clock(),
            "run": root_plan_id,
            "earlier": MAX_SESSION_RUNS - 1,
        }
        with store_errors():
            async with in_project(self._project) as connection:
                cursor = await connection.execute(_ADD_RUN, values)
                [(runs,)] = await cursor.fetchall()
        return list(runs[:-1])

    def _values(self, session_id: str) -> dict[str, Any]:
        session = self._redactor.conversation(stored_session_id(session_id))
        return {"project_id": self._project.project_id, "session": session}


_THE_SESSION = "session_id = %(session)s AND project_id = %(project_id)s"

_READ = f"SELECT state::text FROM session_state WHERE {_THE_SESSION}"

# One statement, so that a session without a row can be locked, too. If a change is rejected, the
# transaction rolls back what this statement wrote.
_CREATE_OR_LOCK = """
INSERT INTO session_state AS stored (project_id, session_id, state, revision, updated_at)
VALUES (%(project_id)s, %(session)s, %(state)s, 1, %(now)s)
ON CONFLICT (session_id, project_id)
    DO UPDATE SET revision = stored.revision + 1, updated_at = excluded.updated_at
RETURNING state::text"""

# The slice selects the newest of the earlier runs; a slice that begins below 1 selects all.
_ADD_RUN = """
INSERT INTO session_state AS stored (project_id, session_id, state, revision, updated_at, run_ids)
VALUES (%(project_id)s, %(session)s, %(state)s, 0, %(now)s, ARRAY[%(run)s::uuid])
ON CONFLICT (session_id, project_id) DO UPDATE SET
    run_ids = stored.run_ids[cardinality(stored.run_ids) - %(earlier)s + 1 :] || excluded.run_ids,
    updated_at = excluded.updated_at
RETURNING run_ids"""

_STORE = f"UPDATE session_state SET state = %(state)s WHERE {_THE_SESSION}"
