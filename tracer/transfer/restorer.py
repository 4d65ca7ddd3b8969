"""The contract of stores that accept exported runs: `TraceRestorer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tracer.otel.otlp.blocks import TraceSpans
from tracer.records.record_json import ExportedRecord
from tracer.store import TraceWriter, WriteAnswer


class TraceRestorer(TraceWriter, Protocol):
    """A `TraceWriter` that also accepts exported runs. `HttpWriter` does not implement it."""

    async def restore(self, records: Sequence[ExportedRecord]) -> WriteAnswer:
        """Restore exported records of runs that arrived as events.

        Restoring is as durable, order-free and idempotent as `TraceWriter.write`, and merges by the
        same rules. Fields that no event has are restored too. If a record exists, the earlier
        `recorded_at` is kept. Records are rejected if their run was deleted or arrived as spans, or
        if the store cannot hold them.

        Raises:
            StoreUnavailable: As `TraceWriter.write`.
        """

    async def restore_spans(
        self, traces: Sequence[TraceSpans], records: Sequence[ExportedRecord]
    ) -> WriteAnswer:
        """Store spans as `TraceWriter.write_spans` does, and project their runs.

        One transaction for each run stores the run's spans and records. So no spans are pending
        afterwards.

        Args:
            traces: The spans, grouped by trace.
            records: The exported records of these runs. Only fields that spans do not contain are
                restored: `recorded_at`, and when a cancellation was requested.

        Raises:
            StoreUnavailable: As `TraceWriter.write`.
        """
