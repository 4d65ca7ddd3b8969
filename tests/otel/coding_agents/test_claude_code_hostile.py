"""Claude Code's dialect accepts wrong types, repeated ids, circles, and very large sessions."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as WireLogRecord
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tests.otel.coding_agents.captured import messages_of
from tests.otel.projections import differences, project_messages
from tests.otel.wire import bytes_field
from tests.processor_time import processor_limit
from tests.profiles import quick_among, scaled
from tracer.otel.dialects import claude_code
from tracer.otel.otlp.spans import logs_of
from tracer.otel.projection import project_run

NAMES = ("claude-code-nested-content-off", "claude-code-killed-content-on")
TRACE = bytes(range(16))
SOON = 60
"""Seconds of processor time. Quadratic work on the traces below takes minutes."""
Parts = list[WireSpan | WireLogRecord]
VALUES = (
    AnyValue(int_value=-(2**63)),
    AnyValue(bool_value=True),
    AnyValue(double_value=float("nan")),
    AnyValue(bytes_value=b"\x00\xff"),
    AnyValue(string_value=""),
    AnyValue(string_value="{"),
    AnyValue(string_value="[" * 5000),
    AnyValue(string_value='{"full_command": 1, "prompt": [], "subagent_type": {}}'),
    AnyValue(string_value="<task-notification><tool-use-id>" + "x" * 5000),
)


def parts_of(name: str) -> tuple[list[WireSpan], list[WireLogRecord]]:
    spans: list[WireSpan] = []
    logs: list[WireLogRecord] = []
    for _, message in messages_of(name):
        for resource in TracesData.FromString(message).resource_spans:
            spans += [span for scope in resource.scope_spans for span in scope.spans]
        for record in logs_of([message]):
            logs += ResourceLogs.FromString(record.sent).scope_logs[0].log_records
    return spans, logs


def message(part: WireSpan | WireLogRecord) -> bytes:
    if isinstance(part, WireSpan):
        data = TracesData()
        scope = data.resource_spans.add().scope_spans.add()
        scope.scope.name = f"{claude_code.SCOPE}.tracing"
        scope.spans.append(part)
        return data.SerializeToString()
    around = ResourceLogs()
    scope_logs = around.scope_logs.add()
    scope_logs.scope.name = f"{claude_code.SCOPE}.events"
    scope_logs.log_records.append(part)
    return bytes_field(2, around.SerializeToString())


@given(chance=st.randoms(use_true_random=False))
@settings(max_examples=scaled(200), deadline=None)
@pytest.mark.parametrize("name", NAMES)
def test_mutated_captures_give_equal_records_for_any_order(
    name: str, chance: random.Random
) -> None:
    spans, logs = parts_of(name)
    ids = [span.span_id for span in spans]
    parts: Parts = [*spans, *logs]
    for part in parts:
        if chance.random() < 0.3:
            for attribute in chance.sample(list(part.attributes), len(part.attributes) // 2):
                attribute.value.CopyFrom(chance.choice(VALUES))
        if chance.random() < 0.1:
            part.span_id = chance.choice(ids)
        if isinstance(part, WireSpan) and chance.random() < 0.2:
            part.parent_span_id = chance.choice(ids)
        if isinstance(part, WireSpan) and chance.random() < 0.1:
            part.start_time_unix_nano, part.end_time_unix_nano = chance.choice(
                [(0, 0), (1, 2**64 - 1), (2**64 - 1, 1)]
            )
        part.trace_id = TRACE
    messages = [message(part) for part in parts]
    once = project_messages(messages)

    chance.shuffle(messages)
    assert differences(project_messages(messages), once) == []


def attributes(**values: str | int | bool) -> list[KeyValue]:
    found = []
    for key, value in values.items():
        wire = AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value)
        found.append(KeyValue(key=key.replace("__", "."), value=wire))
    return found


def span(number: int, name: str, parent: int, **said: str | int) -> WireSpan:
    return WireSpan(
        trace_id=TRACE,
        span_id=number.to_bytes(8, "big"),
        parent_span_id=parent.to_bytes(8, "big") if parent else b"",
        name=f"claude_code.{name}",
        start_time_unix_nano=10**18 + number * 1000,
        end_time_unix_nano=10**18 + number * 1000 + 500,
        attributes=attributes(**said),
    )


def log(number: int, name: str, span_id: int, **said: str | int) -> WireLogRecord:
    return WireLogRecord(
        trace_id=TRACE,
        span_id=span_id.to_bytes(8, "big"),
        time_unix_nano=10**18 + number * 1000,
        attributes=attributes(event__name=name, event__sequence=number, **said),
    )


def orphans_and_open_calls(size: int) -> Parts:
    parts: Parts = [log(0, "user_prompt", 1)]
    for number in range(1, size // 3):
        wait, tool = 10 * number, 10 * number + 1
        parts.append(span(wait, "tool.blocked_on_user", tool))
        parts.append(log(number, "tool_decision", wait, tool_name="Agent", tool_use_id=f"t{wait}"))
        parts.append(span(10 * number + 2, "llm_request", 10 * number + 3, agent_id=f"a{number}"))
    return parts


def calls_with_one_id(size: int) -> Parts:
    calls: Parts = [span(n, "tool", 1, tool_use_id="same") for n in range(2, size // 2)]
    return calls + [log(n, "tool_result", 1, tool_use_id="same") for n in range(2, size // 2)]


def agents_within_agents(size: int) -> Parts:
    parts: Parts = []
    for number in range(1, size // 2):
        tool, agent = 2 * number, f"a{number}"
        parts.append(span(tool, "tool", tool - 1, agent_id=agent))
        parts.append(span(tool + 1, "tool.execution", tool))
    return parts


def segments_of_one_agent(size: int) -> Parts:
    return [span(2 * n, "llm_request", 2 * n + 1, agent_id="a") for n in range(1, size)]


@pytest.mark.parametrize(
    "parts_of_size",
    [orphans_and_open_calls, calls_with_one_id, agents_within_agents, segments_of_one_agent],
)
@pytest.mark.parametrize("size", quick_among([2_000, 20_000], [2_000]))
def test_large_sessions_are_projected_in_linear_time(
    parts_of_size: Callable[[int], Parts], size: int
) -> None:
    with processor_limit(SOON):  # at full size, quadratic work would take minutes
        project_run([message(part) for part in parts_of_size(size)])


def test_circle_of_agents_that_opened_each_other_is_cut() -> None:
    parts: Parts = [
        span(1, "tool", 4, agent_id="a"),
        span(2, "tool.execution", 1),
        span(3, "tool", 2, agent_id="b"),
        span(4, "tool.execution", 3),
    ]
    messages = [message(part) for part in parts]
    once = project_messages(messages)

    assert differences(project_messages(messages[::-1]), once) == []
