"""The projection depends on the set of spans alone: no order, split, repetition or company."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.otel.captured import (
    NAMES,
    bodies,
    by_trace,
    expected_facts,
    projected,
    seen_facts,
    spans_of,
)
from tests.otel.made_traces import made, spans_from
from tracer.otel.decode import decode_protobuf
from tracer.otel.projected import Projected
from tracer.otel.projection import project
from tracer.otel.spans import Span, merge_spans
from tracer.records import Kind

CONCURRENT = [name for name in NAMES if name.endswith("-concurrent")]


@pytest.mark.parametrize("name", NAMES)
def test_no_order_of_the_spans_changes_the_records(name: str) -> None:
    spans = spans_of(name)
    shuffler = random.Random(name)
    once = projected(spans)

    for _ in range(10):
        again = [*spans, *shuffler.sample(spans, len(spans) // 3)]
        shuffler.shuffle(again)

        assert projected(again) == once


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_no_order_of_the_requests_changes_the_records(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    requests = bodies(name)
    order = data.draw(st.lists(st.sampled_from(requests)).map(lambda more: [*more, *requests]))
    shuffled = data.draw(st.permutations(order))
    kept: dict[tuple[bytes, bytes], Span] = {}

    for body in shuffled:
        kept = merge_spans([*kept.values(), *decode_protobuf(body).spans])

    assert projected(kept.values()) == projected(spans_of(name))


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_part_of_a_trace_makes_sound_records(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    spans = data.draw(st.sampled_from(list(by_trace(spans_of(name)).values())))
    part = data.draw(st.lists(st.sampled_from(spans), min_size=1, unique_by=id))

    run = project(part)

    records = run.records
    plans, steps = records[Kind.PLAN], records[Kind.STEP]
    think_acts, calls = records[Kind.THINK_ACT], records[Kind.TOOL_CALL]
    assert run.root_plan_id in plans
    for plan_id, plan in plans.items():
        opener = plan.get("tool_call_id") or plan.get("opened_by_step_id")
        assert (plan_id == run.root_plan_id or plan.get("started_at") is None) or opener
        assert opener is None or opener in calls or opener in steps
        assert plan.get("parent_plan_id") is None or plan["parent_plan_id"] in plans
    assert all(step["plan_id"] in plans for step in steps.values())
    assert all(each["step_id"] in steps for each in think_acts.values())
    assert all(each["step_id"] in steps for each in calls.values())
    assert {each.span_id for each in part} <= set(run.record_of)
    for kind, record_id in run.record_of.values():
        assert record_id in records[kind]


@given(data=st.data())
def test_of_two_versions_the_ended_one_stays_then_the_later_end_then_the_greater_bytes(
    data: st.DataObject,
) -> None:
    (span, *_) = spans_of(NAMES[0])
    version = st.builds(replace, st.just(span), end=st.integers(0, 2), body=st.binary(max_size=1))
    versions = data.draw(st.lists(version, min_size=1))

    (kept,) = merge_spans(versions).values()

    assert (kept.end, kept.body) == max((each.end, each.body) for each in versions)
    assert merge_spans(data.draw(st.permutations(versions))) == merge_spans(versions)


def test_pending_spans_that_announce_each_other_have_one_place_each_in_any_order() -> None:
    chat = {"logfire.span_type": "pending_span", "gen_ai.operation.name": "chat"}
    call = {"logfire.span_type": "pending_span", "gen_ai.operation.name": "execute_tool"}
    spans = spans_from(made(1, "chat", chat, parent=2), made(2, "execute_tool x", call, parent=1))

    assert project(reversed(spans)) == project(spans)


def test_runs_of_all_frameworks_together_are_what_each_is_alone() -> None:
    spans = [span for name in NAMES for span in spans_of(name)]
    random.Random(0).shuffle(spans)
    alone = [run for name in NAMES for run in projected(spans_of(name))]

    together = projected(spans)

    assert sorted(together, key=_id) == sorted(alone, key=_id)


@pytest.mark.parametrize("name", CONCURRENT)
def test_five_runs_at_once_in_one_trace_are_told_apart(name: str) -> None:
    spans = spans_of(name)
    one_trace = [replace(span, trace_id=spans[0].trace_id) for span in spans]

    (run,) = projected(one_trace)

    seen, expected = seen_facts([run], name), expected_facts(name)
    assert (seen.calls, seen.sub_agents) == (expected.calls, expected.sub_agents)
    hand_offs = [plan for plan in run.records[Kind.PLAN].values() if plan.get("opened_by_step_id")]
    assert [plan["title"] for plan in hand_offs] == ["planner"] * 5


def _id(run: Projected) -> UUID:
    return run.root_plan_id
