"""Traces whose spans arrive twice, as a span processor sends them: at their start and end."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tests.otel.captured import (
    CRASHES,
    LOST_CONTEXT,
    NAMES,
    by_trace,
    projected,
    seen_facts,
    spans_of,
)
from tests.otel.projections import Projected, changed, drop_attributes, project
from tests.profiles import scaled
from tracer.records import Kind, Status
from tracer.records.spans import Span, merge_spans

pytestmark = pytest.mark.thorough

ALONE = [name for name in NAMES if "pending" not in name]
"""Captures without pending spans, which tell of starts by themselves."""

FLATTENED = "openai-agents-traceloop-single"
"""Its sub-agents hang beside the calls that opened them: they are joined when their texts came."""

_SAID_AT_THE_END = (
    ".result",
    "output",
    "response",
    "usage",
    "token_count",
    "final_result",
    "all_messages",
    "completion",
)


def _start(span: Span) -> Span:
    """Return what a processor sees of a span when it starts."""

    def start(wire: WireSpan) -> None:
        wire.end_time_unix_nano = 0
        wire.ClearField("status")
        wire.ClearField("events")
        drop_attributes(wire, lambda name: any(part in name for part in _SAID_AT_THE_END))

    return changed(span, start)


def _in_order_of_time(spans: list[Span]) -> list[Span]:
    """Return the versions of spans, in the order of time: each start and each end."""
    versions = [(each.start, 0, each) for each in map(_start, spans)]
    versions += [(each.end, 1, each) for each in spans]
    return [
        each for *_, each in sorted(versions, key=lambda version: (version[:2], version[2].order))
    ]


@pytest.mark.parametrize("name", ALONE)
def test_growing_trace_shows_open_spans_as_running(name: str) -> None:
    for spans in by_trace(merge_spans(spans_of(name)).values()).values():
        versions = _in_order_of_time(spans)
        # Every moment of a small trace, and enough of a large one.
        for end in range(1, len(versions) + 1, max(1, len(versions) // 60)):
            kept = merge_spans(versions[:end]).values()
            _assert_sound(project(kept), list(kept))


@given(data=st.data())
@settings(max_examples=scaled(60))
def test_any_subset_of_a_trace_is_projected(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(ALONE))
    traces = list(by_trace(merge_spans(spans_of(name)).values()).values())
    versions = _in_order_of_time(data.draw(st.sampled_from(traces)))
    part = data.draw(st.lists(st.sampled_from(versions), min_size=1, unique_by=id))

    kept = list(merge_spans(part).values())

    _assert_sound(project(kept), kept)
    assert project(merge_spans(reversed(part)).values()) == project(kept)


@pytest.mark.parametrize("name", ALONE)
def test_late_starts_do_not_change_ended_spans(name: str) -> None:
    spans = spans_of(name)
    starts = [_start(each) for each in spans]

    assert projected([*starts, *spans]) == projected([*spans, *starts]) == projected(spans)


@pytest.mark.parametrize("name", [each for each in ALONE if each not in {*CRASHES, LOST_CONTEXT}])
def test_truncated_trace_shows_each_started_call(name: str) -> None:
    whole = projected(spans_of(name))
    for spans in by_trace(merge_spans(spans_of(name)).values()).values():
        versions = _in_order_of_time(spans)
        for end in range(1, len(versions) + 1, max(1, len(versions) // 20)):
            run = project(merge_spans(versions[:end]).values())
            [final] = [each for each in whole if each.root_plan_id == run.root_plan_id]
            final_calls = final.records[Kind.TOOL_CALL]
            for call_id, call in run.records[Kind.TOOL_CALL].items():
                assert call["name"] == final_calls[call_id]["name"]
                assert call["step_id"] == final_calls[call_id]["step_id"]
            if name != FLATTENED:
                openers = _openers(run)
                assert openers.items() <= _openers(final).items()


def test_starts_received_before_a_crash_give_the_complete_lineage() -> None:
    name = "pydantic-ai-default-single"
    spans = list(merge_spans(spans_of(name)).values())
    searches = sorted(
        (each for each in spans if each.attributes.get("gen_ai.tool.name") == "search"),
        key=lambda each: each.start,
    )
    killed_at = searches[-1].start + 1
    versions = [each for each in _in_order_of_time(spans) if max(each.end, each.start) < killed_at]

    run = project(merge_spans(versions).values())

    facts = seen_facts([run])
    whole = seen_facts(projected(spans))
    # What ran when the process was killed; the other calls are what they are at the end.
    changed = facts.calls - whole.calls
    assert {status for _, status, *_ in changed} == {Status.RUNNING.value}
    lineage = {(call, agent, opener) for call, _, agent, opener, _ in facts.calls}
    assert lineage <= {(call, agent, opener) for call, _, agent, opener, _ in whole.calls}
    assert sum(facts.calls.values()) >= 7


def _openers(run: Projected) -> dict[UUID, UUID | None]:
    """Return the tool call that opened each plan."""
    return {plan_id: plan.get("tool_call_id") for plan_id, plan in run.records[Kind.PLAN].items()}


def _assert_sound(run: Projected, spans: list[Span]) -> None:
    assert {each.span_id for each in spans} <= set(run.record_of)
    is_open = any(each.end == 0 for each in spans)
    for kind, records in run.records.items():
        for fields in records.values():
            _assert_status(kind, fields)
    if not is_open:
        return
    running = [
        fields
        for records in run.records.values()
        for fields in records.values()
        if fields["status"] is Status.RUNNING
    ]
    # What a wrapper belongs to may have ended before it, or is a placeholder.
    of_open = [run.record_of[each.span_id] for each in spans if each.end == 0]
    assert running or all(_is_no_start(run.records[kind][record]) for kind, record in of_open)


def _is_no_start(fields: dict[str, Any]) -> bool:
    return fields["status"] is Status.UNKNOWN or fields.get("finished_at") is not None


def _assert_status(kind: Kind, fields: dict[str, Any]) -> None:
    status = fields["status"]
    if status is Status.RUNNING:
        assert fields.get("finished_at") is None, kind
    elif status is not Status.UNKNOWN:
        assert status.is_ending, kind
        assert fields["finished_at"] is not None, kind
