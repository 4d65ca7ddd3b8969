"""The record that each span belongs to, for any order of arrival."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.otel.captured import NAMES, by_trace, spans_of
from tests.otel.made_traces import agent, spans_from, tool
from tests.otel.projections import project
from tracer.otel.otlp.spans import encode_protobuf
from tracer.otel.projection import span_records
from tracer.records import Kind, new_id, span_id
from tracer.records.span_records import SpanRecords, below_calls
from tracer.records.spans import Span, id_of_later


@pytest.mark.parametrize("name", NAMES)
def test_every_span_of_a_run_has_an_existing_record(name: str) -> None:
    for spans in by_trace(spans_of(name)).values():
        records = project(spans).records

        found = SpanRecords.of(span_records([encode_protobuf(spans)]))

        assert len(found) >= len({span.span_id for span in spans})
        for span in spans:
            record = found.record_of(span)
            assert record is not None
            assert record[1] in records[record[0]]
            assert span.span_id in found.spans_of([record[1]])


@given(st.permutations(range(40)))
def test_deeply_nested_span_belongs_to_its_call_for_any_order_of_arrival(order: list[int]) -> None:
    call = new_id()
    chain = {1: bytes.fromhex(span_id(call))} | {each: key(each - 1) for each in range(2, 41)}

    found = below_calls({key(each + 1): chain[each + 1] for each in order}, [call])

    assert set(found.values()) == {(Kind.TOOL_CALL, call.bytes)}
    assert len(found) == 40


def key(number: int) -> bytes:
    return number.to_bytes(8)


def test_spans_in_circles_and_unrelated_spans_have_no_record() -> None:
    parents = {key(1): key(2), key(2): key(1), key(3): b"", key(4): key(4), key(5): key(9)}

    assert below_calls(parents, [new_id()]) == {}


def test_later_span_with_the_same_id_has_its_own_record() -> None:
    first, later = spans_from(agent(1, "a"), tool(1, "x", at=(5, 6)))
    ids = [new_id().bytes, new_id().bytes]
    records = SpanRecords.of(
        {
            first.span_id: (Kind.STEP, ids[0]),
            id_of_later(later.span_id, later.start): (Kind.TOOL_CALL, ids[1]),
        }
    )

    assert kind_of(records, first) is Kind.STEP
    assert kind_of(records, later) is Kind.TOOL_CALL
    assert SpanRecords().record_of(first) is None


def kind_of(records: SpanRecords, span: Span) -> Kind | None:
    record = records.record_of(span)
    return record and record[0]
