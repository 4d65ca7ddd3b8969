"""What a reaper asks on Citus: leases are here, what their recorders wrote to is on the workers.

So what is one statement elsewhere goes step by step, and one run at a time; see `postgres_leases`.
Each function is given a connection in a transaction.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from psycopg import AsyncRawCursor

from tracer.storage.engine import PoolConnection
from tracer.storage.lease_statements import FIND_PARTS, NOW

Row = tuple[Any, ...]


async def taken_parts(
    connection: PoolConnection, moment: datetime | None, since: datetime, most: int
) -> list[Row]:
    """Lock the first run that needs something and is not locked; return its parts, as elsewhere.

    Args:
        connection: In a transaction.
        moment: What time it is; None: by the database's clock.
        since: Since when somebody has been looking.
        most: How many parts to look for.
    """
    found = await _rows(connection, FIND_PARTS, moment, since, most)
    for place in dict.fromkeys((project_id, run_id) for project_id, run_id, _, _ in found):
        if await _rows(connection, _LOCK_RUN, *place):
            recorders = [part[2] for part in found if part[:2] == place]
            await _rows(connection, _LOCK_LEASES, place[0], recorders)
            now = await _rows(connection, FIND_PARTS, moment, since, most)
            if parts := [part for part in now if part[:2] == place and part[2] in recorders]:
                return parts
    return []


async def settle(
    connection: PoolConnection,
    moment: datetime | None,
    since: datetime,
    recorders: list[Any] | None = None,
) -> int:
    """Say of due leases with nothing left to do when to look after them again.

    Args:
        connection: In a transaction.
        moment: What time it is; None: by the database's clock.
        since: Since when somebody has been looking.
        recorders: Those of these alone; None: of all.

    Returns:
        Of how many that was said.
    """
    due = await _rows(connection, _DUE, moment, since, recorders)
    if not due:
        return 0
    left = set(await _rows(connection, _LEFT_TO_DO, *map(list, zip(*due, strict=True))))
    settled = [lease[:2] for lease in due if lease[:2] not in left]
    return await _changed(connection, _SETTLE, settled, moment)


async def forget_leases(connection: PoolConnection) -> int:
    """Delete settled leases that left nothing abandoned, and return how many."""
    settled = await _rows(connection, _SETTLED)
    if not settled:
        return 0
    kept = set(await _rows(connection, _WITH_PARTS, *map(list, zip(*settled, strict=True))))
    return await _changed(connection, _FORGET, [one for one in settled if one not in kept])


async def _rows(connection: PoolConnection, statement: str, *given: Any) -> list[Row]:
    cursor = AsyncRawCursor(connection)
    await cursor.execute(statement, given)
    return await cursor.fetchall()


async def _changed(
    connection: PoolConnection, statement: str, leases: list[Row], *given: Any
) -> int:
    if not leases:
        return 0
    columns = map(list, zip(*leases, strict=True))
    return len(
        await _rows(connection, f"{statement} RETURNING lease.recorder_id", *columns, *given)
    )


_LOCK_RUN = """
SELECT root_plan_id FROM run WHERE project_id = $1 AND root_plan_id = $2
FOR NO KEY UPDATE SKIP LOCKED"""

_LOCK_LEASES = """
SELECT recorder_id FROM recorder_lease WHERE project_id = $1 AND recorder_id = ANY($2::uuid[])
ORDER BY recorder_id FOR SHARE"""

_LIVES = "seen_at + length > moment.now"

_DUE = f"""
WITH moment AS MATERIALIZED ({NOW} AS now)
SELECT project_id, recorder_id, {_LIVES} FROM recorder_lease AS lease, moment
WHERE due_at <= moment.now AND ($3::uuid[] IS NULL OR recorder_id = ANY($3))
    AND ({_LIVES} OR greatest(seen_at, $2::timestamptz) + length <= moment.now)
FOR UPDATE OF lease SKIP LOCKED"""

_LEASES = """unnest($1::integer[], $2::uuid[]) AS given (project_id, recorder_id)"""

_LEFT_TO_DO = """
SELECT DISTINCT part.project_id, part.recorder_id
FROM recorder_run AS part
JOIN unnest($1::integer[], $2::uuid[], $3::boolean[]) AS given (project_id, recorder_id, lives)
    ON part.recorder_id = given.recorder_id AND part.project_id = given.project_id
WHERE CASE WHEN given.lives THEN part.has_abandoned ELSE part.may_be_open END"""

_SETTLE = f"""
UPDATE recorder_lease AS lease
SET due_at = CASE WHEN seen_at + length > coalesce($3::timestamptz, statement_timestamp())
    THEN seen_at + length END
FROM {_LEASES}
WHERE lease.recorder_id = given.recorder_id AND lease.project_id = given.project_id"""

_SETTLED = """
SELECT project_id, recorder_id FROM recorder_lease WHERE due_at IS NULL FOR UPDATE SKIP LOCKED"""

_WITH_PARTS = f"""
SELECT DISTINCT part.project_id, part.recorder_id
FROM recorder_run AS part
JOIN {_LEASES} ON part.recorder_id = given.recorder_id AND part.project_id = given.project_id"""

_FORGET = f"""
DELETE FROM recorder_lease AS lease USING {_LEASES}
WHERE lease.recorder_id = given.recorder_id AND lease.project_id = given.project_id"""
