"""An index from a run's spans to the records that they belong to, cached until the run changes.

To build the index, all spans of the run must be read. This would be too slow for each page of a
list of spans.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from uuid import UUID

from cachetools import LRUCache

from api.freshness import Freshness
from tracer.lineage.tree import Payloads, Revision, TreeRows
from tracer.records.record_classes import Kind, RecordReference
from tracer.records.spans import LogRecord, Span
from tracer.store import TraceReader

MAX_SPANS = 30_000
"""The largest number of spans in the cache. Each takes about 600 bytes."""

RecordsOfSpans = Callable[
    [Collection[Span], Mapping[Kind, Collection[UUID]], Iterable[LogRecord]],
    dict[bytes, RecordReference],
]
"""Returns the record that each span belongs to, by span id; see
`tracer.otel.projection.span_places.places_of`."""

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
