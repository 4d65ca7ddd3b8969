"""Projections of spans, as fields of records."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, TracesData
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tracer.otel.otlp.blocks import sent_spans
from tracer.otel.projection import RUN_FIELDS, fields_of, fields_of_run, project_run, span_records
from tracer.records import Kind
from tracer.records.merge import Fields
from tracer.records.record_classes import RecordReference
from tracer.records.spans import Span

_OWN_FIELDS = RUN_FIELDS[: RUN_FIELDS.index("is_agent_work")]


@dataclass(frozen=True, eq=False)
class Projected:
    """The projection of one run. Two are equal if they have no `differences`."""

    root_plan_id: UUID
    whole_run: Fields
    """All projected fields of the run."""
    records: dict[Kind, dict[UUID, Fields]]
    sessions: frozenset[bytes]
    """See `ProjectedRun.sessions`."""
    sent: tuple[Sequence[bytes], Sequence[bytes]]
    """The projected messages of the run, and those of its sessions."""

    @cached_property
    def record_of(self) -> dict[bytes, RecordReference]:
        """The record that each span became or belongs to. It takes as long as the projection."""
        records = span_records(*self.sent).items()
        return {span_id: (kind, UUID(bytes=record_id)) for span_id, (kind, record_id) in records}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Projected) and differences(self, other) == []

    @property
    def run(self) -> Fields:
        """The run's own fields that are set."""
        return {name: self.whole_run[name] for name in _OWN_FIELDS if self.whole_run[name]}

    @property
    def is_agent_work(self) -> bool:
        return bool(self.whole_run["is_agent_work"])


def project(spans: Iterable[Span]) -> Projected:
    """Return the projection of the spans of one trace, each sent in a message of its own."""
    return project_messages([message_of(span) for span in spans])


def project_messages(messages: Sequence[bytes], of_sessions: Sequence[bytes] = ()) -> Projected:
    """Return the projection of the messages of one run, and of those of its sessions."""
    found = project_run(messages, of_sessions)
    return Projected(
        UUID(bytes=found.root_plan_id),
        fields_of_run(found.run),
        {
            kind: {UUID(bytes=record_id): fields_of(kind, row) for record_id, row in rows.items()}
            for kind, rows in found.rows.items()
        },
        found.sessions,
        (messages, of_sessions),
    )


def changed(span: Span, change: Callable[[WireSpan], object]) -> Span:
    """Return a span as if it had been sent with a change."""
    around = ResourceSpans.FromString(span.body)
    change(around.scope_spans[0].spans[0])
    (sent,) = sent_spans(TracesData(resource_spans=[around]).SerializeToString())
    return sent


def drop_attributes(wire: WireSpan, is_dropped: Callable[[str], bool]) -> None:
    """Remove the attributes whose names are chosen."""
    kept = [each for each in wire.attributes if not is_dropped(each.key)]
    del wire.attributes[:]
    wire.attributes.extend(kept)


def message_of(span: Span) -> bytes:
    """Return a message with this span alone, also if its links or its end were replaced."""
    around = ResourceSpans.FromString(span.body)
    (wire,) = around.scope_spans[0].spans
    wire.trace_id, wire.parent_span_id = span.trace_id, span.parent_span_id or b""
    wire.end_time_unix_nano = span.end
    return TracesData(resource_spans=[around]).SerializeToString()


def split(messages: Sequence[bytes], chance: random.Random) -> list[bytes]:
    """Return the messages shuffled, a third of them twice, joined to any number of messages."""
    shuffled = [*messages, *chance.sample(messages, len(messages) // 3)]
    chance.shuffle(shuffled)
    joined: list[list[bytes]] = [[] for _ in range(chance.randint(1, len(shuffled)))]
    for message in shuffled:
        chance.choice(joined).append(message)
    return [b"".join(parts) for parts in joined]


def differences(found: Projected, expected: Projected) -> list[str]:
    """Return at most five lines, one for each field in which projections differ."""
    rows, wanted = _flat(found), _flat(expected)
    lines = [f"{key}: missing" for key in wanted.keys() - rows.keys()]
    lines += [f"{key}: unexpected" for key in rows.keys() - wanted.keys()]
    lines += [
        f"{key} {name}: expected {value!r}, found {rows[key][name]!r}"
        for key in rows.keys() & wanted.keys()
        for name, value in wanted[key].items()
        if rows[key].get(name) != value
    ]
    return lines[:5]


def _flat(projected: Projected) -> dict[str, dict[str, Any]]:
    return {
        f"run {projected.root_plan_id}": projected.whole_run,
        **{
            f"{kind} {record_id}": fields
            for kind, records in projected.records.items()
            for record_id, fields in records.items()
        },
        **{
            f"record of {span_id.hex()}": {"record": record}
            for span_id, record in projected.record_of.items()
        },
    }
