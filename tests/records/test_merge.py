"""The rules that merge two versions of a record into one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.sample_runs import sample_run
from tracer.records import Kind, Run, Status
from tracer.records.merge import RULES, Fields, merge_records, partial_records
from tracer.records.record_classes import RECORDS

CLASSES: dict[Kind, type[Any]] = {Kind.RUN: Run, **RECORDS}
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def _values(field: str) -> st.SearchStrategy[Any]:
    if field.endswith("status"):
        return st.sampled_from(Status)
    if field.endswith("_at"):
        return st.integers(0, 3).map(lambda minutes: MOMENT + timedelta(minutes=minutes))
    if field in ("tags", "forged_arguments"):
        return st.lists(st.sampled_from(["a", "b", "血"]))
    if field == "still_running":
        return st.booleans()
    if field.endswith(("_id", "tokens", "usd")) or field in ("position", "depth", "attempt"):
        return st.integers(0, 3)
    return st.sampled_from(["", "a", "b", "Z", "é", "\U0001f600", "\uffff"])


@st.composite
def two_versions(draw: st.DrawFn, number: int = 2) -> tuple[Kind, list[Fields]]:
    kind = draw(st.sampled_from(Kind))
    fields = {name: st.none() | _values(name) for name in RULES[kind].fields}
    if kind is not Kind.RUN:
        fields["status"] = st.sampled_from(Status)
    return kind, [draw(st.fixed_dictionaries(fields)) for _ in range(number)]


def merged(kind: Kind, *versions: Fields) -> Fields:
    """Return the record that versions of it give; they are not changed."""
    ids = (UUID(int=1), UUID(int=2))
    return merge_records((kind, ids, dict(version)) for version in versions)[kind][ids]


@given(two_versions())
def test_merging_is_commutative(drawn: tuple[Kind, list[Fields]]) -> None:
    kind, (one, other) = drawn

    assert merged(kind, one, other) == merged(kind, other, one)


@given(two_versions(number=3))
def test_merging_is_associative(drawn: tuple[Kind, list[Fields]]) -> None:
    kind, (a, b, c) = drawn

    assert merged(kind, merged(kind, a, b), c) == merged(kind, a, merged(kind, b, c))


@given(two_versions())
def test_merging_a_version_again_changes_nothing(drawn: tuple[Kind, list[Fields]]) -> None:
    kind, (one, other) = drawn
    once = merged(kind, one, other)

    assert merged(kind, once, other) == once
    assert merged(kind, once, once) == once


def test_end_fields_of_two_events_are_never_mixed() -> None:
    cancelled = {"status": Status.CANCELLED, "reason": "cancel_requested", "result": None}
    done = {"status": Status.SUCCEEDED, "reason": None, "result": "120/80", "finished_at": MOMENT}

    both = merged(Kind.TOOL_CALL, done, cancelled)

    assert (both["status"], both["reason"], both["result"]) == (Status.SUCCEEDED, None, "120/80")


def test_text_is_compared_by_its_utf8_bytes() -> None:
    last_of_two_bytes, first_of_four = "\uffff", "\U00010000"

    both = merged(Kind.STEP, {"request": last_of_two_bytes}, {"request": first_of_four})

    assert both["request"] == first_of_four


def test_every_merged_field_is_a_field_of_the_record() -> None:
    bookkeeping = {"project_id", "root_plan_id", "abandoned_at", "recorded_at", "revision"}
    bookkeeping |= {"inferred", "inferred_from", "clock_shift_us"}  # of records made from spans
    bookkeeping |= {"agent_key", "agent_end_sequence"}
    for kind, rules in RULES.items():
        fields = set(CLASSES[kind].model_fields) - bookkeeping
        named = {rules.id_field, *rules.fields}

        assert named - {"root_plan_id"} <= fields
        assert len(rules.fields) == len(set(rules.fields)), "a field has one rule"
        if kind is not Kind.RUN:  # its other fields are copied from the root plan, or counted
            assert fields == named


def test_events_of_a_run_produce_every_record() -> None:
    run = sample_run(sub_plans=2)

    reduced = merge_records(partial_records(run.events))

    assert {plan for _, plan in reduced[Kind.PLAN]} == {run.root, *run.sub_plans}
    assert {call for _, call in reduced[Kind.TOOL_CALL]} == {run.failed_call, *run.opening_calls}
    assert all(version["status"].is_ending for version in reduced[Kind.TOOL_CALL].values())
    assert {root for versions in reduced.values() for root, _ in versions} == {run.root}
