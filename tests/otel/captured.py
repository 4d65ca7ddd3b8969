"""The captures, and what is to be compared: facts of the runs, as expected and as projected."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tests.otel.decoded import spans_in
from tests.otel.projections import Projected, message_of, project, project_messages
from tracer.otel.otlp import decode_protobuf
from tracer.records import Kind
from tracer.records.spans import Span

CAPTURES = Path(__file__).parent / "captures"
NAMES = sorted(each.name for each in CAPTURES.iterdir())

LOST_CONTEXT = "pydantic-ai-lostcontext-single"
CRASHES = {"pydantic-ai-default-crash-single": False, "logfire-pending-crash-single": True}
"""Whether the spans of what was interrupted were exported at all: as pending ones."""
NO_CONTENT = "google-adk-v2-nocontent-single"

Call = tuple[str, str | None]
"""A tool call's name and arguments, keys sorted."""


@dataclass(frozen=True)
class Facts:
    """What is true of all runs of a capture together."""

    calls: Counter[tuple[Call, str, str | None, Call | None, str | None]]
    """Each call: itself, its status and agent, the call that opened its plan, its provider's id."""
    sub_agents: Counter[tuple[str | None, Call | None, int, int]]
    """Each sub-agent with the call that opened it, and its own input and output tokens."""
    tokens: Counter[tuple[int, int]]
    """Input and output tokens of each run."""


def bodies(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CAPTURES / name).glob("*.bin"))]


def spans_of(name: str) -> list[Span]:
    return [span for body in bodies(name) for span in spans_in(decode_protobuf(body))]


def by_trace(spans: Iterable[Span]) -> dict[bytes, list[Span]]:
    traces: dict[bytes, list[Span]] = {}
    for span in spans:
        traces.setdefault(span.trace_id, []).append(span)
    return traces


def moved(span: Span, trace_id: bytes) -> Span:
    """Return the span in another trace."""
    message = ResourceSpans.FromString(span.body)
    message.scope_spans[0].spans[0].trace_id = trace_id
    body = bytes(message.SerializeToString(deterministic=True))
    return replace(span, trace_id=trace_id, body=body)


def projected(spans: Iterable[Span]) -> list[Projected]:
    """Return the projection of each trace, in the order of their ids."""
    return [project(each) for _, each in sorted(by_trace(spans).items())]


def projected_in_parts(parts: Iterable[Iterable[Span]]) -> list[Projected]:
    """Return the same as `projected` of spans that are sent in parts."""
    messages: dict[bytes, list[bytes]] = {}
    for part in parts:
        for trace_id, spans in by_trace(part).items():
            messages.setdefault(trace_id, []).append(b"".join(map(message_of, spans)))
    return [project_messages(each) for _, each in sorted(messages.items())]


def expected_facts(name: str) -> Facts:
    """Return the truth of a capture, without what no span of it carries."""
    runs = json.loads((CAPTURES / name / "expected.json").read_text())["runs"]
    with_pending = CRASHES.get(name, True)
    calls: list[Any] = []
    sub_agents: list[Any] = []
    for run in runs:
        there = [
            call for call in run["tool_calls"] if with_pending or call["status"] != "interrupted"
        ]
        named = [_call(name, each) for each in there]
        for each in there:
            parent = _call(name, each["parent_tool_call"])
            status = {"interrupted": "running"}.get(each["status"], each["status"])
            opener = parent if parent in named and name != LOST_CONTEXT else None
            calls.append(
                (_call(name, each), status, each["agent"], opener, each["provider_call_id"])
            )
        for each in run["sub_agents"]:
            opener = _call(name, each["opened_by"])
            if opener in named and name != LOST_CONTEXT:
                sub_agents.append(
                    (each["agent"], opener, each["input_tokens"], each["output_tokens"])
                )
    return Facts(
        calls=Counter(calls),
        sub_agents=Counter(sub_agents),
        tokens=Counter((run["input_tokens"], run["output_tokens"]) for run in runs),
    )


def seen_facts(runs: Iterable[Projected], name: str = "") -> Facts:
    """Return what the projected records say, in the same terms."""
    calls: list[Any] = []
    sub_agents: list[Any] = []
    tokens: list[tuple[int, int]] = []
    for run in runs:
        records = run.records
        tool_calls, steps, plans = (
            records[kind] for kind in (Kind.TOOL_CALL, Kind.STEP, Kind.PLAN)
        )

        def opener(plan_id: UUID | None, run: Projected = run) -> Call | None:
            plan = run.records[Kind.PLAN].get(plan_id, {}) if plan_id else {}
            call_id = plan.get("tool_call_id")
            return _call(name, run.records[Kind.TOOL_CALL][call_id]) if call_id else None

        for call in tool_calls.values():
            step = steps[call["step_id"]]
            calls.append(
                (
                    _call(name, call),
                    call["status"].value,
                    step.get("agent_name"),
                    opener(step["plan_id"]),
                    call["provider_call_id"],
                )
            )
        for step_id, step in steps.items():
            plan = plans[step["plan_id"]]
            if plan.get("tool_call_id") is not None:
                own = _tokens(run, step_id)
                sub_agents.append((step["agent_name"], opener(step["plan_id"]), *own))
        tokens.append(_tokens(run, None))
    if name == LOST_CONTEXT:
        tokens = [(sum(each[0] for each in tokens), sum(each[1] for each in tokens))]
    return Facts(Counter(calls), Counter(sub_agents), Counter(tokens))


def _tokens(run: Projected, step_id: UUID | None) -> tuple[int, int]:
    rounds = [
        each
        for each in run.records[Kind.THINK_ACT].values()
        if step_id is None or each["step_id"] == step_id
    ]
    return (
        sum(each["input_tokens"] or 0 for each in rounds),
        sum(each["output_tokens"] or 0 for each in rounds),
    )


def _call(name: str, call: Any) -> Call | None:
    if call is None:
        return None
    arguments = call["arguments"]
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    shown = None if name == NO_CONTENT else json.dumps(arguments, sort_keys=True)
    return str(call["name"]), shown
