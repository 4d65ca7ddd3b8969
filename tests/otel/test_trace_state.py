"""A trace whose state is kept is projected as one whose spans are all read anew."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.otel.captured import NAMES, by_trace, spans_of
from tests.otel.made_parts import parts_of_a_made_trace
from tests.otel.made_traces import agent, chat, made, spans_from, tool
from tests.profiles import scaled
from tracer.otel.carried_records import RECORD
from tracer.otel.projected import Changes, changes
from tracer.otel.projection import project
from tracer.otel.spans import Span
from tracer.otel.trace_state import TraceState
from tracer.records import Kind
from tracer.versions import Fields

pytestmark = pytest.mark.thorough

Records = dict[Kind, dict[UUID, Fields]]


def changed(records: Records, difference: Changes) -> Records:
    """Return records after a change, as a store has them."""
    return {
        kind: {
            record_id: fields
            for record_id, fields in {**records.get(kind, {}), **given}.items()
            if record_id not in difference.removed[kind]
        }
        for kind, given in difference.records.items()
    }


@st.composite
def parts_of_a_trace(draw: st.DrawFn) -> list[list[Span]]:
    """Spans of a captured trace, open and ended, torn from their parents, repeated, in parts."""
    name = draw(st.sampled_from(NAMES))
    spans = draw(st.sampled_from(list(by_trace(spans_of(name)).values())))
    opened = [replace(each, end=0, status_code=0, body=b"") for each in spans]
    torn = [replace(each, parent_span_id=spans[0].span_id, body=b"~") for each in spans]
    told = draw(st.lists(st.sampled_from([*spans, *spans, *opened, *torn]), min_size=1))
    cuts = sorted(draw(st.sets(st.integers(1, len(told)), max_size=4)) | {len(told)})
    return [told[start:end] for start, end in zip([0, *cuts], cuts, strict=False)]


@given(parts=parts_of_a_trace())
@settings(max_examples=scaled(150))
def test_parts_make_the_records_of_the_whole_and_changes_tell_how(parts: list[list[Span]]) -> None:
    state, before, kept = TraceState(), None, Records()

    for number, part in enumerate(parts):
        state.put(part)
        after = state.project()
        kept = changed(kept, changes(before, after))
        before = after

        alone = project(each for part in parts[: number + 1] for each in part)
        assert (after.run, after.is_agent_work) == (alone.run, alone.is_agent_work)
        assert kept == after.records == alone.records


@given(parts=parts_of_a_made_trace())
@settings(max_examples=scaled(400))
def test_however_spans_hang_together_parts_make_the_records_of_the_whole(
    parts: list[list[Span]],
) -> None:
    state, before, kept = TraceState(), None, Records()

    for number, part in enumerate(parts):
        state.put(part)
        after = state.project()
        kept = changed(kept, changes(before, after))
        before = after

        alone = project(each for part in parts[: number + 1] for each in part)
        assert (after.run, after.totals) == (alone.run, alone.totals)
        assert kept == after.records == alone.records


@pytest.mark.parametrize("name", NAMES)
def test_what_stays_the_same_is_no_change(name: str) -> None:
    for spans in by_trace(spans_of(name)).values():
        state = TraceState()
        state.put(spans)
        before = state.project()

        again = state.put(reversed(spans))
        difference = changes(before, state.project())

        assert (again.new, again.newer) == ([], [])
        assert not any(difference.records.values())
        assert not any(difference.removed.values())


def test_spans_that_arrive_beside_an_agent_leave_its_records_the_same_objects() -> None:
    state = TraceState()
    state.put(spans_from(agent(1, "a"), chat(2, parent=1), tool(3, "x", "{}", parent=1)))
    before = state.project()

    state.put(spans_from(agent(4, "b", parent=3), chat(5, parent=4)))
    after = state.project()

    for kind, records in before.records.items():
        for record_id, fields in records.items():
            assert after.records[kind][record_id] is fields
    added = changes(before, after).records
    assert {kind: len(records) for kind, records in added.items()} == {
        Kind.PLAN: 1,
        Kind.STEP: 1,
        Kind.THINK_ACT: 1,
        Kind.TOOL_CALL: 0,
    }


def test_a_placeholder_that_turns_out_to_be_a_wrapper_is_removed() -> None:
    state = TraceState()
    state.put(spans_from(agent(1, "a"), chat(3, parent=2)))
    before = state.project()

    state.put(spans_from(made(2, "wrapper", parent=1)))
    difference = changes(before, state.project())

    assert [len(difference.removed[kind]) for kind in (Kind.PLAN, Kind.STEP)] == [1, 1]
    assert len(difference.records[Kind.THINK_ACT]) == 1


def test_put_tells_new_spans_from_newer_versions_each_once() -> None:
    [first] = spans_from(made(1, "x"))
    [other] = spans_from(made(2, "y"))
    opened = replace(first, end=0)
    state = TraceState()

    assert state.put([opened, first, opened, first]) == ([first], [])
    assert state.put([opened, other]) == ([other], [])
    assert state.put([replace(first, end=first.end + 1), first]) == (
        [],
        [replace(first, end=first.end + 1)],
    )


def test_a_state_takes_up_what_its_spans_do_and_no_more_for_repeats() -> None:
    spans = spans_of(NAMES[0])
    state = TraceState()

    state.put(spans)
    size = state.size
    state.put(spans)

    assert state.size == size > 2 * sum(len(each.body) for each in spans)


def test_a_record_that_a_later_span_carries_makes_the_trace_one_of_records() -> None:
    spans = spans_from(agent(1, "a"))
    state = TraceState()
    state.put(spans)
    state.project()
    run_id = str(state.project().root_plan_id)
    record = {"kind": "plan", "rootPlanId": run_id, "planId": run_id, "status": "running"}
    carrying = spans_from(made(2, "plan", {RECORD: json.dumps(record)}))

    state.put(carrying)

    assert state.project().records == project([*spans, *carrying]).records
    assert not state.project().records[Kind.STEP]


def test_a_mask_that_comes_with_a_later_span_is_told_of() -> None:
    plain, masked = spans_from(
        made(1, "execute_tool a", {"gen_ai.tool.call.arguments": "{}"}),
        made(2, "execute_tool b", {"gen_ai.tool.call.arguments": '{"key": "[masked: api_key]"}'}),
    )
    state = TraceState()
    found = []
    for span in (plain, masked):
        state.put([span])
        calls = state.project().records[Kind.TOOL_CALL].values()
        found.append([call.get("masked") for call in calls])

    assert found == [[None], [None, ["arguments:/key"]]]
