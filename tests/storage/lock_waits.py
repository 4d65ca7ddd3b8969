"""Who waits for a lock in a test's own database; the server is shared with other tests."""

from __future__ import annotations

import asyncio

import psycopg

from tests.citus_databases import workers_of

PLENTY_SECONDS = 60.0

_WAITING = """
SELECT pid FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()"""

# Locks are on workers; who waits is told by the number of its node and that of its process.
_WAITING_ON_CITUS = """
SELECT DISTINCT (waiting_gpid % 10000000000)::integer FROM citus_lock_waits"""


async def waiting(url: str) -> list[int]:
    """Return the processes that wait for a lock in a database."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        query = _WAITING_ON_CITUS if workers_of(url) else _WAITING
        return [pid for (pid,) in await (await connection.execute(query)).fetchall()]


async def until_waiting(url: str, sessions: int) -> None:
    """Return when so many sessions wait for a lock in a database."""
    async with asyncio.timeout(PLENTY_SECONDS):
        while len(await waiting(url)) != sessions:  # noqa: ASYNC110 - the database tells nobody
            await asyncio.sleep(0.01)
