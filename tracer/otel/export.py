"""Export the records of a run as spans of OpenTelemetry's GenAI conventions.

Each record becomes one span, so that other tracing backends can show the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import orjson
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status as WireStatus

from tracer.otel.dialects import read_messages
from tracer.otel.dialects.dialect import RequestedCall
from tracer.otel.otlp.spans import MAX_TIME, Envelope, span_of
from tracer.records import Kind, Run, Status, span_id
from tracer.records.arguments import parsed
from tracer.records.merge import RULES
from tracer.records.record_classes import (
    ActToolInfo,
    AgentExecutionRecord,
    PlanExecutionRecord,
    ThinkActRecord,
)
from tracer.records.spans import Span

Part = dict[str, Any]


def message(role: str, *parts: Part) -> dict[str, Any]:
    """Return one message in the form of the GenAI conventions."""
    return {"role": role, "parts": list(parts)}


def text_part(text: str) -> Part:
    """Return a text part of a message."""
    return {"type": "text", "content": text}


def call_part(call: RequestedCall) -> Part:
    """Return the tool call part of a message."""
    arguments = parsed(call.arguments)
    return {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": arguments}


def messages_text(messages: Iterable[Any]) -> str:
    """Return messages as JSON text, which is the value of an attribute."""
    return orjson.dumps(list(messages), default=str).decode()


def input_messages(recorded: str | None) -> list[dict[str, Any]] | None:
    """Return a model call's recorded input messages in the form of the GenAI conventions.

    Args:
        recorded: The text of a JSON array with messages in the form of any provider.

    Returns:
        The messages; None if `recorded` is not a JSON array.
    """
    items = parsed(recorded)
    return [_message(each) for each in items] if isinstance(items, list) else None


def _message(item: Any) -> dict[str, Any]:
    if isinstance(item, dict) and isinstance(item.get("parts"), list) and "role" in item:
        return item
    read = next(iter(read_messages([item])), None)
    if read is None:
        return message("user")
    if read.role == "tool" and isinstance(item, dict):
        call_id = item.get("tool_call_id")
        return message("tool", {"type": "tool_call_response", "id": call_id, "response": read.text})
    texts = [text_part(read.text)] if read.text else []
    return message(read.role or "user", *texts, *map(call_part, read.calls))


SCOPE = "tracer"
"""The instrumentation scope of the spans, and the name of their service."""

Attributes = dict[str, str | int | float | None]
Record = PlanExecutionRecord | AgentExecutionRecord | ThinkActRecord | ActToolInfo

ChosenCalls = Mapping[UUID, Sequence[ActToolInfo]]
"""The calls that each think-act chose."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def spans_of_records(
    run: Run,
    records: Mapping[Kind, Sequence[Any]],
) -> Iterator[Span]:
    """Yield a span for each record of a run that was recorded as events.

    The result is sorted by start and span id.

    Args:
        run: The run.
        records: All records of the run (`tracer.store.AnyRecord`), by kind.
    """
    envelope = _envelope()
    chosen: dict[UUID, list[ActToolInfo]] = {}
    for call in records[Kind.TOOL_CALL]:
        if call.think_act_id is not None and call.parent_tool_call_id is None:
            chosen.setdefault(call.think_act_id, []).append(call)
    own: dict[bytes, tuple[Kind, Record]] = {
        _span_id(kind, getattr(record, RULES[kind].id_field)): (kind, record)
        for kind, part in records.items()
        for record in part
    }
    for span_id_ in sorted(own, key=lambda each: (_start(own[each][1]), each)):
        kind, record = own[span_id_]
        yield _span(envelope, kind, record, _attributes(kind, record, chosen, run))


def _attributes(kind: Kind, record: Record, chosen: ChosenCalls, run: Run) -> Attributes:
    attributes = _ATTRIBUTES[kind](record, chosen)
    if kind in (Kind.PLAN, Kind.STEP):
        attributes["gen_ai.conversation.id"] = run.session_id
    if isinstance(record, PlanExecutionRecord) and record.plan_id == run.root_plan_id:
        attributes["user.id"] = run.subject
    return attributes


def _start(record: Record) -> int:
    return _nanoseconds(record.started_at or record.finished_at or record.recorded_at)


def _envelope() -> Envelope:
    resource = Resource(attributes=[_pair("service.name", SCOPE)])
    scope = InstrumentationScope(name=SCOPE)
    return Envelope.of_messages(ResourceSpans(resource=resource), ScopeSpans(scope=scope))


def _span(envelope: Envelope, kind: Kind, record: Record, attributes: Attributes) -> Span:
    start = _start(record)
    end = (_nanoseconds(record.finished_at) or start) if record.status.is_ending else 0
    parent_place = _parent_place(kind, record)
    wire = WireSpan(
        trace_id=record.root_plan_id.bytes,
        span_id=_span_id(kind, getattr(record, RULES[kind].id_field)),
        parent_span_id=b"" if parent_place is None else _span_id(*parent_place),
        name=_name(attributes),
        kind=WireSpan.SPAN_KIND_CLIENT if kind is Kind.THINK_ACT else WireSpan.SPAN_KIND_INTERNAL,
        start_time_unix_nano=start,
        end_time_unix_nano=end,
    )
    if record.status in (Status.FAILED, Status.CANCELLED):
        text = record.error_message or record.reason or record.status.value
        wire.status.CopyFrom(WireStatus(code=WireStatus.STATUS_CODE_ERROR, message=text))
        attributes["error.type"] = record.error_type or record.reason or record.status.value
    exception = {
        "exception.type": record.error_type,
        "exception.message": record.error_message,
        "exception.stacktrace": record.error_stack,
    }
    if pairs := _pairs(exception):
        event = wire.events.add(name="exception", time_unix_nano=end or start)
        event.attributes.extend(pairs)
    wire.attributes.extend(_pairs(attributes))
    return span_of(envelope, wire)


