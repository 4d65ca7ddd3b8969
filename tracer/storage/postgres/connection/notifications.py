"""Notifications between processes, by Postgres's NOTIFY: runs that changed, and runs to project.

They are sent after the commit, never within it: transactions that notify wait for each other's
commits. Nothing depends on them: runs are polled as well
(`tracer.storage.postgres.read.run_watch`), and projectors look once a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import psycopg

from tracer.logs import get_logger
from tracer.records.ids import new_id
from tracer.storage.postgres.connection.pool import (
    Pool,
    borrowed,
    cancel_until_done,
    connection_options,
)

Told = Callable[[Collection[UUID]], None]
"""Takes the runs that were written, or accepted."""


class Notify(NamedTuple):
    """Callbacks that notify other processes. Call them after the commit."""

    written: Told
    """Takes the runs whose records changed, and wakes their watchers."""
    accepted: Told
    """Takes the runs with new pending spans, and wakes projectors."""


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

PENDING_CHANNEL = "tracer_pending"
"""Announces accepted runs to projectors."""

_RUNS_IN_A_MESSAGE = 200  # 33 bytes each; a message has room for less than 8,000

LOOK_NOW = "now"
"""A message to projectors: a run is due at once. Other messages name runs that were accepted, which
are due 100 ms later at the earliest."""

WAKE_PROJECTORS = f"SELECT pg_notify('{PENDING_CHANNEL}', '{LOOK_NOW}')"
"""Make projectors look for due runs at once."""

# Losing one in a crash loses nothing, so its commit need not wait for the disk.
_NOTIFY = """
SELECT pg_notify(channel, message)
FROM set_config('synchronous_commit', 'off', true),
    unnest(%s::text[], %s::text[]) AS given (channel, message)"""

log = get_logger(__name__)


@asynccontextmanager
async def notifications(pool: Pool, url: str, watch: Watching) -> AsyncIterator[Notify]:
    """Give what takes the runs that this process wrote or accepted, and wakes others.

    Args:
        pool: The database to tell other processes by.
        url: The same, where one connection can stay.
        watch: Who watches in this process; woken by others' writes too, while inside.
    """
    sender = new_id().hex
    written: set[UUID] = set()
    accepted: set[UUID] = set()
    news = asyncio.Event()

    def note_written(root_plan_ids: Collection[UUID]) -> None:
        watch.wake(root_plan_ids)
        written.update(root_plan_ids)
        news.set()

    def note_accepted(root_plan_ids: Collection[UUID]) -> None:
        accepted.update(root_plan_ids)
        news.set()

    async def tell() -> None:
        channels, messages = _messages(sender, {_CHANNEL: written, PENDING_CHANNEL: accepted})
        written.clear()
        accepted.clear()
        try:
            async with borrowed(pool) as connection:
                await connection.execute(_NOTIFY, [channels, messages])
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
        yield Notify(note_written, note_accepted)
    finally:
        await cancel_until_done(*tasks)
        if written or accepted:
            await tell()


def notify_written(
    connection: psycopg.Connection[Any], root_plan_ids: Collection[UUID], sender: str = "projector"
) -> None:
    """Wake those who watch runs, in all servers.

    Args:
        connection: Outside of a transaction: the runs are committed.
        root_plan_ids: The runs that changed.
        sender: A word; the process whose id it is ignores the message.
    """
    connection.execute(_NOTIFY, [*_messages(sender, {_CHANNEL: root_plan_ids})])


def _messages(sender: str, runs: Mapping[str, Collection[UUID]]) -> tuple[list[str], list[str]]:
    """Return channels and messages about the runs of each channel."""
    channels, messages = [], []
    for channel, of_channel in runs.items():
        ids = [run.hex for run in of_channel]
        for start in range(0, len(ids), _RUNS_IN_A_MESSAGE):
            channels.append(channel)
            messages.append(" ".join([sender, *ids[start : start + _RUNS_IN_A_MESSAGE]]))
    return channels, messages


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
