"""Stream the changes of a run to clients that watch it.

The server queues no changes for a client. When the run changes, the client's stream reads all
changes since the client's revision, and sends them in one message. The stream reads again only
after the client has accepted this message. So a slow client needs no additional memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, cast
from uuid import UUID

import msgspec
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from api.middleware.authentication import CheckCaller
from api.parts import RunWatch
from tracer.errors import NotIdentified, RecordNotFound, StoreUnavailable
from tracer.lineage.tree import Id, PlanRow, RecordKind, StepRow, ThinkActRow, ToolCallRow
from tracer.store import RunChanges, TraceReader

MAX_CHANGES = 2_000
GAP_SECONDS = 0.03
RETRY_SECONDS = 1.0
PING_SECONDS = 15.0
CHECK_SECONDS = 1.0

RECONNECT_MS = 1_000
"""How long a client waits before it reconnects."""


@dataclass(frozen=True)
class StreamSettings:
    """Limits and waiting times of the event stream of a run."""

    max_changes: int = MAX_CHANGES
    """The largest number of changes in a message. A client that lacks more changes must read the
    whole tree, which is less work for client and server."""

    gap_seconds: float = GAP_SECONDS
    """The shortest time between two messages. All changes in this time share one message."""

    retry_seconds: float = RETRY_SECONDS
    """The time between two attempts to read from a store that does not answer."""

    ping_seconds: float = PING_SECONDS
    """After this time without a message, the server sends a comment, so that the client knows that
    the connection is alive."""

    check_seconds: float = CHECK_SECONDS
    """How often the access of an idle stream's client is checked."""


DEFAULT_SETTINGS = StreamSettings()


async def run_events(
    reader: TraceReader,
    watch: RunWatch,
    woken: asyncio.Event,
    root_plan_id: UUID,
    after: int,
    check_caller: CheckCaller,
    settings: StreamSettings = DEFAULT_SETTINGS,
) -> AsyncGenerator[bytes]:
    """Yield a run's changes as server-sent events, until the run is deleted or the server stops.

    The stream also ends when the caller's key is revoked. It then sends no later changes.

    Args:
        reader: Reads the run.
        watch: Reports when the server stops.
        woken: An event that is set whenever the run may have changed.
        root_plan_id: The run.
        after: The revision that the client has.
        check_caller: Raises `NotIdentified` if the client may no longer read the run.
        settings: Limits and waiting times.
    """
    yield format_sse_event(retry=RECONNECT_MS)
    is_stale = False
    while not watch.is_over:
        woken.clear()
        try:
            changes = await _changes_of(reader, root_plan_id, after, settings.max_changes)
            # After the read, so that nothing is sent that was written after the revocation.
            await check_caller()
        except NotIdentified:
            return  # if the client reconnects, it receives the reason
        except StoreUnavailable:
            # Keep the stream open: if it ended here, the client would only reconnect.
            yield KEEPALIVE_COMMENT if is_stale else _STALE
            is_stale = True
            await asyncio.sleep(settings.retry_seconds)
            continue
        if changes is None:
            yield _DELETED
            return
        if is_stale or changes.is_reset or changes.revision != after:
            yield _event(changes)
            is_stale = False
            after = changes.revision
            await asyncio.sleep(settings.gap_seconds)
        if not await _has_changed(woken, check_caller, settings):
            yield KEEPALIVE_COMMENT


async def _has_changed(
    woken: asyncio.Event, check_caller: CheckCaller, settings: StreamSettings
) -> bool:
    """Wait until the run may have changed, or the caller's access ended.

    Return False if neither happens in `ping_seconds`.
    """
    for _ in range(max(1, round(settings.ping_seconds / settings.check_seconds))):
        with suppress(TimeoutError):
            async with asyncio.timeout(min(settings.check_seconds, settings.ping_seconds)):
                await woken.wait()
        if woken.is_set():
            return True
        try:
            await check_caller()
        except NotIdentified:
            return True
        except StoreUnavailable:
            pass  # the next read reports it
    return False


async def _changes_of(
    reader: TraceReader, root_plan_id: UUID, after: int, most: int
) -> RunChanges | None:
    """Return the changes of a run since the revision `after`; None if the run does not exist."""
    try:
        return await reader.read_changes(root_plan_id, after, most)
    except RecordNotFound:
        return None


_DELETED = format_sse_event(event="deleted", data_str="{}")
_STALE = format_sse_event(event="stale", data_str="{}")


ChangedRecord = PlanRow | StepRow | ThinkActRow | ToolCallRow


class RemovedRecord(msgspec.Struct):
    """A record that no longer exists, because new spans changed the records of the run."""

    kind: RecordKind
    id: Id


class ChangedRecords(msgspec.Struct):
    """The changes of a run since the client's revision."""

    changed: Annotated[
        Sequence[ChangedRecord],
        msgspec.Meta(description="The new or changed records as in a tree, without those below."),
    ]
    removed: Annotated[
        Sequence[RemovedRecord],
        msgspec.Meta(
            description="The records to remove. The records below them lose their parent."
        ),
    ]


class RunRevision(msgspec.Struct):
    """The current revision of a run, a number that grows with each visible change."""

    revision: int


def _event(changes: RunChanges) -> bytes:
    if changes.is_reset:
        now = RunRevision(changes.revision)
        return format_sse_event(id=str(changes.revision), event="reset", data_str=_json(now))
    removed = [RemovedRecord(kind, str(record_id)) for kind, record_id in changes.removed]
    data = ChangedRecords(cast("Sequence[ChangedRecord]", changes.changed), removed)
    return format_sse_event(id=str(changes.revision), data_str=_json(data))


def _json(data: object) -> str:
    return msgspec.json.encode(data).decode()
