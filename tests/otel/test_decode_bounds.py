"""What a request may make of memory: spans count with all that each of them is kept with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.otel.captured import NAMES, spans_of
from tests.otel.made_traces import made
from tracer.errors import TooLarge
from tracer.otel.decode import decode_protobuf
from tracer.otel.decode_json import decode_json
from tracer.otel.encode import encode_protobuf
from tracer.otel.wire import bytes_field

KIB = 2**10


def with_a_large_resource(spans: int, size: int) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.add(key="k").value.string_value = "x" * size
    scope_spans = resource_spans.scope_spans.add()
    for number in range(spans):
        scope_spans.spans.add(trace_id=b"1" * 16, span_id=f"{number:08}".encode())
    return request


def test_a_resource_that_many_spans_share_counts_with_each_of_them() -> None:
    body = with_a_large_resource(spans=100, size=10 * KIB).SerializeToString()

    assert len(decode_protobuf(body, 2000 * KIB).spans) == 100
    with pytest.raises(TooLarge, match="several requests"):
        decode_protobuf(body, 1000 * KIB)


def test_a_large_resource_is_not_read_again_for_each_span_of_a_json_request() -> None:
    spans: list[Any] = [made(number + 1, "x") for number in range(100_000)]
    resource = {"attributes": [{"key": "k", "value": {"stringValue": "x" * 1000 * KIB}}]}
    request = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}

    with pytest.raises(TooLarge):
        decode_json(json.dumps(request).encode(), 2**29)


@pytest.mark.parametrize("item", ["1", "{}", '{"traceId": "00"}'])
def test_spans_that_are_none_count_too(item: str) -> None:
    body = f'{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{",".join([item] * 10_000)}]}}]}}]}}'

    assert len(decode_json(body.encode()).refused) == 10_000
    with pytest.raises(TooLarge):
        decode_json(body.encode(), 2000 * KIB)


def test_tiny_spans_and_tiny_attributes_count_for_what_they_take_up() -> None:
    request = with_a_large_resource(spans=1000, size=0)
    with pytest.raises(TooLarge):
        decode_protobuf(request.SerializeToString(), 500 * KIB)

    request = with_a_large_resource(spans=1, size=0)
    (span,) = request.resource_spans[0].scope_spans[0].spans
    for number in range(10_000):
        span.attributes.add(key=f"{number}").value.bool_value = True
    with pytest.raises(TooLarge):
        decode_protobuf(request.SerializeToString(), 1000 * KIB)


def of_one_span(attributes: bytes) -> bytes:
    span = bytes_field(1, b"1" * 16) + bytes_field(2, b"12345678") + attributes
    return bytes_field(1, bytes_field(2, bytes_field(2, span)))


def array(values: bytes) -> bytes:
    return bytes_field(9, bytes_field(1, b"k") + bytes_field(2, bytes_field(5, values)))


_MANY = 200 * KIB
CROWDS = {
    "empty values": of_one_span(array(b"\x0a\x00" * _MANY)),
    "empty values with long tags": of_one_span(array(b"\x8a\x00\x00" * _MANY)),
    "arrays of arrays": of_one_span(array(bytes_field(1, b"\x2a\x00") * _MANY)),
    "maps": of_one_span(array(bytes_field(1, b"\x32\x00") * _MANY)),
    "attributes": of_one_span(b"\x4a\x00" * _MANY),
    "events": of_one_span(b"\x5a\x00" * _MANY),
    "links": of_one_span(b"\x6a\x00" * _MANY),
    "resources": b"\x0a\x00" * _MANY,
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_a_crowd_of_empty_things_is_too_large_before_any_of_it_is_made(crowd: str) -> None:
    with pytest.raises(TooLarge):
        decode_protobuf(CROWDS[crowd], 7000 * KIB)


@pytest.mark.parametrize("item", ["{}", "[]", "0", '""'])
def test_so_is_one_in_json_whatever_it_stands_in(item: str) -> None:
    body = f'{{"no span": [{",".join([item] * _MANY)}]}}'.encode()

    assert decode_json(body).count == 0
    with pytest.raises(TooLarge):
        decode_json(body, 7000 * KIB)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_capture_takes_up_is_near_to_its_size(name: str) -> None:
    spans = spans_of(name)

    decoded = decode_protobuf(encode_protobuf(spans), 2**30)

    size = sum(len(span.body) for span in spans)
    assert size < decoded.size < 10 * size
