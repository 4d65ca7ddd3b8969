"""A run has the same rows however its spans are split into messages, ordered and repeated.

For captured, generated and hostile traces, and those whose spans were changed in any way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, TracesData
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status as WireStatus

from tests.otel.canary_spans import field_paths, request_with
from tests.otel.captured import NAMES, by_trace, spans_of
from tests.otel.made_parts import parts_of_a_made_trace
from tests.otel.made_traces import (
    TRACE_ID,
    agent,
    chat,
    make_span,
    outline,
    projection_of,
    spans_from,
    tool,
)
from tests.otel.projections import differences, message_of, project_messages, split
from tests.otel.test_hostile_traces import CALLS, Made
from tests.processor_time import processor_limit
from tests.profiles import quick_among, scaled
from tests.recordings import spans_of_events
from tests.sample_runs import sample_run
from tracer.otel.otlp.blocks import sent_spans
from tracer.otel.projection import fields_of, project_run
from tracer.records import Kind, sequential_ids
from tracer.records.spans import Span


def assert_same(spans: Sequence[Span]) -> None:
    """Assert that the order and the split of the messages of spans do not change the rows."""
    _assert_same([message_of(span) for span in spans], random.Random(0))


def _assert_same(messages: Sequence[bytes], chance: random.Random) -> None:
    whole = project_messages([b"".join(messages)])
    assert differences(project_messages(messages), whole) == []
    assert differences(project_messages(messages[::-1]), whole) == []
    for _ in range(2):
        assert differences(project_messages(split(messages, chance)), whole) == []


# --- Captures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", quick_among(NAMES, NAMES[1::3]))
def test_capture_prefixes_make_equal_rows_in_any_split(name: str) -> None:
    for spans in by_trace(spans_of(name)).values():
        for count in {1, len(spans) // 3, 2 * len(spans) // 3, len(spans)} - {0}:
            assert_same(spans[:count])


def test_captures_in_one_trace_make_the_same_rows_in_any_split() -> None:
    spans = [span for name in NAMES for span in spans_of(name)]

    _assert_same([_moved(span, bytes.fromhex(TRACE_ID)) for span in spans], random.Random(0))


def _moved(span: Span, trace_id: bytes) -> bytes:
    message = TracesData.FromString(message_of(span))
    message.resource_spans[0].scope_spans[0].spans[0].trace_id = trace_id
    return message.SerializeToString()


@st.composite
def changed_captures(draw: st.DrawFn) -> list[bytes]:
    """Some spans of a captured trace, of which some were changed in any way."""
    name = draw(st.sampled_from(NAMES))
    spans = draw(st.sampled_from(list(by_trace(spans_of(name)).values())))
    some = draw(st.lists(st.sampled_from(spans), min_size=1, max_size=40))
    return [_changed(draw, span, spans) for span in some]


def _changed(draw: st.DrawFn, span: Span, spans: Sequence[Span]) -> bytes:
    message = TracesData.FromString(message_of(span))
    scope_spans = message.resource_spans[0].scope_spans[0]
    wire = scope_spans.spans[0]
    for change in draw(st.lists(st.sampled_from(_CHANGES), max_size=2)):
        change(draw, wire, draw(st.sampled_from(spans)))
    return message.SerializeToString()


def _change_parent(draw: st.DrawFn, wire: WireSpan, other: Span) -> None:
    wire.parent_span_id = draw(st.sampled_from([other.span_id, b"", b"\7" * 8, b"\0" * 8]))


def _change_times(draw: st.DrawFn, wire: WireSpan, other: Span) -> None:
    wire.start_time_unix_nano = draw(st.sampled_from([other.start, other.end, 0]))
    wire.end_time_unix_nano = draw(st.sampled_from([0, other.start, other.end]))


def _end_badly(draw: st.DrawFn, wire: WireSpan, other: Span) -> None:
    wire.status.code = WireStatus.STATUS_CODE_ERROR
    wire.status.message = draw(st.sampled_from(["", "it failed", "\0"]))
    if draw(st.booleans()):
        kind = draw(st.sampled_from(["asyncio.CancelledError", "ValueError", ""]))
        event = wire.events.add(name="exception")
        event.attributes.add(key="exception.type").value.string_value = kind


def _drop_attributes(draw: st.DrawFn, wire: WireSpan, other: Span) -> None:
    kept = [each for each in wire.attributes if draw(st.booleans())]
    del wire.attributes[:]
    wire.attributes.extend(kept)


def _take_attributes(draw: st.DrawFn, wire: WireSpan, other: Span) -> None:
    taken = ResourceSpans.FromString(other.body).scope_spans[0].spans[0]
    del wire.attributes[:]
    wire.attributes.extend(taken.attributes)


def _mask(draw: st.DrawFn, wire: WireSpan, other: Span) -> None:
    for each in wire.attributes:
        if each.value.string_value and draw(st.booleans()):
            each.value.string_value = draw(
                st.sampled_from(["[masked: api_key]", '{"a": ["[masked: api_key]"]}'])
            )


def _announce(draw: st.DrawFn, wire: WireSpan, other: Span) -> None:
    wire.span_id = draw(st.sampled_from([wire.span_id, b"\1" * 8, b"\2" * 8]))
    wire.parent_span_id = other.span_id
    wire.attributes.add(key="logfire.span_type").value.string_value = "pending_span"
    parent = draw(st.sampled_from(["0" * 16, "x", other.span_id.hex(), b"\2".hex() * 8]))
    wire.attributes.add(key="logfire.pending_parent_id").value.string_value = parent


_CHANGES: list[Callable[[st.DrawFn, WireSpan, Span], None]] = [
    *(_change_parent, _change_times, _end_badly),
    *(_drop_attributes, _take_attributes, _mask, _announce),
]


@given(messages=changed_captures(), chance=st.randoms())
@settings(max_examples=scaled(1500))
def test_changed_spans_of_captures_make_the_same_rows_in_any_split(
    messages: list[bytes], chance: random.Random
) -> None:
    _assert_same(messages, chance)


# --- Generated traces ----------------------------------------------------------------------------


@given(parts=parts_of_a_made_trace(), chance=st.randoms())
@settings(max_examples=scaled(1000))
def test_generated_traces_make_the_same_rows_in_any_split(
    parts: list[list[Span]], chance: random.Random
) -> None:
    messages = [message_of(span) for part in parts for span in part]
    _assert_same(messages, chance)


_TEXTS = st.sampled_from(["ask", "tell", '["ask"]', '{"q": "ask"}', "[masked: api_key]", "\0"])
_ATTRIBUTES: dict[str, st.SearchStrategy[Any]] = {
    "gen_ai.operation.name": st.sampled_from(
        ["chat", "chat", "execute_tool", "execute_tool", "invoke_agent", "invoke_workflow", "plan"]
    ),
    "openinference.span.kind": st.sampled_from(["TOOL", "CHAIN", "AGENT", "LLM", "RETRIEVER"]),
    "traceloop.span.kind": st.sampled_from(["workflow", "agent", "tool", "task"]),
    "mcp.method.name": st.sampled_from(["tools/call", "tools/list"]),
    "logfire.span_type": st.sampled_from(["pending_span", "log"]),
    "logfire.pending_parent_id": st.sampled_from(["0000000000000001", "0000000000000002"]),
    "gen_ai.tool.name": _TEXTS,
    "gen_ai.tool.call.id": st.sampled_from(["c", "d"]),
    "gen_ai.tool.call.arguments": _TEXTS,
    "gen_ai.tool.call.result": _TEXTS,
    "gen_ai.tool.status": st.just("error"),
    "gen_ai.agent.name": _TEXTS,
    "agent.name": _TEXTS,
    "graph.node.id": _TEXTS,
    "graph.node.parent_id": _TEXTS,
    "input.value": _TEXTS,
    "output.value": _TEXTS,
    "gen_ai.conversation.id": _TEXTS,
    "user.id": _TEXTS,
    "gen_ai.response.model": st.sampled_from(["gpt-4o-mini", "m"]),
    "gen_ai.usage.input_tokens": st.integers(0, 5),
    "gen_ai.usage.output_tokens": st.integers(0, 5),
    "gen_ai.usage.cost": st.sampled_from([0.1, "0.2"]),
    "gen_ai.input.messages": st.sampled_from(
        ['[{"role": "user", "content": "ask"}]', '[{"role": "user", "content": "tell"}]']
    ),
    "gen_ai.output.messages": st.sampled_from(
        [
            '[{"role": "assistant", "content": "told"}]',
            '[{"parts": [{"type": "tool_call", "id": "c", "name": "ask", "arguments": ["ask"]}]}]',
            '[{"parts": [{"type": "tool_call", "name": "tell", "arguments": {"q": "ask"}}]}]',
        ]
    ),
    "strands.cancellation.type": _TEXTS,
    "error.type": _TEXTS,
}
_SCOPES = ["", "openinference.instrumentation.openai_agents", "gcp.vertex.agent"]


@st.composite
def traces_of_any_dialect(draw: st.DrawFn) -> list[bytes]:
    count = draw(st.integers(1, 14))
    made_spans = []
    for _ in range(count):
        start = draw(st.integers(0, 4))
        end = draw(st.one_of(st.none(), st.integers(start, 9)))
        chosen = st.fixed_dictionaries({}, optional=_ATTRIBUTES)
        made_spans.append(
            make_span(
                draw(st.integers(1, count)),
                draw(st.sampled_from(["ask", "LangGraph", "x.run", "SomeAgent.run"])),
                draw(chosen),
                parent=draw(st.one_of(st.none(), st.integers(1, count + 2))),
                at=(start, end),
                scope=draw(st.sampled_from(_SCOPES)),
                failed=draw(st.sampled_from([None, None, "it failed"])),
            )
        )
    return [message_of(span) for span in spans_from(*made_spans)]


@given(messages=traces_of_any_dialect(), chance=st.randoms())
@settings(max_examples=scaled(1500))
def test_traces_of_any_dialect_make_the_same_rows_in_any_split(
    messages: list[bytes], chance: random.Random
) -> None:
    _assert_same(messages, chance)


@pytest.mark.parametrize("size", quick_among([100, 400], [100]))
@pytest.mark.parametrize("trace", CALLS)
def test_hostile_traces_make_the_same_rows_in_any_split(
    trace: Callable[[int], Made], size: int
) -> None:
    assert_same(spans_from(*trace(size)))


@pytest.mark.thorough
@pytest.mark.parametrize("operation", ["", "chat", "execute_tool", "invoke_agent", "plan"])
def test_deep_chains_are_projected_in_linear_time(operation: str) -> None:
    attributes = {"gen_ai.operation.name": operation}
    chain = [make_span(each, "x", attributes, parent=each + 1) for each in range(1, 5_000)]

    with processor_limit(60):
        assert_same(spans_from(*chain))


# --- Rules that generated traces seldom reach ----------------------------------------------------

_HAND_OFFS = "openinference.instrumentation.openai_agents"


def node(number: int, name: str, above: str | None, **more: Any) -> dict[str, Any]:
    """Return an agent of the OpenAI Agents SDK; `above` is the node that handed over to it."""
    attributes = {"openinference.span.kind": "AGENT", "agent.name": name, "graph.node.id": name}
    if above is not None:
        attributes["graph.node.parent_id"] = above
    return make_span(number, name, attributes, scope=_HAND_OFFS, **more)


_ANSWER_WITH_A_CALL = (
    '[{"role": "assistant", "parts": [{"type": "text", "content": "told"},'
    ' {"type": "tool_call", "id": "c", "name": "ask", "arguments": {}}]}]'
)
RULES: dict[str, Made] = {
    "an empty agent names the wrapper that starts with it": [
        tool(1, "t"),
        agent(2, "w", asked="ask", parent=1, at=(1, 1)),
        make_span(3, "w", {"gen_ai.operation.name": "invoke_workflow"}, parent=1, at=(1, 9)),
        chat(4, parent=3, at=(2, 3)),
    ],
    "an agent hands over when the one before it of its node has ended": [
        node(1, "a", None, at=(0, 5)),
        node(2, "a", None, at=(5, 8)),
        node(3, "b", "a", at=(9, 10)),
    ],
    "rounds use one call id for different arguments": [
        agent(1, "a"),
        chat(2, ("c", "ask", '{"q": 1}'), parent=1, at=(1, 2)),
        chat(3, ("c", "ask", '{"q": 2}'), parent=1, at=(3, 4)),
        tool(4, "ask", '{"q": 1}', "c", parent=1, at=(5, 6)),
    ],
    "the last round of an agent says something and asks for a call": [
        agent(1, "a"),
        make_span(
            2,
            "chat",
            {"gen_ai.operation.name": "chat", "gen_ai.output.messages": _ANSWER_WITH_A_CALL},
            parent=1,
        ),
    ],
    "a call that ended and names an agent has opened another one": [
        agent(1, "a"),
        tool(2, "ask_b", '{"q": "ask"}', parent=1, at=(1, 2)),
        agent(3, "c", parent=2, at=(1, 2)),
        agent(4, "b", asked="ask", at=(3, 4)),
    ],
}


TREES: dict[str, list[str]] = {
    "an empty agent names the wrapper that starts with it": [
        "plan t",
        "  step None",
        "    call t None",
        "      plan w",
        "        step w",
        "          round 1",
    ],
    "an agent hands over when the one before it of its node has ended": [
        "plan a",
        "  step None",
        "    plan a",
        "      step a",
        "    plan a",
        "      step a",
        "        plan b (inferred)",
        "          step b",
    ],
    "rounds use one call id for different arguments": [
        "plan a",
        "  step a",
        "    round 1",
        '      call ask {"q": 1}',
        "    round 1",
        '      call ask {"q": 2} cancelled',
    ],
    "the last round of an agent says something and asks for a call": [
        "plan a",
        "  step a",
        "    round None",
        "      call ask {} cancelled",
    ],
    "a call that ended and names an agent has opened another one": [
        "plan invoke_agent a",
        "  step None",
        "    plan a",
        "      step a",
        '        call ask_b {"q": "ask"}',
        "          plan c",
        "            step c",
        "    plan b",
        "      step b",
    ],
}


@pytest.mark.parametrize("trace", RULES)
def test_handwritten_traces_make_the_same_rows_in_any_split(trace: str) -> None:
    assert_same(spans_from(*RULES[trace]))


@pytest.mark.parametrize("trace", RULES)
def test_handwritten_traces_give_the_expected_tree(trace: str) -> None:
    assert outline(projection_of(*RULES[trace])) == TREES[trace]


# --- Special spans -------------------------------------------------------------------------------


def test_spans_with_canaries_make_equal_rows_in_any_split() -> None:
    body = request_with(bytes.fromhex(TRACE_ID), list(field_paths())).SerializeToString()

    assert_same(list(sent_spans(body)))


@pytest.mark.parametrize("finished", [True, False])
def test_exported_spans_make_the_same_rows_in_any_split(*, finished: bool) -> None:
    run = sample_run(ids=sequential_ids(), finished=finished)
    spans = spans_of_events(run.events)
    messages = [message_of(span) for span in spans]
    others = [_moved(span, run.root.bytes) for span in spans_from(agent(1, "a"), chat(2, parent=1))]

    for count in range(len(messages)):
        _assert_same([*others, *messages[count:]], random.Random(count))


@pytest.mark.parametrize("order", [1, -1])
def test_latest_ended_version_of_a_span_wins_then_the_greatest_bytes(order: int) -> None:
    versions = [
        make_span(
            1, "x", {"gen_ai.tool.name": name, "gen_ai.operation.name": "execute_tool"}, at=at
        )
        for name, at in [
            ("b", (0, None)),
            ("c", (0, 2)),
            ("e", (0, 2)),
            ("d", (0, 2)),
            ("z", (0, 1)),
        ]
    ]
    messages = [message_of(span) for span in spans_from(*versions)]

    (call,) = project_run(messages[::order]).rows[Kind.TOOL_CALL].values()

    assert fields_of(Kind.TOOL_CALL, call)["name"] == "e"
