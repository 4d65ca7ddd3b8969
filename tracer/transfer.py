"""Export a run as JSON lines, which Tracer's endpoints accept, or as OTLP for other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from operator import itemgetter
from typing import Any
from uuid import UUID

import orjson
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from tracer.otel.export import spans_of_records
from tracer.otel.otlp.spans import json_parts, protobuf_parts
from tracer.records import Kind, Run
from tracer.records.events import (
    ChosenToolCall,
    ErrorInfo,
    PlanFinished,
    PlannedStep,
    PlanStarted,
    StepFinished,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from tracer.records.spans import Span
from tracer.store import WholeRun

# --- Convert the records of a run back to events: a start and an end for each record.
#
# Recording these events gives the same records. Facts that no event has are lost: when the records
# were received, requests to cancel, and whether a recorder was found dead.

Records = Mapping[Kind, Sequence[Any]]

_EVENTS: dict[Kind, tuple[type[BaseModel], type[BaseModel]]] = {
    Kind.PLAN: (PlanStarted, PlanFinished),
    Kind.STEP: (StepStarted, StepFinished),
    Kind.THINK_ACT: (ThoughtStarted, ThoughtRecorded),
    Kind.TOOL_CALL: (ToolCallStarted, ToolCallFinished),
}
"""The start and the end of each kind of record."""


def event_lines(run: Run, records: Records) -> list[bytes]:
    """Return the events of a run as lines of JSON, sorted by time.

    Args:
        run: A run that arrived as events.
        records: All records below the run, by kind.
    """
    announced = _announced(records)
    events = [event for kind in records for event in _events(kind, run, records, announced)]
    events.sort(key=itemgetter("at"))
    return [orjson.dumps(each, default=_number, option=_IN_UTC) for each in events]


_IN_UTC = orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE


def _events(
    kind: Kind,
    run: Run,
    records: Records,
    announced: Mapping[UUID | None, list[dict[str, Any]]],
) -> Iterator[dict[str, Any]]:
    plans = {step.step_id: step.plan_id for step in records[Kind.STEP]}
    start, end = _EVENTS[kind]
    for record in records[kind]:
        plan_id = record.plan_id if kind in (Kind.PLAN, Kind.STEP) else plans.get(record.step_id)
        ids = {"rootPlanId": run.root_plan_id, "planId": plan_id}
        if record.started_at is not None:
            event = _event(start, record, record.started_at) | ids
            if kind is Kind.PLAN:
                of_run = _fields(start, run) if plan_id == run.root_plan_id else {}
                event = of_run | event | {"steps": announced.get(plan_id, [])}
            yield event
        if record.status.is_ending:
            event = _event(end, record, record.finished_at) | ids
            if kind is Kind.THINK_ACT:
                event["toolCalls"] = announced.get(record.think_act_id, [])
            if record.error_type is not None:
                names = ErrorInfo.model_fields
                event["error"] = {name: getattr(record, f"error_{name}") for name in names}
            yield event


def _announced(records: Records) -> dict[UUID | None, list[dict[str, Any]]]:
    """Return the steps that each plan announced, and the calls that each think-act chose.

    The index of an item is its position. A record that started has an event of its own. Its item
    contains only its id and name.
    """
    announced: dict[UUID | None, list[dict[str, Any]]] = {}
    for kind, shape, link in _ANNOUNCED:
        for record in sorted(records[kind], key=lambda each: each.position or 0):
            items = announced.setdefault(getattr(record, link), [])
            if record.position == len(items) and not getattr(record, "parent_tool_call_id", None):
                item = _fields(shape, record)
                if record.started_at is not None:
                    item = {name: item[name] for name in _NAMES if name in item}
                items.append(item | ({"status": "pending"} if kind is Kind.TOOL_CALL else {}))
    return announced


_ANNOUNCED: tuple[tuple[Kind, type[BaseModel], str], ...] = (
    (Kind.STEP, PlannedStep, "plan_id"),
    (Kind.TOOL_CALL, ChosenToolCall, "think_act_id"),
)
_NAMES = ("stepId", "toolCallId", "name")


def _event(shape: type[BaseModel], record: Any, at: datetime) -> dict[str, Any]:
    return {"type": shape.model_fields["type"].default, "at": at} | _fields(shape, record)


def _fields(shape: type[BaseModel], record: Any) -> dict[str, Any]:
    """Return the fields that an event or a part of one has in common with a record."""
    values = {to_camel(name): getattr(record, name, None) for name in shape.model_fields}
    return {name: value for name, value in values.items() if value not in (None, [])}


def _number(cost: Any) -> float | str:
    """Return a cost as a number, or as text if a float cannot represent it exactly."""
    assert isinstance(cost, Decimal)
    as_float = float(cost)
    return as_float if Decimal(repr(as_float)) == cost else format(cost.normalize(), "f")


# --- Exports a run as JSON lines, which Tracer's endpoints accept, or as OTLP for other tools.


class Format(StrEnum):
    """The format of an export."""

    JSONL = "jsonl"
    OTLP = "otlp"
    OTLP_JSON = "otlp-json"


def exported(run: WholeRun, format: Format) -> Iterator[bytes]:
    """Yield the bytes of an export in small parts.

    Args:
        run: The run.
        format: The format.
    """
    return _FORMATS[format](run)


def exported_spans(run: WholeRun) -> Iterator[Span]:
    """Yield a run's spans, ordered by start time and span id.

    If the run arrived as spans, these are returned. If it arrived as events, its records are
    converted to spans; spans that other programs sent for the run are added.
    """
    if run.source == "spans":
        return iter(run.spans)
    return spans_of_records(run.run, run.records, run.spans)


def _lines(run: WholeRun) -> Iterator[bytes]:
    """Yield the events of a run, or its spans and log records as one OTLP/JSON document a line."""
    if run.source != "spans":
        yield from event_lines(run.run, run.records)
        return
    for span in run.spans:
        yield b"".join(json_parts([span])) + b"\n"
    for record in run.logs:
        yield b"".join(json_parts([], [record])) + b"\n"


_FORMATS: dict[Format, Callable[[WholeRun], Iterator[bytes]]] = {
    Format.JSONL: _lines,
    Format.OTLP: lambda run: protobuf_parts(exported_spans(run), run.logs),
    Format.OTLP_JSON: lambda run: json_parts(exported_spans(run), run.logs),
}
