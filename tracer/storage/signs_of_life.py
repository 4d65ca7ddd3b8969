"""Signs of life: who wrote to which run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

from tracer.events import Event
from tracer.otel.projected import Projected
from tracer.otel.span_fields import root_plan_id
from tracer.otel.spans import Span
from tracer.status import Status

Part = tuple[UUID, UUID]
"""A recorder and a run that it wrote to. Where no recorder is named, the run stands for it."""

Signs = Mapping[Part, datetime | None]
"""When the latest event of each happened, by the recorder's clock; None where nothing says that."""

NO_SIGNS: Signs = {}


def signs_of(events: Iterable[Event]) -> Signs:
    """Return the signs of life that events are."""
    signs: dict[Part, datetime | None] = {}
    for event in events:
        run_id = event.root_plan_id
        if event.recorder_id is None:
            signs[run_id, run_id] = None
        else:
            part = event.recorder_id, run_id
            earlier = signs.get(part)
            signs[part] = event.at if earlier is None else max(earlier, event.at)
    return signs


def signs_of_spans(spans: Iterable[Span]) -> Signs:
    """Return the signs of life that spans are."""
    runs = (root_plan_id(span.trace_id) for span in spans)
    return {(run_id, run_id): None for run_id in runs}


def has_open_records(projected: Projected) -> bool:
    """Return whether anything goes on in a trace, as far as its spans say."""
    return any(
        fields["status"] in (Status.PENDING, Status.RUNNING)
        for records in projected.records.values()
        for fields in records.values()
    )
