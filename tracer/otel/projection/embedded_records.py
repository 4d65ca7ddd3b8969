"""Restore records from spans that contain them.

`tracer.otel.export.record_spans` exports each record as a span with the record as an attribute. If
a trace contains such spans, the records in their attributes become the run's records. The other
spans of the trace do not become records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

import orjson

from tracer.errors import BadRequest
from tracer.otel.otlp.span_fields import RECORD, RUN, root_plan_id
from tracer.otel.otlp.spans import ReadableSpan
from tracer.records.merge import RULES, Fields, add_masked_paths
from tracer.records.record_classes import RECORDS, Kind
from tracer.records.record_json import ExportedRecord, read_record, reduce_records
from tracer.resource import SERVICE_ATTRIBUTES

RecordPlace = tuple[Kind, UUID]
"""The kind and the id of a record."""


@dataclass(frozen=True)
class EmbeddedRecords:
    """The records that the spans of one run contain. Text is in stored form (`tracer.text`)."""

    root_plan_id: UUID
    run: Fields
    """The run's own fields."""
    records: dict[Kind, dict[UUID, Fields]]
    """The records below the run, by kind and id."""
    record_of: dict[bytes, RecordPlace]
    """The record of each span, by the span's id."""


def embedded_records(
    trace_id: bytes, spans: Mapping[bytes, ReadableSpan]
) -> EmbeddedRecords | None:
    """Return the records that spans contain, and placeholders for parents without a record.

    Records of other runs are ignored.

    Args:
        trace_id: The trace id of the spans.
        spans: One version of each span, by span id.

    Returns:
        None if no span contains a record of this run.
    """
    root_id = root_plan_id(trace_id)
    by_span = {
        span_id: record for span_id, span in spans.items() for record in _of(root_id, span, RECORD)
    }
    if not by_span:
        return None
    runs = [run for span in spans.values() for run in _of(root_id, span, RUN)]
    reduced = reduce_records((*by_span.values(), *runs))
    run = reduced[Kind.RUN][root_id, root_id]
    return EmbeddedRecords(
        root_plan_id=root_id,
        run={name: run.get(name) for name in _OF_RUN}
        | {name: run.get(name) or [] for name in RULES[Kind.RUN].union},
        records={
            kind: {record_id: _projected(kind, fields) for (_, record_id), fields in part.items()}
            for kind, part in reduced.items()
            if kind in RECORDS
        },
        record_of=_record_of(spans, by_span, (Kind.PLAN, root_id)),
    )


_OF_RUN = (
    *("session_id", "subject", "traceparent", "cancel_requested_at", "run_metadata"),
    *SERVICE_ATTRIBUTES,
)


def _of(root_id: UUID, span: ReadableSpan, attribute: str) -> Iterable[ExportedRecord]:
    """Yield the record in an attribute of a span, if the record belongs to the run."""
    record_text = span.attributes.get(attribute)
    if not isinstance(record_text, str):
        return
    try:
        record = read_record(orjson.loads(record_text))
    except (BadRequest, orjson.JSONDecodeError):
        return
    is_fit = (record.kind is Kind.RUN) == (attribute == RUN)
    if is_fit and record.root_plan_id == root_id:
        yield record


def _projected(kind: Kind, fields: Fields) -> Fields:
    return add_masked_paths(kind, {"inferred": False, **fields})


def _record_of(
    spans: Mapping[bytes, ReadableSpan],
    by_span: Mapping[bytes, ExportedRecord],
    otherwise: RecordPlace,
) -> dict[bytes, RecordPlace]:
    """Return the record that each span belongs to, by span id.

    A span without a record belongs to the record of the nearest span above it that has one. If
    there is none, it belongs to `otherwise`.
    """
    places = {span_id: (record.kind, record.record_id) for span_id, record in by_span.items()}
    for span_id in spans:
        way: dict[bytes, None] = {}
        at = span_id
        while at in spans and at not in places and at not in way:
            way[at] = None
            at = spans[at].parent_span_id or b""
        places |= dict.fromkeys(way, places.get(at, otherwise))
    return places
