"""Notifications between processes, and watchers of the runs that change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from types import TracebackType
from typing import Any, LiteralString, NamedTuple, Protocol, Self
from uuid import UUID

import psycopg

from tracer.logs import get_logger
from tracer.records import new_id
from tracer.storage.postgres.pool import (
    Pool,
    cancel_until_done,
    connection_options,
    pooled_connection,
)
from tracer.store import TraceReader

# --- Notifications between processes, by Postgres's NOTIFY: runs that changed, and runs to project.
#
# They are sent after the commit, never within it: transactions that notify wait for each other's
# commits. A lost notification only causes a delay: watched runs are polled as well, and one of the
# projectors looks for due runs every five seconds.

OnRuns = Callable[[Collection[UUID]], None]
"""A callback that receives run ids: runs that were written, or runs with newly accepted spans."""


def _ignore(_run_ids: Collection[UUID]) -> None:
    pass


class Notify(NamedTuple):
    """Callbacks that notify other processes. Call them after the commit."""

    written: OnRuns = _ignore
    """Call this with the runs whose records changed. It wakes their watchers."""
    accepted: OnRuns = _ignore
    """Call this with the runs that have new pending spans. It wakes projectors."""


NOTIFY_NOBODY = Notify()


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
"""Announces runs with new spans to projectors."""

_RUNS_IN_A_MESSAGE = 200  # 33 bytes each; Postgres limits a message to 8,000 bytes

DUE_NOW = "now"
"""The sender of a message to projectors whose runs are due now. The runs of other messages are not
due for another 100 ms."""

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


def pending_message(
    sender: str, root_plan_ids: Collection[UUID]
) -> tuple[LiteralString, list[list[str]]]:
    """Return the statement, with its parameters, that notifies projectors of pending runs.

    Args:
        sender: `DUE_NOW`, or who sends it.
        root_plan_ids: The runs.
    """
    return _NOTIFY, [*_messages(sender, {PENDING_CHANNEL: root_plan_ids})]


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


# --- Watching runs: which runs are watched in this process, and when their watchers are woken.
#
# A watcher is woken at once if this process writes to the run, soon if another process notifies,
# and in any case within a second: one query a second reads the revisions of all watched runs. A
# watcher only learns that something may have changed.

POLL_SECONDS = 1.0


class RunWatch:
    """Wakes the watchers of runs that may have changed.

    Use it as an async context manager; inside, it polls the watched runs.
    """

    def __init__(
        self,
        reader: TraceReader,
        poll_seconds: float = POLL_SECONDS,
        on_watched: Callable[[], None] = lambda: None,
    ) -> None:
        self._reader = reader
        self._on_watched = on_watched
        self._poll_seconds = poll_seconds
        self._watchers: dict[UUID, set[asyncio.Event]] = {}
        self._is_watched = asyncio.Event()
        self._is_over = False
        self._polling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        # In an empty context, because it is not part of the request that first needs the project.
        self._polling = asyncio.create_task(self._poll(), context=Context())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()
        if self._polling is not None:
            await cancel_until_done(self._polling)

    @property
    def is_over(self) -> bool:
        """Whether watching has ended. If so, watchers must stop."""
        return self._is_over

    @property
    def watchers(self) -> int:
        """The number of watchers."""
        return sum(map(len, self._watchers.values()))

    @property
    def watched(self) -> set[UUID]:
        """The runs that are watched."""
        return set(self._watchers)

    @contextmanager
    def watching(self, root_plan_id: UUID) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever the run may have changed. The watcher clears it."""
        woken = asyncio.Event()
        self._watchers.setdefault(root_plan_id, set()).add(woken)
        self._is_watched.set()
        self._on_watched()
        try:
            yield woken
        finally:
            watchers = self._watchers[root_plan_id]
            watchers.remove(woken)
            if not watchers:
                del self._watchers[root_plan_id]
            if not self._watchers:
                self._is_watched.clear()

    def wake(self, root_plan_ids: Collection[UUID]) -> None:
        """Wake the watchers of some runs."""
        for root_plan_id in root_plan_ids if self._watchers else ():
            for woken in self._watchers.get(root_plan_id, ()):
                woken.set()

    async def until_watched(self) -> None:
        """Wait until a run is watched."""
        await self._is_watched.wait()

    def end(self) -> None:
        """End watching and wake all watchers, so that they do not delay the server's shutdown."""
        self._is_over = True
        self.wake([*self._watchers])

    async def _poll(self) -> None:
        """Poll the revisions of the watched runs, and wake the watchers of those that changed."""
        known: dict[UUID, int] = {}
        is_answered = True
        while True:
            await self._is_watched.wait()
            watched = list(self._watchers)
            try:
                revisions = await self._reader.read_revisions(watched)
            except Exception as error:  # the next query may succeed
                if is_answered:
                    log.warning("watched_runs_not_read", error=type(error).__name__)
                    # So that watchers notice and report the failure.
                    self.wake(watched)
                is_answered = False
            else:
                is_answered = True
                self.wake([run for run in watched if known.get(run) != revisions.get(run)])
                # A missing run wakes its watchers each time: for them, it was deleted.
                self.wake([run for run in watched if run not in revisions])
                known = revisions
            await asyncio.sleep(self._poll_seconds)
