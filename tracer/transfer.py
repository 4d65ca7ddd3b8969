"""Export a run as JSON lines, which Tracer's endpoints accept, or as OTLP for other tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from operator import itemgetter
from typing import Any
from uuid import UUID

import orjson
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from tracer.errors import RecordNotFound
from tracer.otel.export import spans_of_records
from tracer.otel.otlp.spans import encode_logs, encode_protobuf, json_of
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
from tracer.records.spans import Contents, LogRecord, Span
from tracer.store import TraceReader, WholeRun

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


# --- Export a run in parts, so that a large run needs little memory.


class Format(StrEnum):
    """The format of an export."""

    JSONL = "jsonl"
    OTLP = "otlp"
    OTLP_JSON = "otlp-json"


async def exported(reader: TraceReader, run: WholeRun, format: Format) -> AsyncGenerator[bytes]:
    """Yield the bytes of an export of a run, and of the runs that continue it.

    The export ends with `{"end": true, "unreadableBlocks": N}`. N is the number of damaged blocks,
    which are left out. In JSON lines this is the last line. An OTLP document in JSON has both
    fields at its end. In protobuf, field 3 contains the text; OTLP does not define it.

    Args:
        reader: The reader that returned the run.
        run: The run.
        format: The format.

    Raises:
        RecordNotFound: The run was deleted.
    """
    unreadable = 0
    if format is Format.OTLP_JSON:
        for name, before in (("spans", b'{"resourceSpans":['), ("logs", b'],"resourceLogs":[')):
            yield before
            separator = b""
            async for each in _runs(reader, run):
                async for contents in _contents(reader, each):
                    if items := getattr(contents, name):
                        yield separator + await asyncio.to_thread(_joined, items)
                        separator = b","
                    unreadable += contents.unreadable if name == "spans" else 0
        yield b"],"
    else:
        encode = _lines if format is Format.JSONL else _protobuf
        async for each in _runs(reader, run):
            if format is Format.JSONL and each.source != "spans":
                yield b"".join(event_lines(each.run, each.records))
                continue
            async for contents in _contents(reader, each):
                yield await asyncio.to_thread(encode, contents)
                unreadable += contents.unreadable
    end = orjson.dumps({"end": True, "unreadableBlocks": unreadable})
    match format:
        case Format.JSONL:
            yield end + b"\n"
        case Format.OTLP:
            yield bytes([_END_TAG, len(end)]) + end
        case Format.OTLP_JSON:
            yield end[1:]


_END_TAG = 3 << 3 | 2
"""The tag of protobuf's field 3 with bytes."""


async def _runs(reader: TraceReader, first: WholeRun) -> AsyncGenerator[WholeRun]:
    """Yield a run, and the runs that continue it and still exist."""
    yield first
    for run_id in first.later_parts:
        with suppress(RecordNotFound):
            yield await reader.read_whole_run(run_id, with_projected=False)


async def _contents(reader: TraceReader, run: WholeRun) -> AsyncGenerator[Contents]:
    """Yield the spans and log records of a run in parts, in the order of storage.

    The records of a run of events are converted to spans. A span may occur again in a later
    version, or because the server merges blocks meanwhile.
    """
    own_ids: set[bytes] = set()
    if run.source != "spans":
        spans = list(spans_of_records(run.run, run.records))
        own_ids.update(span.span_id for span in spans)
        yield Contents(spans, [], 0)
    seen: set[bytes] = set()
    while parts := [
        part
        for part in await reader.list_span_parts(run.run.root_plan_id)
        if not seen.issuperset(part.keys)
    ]:
        for part in parts:
            contents = await reader.read_span_part(part)
            if contents is None:  # its blocks were merged: list them again
                break
            seen.update(part.keys)
            others = [span for span in contents.spans if span.span_id not in own_ids]
            yield replace(contents, spans=others)


def _lines(contents: Contents) -> bytes:
    """Return each span and log record as an OTLP/JSON document on a line."""
    lines = [b'{"resourceSpans":[%b]}\n' % json_of(span) for span in contents.spans]
    lines += [b'{"resourceLogs":[%b]}\n' % json_of(record) for record in contents.logs]
    return b"".join(lines)


def _protobuf(contents: Contents) -> bytes:
    return encode_protobuf(contents.spans) + encode_logs(contents.logs)


def _joined(items: Sequence[Span | LogRecord]) -> bytes:
    return b",".join(map(json_of, items))
