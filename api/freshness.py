"""Read-your-writes: a read of a run waits until its pending spans are converted to records.

Each request has a `Freshness`, which notes how many accepted spans the records still lack. If they
lack any, the response has the header `Tracer-Behind` and no ETag (`api.conditional`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from cachetools import LRUCache
from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tracer.lineage import Payloads, Revision, TreeRows
from tracer.records import Kind
from tracer.records.record_classes import RecordReference
from tracer.records.spans import LogRecord, Span
from tracer.store import Behind, SpanProjection, TraceReader

READ_SECONDS = 2.0
"""How long a read waits for a projection."""

FRESH_SECONDS = 30.0
"""How long a read with `fresh=true` waits for a projection."""

HEADER = "Tracer-Behind"

_STATE = "freshness"


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
    if _STATE not in state:
        state[_STATE] = Freshness()
    freshness = state[_STATE]
    assert isinstance(freshness, Freshness)
    return freshness


KINDS: Mapping[str, Kind] = {
    "read_run": Kind.RUN,
    "read_messages": Kind.RUN,
    "read_message_bytes": Kind.RUN,
    "read_spans": Kind.RUN,
    "read_logs": Kind.RUN,
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


class BehindHeader:
    """Middleware that adds the header `Tracer-Behind` if the records lack accepted spans."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return

        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                freshness = scope.get("state", {}).get(_STATE)
                if freshness is not None and freshness.behind is not None:
                    MutableHeaders(scope=message)[HEADER] = _header(freshness.behind)
            await send(message)

        await self._app(scope, receive, send_with_header)


def _header(behind: Behind) -> str:
    """Return the header's value: the number of missing spans, and when the first arrived.

    The value is a dictionary as in RFC 9651.
    """
    return f'spans={behind.spans}, since="{rfc_3339(behind.since)}"'


def rfc_3339(moment: datetime) -> str:
    """Return a UTC time in the format of RFC 3339, with a `Z` at the end."""
    return moment.isoformat().replace("+00:00", "Z")


# --- An index from a run's spans to the records that they belong to, cached until the run changes.
#
# To build the index, all spans of the run must be read. This would be too slow for each page of a
# list of spans.

MAX_SPANS = 30_000
"""The largest number of spans in the cache. Each takes about 600 bytes."""

RecordsOfSpans = Callable[
    [Collection[Span], Mapping[Kind, Collection[UUID]], Iterable[LogRecord]],
    dict[bytes, RecordReference],
]
"""Returns the record that each span belongs to, by span id; see
`tracer.otel.projection.project.known_span_records`."""

SpanOrder = tuple[int, bytes]
"""The sort key of a span: its start and its id."""


class SpanIndex:
    """The spans of a run in the order of their starts, and the record of each span."""

    def __init__(
        self,
        spans: Sequence[Span],
        record_keys: dict[bytes, RecordReference],
        rows: TreeRows,
        has_logs: bool,
    ) -> None:
        """Index the spans of a run.

        Args:
            spans: All spans of the run, sorted by (start, span id).
            record_keys: The record of each span, by span id.
            rows: The run's records.
            has_logs: Whether the run has log records.
        """
        self.has_logs = has_logs
        self.record_keys = record_keys
        self._all = [span.order for span in spans]
        self._ids = {span.span_id for span in spans}
        self._of_record: defaultdict[UUID, list[SpanOrder]] = defaultdict(list)
        plans = {UUID(row.step_id): UUID(row.plan_id) for row in rows.steps}
        for span in spans:
            if (key := self.record_keys.get(span.span_id)) is not None:
                for record_id in {key[1], plans.get(key[1], key[1])}:
                    self._of_record[record_id].append(span.order)

    def __len__(self) -> int:
        return len(self._all)

    def has(self, span_id: bytes | None) -> bool:
        """Return whether the run has a span with this id."""
        return span_id in self._ids

    def after(self, last: SpanOrder | None, record_id: UUID | None) -> Sequence[SpanOrder]:
        """Return the spans after `last`, or all spans if `last` is None.

        If `record_id` is given, return only the spans of this record. An agent's own span belongs
        to two records: the agent's step and its plan.
        """
        orders = self._all if record_id is None else self._of_record.get(record_id, [])
        return orders if last is None else orders[bisect_right(orders, last) :]


class SpanIndexCache:
    """A cache with the `SpanIndex` of each recently read run, valid until the run changes."""

    def __init__(self, records_of_spans: RecordsOfSpans, max_spans: int = MAX_SPANS) -> None:
        self._records_of_spans = records_of_spans
        # Each run counts one more than its spans, so that runs without spans are evicted, too.
        self._cache: LRUCache[tuple[int, Revision, int], SpanIndex] = LRUCache(
            max_spans, lambda index: 1 + len(index)
        )

    async def of_run(
        self, reader: TraceReader, project_id: int, root_plan_id: UUID, freshness: Freshness
    ) -> SpanIndex:
        """Return the span index of a run.

        Args:
            reader: Reads the project.
            project_id: The project.
            root_plan_id: The run.
            freshness: The freshness of the request. The reader notes missing spans in it.

        Raises:
            RecordNotFound: There is no such run, or it was deleted.
        """
        # The revision is read before the records, so an entry is never older than its revision.
        revision = await reader.read_revision(Kind.RUN, root_plan_id)
        # Spans that no projection has read are part of no revision.
        is_complete = freshness.behind is None
        cache_key = project_id, revision, revision.span_bytes
        cached = self._cache.get(cache_key) if is_complete else None
        if cached is not None:
            return cached
        spans = await reader.read_spans(root_plan_id)
        logs = await reader.read_logs(root_plan_id)
        rows = await reader.read_tree(root_plan_id, Payloads.NONE) if spans else TreeRows()
        # In a thread, because large runs take long.
        index = await asyncio.to_thread(self._index, spans, logs, rows)
        if is_complete and len(index) < self._cache.maxsize:
            self._cache[cache_key] = index
        return index

    def _index(self, spans: Sequence[Span], logs: Sequence[LogRecord], rows: TreeRows) -> SpanIndex:
        record_keys = self._records_of_spans(spans, _ids_of(rows), logs)
        return SpanIndex(spans, record_keys, rows, has_logs=bool(logs))


def _ids_of(rows: TreeRows) -> dict[Kind, set[UUID]]:
    return {
        Kind.PLAN: {UUID(row.plan_id) for row in rows.plans},
        Kind.STEP: {UUID(row.step_id) for row in rows.steps},
        Kind.THINK_ACT: {UUID(row.think_act_id) for row in rows.think_acts},
        Kind.TOOL_CALL: {UUID(row.tool_call_id) for row in rows.tool_calls},
    }
