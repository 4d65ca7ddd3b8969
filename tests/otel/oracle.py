"""Rows by the one-pass projection and by its oracle, the incremental projection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, TracesData

from tests.otel.decoded import spans_in
from tracer.otel.decode import decode_protobuf
from tracer.otel.projection import project
from tracer.otel.projection.rows import (
    RUN_FIELDS,
    fields_of,
    fields_of_run,
    place_spans,
    project_run,
)
from tracer.otel.spans import Span
from tracer.records import Kind
from tracer.storage.projected_runs import projected_parts, shown_of_run

Rows = dict[str, dict[str, Any]]
"""The fields of each row, by kind and id. `places` has the record of each span."""


def rows_of_oracle(messages: Iterable[bytes]) -> Rows:
    projected = project(spans_in(decode_protobuf(b"".join(messages))))
    shown = shown_of_run(projected.root_plan_id, projected.records[Kind.PLAN], projected.totals)
    run = {**projected.run, **shown, "is_agent_work": projected.is_agent_work}
    lists: dict[str, list[str]] = {"tags": [], "masked": []}
    return {
        f"run {projected.root_plan_id}": {
            name: run.get(name, lists.get(name)) for name in RUN_FIELDS
        },
        **{
            f"{kind} {record_id}": fields
            for kind, records in projected_parts(projected).items()
            for record_id, fields in records.items()
        },
        "places": {span_id.hex(): place for span_id, place in projected.record_of.items()},
    }


def rows_of(messages: Iterable[bytes]) -> Rows:
    messages = list(messages)
    projected = project_run(messages)
    return {
        f"run {UUID(bytes=projected.root_plan_id)}": fields_of_run(projected.run),
        **{
            f"{kind} {UUID(bytes=record_id)}": fields_of(kind, row)
            for kind, rows in projected.rows.items()
            for record_id, row in rows.items()
        },
        "places": {
            span_id.hex(): (kind, UUID(bytes=record_id))
            for span_id, (kind, record_id) in place_spans(messages).items()
        },
    }


def differences(found: Rows, expected: Rows) -> list[str]:
    """Return at most five lines, one for each row or field that differs."""
    lines = [f"{key}: missing" for key in expected.keys() - found.keys()]
    lines += [f"{key}: unexpected" for key in found.keys() - expected.keys()]
    for key in expected.keys() & found.keys():
        row, wanted = found[key], expected[key]
        lines += [
            f"{key} {name}: expected {wanted.get(name, '(unset)')!r}, found {row.get(name)!r}"
            for name in row.keys() | wanted.keys()
            if row.get(name, "(unset)") != wanted.get(name, "(unset)")
        ]
    return lines[:5]


def message_of(span: Span) -> bytes:
    """Return a message with this span alone, also if its links or its end were replaced."""
    alone = ResourceSpans.FromString(span.body)
    (wire,) = alone.scope_spans[0].spans
    wire.trace_id, wire.parent_span_id = span.trace_id, span.parent_span_id or b""
    wire.end_time_unix_nano = span.end
    return TracesData(resource_spans=[alone]).SerializeToString()
