"""The projection depends on the set of spans alone: no order, split or repetition changes it.

Two property tests prove it for captured and for generated traces; `test_split_messages` does for
hostile ones and for those of any dialect.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
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
    projected_in_parts,
    seen_facts,
    spans_of,
)
from tests.otel.decoded import spans_in
from tests.otel.made_parts import parts_of_a_made_trace
from tests.otel.made_traces import make_span, spans_from
from tests.otel.projections import Projected, differences, project
from tests.profiles import quick_among, scaled
from tracer.otel.otlp import decode_protobuf
from tracer.records import Kind
from tracer.records.spans import Span, merge_spans

CONCURRENT = [name for name in NAMES if name.endswith("-concurrent")]


def all_differences(found: Sequence[Projected], expected: Sequence[Projected]) -> list[str]:
    """Return at most five lines for each run in which projections differ."""
    return [
        line for run, other in zip(found, expected, strict=True) for line in differences(run, other)
    ]


@pytest.mark.parametrize("name", quick_among(NAMES, NAMES[::3]))
def test_records_are_equal_if_a_capture_is_reordered_split_or_repeated(name: str) -> None:
    spans = spans_of(name)
    chance = random.Random(name)
    once = projected(spans)

    for _ in range(10):
        shuffled = [*spans, *chance.sample(spans, len(spans) // 3)]
        chance.shuffle(shuffled)
        assert all_differences(projected(shuffled), once) == []

    size = len(shuffled) // 8 + 1
    parts = [shuffled[start : start + size] for start in range(0, len(shuffled), size)]
    assert all_differences(projected_in_parts(parts), once) == []


@settings(max_examples=scaled(100))
@given(parts=parts_of_a_made_trace(), data=st.data())
def test_records_are_equal_if_a_generated_trace_is_reordered_split_or_repeated(
    parts: list[list[Span]], data: st.DataObject
) -> None:
    spans = [span for part in parts for span in part]
    repeated = data.draw(st.lists(st.sampled_from(spans), max_size=5))
    shuffled = data.draw(st.permutations([*spans, *repeated]))
    once = projected(spans)

    assert all_differences(projected(shuffled), once) == []
    assert all_differences(projected_in_parts([*parts, repeated]), once) == []


@pytest.mark.thorough  # a special case of the property of captures
@given(data=st.data())
@settings(max_examples=scaled(30))
def test_no_order_of_the_requests_changes_the_records(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    requests = bodies(name)
    order = data.draw(st.lists(st.sampled_from(requests)).map(lambda more: [*more, *requests]))
    shuffled = data.draw(st.permutations(order))
    kept: dict[tuple[bytes, bytes], Span] = {}

    for body in shuffled:
        kept = merge_spans([*kept.values(), *spans_in(decode_protobuf(body))])

    assert projected(kept.values()) == projected(spans_of(name))


@given(data=st.data())
@settings(max_examples=scaled(100))
def test_any_subset_of_a_trace_gives_valid_records(data: st.DataObject) -> None:
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
def test_latest_ended_version_of_a_span_wins_then_the_greatest_bytes(
    data: st.DataObject,
) -> None:
    (span, *_) = spans_of(NAMES[0])
    version = st.builds(replace, st.just(span), end=st.integers(0, 2), body=st.binary(max_size=1))
    versions = data.draw(st.lists(version, min_size=1))

    (kept,) = merge_spans(versions).values()

    assert (kept.end, kept.body) == max((each.end, each.body) for each in versions)
    assert merge_spans(data.draw(st.permutations(versions))) == merge_spans(versions)


def test_pending_spans_in_a_circle_give_equal_records_in_any_order() -> None:
    chat = {"logfire.span_type": "pending_span", "gen_ai.operation.name": "chat"}
    call = {"logfire.span_type": "pending_span", "gen_ai.operation.name": "execute_tool"}
    spans = spans_from(
        make_span(1, "chat", chat, parent=2), make_span(2, "execute_tool x", call, parent=1)
    )

    assert project(reversed(spans)) == project(spans)


def test_traces_projected_together_equal_those_projected_alone() -> None:
    spans = [span for name in NAMES for span in spans_of(name)]
    random.Random(0).shuffle(spans)
    alone = [run for name in NAMES for run in projected(spans_of(name))]

    together = projected(spans)

    assert sorted(together, key=_id) == sorted(alone, key=_id)


@pytest.mark.parametrize("name", CONCURRENT)
def test_five_concurrent_runs_in_one_trace_are_kept_separate(name: str) -> None:
    spans = spans_of(name)
    one_trace = [replace(span, trace_id=spans[0].trace_id) for span in spans]

    (run,) = projected(one_trace)

    seen, expected = seen_facts([run], name), expected_facts(name)
    assert (seen.calls, seen.sub_agents) == (expected.calls, expected.sub_agents)
    hand_offs = [plan for plan in run.records[Kind.PLAN].values() if plan.get("opened_by_step_id")]
    assert [plan["agent_name"] for plan in hand_offs] == ["planner"] * 5


def _id(run: Projected) -> UUID:
    return run.root_plan_id
