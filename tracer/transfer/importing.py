"""Import: writes the pieces of a file to a store, in batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import UUID

from tracer.otel.otlp.blocks import TraceSpans
from tracer.otel.otlp.span_fields import root_plan_id
from tracer.records.record_classes import Kind
from tracer.records.record_json import LEAST, ExportedRecord
from tracer.store import WriteAnswer
from tracer.transfer.files import Fault, Piece
from tracer.transfer.restorer import TraceRestorer

Item = TypeVar("Item")

BATCH_BYTES = 32_000_000
"""How many bytes of the file are written at once. Each batch projects the whole run again. So the
batches of a large run may be larger: up to the size of the run's spans that were already written,
and at most `MAX_BATCH_BYTES`."""

MAX_BATCH_BYTES = 128_000_000

SHOWN_REFUSALS = 20
"""The largest number of `Imported.reasons`. A file may have a rejected item in each line."""


@dataclass
class Imported:
    """The result of an import."""

    runs: set[UUID] = field(default_factory=set)
    records: int = 0
    spans: int = 0
    refused: int = 0
    reasons: list[str] = field(default_factory=list)
    """Why the first rejected items were not stored, each with its location in the file."""

    def refuse(self, location: str, reason: str) -> None:
        """Count a part of the file that was not stored. Keep the first `SHOWN_REFUSALS` reasons."""
        self.refused += 1
        if len(self.reasons) < SHOWN_REFUSALS:
            self.reasons.append(f"{location}: {reason}")


class Importer:
    """Writes the pieces of one file to a store."""

    def __init__(
        self, store: TraceRestorer, imported: Imported, batch_bytes: int = BATCH_BYTES
    ) -> None:
        """Prepare an import.

        Args:
            store: The store.
            imported: Receives the results.
            batch_bytes: The approximate size of a batch.
        """
        self._store = store
        self._imported = imported
        self._batch_bytes = batch_bytes
        self._sources: dict[UUID, str] = {}
        self._projected: list[ExportedRecord] = []
        """Records of runs that arrived as spans. Their spans follow them in the file."""
        self._records: list[tuple[str, ExportedRecord]] = []
        self._spans: list[tuple[str, TraceSpans]] = []
        self._bytes = 0
        self._batch_limit = batch_bytes
        self._spans_bytes: Counter[UUID] = Counter()
        """The size of the spans written so far, by run."""

    async def take(self, pieces: Iterable[Piece]) -> None:
        """Store pieces, and count the results.

        Raises:
            StoreUnavailable: Some pieces may be stored. Repeating the import is safe.
        """
        for piece in pieces:
            if isinstance(piece.content, Fault):
                self._imported.refuse(piece.location, piece.content.reason)
            elif isinstance(piece.content, TraceSpans):
                self._spans.append((piece.location, piece.content))
                stored = self._spans_bytes[root_plan_id(piece.content.trace_id)]
                self._batch_limit = max(self._batch_limit, min(stored, MAX_BATCH_BYTES))
            else:
                await self._take_record(piece.location, piece.content)
            self._bytes += piece.size
            if self._bytes >= self._batch_limit:
                await self._write()
        await self._write()

    async def _take_record(self, location: str, record: ExportedRecord) -> None:
        if record.kind is Kind.RUN:
            await self._write()
            self._projected.clear()
            self._sources[record.root_plan_id] = record.fields["source"]
        source = self._sources.get(record.root_plan_id)
        if source is None:
            self._imported.refuse(location, "The line of its run must precede it.")
        elif source == "spans":
            self._imported.records += record.kind is not Kind.RUN
            taken = {"status", "abandoned_at", *LEAST[record.kind]} & record.fields.keys()
            content = {name: record.fields[name] for name in taken}
            self._projected.append(replace(record, fields=content))
        else:
            self._records.append((location, record))

    async def _write(self) -> None:
        records, spans = self._records, self._spans
        self._records, self._spans, self._bytes = [], [], 0
        self._batch_limit = self._batch_bytes
        for _, trace in spans:
            self._spans_bytes[root_plan_id(trace.trace_id)] += len(trace.message)
        if records:
            stored = self._noted(
                records, await self._store.restore([record for _, record in records])
            )
            self._imported.records += sum(each.kind is not Kind.RUN for each in stored)
            self._imported.runs.update(each.root_plan_id for each in stored)
        for is_source in (True, False):
            part = [each for each in spans if self._is_source(each[1]) is is_source]
            if part:
                traces, sent = _joined(part)
                new_records = self._noted(
                    sent,
                    await self._store.restore_spans(traces, self._projected)
                    if is_source
                    else await self._store.write_spans(traces),
                )
                self._imported.spans += len(new_records)
                self._imported.runs.update(map(root_plan_id, set(new_records)))

    def _is_source(self, trace: TraceSpans) -> bool:
        """Return whether the file's line for the run states that the run arrived as spans."""
        return self._sources.get(root_plan_id(trace.trace_id)) == "spans"

    def _noted(self, written: list[tuple[str, Item]], answer: WriteAnswer) -> list[Item]:
        """Count the rejected items, and return the stored ones."""
        for refusal in answer.refused:
            self._imported.refuse(written[refusal.index][0], refusal.detail)
        refused = {refusal.index for refusal in answer.refused}
        return [item for index, (_, item) in enumerate(written) if index not in refused]


def _joined(
    parts: Iterable[tuple[str, TraceSpans]],
) -> tuple[list[TraceSpans], list[tuple[str, bytes]]]:
    """Join the parts of each trace, and return the location and trace id of each span, too."""
    by_trace: dict[bytes, list[tuple[str, TraceSpans]]] = {}
    for location, part in parts:
        by_trace.setdefault(part.trace_id, []).append((location, part))
    traces: list[TraceSpans] = []
    spans: list[tuple[str, bytes]] = []
    for trace_id, some in by_trace.items():
        # Protobuf: concatenated messages are one message with the repeated fields of all.
        message = b"".join([part.message for _, part in some])
        traces.append(TraceSpans(trace_id, message, sum(part.count for _, part in some)))
        spans += [(location, trace_id) for location, part in some for _ in range(part.count)]
    return traces, spans
