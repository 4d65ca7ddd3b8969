"""Traces made by hand, by way of OTLP's JSON, and what their projection says in few words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from tests.otel.decoded import spans_in
from tests.otel.projections import (
    Projected,
    differences,
    message_of,
    project,
    project_messages,
)
from tracer.otel.otlp import decode_json
from tracer.records import Kind
from tracer.records.spans import Span

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SECOND = 1_000_000_000
ORIGIN = 1_700_000_000
"""The time from which `made` counts, in seconds since 1970."""


def make_span(
    number: int,
    name: str,
    attributes: Mapping[str, Any] | None = None,
    *,
    parent: int | None = None,
    at: tuple[float, float | None] = (0, 100),
    scope: str = "",
    failed: str | None = None,
    events: list[dict[str, Any]] | None = None,
    kind: int = 1,
    flags: int = 0,
    resource: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a span as OTLP/JSON.

    Args:
        number: Its id.
        name: Its name.
        attributes: Its attributes.
        parent: The id of its parent.
        at: When it began and ended, in seconds; no end is no end yet.
        scope: The instrumentation.
        failed: What its status says where that is an error.
        events: Its events, with `name` and `attributes`.
        kind: Its kind as a number.
        flags: What it states about its parent: 0x100 for the same process, 0x300 for another.
        resource: The attributes of its resource.
    """
    start, end = at
    return {
        **({} if resource is None else {"resource": resource}),
        "scope": scope,
        "traceId": TRACE_ID,
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent is not None else "",
        "name": name,
        "kind": kind,
        "flags": flags,
        "startTimeUnixNano": _nanoseconds(start),
        "endTimeUnixNano": "0" if end is None else _nanoseconds(end),
        "attributes": pairs(attributes or {}),
        "events": [
            {"name": event["name"], "attributes": pairs(event["attributes"])}
            for event in events or []
        ],
        "status": {} if failed is None else {"code": 2, "message": failed},
    }


def _nanoseconds(second: float) -> str:
    """Return a time as OTLP/JSON; 0, which means no time, for -1."""
    return "0" if second == -1 else str((ORIGIN + 1) * SECOND + int(second * SECOND))


def agent(number: int, name: str, **more: Any) -> dict[str, Any]:
    asked = more.pop("asked", None)
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    if asked:
        attributes["gen_ai.input.messages"] = json.dumps([{"role": "user", "content": asked}])
    return make_span(number, f"invoke_agent {name}", attributes, **more)


def chat(number: int, *calls: tuple[str, str, str], tokens: int = 1, **more: Any) -> dict[str, Any]:
    parts = [
        {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        for call_id, name, arguments in calls
    ]
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": tokens,
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}]),
    }
    return make_span(number, "chat m", attributes, **more)


def tool(
    number: int, name: str, arguments: str | None = None, call_id: str | None = None, **more: Any
) -> dict[str, Any]:
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    if arguments is not None:
        attributes["gen_ai.tool.call.arguments"] = arguments
    if call_id is not None:
        attributes["gen_ai.tool.call.id"] = call_id
    return make_span(number, f"execute_tool {name}", attributes, **more)


def body_of(*spans: dict[str, Any]) -> bytes:
    """Return a request body with these spans; `resource` of a span is its resource's attributes."""
    resources = [
        {
            **({"resource": {"attributes": pairs(span["resource"])}} if "resource" in span else {}),
            "scopeSpans": [{"scope": {"name": span.get("scope", "")}, "spans": [span]}],
        }
        for span in spans
    ]
    return json.dumps({"resourceSpans": resources}).encode()


def spans_from(*spans: dict[str, Any]) -> list[Span]:
    decoded = decode_json(body_of(*spans))
    assert decoded.refused == []
    return spans_in(decoded)


def projection_of(*spans: dict[str, Any]) -> Projected:
    """Return the projection of spans, and assert that their order and split do not matter."""
    decoded = spans_from(*spans)
    projected = project(decoded)
    joined = b"".join(message_of(span) for span in reversed(decoded))
    assert differences(project_messages([joined]), projected) == []
    return projected


def the_call(run: Projected) -> dict[str, Any]:
    (call,) = run.records[Kind.TOOL_CALL].values()
    return call


def outline(run: Projected) -> list[str]:
    """Return the tree as lines, indented: `plan`, `step`, `round` and `call` with what they are."""
    lines: list[str] = []
    records = run.records

    def below(kind: Kind, **links: UUID | None) -> list[tuple[UUID, Mapping[str, Any]]]:
        found = [
            (record_id, fields)
            for record_id, fields in records[kind].items()
            if all(fields.get(name) == value for name, value in links.items())
        ]
        return sorted(found, key=lambda each: each[1].get("position") or 0)

    def add(depth: int, text: str, fields: Mapping[str, Any]) -> None:
        guessed = " (inferred)" if fields.get("inferred") else ""
        status = "" if fields["status"].value == "succeeded" else f" {fields['status'].value}"
        lines.append("  " * depth + text + status + guessed)

    def show_plan(depth: int, plan_id: UUID, plan: Mapping[str, Any]) -> None:
        add(depth, f"plan {plan.get('agent_name') or plan.get('title')}", plan)
        for step_id, step in below(Kind.STEP, plan_id=plan_id):
            add(depth + 1, f"step {step.get('agent_name')}", step)
            for round_id, think_act in below(Kind.THINK_ACT, step_id=step_id):
                add(depth + 2, f"round {think_act['input_tokens']}", think_act)
                show_calls(depth + 3, think_act_id=round_id, parent_tool_call_id=None)
            show_calls(depth + 2, step_id=step_id, think_act_id=None, parent_tool_call_id=None)
            for each in below(Kind.PLAN, opened_by_step_id=step_id):
                show_plan(depth + 2, *each)

    def show_calls(depth: int, **links: UUID | None) -> None:
        for call_id, call in below(Kind.TOOL_CALL, **links):
            kind = f"{call['tool_type'].lower()} " if call["tool_type"] else ""
            add(depth, f"call {kind}{call['name']} {call['arguments']}", call)
            show_calls(depth + 1, parent_tool_call_id=call_id)
            for each in below(Kind.PLAN, tool_call_id=call_id):
                show_plan(depth + 1, *each)

    show_plan(0, run.root_plan_id, records[Kind.PLAN][run.root_plan_id])
    for plan_id, plan in below(Kind.PLAN, parent_plan_id=None):
        if plan_id != run.root_plan_id:
            lines.append("unplaced")
            show_plan(1, plan_id, plan)
    return lines


def pairs(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": pairs(value)}}
    return {"stringValue": value}
