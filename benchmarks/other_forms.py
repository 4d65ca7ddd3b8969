"""The workload's traces in other forms: as OTLP in JSON, as native events, as rows to copy."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from benchmarks.workload import BATCH_SPANS, bodies, request, traces
from tracer.otel.otlp.blocks import sent_spans
from tracer.otel.otlp.spans import root_plan_id
from tracer.otel.projection import fields_of, project_run
from tracer.records import DEFAULT_PROJECT_ID, Kind
from tracer.records.events import (
    ChosenToolCall,
    ErrorInfo,
    Event,
    PlanFinished,
    PlanStarted,
    StepFinished,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
    ToolCallFinished,
)

Row = tuple[Any, ...]

_OF_PLAN = (
    "parent_plan_id",
    "tool_call_id",
    "position",
    "depth",
    "title",
    "user_request",
    "agent_name",
)
_BATCH_EVENTS = 1_000
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def exporters(seed: int, size: int, spans: int) -> list[list[Span]]:
    """Return so many spans in traces of one size, as several programs send them.

    Args:
        seed: Which traces.
        size: How many spans a trace has.
        spans: How many there are in all, about.

    Returns:
        For each program its spans: small traces together, as many as fill a batch.
    """
    made = list(traces(seed, size, spans))
    together = max(1, BATCH_SPANS // size)
    return [
        [span for each in made[start : start + together] for span in each]
        for start in range(0, len(made), together)
    ]


def tool_calls_of(spans: Iterable[Span]) -> int:
    """Return the number of tool calls in the spans."""
    return sum(span.name.startswith("execute_tool") for span in spans)


def json_bodies(spans: Sequence[Span], batch: int = BATCH_SPANS) -> list[bytes]:
    """Return spans as the bodies of OTLP requests in JSON."""
    return [_json_body(spans[start : start + batch]) for start in range(0, len(spans), batch)]


def _json_body(spans: Sequence[Span]) -> bytes:
    message = json_format.MessageToDict(request(spans), use_integers_for_enums=True)
    for span in message["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = base64.b64decode(span[name]).hex()
    return orjson.dumps(message)


def span_rows(spans: Sequence[Span]) -> list[Row]:
    """Return spans as the rows of `bare_tables.BARE_SPANS`."""
    return [
        (
            DEFAULT_PROJECT_ID,
            root_plan_id(span.trace_id),
            span.span_id,
            span.parent_span_id,
            span.name,
            span.start,
            span.end,
            span.body,
            _NOW,
        )
        for body in bodies(list(spans))
        for span in sent_spans(body)
    ]


def event_bodies(spans: list[Span], batch: int = _BATCH_EVENTS) -> list[bytes]:
    """Return one trace as the bodies of requests with native events."""
    events = [
        event.model_dump(mode="json", by_alias=True, exclude_none=True)
        for event in events_of(spans)
    ]
    return [
        orjson.dumps({"events": events[start : start + batch]})
        for start in range(0, len(events), batch)
    ]


def events_of(spans: list[Span]) -> list[Event]:
    """Return one trace as the events that a recorder would have sent, in the order of time."""
    projected = project_run([request(spans).SerializeToString()])
    records = {
        kind: {UUID(bytes=record_id): fields_of(kind, row) for record_id, row in rows.items()}
        for kind, rows in projected.rows.items()
    }
    plan_of = {step_id: step["plan_id"] for step_id, step in records[Kind.STEP].items()}
    root = UUID(bytes=projected.root_plan_id)
    chosen: dict[UUID, list[ChosenToolCall]] = defaultdict(list)
    events: list[Event] = []
    place: dict[str, Any]
    fields: dict[str, Any]
    for plan_id, plan in records[Kind.PLAN].items():
        place = {"root_plan_id": root, "plan_id": plan_id}
        fields = {name: plan[name] for name in _OF_PLAN if plan.get(name) is not None}
        events.append(PlanStarted(at=plan["started_at"], **place, **fields))
        events.append(PlanFinished(**place, **_ending(plan), summary=plan.get("summary")))
    for step_id, step in records[Kind.STEP].items():
        place = {"root_plan_id": root, "plan_id": step["plan_id"], "step_id": step_id}
        fields = {name: step.get(name) for name in ("position", "agent_name", "request")}
        events.append(StepStarted(at=step["started_at"], **place, **fields))
        events.append(StepFinished(**place, **_ending(step), result=step.get("result")))
    for call_id, call in records[Kind.TOOL_CALL].items():
        place = {"root_plan_id": root, "plan_id": plan_of[call["step_id"]]}
        place |= {name: call[name] for name in ("step_id", "think_act_id")}
        events.append(
            ToolCallFinished(
                **place, tool_call_id=call_id, **_ending(call), result=call.get("result")
            )
        )
        fields = {name: call.get(name) for name in ("name", "arguments", "provider_call_id")}
        chosen[call["think_act_id"]].append(ChosenToolCall(tool_call_id=call_id, **fields))
    for think_act_id, thought in records[Kind.THINK_ACT].items():
        step_id = thought["step_id"]
        place = {"root_plan_id": root, "plan_id": plan_of[step_id], "step_id": step_id}
        place["think_act_id"] = think_act_id
        fields = {name: thought.get(name) for name in ("position", "requested_model", "messages")}
        events.append(ThoughtStarted(at=thought["started_at"], **place, **fields))
        answer = ("thought", "model", "input_tokens", "output_tokens")
        fields = {name: thought.get(name) for name in answer}
        events.append(
            ThoughtRecorded(
                **place,
                **_ending(thought),
                **fields,
                tool_calls=tuple(chosen[think_act_id]),
            )
        )
    return sorted(events, key=lambda event: event.at)


def _ending(record: dict[str, Any]) -> dict[str, Any]:
    message = record.get("error_message")
    error = None if message is None else ErrorInfo(type="ToolError", message=message)
    return {
        "at": record["finished_at"],
        "status": record["status"],
        "reason": record.get("reason"),
        "error": error,
    }
