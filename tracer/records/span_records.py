"""The record that each stored span of a run belongs to."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from tracer.records.ids import span_id
from tracer.records.record_classes import Kind, RecordReference
from tracer.records.spans import SPAN_ID_BYTES, Span, id_of_later


class SpanRecords:
    """The record that each span of a run belongs to, in 25 bytes for a span."""

    def __init__(self, packed: bytes = b"") -> None:
        """Read the form in which `packed` returns the records."""
        self.packed = packed
        """For each span, sorted by its id: the id, the index of the kind, the record's id."""

    @classmethod
    def of(cls, records: Mapping[bytes, tuple[Kind, bytes]]) -> SpanRecords:
        """Return the records of spans, by the ids that `merge_spans` returns."""
        return cls(
            b"".join(
                span_id + _INDEXES[kind] + record_id
                for span_id, (kind, record_id) in sorted(records.items())
            )
        )

    def __len__(self) -> int:
        return len(self.packed) // _ENTRY_BYTES

    def record_of(self, span: Span) -> RecordReference | None:
        """Return the record of a span; None if it belongs to none."""
        # Another span may have the same id, and have started earlier.
        later = self.record_of_id(id_of_later(span.span_id, span.start))
        return later or self.record_of_id(span.span_id)

    def spans_of(self, records: Collection[UUID]) -> set[bytes]:
        """Return the ids of the spans that belong to one of the records."""
        wanted = {record_id.bytes for record_id in records}
        ends = range(_ENTRY_BYTES, len(self.packed) + 1, _ENTRY_BYTES)
        return {
            self.packed[end - _ENTRY_BYTES : end - _ENTRY_BYTES + SPAN_ID_BYTES]
            for end in ends
            if self.packed[end - 16 : end] in wanted
        }

    def record_of_id(self, span_id: bytes) -> RecordReference | None:
        """Return the record of the earliest span with an id; None if there is none."""
        packed = self.packed
        at = _ENTRY_BYTES * bisect_left(
            range(len(self)),
            span_id,
            key=lambda index: packed[index * _ENTRY_BYTES : index * _ENTRY_BYTES + SPAN_ID_BYTES],
        )
        entry = packed[at : at + _ENTRY_BYTES]
        if entry[:SPAN_ID_BYTES] != span_id:
            return None
        return _KINDS[entry[SPAN_ID_BYTES]], UUID(bytes=entry[SPAN_ID_BYTES + 1 :])


_KINDS = tuple(Kind)
_INDEXES = {kind: index.to_bytes() for index, kind in enumerate(_KINDS)}
_ENTRY_BYTES = SPAN_ID_BYTES + 1 + 16


def below_calls(
    parents: Mapping[bytes, bytes], calls: Iterable[UUID]
) -> dict[bytes, tuple[Kind, bytes]]:
    """Return the nearest tool call above each span of a run that was recorded as events.

    Args:
        parents: The parent's id of each span.
        calls: The tool calls of the run.
    """
    records: dict[bytes, tuple[Kind, bytes] | None] = {
        bytes.fromhex(span_id(call)): (Kind.TOOL_CALL, call.bytes) for call in calls
    }
    for start in parents:
        way: list[bytes] = []
        climbed: set[bytes] = set()
        at: bytes | None = start
        while at is not None and at not in records and at not in climbed:
            climbed.add(at)
            way.append(at)
            at = parents.get(at)
        record = records.get(at) if at is not None else None
        for each in way:
            records[each] = record
    return {each: record for each in parents if (record := records[each]) is not None}
