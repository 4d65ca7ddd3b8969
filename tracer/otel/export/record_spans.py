"""Records to spans: a run of events in the attributes of OpenTelemetry's GenAI conventions.

Each record is a span, so that other backends show the run. It carries its record besides, from
which `tracer.otel.projection.embedded_records` restores exactly that one.
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

from tracer.otel.dialects.messages import read_messages
from tracer.otel.dialects.reading import Chosen, parsed
from tracer.otel.otlp.protobuf_spans import MAX_TIME, Around, span_of
from tracer.otel.otlp.span_fields import RECORD, RUN
from tracer.otel.otlp.spans import Span
from tracer.otel.projection.embedded_records import RecordPlace
from tracer.records.ids import span_id
from tracer.records.merge import RULES
from tracer.records.record_classes import (
    ActToolInfo,
    AgentExecutionRecord,
    Kind,
    PlanExecutionRecord,
    Run,
    ThinkActRecord,
)
from tracer.records.record_json import record_json, run_json
from tracer.records.status import Status

Part = dict[str, Any]


def message(role: str, *parts: Part) -> dict[str, Any]:
    """Return one message."""
    return {"role": role, "parts": list(parts)}


def text_part(text: str) -> Part:
    """Return the part that says a text."""
    return {"type": "text", "content": text}


def call_part(call: Chosen) -> Part:
    """Return the part that asks for a tool."""
    arguments = parsed(call.arguments)
    return {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": arguments}


def messages_text(messages: Iterable[Any]) -> str:
    """Return messages as the text of an attribute."""
    return orjson.dumps(list(messages), default=str).decode()


def given_messages(recorded: str | None) -> list[dict[str, Any]] | None:
    """Return the messages that a model was given, whatever shape they were recorded in.

    Args:
        recorded: The text of a JSON array.

    Returns:
        None where it is none.
    """
    listed = parsed(recorded)
    return [_message(each) for each in listed] if isinstance(listed, list) else None


def _message(item: Any) -> dict[str, Any]:
    if isinstance(item, dict) and isinstance(item.get("parts"), list) and "role" in item:
        return item
    said = next(iter(read_messages([item])), None)
    if said is None:
        return message("user")
    if said.role == "tool" and isinstance(item, dict):
        call_id = item.get("tool_call_id")
        return message("tool", {"type": "tool_call_response", "id": call_id, "response": said.text})
    texts = [text_part(said.text)] if said.text else []
    return message(said.role or "user", *texts, *map(call_part, said.calls))


SCOPE = "tracer"
"""The instrumentation scope of the spans, and the name of their service."""

Attributes = dict[str, str | int | float | None]
Record = PlanExecutionRecord | AgentExecutionRecord | ThinkActRecord | ActToolInfo

ChosenCalls = Mapping[UUID, Sequence[ActToolInfo]]
"""The calls that each think-act chose."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def spans_of_records(
    run: Run,
    is_agent_work: bool,
    records: Mapping[Kind, Sequence[Any]],
    beside: Sequence[Span],
) -> Iterator[Span]:
    """Yield a span for each record of a run that came as events, by (start, span id).

    Args:
        run: The run.
        is_agent_work: As the store has it.
        records: All records below it (`tracer.store.AnyRecord`), by kind.
        beside: Spans that others told of the run, in the same order; they are yielded too.
    """
    around = _around()
    chosen: dict[UUID, list[ActToolInfo]] = {}
    for call in records[Kind.TOOL_CALL]:
        if call.think_act_id is not None and call.parent_tool_call_id is None:
            chosen.setdefault(call.think_act_id, []).append(call)
    own: dict[bytes, tuple[Kind, Record]] = {
        _span_id(kind, getattr(record, RULES[kind].id_field)): (kind, record)
        for kind, part in records.items()
        for record in part
    }
    others = {span.span_id: span for span in beside if span.span_id not in own}
    starts = {span_id_: _start(record) for span_id_, (_, record) in own.items()}
    starts |= {span_id_: span.start for span_id_, span in others.items()}
    for span_id_ in sorted(starts, key=lambda each: (starts[each], each)):
        if span_id_ in others:
            yield others[span_id_]
            continue
        kind, record = own[span_id_]
        yield _span(around, kind, record, _attributes(kind, record, chosen, run, is_agent_work))


def _attributes(
    kind: Kind, record: Record, chosen: ChosenCalls, run: Run, is_agent_work: bool
) -> Attributes:
    attributes = _ATTRIBUTES[kind](record, chosen)
    attributes[RECORD] = record_json(kind, record).decode()
    if kind in (Kind.PLAN, Kind.STEP):
        attributes["gen_ai.conversation.id"] = run.session_id
    if isinstance(record, PlanExecutionRecord) and record.plan_id == run.root_plan_id:
        attributes[RUN] = run_json(run, "events", is_agent_work).decode()
        attributes["user.id"] = run.subject
    return attributes


