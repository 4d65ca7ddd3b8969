"""Notifications between processes, by Postgres's NOTIFY: runs that changed, and runs to project.

They are sent after the commit, never within it: transactions that notify wait for each other's
commits. A lost notification only causes a delay: runs are polled as well
(`tracer.storage.postgres.read.run_watch`), and projectors check for due runs once a second.
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
    cancel_until_done,
    connection_options,
    pooled_connection,
)

Told = Callable[[Collection[UUID]], None]
"""A callback that receives run ids: runs that were written, or runs with newly accepted spans."""


class Notify(NamedTuple):
    """Callbacks that notify other processes. Call them after the commit."""

    written: Told
    """Call this with the runs whose records changed. It wakes their watchers."""
    accepted: Told
    """Call this with the runs that have new pending spans. It wakes projectors."""


class Watching(Protocol):
    """The watchers of the runs of one project (`RunWatch`), or of all (`ProjectStores`)."""

    def wake(self, root_plan_ids: Collection[UUID]) -> None:
        """Wake the watchers of some runs."""

    async def until_watched(self) -> None:
        """Wait until a run is watched."""


GATHER_SECONDS, MOST_GATHER_SECONDS = 0.01, 0.1
"""The shortest and the longest pause in seconds after a message was sent.

Runs that are written during the pause are collected into the next message. The pause is longer if
sending is slow.
"""

SENDING_SHARE = 0.1
"""The share of its time that a busy process spends on sending. The pause is chosen so, but it stays
within the limits above."""

RETRY_SECONDS = (1, 2, 5, 15, 30)

_CHANNEL = "tracer_runs"

PENDING_CHANNEL = "tracer_pending"
"""Announces accepted runs to projectors."""

_RUNS_IN_A_MESSAGE = 200  # 33 bytes each; Postgres limits a message to 8,000 bytes

LOOK_NOW = "now"
"""A message to projectors: some run is due now. All other messages contain the ids of runs with new
spans, which are not due for another 100 ms."""

WAKE_PROJECTORS = f"SELECT pg_notify('{PENDING_CHANNEL}', '{LOOK_NOW}')"
"""Makes projectors check for due runs at once."""

# A lost notification does no harm, so its commit need not wait for the disk.
_NOTIFY = """
SELECT pg_notify(channel, message)
FROM set_config('synchronous_commit', 'off', true),
    unnest(%s::text[], %s::text[]) AS notification (channel, message)"""

log = get_logger(__name__)


@asynccontextmanager
async def notifications(pool: Pool, url: str, watch: Watching) -> AsyncIterator[Notify]:
    """Yield callbacks that notify other processes of written and accepted runs.

    Args:
        pool: The database, for sending.
        url: The same database without a pooler, for listening.
        watch: The watchers in this process. Writes of other processes wake them, too.
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

    async def send() -> None:
        channels, messages = _messages(sender, {_CHANNEL: written, PENDING_CHANNEL: accepted})
        written.clear()
        accepted.clear()
        try:
            async with pooled_connection(pool) as connection:
                await connection.execute(_NOTIFY, [channels, messages])
        except Exception as error:  # polling finds the changes, too
            log.warning("written_runs_not_told", error=type(error).__name__)

    async def keep_sending() -> None:
        while True:
            await news.wait()
            news.clear()
            begin = time.monotonic()
            await send()
            took = time.monotonic() - begin
            await asyncio.sleep(min(max(GATHER_SECONDS, took / SENDING_SHARE), MOST_GATHER_SECONDS))

    tasks = [
        asyncio.create_task(keep_sending()),
        asyncio.create_task(_keep_listening(url, sender, watch)),
    ]
    try:
        yield Notify(note_written, note_accepted)
    finally:
        await cancel_until_done(*tasks)
        if written or accepted:
            await send()


def notify_written(
    connection: psycopg.Connection[Any], root_plan_ids: Collection[UUID], sender: str = "projector"
) -> None:
    """Wake the watchers of runs in all servers.

    Args:
        connection: A connection outside of a transaction, because the runs must be committed.
        root_plan_ids: The runs that changed.
        sender: The sender's id. The process with this id ignores the message.
    """
    connection.execute(_NOTIFY, [*_messages(sender, {_CHANNEL: root_plan_ids})])


def _messages(sender: str, runs: Mapping[str, Collection[UUID]]) -> tuple[list[str], list[str]]:
    """Return the messages about runs, and the channel of each message.

    A message contains at most `_RUNS_IN_A_MESSAGE` runs.
    """
    channels, messages = [], []
    for channel, of_channel in runs.items():
        ids = [run.hex for run in of_channel]
        for start in range(0, len(ids), _RUNS_IN_A_MESSAGE):
            channels.append(channel)
            messages.append(" ".join([sender, *ids[start : start + _RUNS_IN_A_MESSAGE]]))
    return channels, messages


async def _keep_listening(url: str, sender: str, watch: Watching) -> None:
    """Wake watchers on notifications of other processes. Connects when the first run is watched."""
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
        except Exception as error:  # also a malformed message of another program
            log.warning("written_runs_not_heard", error=type(error).__name__)
        await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
        failures += 1
