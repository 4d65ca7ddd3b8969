"""Sessions of a test's own database that wait for a lock or sleep. Other tests share the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import psycopg

from tests.citus_databases import workers_of

PLENTY_SECONDS = 60.0

_WAITING = """
SELECT pid FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()"""

_ASLEEP = """
SELECT pid FROM pg_stat_activity
WHERE wait_event = 'PgSleep' AND datname = current_database()"""

# A global pid is the number of a node and of a process there. citus_lock_waits covers all databases
# of the cluster.
_WAITING_ON_CITUS = """
SELECT DISTINCT (waiting_gpid % 10000000000)::integer
FROM citus_lock_waits JOIN citus_stat_activity ON global_pid = waiting_gpid
WHERE datname = current_database()"""


def waiting_query(url: str) -> str:
    """Return the SQL for the processes that wait for a lock in a database."""
    return _WAITING_ON_CITUS if workers_of(url) else _WAITING


async def waiting(url: str) -> list[int]:
    """Return the processes that wait for a lock in a database."""
    return await _found(url, waiting_query(url))


async def until_waiting(url: str, sessions: int) -> None:
    """Return when so many sessions wait for a lock in a database."""
    await _until(lambda: waiting(url), sessions)


async def until_asleep(url: str, sessions: int = 1) -> None:
    """Return when so many sessions of a database are in `pg_sleep`."""
    await _until(lambda: _found(url, _ASLEEP), sessions)


async def _found(url: str, query: str) -> list[int]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        return [pid for (pid,) in await (await connection.execute(query.encode())).fetchall()]


async def _until(found: Callable[[], Awaitable[list[int]]], sessions: int) -> None:
    async def are_found() -> bool:
        return len(await found()) == sessions

    await until(are_found)


async def until(is_so: Callable[[], Awaitable[object]], seconds: float = PLENTY_SECONDS) -> None:
    """Return when something has come about in a database, and raise an error after `seconds`."""
    async with asyncio.timeout(seconds):
        while not await is_so():  # noqa: ASYNC110 - the database tells nobody
            await asyncio.sleep(0.01)
