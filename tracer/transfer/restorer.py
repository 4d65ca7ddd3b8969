"""What stores promise that take what was exported: `TraceRestorer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tracer.otel.spans import Span
from tracer.record_json import ExportedRecord
from tracer.store import TraceWriter, WriteAnswer


class TraceRestorer(TraceWriter, Protocol):
    """The door for what was exported, too. A store that is written to over HTTP has none."""

    async def restore(self, records: Sequence[ExportedRecord]) -> WriteAnswer:
        """Bring records back of runs that came as events.

        As durable, order-free and idempotent as `TraceWriter.write`, whose rules merge them with
        what is there. What no event says comes back too; of `recorded_at` the earlier stays.
        Refused are records of deleted runs, of runs of spans, and what the store cannot hold.

        Raises:
            StoreUnavailable: As `TraceWriter.write`.
        """

    async def restore_spans(
        self, spans: Sequence[Span], records: Sequence[ExportedRecord]
    ) -> WriteAnswer:
        """Store spans as `TraceWriter.write_spans` does, their records as old as they were.

        Args:
            spans: The spans.
            records: What an export says of the records that spans of these runs become. Taken
                is what no span says of them: `recorded_at`, and when a cancel was wished.

        Raises:
            StoreUnavailable: As `TraceWriter.write`.
        """
