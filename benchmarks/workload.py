"""The traces that benchmarks send: agents that think, call tools in parallel, and hand on.

A planner thinks, calls three tools at once, and hands every fourth call to a sub-agent, three
levels deep. Written by OpenTelemetry's GenAI conventions, about 1.1 kB a span; within an hour the
same seed gives the same bytes.
"""

from __future__ import annotations

import random  # noqa: TID251 -- seeded: the same traces each time
import time
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

PARALLEL_CALLS = 3
HANDED_ON = 4
"""Every so manieth call opens a sub-agent."""

LEVELS = 3
SUB_AGENT_ROUNDS = 2
BATCH_SPANS = 512
"""The number of spans in an export, as in OpenTelemetry's batch processor."""

_MILLISECOND = 1_000_000
_HOUR = 3_600_000 * _MILLISECOND
_START = (time.time_ns() // _HOUR - 1) * _HOUR
"""The previous hour, because agents report recent work. Everything else depends on the seed."""

_WORDS = (
    *("patient", "reading", "pressure", "systolic", "diastolic", "week", "morning", "evening"),
    *("measured", "cuff", "above", "below", "trend", "stable", "medication", "dose", "advice"),
    *("follow-up", "nurse", "record", "result", "compare", "average", "血压", "正常"),
)


def trace(seed: int, size: int) -> list[Span]:
    """Return the spans of one trace, in the order of their ends, as exporters send them.

    Args:
        seed: Which trace; the same seed and size give the same spans.
        size: How many spans it has.
    """
    made = _Trace(seed, size)
    made.agent("planner", parent=b"", level=1, rounds=size)
    return sorted(made.spans, key=lambda span: span.end_time_unix_nano)


def traces(seed: int, size: int, spans: int) -> Iterator[list[Span]]:
    """Yield as many traces of one size as have so many spans together."""
    for number in range(-(-spans // size)):
        yield trace(seed * 1_000_003 + number, size)


def request(spans: Iterable[Span]) -> ExportTraceServiceRequest:
    """Return spans as a client exports them."""
    scope_spans = ScopeSpans(spans=spans)
    scope_spans.scope.name, scope_spans.scope.version = "benchmark-agents", "1.0.0"
    resource_spans = ResourceSpans(scope_spans=[scope_spans])
    resource_spans.resource.attributes.extend(
        _attributes({"service.name": "ward-assistant", "telemetry.sdk.language": "python"})
    )
    return ExportTraceServiceRequest(resource_spans=[resource_spans])


def bodies(spans: list[Span], batch: int = BATCH_SPANS) -> list[bytes]:
    """Return spans as the bodies of OTLP requests in protobuf."""
    return [
        request(spans[start : start + batch]).SerializeToString()
        for start in range(0, len(spans), batch)
    ]


class _Trace:
    """A trace in the making: agents work one after another on one clock."""

    def __init__(self, seed: int, size: int) -> None:
        self.random = random.Random(f"{seed}:{size}")
        self.trace_id = self.random.randbytes(16)
        self.size = size
        self.now = _START + seed * _MILLISECOND % _HOUR
        self.spans: list[Span] = []
        self.begun = 0
        self.calls = 0

    def agent(self, name: str, parent: bytes, level: int, rounds: int) -> None:
        """Add an agent that works so many rounds, or until the trace is full."""
        request = self.text(12)
        span = self.begin(f"invoke_agent {name}", parent)
        answer = ""
        for number in range(rounds):
            if not self.has_room():
                break
            answer = self.round(name, span.span_id, level, number, request)
        self.end(
            span,
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": name,
                "gen_ai.conversation.id": f"conversation-{self.trace_id.hex()[:8]}",
                "gen_ai.input.messages": _messages(("user", request)),
                "gen_ai.output.messages": _messages(("assistant", answer)),
            },
        )

    def round(self, agent: str, parent: bytes, level: int, number: int, request: str) -> str:
        """Add a model's answer with its tool calls. Return the answer."""
        model = self.begin("chat gpt-4o-mini", parent)
        answer_text = self.text(24)
        chosen = [
            {
                "type": "tool_call",
                "id": f"call_{number}_{place}",
                "name": f"look_up_{self.random.randrange(8)}",
                "arguments": {"patient": f"p-{self.random.randrange(999)}", "note": self.text(8)},
            }
            for place in range(PARALLEL_CALLS)
        ]
        self.end(
            model,
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "gpt-4o-mini",
                "gen_ai.response.model": "gpt-4o-mini-2024-07-18",
                "gen_ai.agent.name": agent,
                "gen_ai.usage.input_tokens": self.random.randrange(400, 4000),
                "gen_ai.usage.output_tokens": self.random.randrange(20, 400),
                "gen_ai.input.messages": _messages(("system", self.text(20)), ("user", request)),
                "gen_ai.output.messages": orjson.dumps(
                    [
                        {
                            "role": "assistant",
                            "parts": [{"type": "text", "content": answer_text}, *chosen],
                        }
                    ]
                ).decode(),
            },
        )
        began = self.now
        ended = began
        for call in chosen:
            if not self.has_room():
                break
            self.now = began  # they run at the same time
            self.call(call, parent, level)
            ended = max(ended, self.now)
        self.now = ended
        return answer_text

    def call(self, chosen: dict[str, Any], parent: bytes, level: int) -> None:
        """Add a tool call; every fourth hands on to a sub-agent."""
        self.calls += 1
        span = self.begin(f"execute_tool {chosen['name']}", parent)
        if self.calls % HANDED_ON == 0 and level < LEVELS and self.has_room():
            self.agent(f"specialist_{level}", span.span_id, level + 1, SUB_AGENT_ROUNDS)
        failed = self.random.random() < 0.02
        if failed:
            span.status.code = Status.STATUS_CODE_ERROR
            span.status.message = "the cuff is loose"
        self.end(
            span,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": chosen["name"],
                "gen_ai.tool.call.id": chosen["id"],
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.arguments": orjson.dumps(chosen["arguments"]).decode(),
                "gen_ai.tool.call.result": orjson.dumps(
                    {"readings": [self.random.randrange(60, 190) for _ in range(90)]}
                    | {"note": self.text(34)}
                ).decode(),
            },
        )

    def has_room(self) -> bool:
        """Return whether the trace may have another span."""
        return self.begun < self.size

    def begin(self, name: str, parent: bytes) -> Span:
        """Begin a span now."""
        self.begun += 1
        self.now += self.random.randrange(1, 5) * _MILLISECOND
        return Span(
            trace_id=self.trace_id,
            span_id=self.random.randbytes(8),
            parent_span_id=parent,
            name=name,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=self.now,
        )

    def end(self, span: Span, attributes: dict[str, str | int]) -> None:
        """End a span a little later."""
        self.now += self.random.randrange(5, 400) * _MILLISECOND
        span.end_time_unix_nano = self.now
        span.attributes.extend(_attributes(attributes))
        self.spans.append(span)

    def text(self, number: int) -> str:
        """Return so many words."""
        return words(self.random, number)


def words(chosen: random.Random, number: int) -> str:
    """Return so many words, as `chosen` has it."""
    return " ".join(chosen.choices(_WORDS, k=number))


def _messages(*messages: tuple[str, str]) -> str:
    return orjson.dumps(
        [
            {"role": role, "parts": [{"type": "text", "content": content}]}
            for role, content in messages
        ]
    ).decode()


def _attributes(values: dict[str, Any]) -> list[KeyValue]:
    return [
        KeyValue(
            key=key,
            value=AnyValue(int_value=value)
            if isinstance(value, int)
            else AnyValue(string_value=value),
        )
        for key, value in values.items()
    ]
