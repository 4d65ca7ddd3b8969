"""Exported runs into a store: what a file holds, in batches."""

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
"""How many bytes are written at once. More if a run already has more spans than that, because each
batch projects the whole run: its batches double."""

MAX_BATCH_BYTES = 128_000_000

SHOWN_REFUSALS = 20
"""How many reasons are kept: there may be as many as lines."""


@dataclass
class Imported:
    """What became of what was read."""

    runs: set[UUID] = field(default_factory=set)
    records: int = 0
    spans: int = 0
    refused: int = 0
    reasons: list[str] = field(default_factory=list)
    """The first of them, each with its place in the file."""

    def refuse(self, place: str, why: str) -> None:
        """Note something that was not stored."""
        self.refused += 1
        if len(self.reasons) < SHOWN_REFUSALS:
            self.reasons.append(f"{place}: {why}")


class Importer:
    """Writes the pieces of one file to a store."""

    def __init__(
        self, store: TraceRestorer, imported: Imported, batch_bytes: int = BATCH_BYTES
    ) -> None:
        """Write nothing yet.

        Args:
            store: Where to write.
            imported: What is counted.
            batch_bytes: How much to write at once, about.
        """
        self._store = store
        self._imported = imported
        self._batch_bytes = batch_bytes
        self._sources: dict[UUID, str] = {}
        self._projected: list[ExportedRecord] = []
        """Records that spans become: their spans follow them."""
        self._records: list[tuple[str, ExportedRecord]] = []
        self._spans: list[tuple[str, TraceSpans]] = []
        self._bytes = 0
        self._enough = batch_bytes
        self._spans_bytes: Counter[UUID] = Counter()
        """How much of each run's spans is written."""

    async def take(self, pieces: Iterable[Piece]) -> None:
        """Store what a file holds, and count what became of it.

        Raises:
            StoreUnavailable: Some of it may be stored; doing the same again is safe.
        """
        for piece in pieces:
            if isinstance(piece.said, Fault):
                self._imported.refuse(piece.place, piece.said.why)
            elif isinstance(piece.said, TraceSpans):
                self._spans.append((piece.place, piece.said))
                stored = self._spans_bytes[root_plan_id(piece.said.trace_id)]
                self._enough = max(self._enough, min(stored, MAX_BATCH_BYTES))
            else:
                await self._take_record(piece.place, piece.said)
            self._bytes += piece.size
            if self._bytes >= self._enough:
                await self._write()
        await self._write()

    async def _take_record(self, place: str, record: ExportedRecord) -> None:
        if record.kind is Kind.RUN:
            await self._write()
            self._projected.clear()
            self._sources[record.root_plan_id] = record.fields["source"]
        source = self._sources.get(record.root_plan_id)
        if source is None:
            self._imported.refuse(place, "The line of its run has not come before it.")
        elif source == "spans":
            self._imported.records += record.kind is not Kind.RUN
            taken = {"status", "abandoned_at", *LEAST[record.kind]} & record.fields.keys()
            said = {name: record.fields[name] for name in taken}
            self._projected.append(replace(record, fields=said))
        else:
            self._records.append((place, record))

    async def _write(self) -> None:
        records, spans = self._records, self._spans
        self._records, self._spans, self._bytes = [], [], 0
        self._enough = self._batch_bytes
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
                kept = self._noted(
                    sent,
                    await self._store.restore_spans(traces, self._projected)
                    if is_source
                    else await self._store.write_spans(traces),
                )
                self._imported.spans += len(kept)
                self._imported.runs.update(map(root_plan_id, set(kept)))

    def _is_source(self, trace: TraceSpans) -> bool:
        """Return whether the run, by its line in the file, arrived as spans."""
        return self._sources.get(root_plan_id(trace.trace_id)) == "spans"

    def _noted(self, written: list[tuple[str, Item]], answer: WriteAnswer) -> list[Item]:
        """Note what was refused, and return what was stored."""
        for refusal in answer.refused:
            self._imported.refuse(written[refusal.index][0], refusal.detail)
        refused = {refusal.index for refusal in answer.refused}
        return [item for index, (_, item) in enumerate(written) if index not in refused]


def _joined(
    parts: Iterable[tuple[str, TraceSpans]],
) -> tuple[list[TraceSpans], list[tuple[str, bytes]]]:
    """Return spans as one message per trace, and the place and the trace id of each span."""
    by_trace: dict[bytes, list[tuple[str, TraceSpans]]] = {}
    for place, part in parts:
        by_trace.setdefault(part.trace_id, []).append((place, part))
    traces: list[TraceSpans] = []
    spans: list[tuple[str, bytes]] = []
    for trace_id, some in by_trace.items():
        # A concatenation of serialized messages is one message with the spans of all.
        message = b"".join([part.message for _, part in some])
        traces.append(TraceSpans(trace_id, message, sum(part.count for _, part in some)))
        spans += [(place, trace_id) for place, part in some for _ in range(part.count)]
    return traces, spans