def _start(record: Record) -> int:
    return _nanoseconds(record.started_at or record.finished_at or record.recorded_at)


def _around() -> Around:
    resource = Resource(attributes=[_pair("service.name", SCOPE)])
    scope = InstrumentationScope(name=SCOPE)
    return Around.of_messages(ResourceSpans(resource=resource), ScopeSpans(scope=scope))


def _span(around: Around, kind: Kind, record: Record, attributes: Attributes) -> Span:
    start = _start(record)
    end = (_nanoseconds(record.finished_at) or start) if record.status.is_ending else 0
    above = _above(kind, record)
    wire = WireSpan(
        trace_id=record.root_plan_id.bytes,
        span_id=_span_id(kind, getattr(record, RULES[kind].id_field)),
        parent_span_id=b"" if above is None else _span_id(*above),
        name=_name(attributes),
        kind=WireSpan.SPAN_KIND_CLIENT if kind is Kind.THINK_ACT else WireSpan.SPAN_KIND_INTERNAL,
        start_time_unix_nano=start,
        end_time_unix_nano=end,
    )
    if record.status in (Status.FAILED, Status.CANCELLED):
        said = record.error_message or record.reason or record.status.value
        wire.status.CopyFrom(WireStatus(code=WireStatus.STATUS_CODE_ERROR, message=said))
        attributes["error.type"] = record.error_type or record.reason or record.status.value
    if record.error_type is not None or record.error_message is not None:
        exception = {
            "exception.type": record.error_type,
            "exception.message": record.error_message,
            "exception.stacktrace": record.error_stack,
        }
        event = wire.events.add(name="exception", time_unix_nano=end or start)
        event.attributes.extend(_pairs(exception))
    wire.attributes.extend(_pairs(attributes))
    return span_of(around, wire)


def _span_id(kind: Kind, record_id: UUID) -> bytes:
    """Return the id of a record's span.

    A call's is the one that its tool was told, so that what the tool recorded hangs under it.
    Other kinds have ids of their own, should a program use one id for records of two kinds.
    """
    if kind is Kind.TOOL_CALL:
        return bytes.fromhex(span_id(record_id))
    return sha256(kind.value.encode() + record_id.bytes).digest()[:8]


def _above(kind: Kind, record: Record) -> RecordPlace | None:
    """Return what a record's span hangs under: what opened a plan, else the record's parent."""
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
"""What the span of each kind hangs under, by the link that says it: the first that is there."""


def _name(attributes: Attributes) -> str:
    named = (attributes.get(name) for name in ("gen_ai.operation.name", *_NAMES))
    return " ".join(str(each) for each in named if each is not None)


_NAMES = ("gen_ai.workflow.name", "gen_ai.agent.name", "gen_ai.request.model", "gen_ai.tool.name")


def _nanoseconds(moment: datetime | None) -> int:
    """Return nanoseconds since 1970; 0 for None, and the nearest time that OTLP can say."""
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
    given = given_messages(think_act.messages)
    texts = [] if think_act.thought is None else [text_part(think_act.thought)]
    calls = sorted(
        chosen.get(think_act.think_act_id, ()),
        key=lambda call: (call.position is None, call.position or 0, call.tool_call_id),
    )
    asked = [call_part(Chosen(each.provider_call_id, each.name, each.arguments)) for each in calls]
    said = message("assistant", *texts, *asked)
    finished = {**said, "finish_reason": "tool_call" if asked else "stop"}
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": think_act.requested_model,
        "gen_ai.response.model": think_act.model,
        "gen_ai.usage.input_tokens": think_act.input_tokens,
        "gen_ai.usage.output_tokens": think_act.output_tokens,
        "operation.cost": None if think_act.cost_usd is None else float(think_act.cost_usd),
        "gen_ai.input.messages": None if given is None else messages_text(given),
        "gen_ai.output.messages": messages_text([finished]) if said["parts"] else None,
    }


def _tool_call(call: ActToolInfo, chosen: ChosenCalls) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.provider_call_id,
        "gen_ai.tool.call.arguments": call.arguments,
        "gen_ai.tool.call.result": call.result,
    }


def _spoken(asked: str | None, answered: str | None) -> Attributes:
    """Return what an agent or a workflow was asked and answered."""
    return {
        f"gen_ai.{name}.messages": None
        if text is None
        else messages_text([message(role, text_part(text))])
        for name, role, text in (("input", "user", asked), ("output", "assistant", answered))
    }


_ATTRIBUTES: dict[Kind, Callable[[Any, ChosenCalls], Attributes]] = {
    Kind.PLAN: _plan,
    Kind.STEP: _step,
    Kind.THINK_ACT: _think_act,
    Kind.TOOL_CALL: _tool_call,
}
"""What the conventions say of each kind of record."""