def _span_id(kind: Kind, record_id: UUID) -> bytes:
    """Return the id of the span that represents a record.

    For a tool call, this is the span id that the tool received in its context. Spans that the tool
    created are therefore its children. For other kinds, the kind is part of the hash, because a
    program may use the same id for two records of different kinds.
    """
    if kind is Kind.TOOL_CALL:
        return bytes.fromhex(span_id(record_id))
    return sha256(kind.value.encode() + record_id.bytes).digest()[:8]


def _parent_place(kind: Kind, record: Record) -> tuple[Kind, UUID] | None:
    """Return the record whose span is the parent of this record's span; None for a root plan.

    The parent of a sub-plan is the tool call or step that started it, and not the parent plan.
    """
    links = {field: getattr(record, field) for field in _LINKS[kind]}
    return next(((_LINKS[kind][field], link) for field, link in links.items() if link), None)


_LINKS = {
    Kind.PLAN: {
        "tool_call_id": Kind.TOOL_CALL,
        "opened_by_step_id": Kind.STEP,
        "parent_plan_id": Kind.PLAN,
    },
    Kind.STEP: {"plan_id": Kind.PLAN},
    Kind.THINK_ACT: {"step_id": Kind.STEP},
    Kind.TOOL_CALL: {"parent_tool_call_id": Kind.TOOL_CALL, "step_id": Kind.STEP},
}
"""The links of each kind to possible parents. The first link with a value is the parent."""


def _name(attributes: Attributes) -> str:
    named = (attributes.get(name) for name in ("gen_ai.operation.name", *_NAMES))
    return " ".join(str(each) for each in named if each is not None)


_NAMES = ("gen_ai.workflow.name", "gen_ai.agent.name", "gen_ai.request.model", "gen_ai.tool.name")


def _nanoseconds(moment: datetime | None) -> int:
    """Return a time in nanoseconds since 1970, limited to the range of OTLP; 0 for None."""
    if moment is None:
        return 0
    return min(max(1, (moment - _EPOCH) // timedelta(microseconds=1) * 1000), MAX_TIME - 1)


def _pairs(attributes: Mapping[str, str | int | float | None]) -> list[KeyValue]:
    return [_pair(name, value) for name, value in attributes.items() if value is not None]


def _pair(name: str, value: str | int | float) -> KeyValue:
    pair = KeyValue(key=name)
    match value:
        case str():
            pair.value.string_value = value
        case int():
            pair.value.int_value = value
        case float():
            pair.value.double_value = value
    return pair


def _plan(plan: PlanExecutionRecord, chosen: ChosenCalls) -> Attributes:
    return {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": plan.title or plan.agent_name,
        **_spoken(plan.user_request, plan.summary),
    }


def _step(step: AgentExecutionRecord, chosen: ChosenCalls) -> Attributes:
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": step.agent_name,
        **_spoken(step.request, step.result),
    }


def _think_act(think_act: ThinkActRecord, chosen: ChosenCalls) -> Attributes:
    model_messages = input_messages(think_act.messages)
    texts = [] if think_act.thought is None else [text_part(think_act.thought)]
    calls = sorted(
        chosen.get(think_act.think_act_id, ()),
        key=lambda call: (call.position is None, call.position or 0, call.tool_call_id),
    )
    call_parts = [
        call_part(RequestedCall(each.provider_call_id, each.name, each.arguments)) for each in calls
    ]
    answer = message("assistant", *texts, *call_parts)
    finished = {**answer, "finish_reason": "tool_call" if call_parts else "stop"}
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": think_act.requested_model,
        "gen_ai.response.model": think_act.model,
        "gen_ai.usage.input_tokens": think_act.input_tokens,
        "gen_ai.usage.output_tokens": think_act.output_tokens,
        "operation.cost": None if think_act.cost_usd is None else float(think_act.cost_usd),
        "gen_ai.input.messages": None if model_messages is None else messages_text(model_messages),
        "gen_ai.output.messages": messages_text([finished]) if answer["parts"] else None,
    }


def _tool_call(call: ActToolInfo, chosen: ChosenCalls) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.provider_call_id,
        "gen_ai.tool.call.arguments": call.arguments,
        "gen_ai.tool.call.result": call.result,
    }


def _spoken(request: str | None, answer: str | None) -> Attributes:
    """Return the attributes with the request and the answer of an agent or a workflow."""
    return {
        f"gen_ai.{name}.messages": None
        if text is None
        else messages_text([message(role, text_part(text))])
        for name, role, text in (("input", "user", request), ("output", "assistant", answer))
    }


_ATTRIBUTES: dict[Kind, Callable[[Any, ChosenCalls], Attributes]] = {
    Kind.PLAN: _plan,
    Kind.STEP: _step,
    Kind.THINK_ACT: _think_act,
    Kind.TOOL_CALL: _tool_call,
}
"""The function that returns the attributes of each kind of record."""
