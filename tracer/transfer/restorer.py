"""What stores promise that take what was exported: `TraceRestorer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tracer.otel.otlp.blocks import TraceSpans
from tracer.records.record_json import ExportedRecord
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
        self, traces: Sequence[TraceSpans], records: Sequence[ExportedRecord]
    ) -> WriteAnswer:
        """Store spans as `TraceWriter.write_spans` does, and project their runs.

        One transaction per run stores both, and leaves nothing pending.

        Args:
            traces: The spans, grouped by trace.
            records: The exported records of these runs. Only the fields that spans do not carry are
                restored: `recorded_at`, and when a cancel was requested.

        Raises:
            StoreUnavailable: As `TraceWriter.write`.
        """
