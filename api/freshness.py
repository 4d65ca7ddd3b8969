"""Read-your-writes: a read of a run waits until its pending spans are converted to records.

Each request has a `Freshness`, which notes how many accepted spans the records still lack. If they
lack any, the response has the header `Tracer-Behind` (`api.middleware`) and no ETag
(`api.conditional`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from fastapi import Request

from tracer.records import Kind
from tracer.store import Behind, SpanProjection, TraceReader

READ_SECONDS = 2.0
"""How long a read waits for a projection."""

FRESH_SECONDS = 30.0
"""How long a read with `fresh=true` waits for a projection."""

HEADER = "Tracer-Behind"

STATE = "freshness"
"""The name of the `Freshness` in the state of a request."""


class Freshness:
    """Whether the records that a request reads include all spans accepted before the request."""

    def __init__(self) -> None:
        self.is_wanted = False
        """Whether the client prefers to wait longer, because it sent `fresh=true`."""
        self._behind: list[Behind] = []

    @property
    def behind(self) -> Behind | None:
        """How many accepted spans are missing in the records read so far, and since when.

        None if no span is missing.
        """
        if not self._behind:
            return None
        errors = [each.error for each in self._behind if each.error is not None]
        return Behind(
            sum(each.spans for each in self._behind),
            min(each.since for each in self._behind),
            errors[0] if errors else None,
        )

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The header with the number of missing spans, and when the first arrived.

        Its value is a dictionary as in RFC 9651. Returns no header if no span is missing.
        """
        behind = self.behind
        if behind is None:
            return []
        value = f'spans={behind.spans}, since="{rfc_3339(behind.since)}"'
        return [(HEADER.lower().encode(), value.encode())]

    async def catch_up(self, projection: SpanProjection, kind: Kind, record_id: UUID) -> None:
        """Wait until the pending spans of a record's run are projected, up to a time limit.

        If the limit expires first, note the missing spans.
        """
        seconds = FRESH_SECONDS if self.is_wanted else READ_SECONDS
        behind = await projection.catch_up(kind, record_id, seconds=seconds)
        if behind is not None:
            self._behind.append(behind)


def freshness_of(request: Request) -> Freshness:
    """Return the `Freshness` of a request. All callers within a request get the same object."""
    state = request.scope.setdefault("state", {})
    if STATE not in state:
        state[STATE] = Freshness()
    freshness = state[STATE]
    assert isinstance(freshness, Freshness)
    return freshness


KINDS: Mapping[str, Kind] = {
    "read_run": Kind.RUN,
    "find_turn": Kind.RUN,
    "read_messages": Kind.RUN,
    "read_message_bytes": Kind.RUN,
    "read_span_records": Kind.RUN,
    "read_leases": Kind.RUN,
    "read_plan": Kind.PLAN,
    "read_tree": Kind.PLAN,
    "read_think_act": Kind.THINK_ACT,
    "read_tool_call": Kind.TOOL_CALL,
}
"""The methods of a reader that read one run or record, and the kind of record whose id is their
first argument. `read_revision` is not listed, because its first argument is the kind. No other
method waits for projections."""


def up_to_date(
    reader: TraceReader, projection: SpanProjection | None, freshness: Freshness
) -> TraceReader:
    """Return a reader that waits for the projection of a run's pending spans before it reads.

    Args:
        reader: Reads the records that exist already.
        projection: Waits for the projection in the same store; None: reads do not wait.
        freshness: The freshness of the request. It notes the spans that the records still lack.
    """
    if projection is None:
        return reader
    return cast("TraceReader", _UpToDateReader(reader, projection, freshness))


class _UpToDateReader:
    def __init__(
        self, reader: TraceReader, projection: SpanProjection, freshness: Freshness
    ) -> None:
        self._reader = reader
        self._projection = projection
        self._freshness = freshness
        self._caught_up: set[UUID] = set()

    def __getattr__(self, name: str) -> Any:
        read: Callable[..., Awaitable[Any]] = getattr(self._reader, name)
        if name == "read_revision":

            async def read_revision(kind: Kind, record_id: UUID) -> Any:
                await self._catch_up(kind, record_id)
                return await read(kind, record_id)

            return read_revision
        if name not in KINDS:
            return read

        async def read_record(record_id: UUID, *arguments: Any, **named: Any) -> Any:
            await self._catch_up(KINDS[name], record_id)
            return await read(record_id, *arguments, **named)

        return read_record

    async def _catch_up(self, kind: Kind, record_id: UUID) -> None:
        # Once per request and record: later reads of the request may be newer, never older.
        if record_id not in self._caught_up:
            self._caught_up.add(record_id)
            await self._freshness.catch_up(self._projection, kind, record_id)


def rfc_3339(moment: datetime) -> str:
    """Return a UTC time in the format of RFC 3339, with a `Z` at the end."""
    return moment.isoformat().replace("+00:00", "Z")
