"""The record that each span belongs to, for any order of arrival."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.otel.captured import NAMES, by_trace, spans_of
from tests.otel.made_traces import TRACE_ID, make_span, spans_from
from tests.otel.projections import project
from tracer.otel.projection import known_span_records
from tracer.records import Kind, new_id, span_id
from tracer.records.spans import Span


@pytest.mark.parametrize("name", NAMES)
def test_every_span_of_a_run_has_an_existing_record(name: str) -> None:
    for spans in by_trace(spans_of(name)).values():
        records = project(spans).records

        found = known_span_records(spans, {kind: list(each) for kind, each in records.items()})

        assert set(found) == {span.span_id for span in spans}
        assert all(record_id in records[kind] for kind, record_id in found.values())


def below_call(*parents: tuple[int, str | None], call: UUID) -> list[Span]:
    spans = []
    for number, parent in parents:
        above = span_id(call) if parent == "call" else parent
        spans.append({**make_span(number, "served"), **({"parentSpanId": above} if above else {})})
    return spans_from(*spans)


@given(st.permutations(range(40)))
def test_deeply_nested_span_belongs_to_its_call_for_any_order_of_arrival(order: list[int]) -> None:
    call = new_id()
    chain: list[tuple[int, str | None]] = [(1, "call")]
    chain += [(number, f"{number - 1:016x}") for number in range(2, 41)]

    found = known_span_records(
        below_call(*(chain[each] for each in order), call=call), native(call)
    )

    assert set(found.values()) == {(Kind.TOOL_CALL, call)}
    assert len(found) == 40


def native(call: UUID) -> dict[Kind, set[UUID]]:
    return {Kind.PLAN: {UUID(TRACE_ID)}, Kind.STEP: {new_id()}, Kind.TOOL_CALL: {call}}


def test_spans_in_circles_and_unrelated_spans_have_no_record() -> None:
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
    spans = spans_from(
        {**make_span(1, "circle"), "parentSpanId": f"{2:016x}"},
        {**make_span(2, "circle"), "parentSpanId": f"{1:016x}"},
        make_span(3, "invoke_agent a", agent),
        {**make_span(4, "self"), "parentSpanId": f"{4:016x}"},
    )

    assert known_span_records(spans, native(new_id())) == {}


def test_run_without_spans_has_an_empty_span_index() -> None:
    assert known_span_records([], {}) == {}
