"""One bad value of a span costs this value, not the span and not the request."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.otel.decoded import spans_in
from tests.otel.made_traces import (
    ORIGIN,
    TRACE_ID,
    body_of,
    make_span,
    projection_of,
    spans_from,
    the_call,
)
from tracer.otel.otlp import decode_json, decode_protobuf
from tracer.records import Kind

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 3}


@pytest.mark.parametrize("bare", ["NaN", "Infinity", "-Infinity"])
def test_bare_number_that_json_lacks_costs_no_span(bare: str) -> None:
    body = body_of(
        make_span(1, "a", {**AGENT, "score": 12.75}), make_span(2, "chat", CHAT, parent=1)
    )

    decoded = decode_json(body.replace(b"12.75", bare.encode()))

    assert (decoded.count, decoded.refused) == (2, [])


def in_base64(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


@pytest.mark.parametrize("convert", [in_base64, lambda each: [*bytes.fromhex(each)]])
def test_ids_in_base64_and_as_bytes_are_accepted(convert: Any) -> None:
    request = json.loads(body_of(make_span(1, "a", AGENT)))
    (span,) = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    span |= {"traceId": convert(span["traceId"]), "spanId": convert(span["spanId"])}

    decoded = decode_json(json.dumps(request).encode())

    (found,) = spans_in(decoded)
    assert (found.trace_id.hex(), found.span_id) == (TRACE_ID, bytes(7) + b"\1")


@pytest.mark.parametrize("link", [None, 5, {"traceId": "x"}, {"traceId": "é", "spanId": 3}])
def test_malformed_link_costs_only_the_link(link: Any) -> None:
    request = json.loads(body_of(make_span(1, "a", AGENT)))
    request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["links"] = [link]

    decoded = decode_json(json.dumps(request).encode())

    assert (decoded.count, decoded.refused) == (1, [])


@pytest.mark.parametrize(
    ("parent", "noted"),
    [("abcd", "abcd"), ("no id", "no id"), (17, "17"), ("ab" * 9, "ab" * 9), ("", None)],
)
def test_malformed_parent_costs_only_the_parent(parent: Any, noted: str | None) -> None:
    span = {**make_span(1, "chat", CHAT), "parentSpanId": parent}

    (found,) = spans_from(span)

    assert found.parent_span_id is None
    assert found.attributes.get("tracer.received.parent_span_id") == noted


@pytest.mark.parametrize(
    "bad", [5, None, {"key": 5}, {"key": "n", "value": {"intValue": str(2**70)}}]
)
def test_malformed_attribute_costs_only_the_attribute(bad: Any) -> None:
    span = make_span(1, "chat", CHAT)
    span["attributes"] = [*span["attributes"], bad]

    (found,) = spans_from(span)

    assert found.attributes == {**CHAT, "tracer.received.attributes": "1 malformed"}


@pytest.mark.parametrize("bad", ["none", 5, {"a": 1}])
def test_malformed_list_of_attributes_costs_only_the_attributes(bad: Any) -> None:
    (found,) = spans_from({**make_span(1, "chat"), "attributes": bad})

    assert found.attributes == {"tracer.received.attributes": "1 malformed"}


def test_end_before_the_start_is_no_negative_duration() -> None:
    run = projection_of(make_span(1, "chat", CHAT, at=(5, 3)))

    (row,) = run.records[Kind.THINK_ACT].values()
    assert row["finished_at"] == row["started_at"]


def test_missing_start_is_that_of_the_earliest_child_or_the_end() -> None:
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"}
    run = projection_of(
        make_span(1, "a", AGENT, at=(-1, 9)),
        make_span(2, "chat", CHAT, parent=1, at=(4, 5)),
        make_span(3, "t", tool, parent=1, at=(-1, 6)),
    )

    plan = run.records[Kind.PLAN][run.root_plan_id]
    assert plan["started_at"].timestamp() == ORIGIN + 5
    call = the_call(run)
    assert call["started_at"] == call["finished_at"]


S = 1_790_000_000


@pytest.mark.parametrize(
    "received",
    [S, f"{S}", S + 0.0, f"{S}.0", S * 10**3, f"{S * 10**6}", S * 10**9, f"{S * 10**9}"],
)
def test_unit_of_a_time_is_the_one_that_puts_it_into_this_century(received: Any) -> None:
    span = {**make_span(1, "chat", CHAT), "startTimeUnixNano": received, "endTimeUnixNano": S + 0.5}

    (found,) = spans_from(span)

    assert found.start == S * 10**9
    assert found.end == S * 10**9 + 5 * 10**8


@pytest.mark.parametrize(
    "received", ["yesterday", -1, "-1", 17, 5 * 10**18, 2**63, str(2**70), True, {}, "NaN", 1e300]
)
def test_impossible_time_is_missing_and_noted(received: Any) -> None:
    good = S * 10**9
    start = {
        **make_span(1, "chat", CHAT),
        "startTimeUnixNano": received,
        "endTimeUnixNano": str(good),
    }
    end = {
        **make_span(2, "chat", CHAT),
        "startTimeUnixNano": str(good),
        "endTimeUnixNano": received,
    }

    first, last = spans_from(start, end)

    assert (first.start, first.end) == (0, good)
    assert (last.start, last.end) == (good, good)  # it has ended
    assert first.attributes["tracer.received.start_time_unix_nano"] == str(received)
    assert last.attributes["tracer.received.end_time_unix_nano"] == str(received)
    assert CHAT.items() <= first.attributes.items()


def test_times_in_seconds_are_corrected_in_protobuf_too() -> None:
    request = ExportTraceServiceRequest()
    wire = request.resource_spans.add().scope_spans.add().spans.add()
    wire.trace_id, wire.span_id = bytes.fromhex(TRACE_ID), bytes(7) + b"\1"
    wire.start_time_unix_nano, wire.end_time_unix_nano = S, S + 2

    (found,) = spans_in(decode_protobuf(request.SerializeToString()))

    assert (found.start, found.end) == (S * 10**9, (S + 2) * 10**9)


@pytest.mark.parametrize(
    "convert",
    [
        lambda each: in_base64(each).rstrip("="),
        lambda each: {"type": "Buffer", "data": [*bytes.fromhex(each)]},
        str.upper,
    ],
)
def test_more_spellings_of_ids_are_accepted(convert: Any) -> None:
    span = make_span(1, "a", AGENT)
    span |= {"traceId": convert(span["traceId"]), "spanId": convert(span["spanId"])}

    (found,) = spans_from(span)

    assert (found.trace_id.hex(), found.span_id) == (TRACE_ID, bytes(7) + b"\1")
