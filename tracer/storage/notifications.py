"""Telling other processes which runs were written, by Postgres's NOTIFY, and hearing of it.

Told after the commit, never within: transactions that notify wait for each other's commits.
Nothing depends on it: what is not told is found by polling (`tracer.storage.run_watch`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Protocol
from uuid import UUID

import psycopg

from tracer.ids import new_id
from tracer.logs import get_logger
from tracer.storage.engine import Pool, borrowed, cancel_until_done, connection_options

Told = Callable[[Collection[UUID]], None]
"""Takes the runs that were written."""


class Watching(Protocol):
    """Those who watch runs: of one project (`RunWatch`), or of all (`ProjectStores`)."""

    def wake(self, root_plan_ids: Collection[UUID]) -> None:
        """Wake those who watch any of the runs."""

    async def until_watched(self) -> None:
        """Return as soon as somebody watches a run."""


GATHER_SECONDS, MOST_GATHER_SECONDS = 0.01, 0.1
"""How long writes are gathered into one message, after one that was sent at once: the least, and
the most in a process that is busy."""

TELLING_SHARE = 0.1
"""How much of its time a busy process tells, as long as it need not gather for longer than that."""

RETRY_SECONDS = (1, 2, 5, 15, 30)

_CHANNEL = "tracer_runs"

_RUNS_IN_A_MESSAGE = 200  # 33 bytes each; a message has room for less than 8,000

# Losing one in a crash loses nothing, so its commit need not wait for the disk.
_NOTIFY = f"""
SELECT pg_notify('{_CHANNEL}', message)
FROM set_config('synchronous_commit', 'off', true), unnest(%s::text[]) AS message"""

log = get_logger(__name__)


@asynccontextmanager
async def notifications(pool: Pool, url: str, watch: Watching) -> AsyncIterator[Told]:
    """Give what takes the runs that this process wrote, and wakes those who watch them anywhere.

    Args:
        pool: The database to tell other processes by.
        url: The same, where one connection can stay.
        watch: Who watches in this process; woken by others' writes too, while inside.
    """
    sender = new_id().hex
    written: set[UUID] = set()
    news = asyncio.Event()

    def told(root_plan_ids: Collection[UUID]) -> None:
        watch.wake(root_plan_ids)
        written.update(root_plan_ids)
        news.set()

    async def tell() -> None:
        runs = [run.hex for run in written]
        written.clear()
        messages = [
            " ".join([sender, *runs[start : start + _RUNS_IN_A_MESSAGE]])
            for start in range(0, len(runs), _RUNS_IN_A_MESSAGE)
        ]
        try:
            async with borrowed(pool) as connection:
                await connection.execute(_NOTIFY, [messages])
        except Exception as error:  # whatever it is, polling finds what is not told
            log.warning("written_runs_not_told", error=type(error).__name__)

    async def keep_telling() -> None:
        while True:
            await news.wait()
            news.clear()
            begin = time.monotonic()
            await tell()
            took = time.monotonic() - begin
            await asyncio.sleep(min(max(GATHER_SECONDS, took / TELLING_SHARE), MOST_GATHER_SECONDS))

    tasks = [
        asyncio.create_task(keep_telling()),
        asyncio.create_task(_keep_hearing(url, sender, watch)),
    ]
    try:
        yield told
    finally:
        await cancel_until_done(*tasks)
        if written:
            await tell()


async def _keep_hearing(url: str, sender: str, watch: Watching) -> None:
    """Wake watchers by what other processes tell, as soon as there is one."""
    await watch.until_watched()
    failures = 0
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(**connection_options(url)) as heard:
                await heard.execute(f"LISTEN {_CHANNEL}")
                failures = 0
                async for notification in heard.notifies():
                    by, *runs = notification.payload.split()
                    if by != sender:
                        watch.wake([UUID(run) for run in runs])
        except Exception as error:  # as above: also what somebody else says on this channel
            log.warning("written_runs_not_heard", error=type(error).__name__)
        await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
        failures += 1
