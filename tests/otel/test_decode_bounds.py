"""A request is refused if its decoded spans would exceed a bound on memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.otel.captured import NAMES, spans_of
from tests.otel.decoded import spans_in
from tests.otel.made_traces import made
from tracer.errors import TooLarge
from tracer.otel.otlp.decode_json import decode_json
from tracer.otel.otlp.decode_protobuf import decode_protobuf
from tracer.otel.otlp.encode import encode_protobuf
from tracer.otel.otlp.protobuf import bytes_field

KIB = 2**10


def with_a_large_resource(spans: int, size: int) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.add(key="k").value.string_value = "x" * size
    scope_spans = resource_spans.scope_spans.add()
    for number in range(spans):
        scope_spans.spans.add(trace_id=b"1" * 16, span_id=f"{number:08}".encode())
    return request


def test_size_bound_counts_a_shared_resource_for_each_span() -> None:
    body = with_a_large_resource(spans=100, size=10 * KIB).SerializeToString()

    assert len(spans_in(decode_protobuf(body, 2000 * KIB))) == 100
    with pytest.raises(TooLarge, match="several requests"):
        decode_protobuf(body, 1000 * KIB)


@pytest.mark.parametrize("size", [20_000, pytest.param(100_000, marks=pytest.mark.thorough)])
def test_a_large_resource_is_parsed_once_in_a_json_request(size: int) -> None:
    spans: list[Any] = [made(number + 1, "x") for number in range(size)]
    resource = {"attributes": [{"key": "k", "value": {"stringValue": "x" * 1000 * KIB}}]}
    request = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}

    with pytest.raises(TooLarge):
        decode_json(json.dumps(request).encode(), 2**29)


def is_too_large(decode: Callable[[bytes, int], object], body: bytes, bound: int) -> bool:
    try:
        decode(body, bound)
    except TooLarge:
        return True
    return False


def test_invalid_spans_count_towards_the_size_bound() -> None:
    failures = []
    for item in ("1", "{}", '{"traceId": "00"}'):
        spans = ",".join([item] * 10_000)
        body = f'{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{spans}]}}]}}]}}'.encode()
        if (refused := len(decode_json(body).refused)) != 10_000:
            failures.append(f"{item}: {refused} of 10,000 spans refused")
        if not is_too_large(decode_json, body, 2000 * KIB):
            failures.append(f"{item}: decoded beyond the bound")
    assert failures == []


def test_size_bound_counts_the_overhead_of_tiny_spans_and_attributes() -> None:
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


def test_many_empty_protobuf_messages_exceed_the_bound() -> None:
    decoded = [
        name for name, body in CROWDS.items() if not is_too_large(decode_protobuf, body, 7000 * KIB)
    ]
    assert decoded == []


def test_many_empty_json_values_exceed_the_bound() -> None:
    failures = []
    for item in ("{}", "[]", "0", '""'):
        body = f'{{"no span": [{",".join([item] * _MANY)}]}}'.encode()
        if count := decode_json(body).count:
            failures.append(f"{item}: decoded as {count} spans")
        if not is_too_large(decode_json, body, 7000 * KIB):
            failures.append(f"{item}: decoded beyond the bound")
    assert failures == []


@pytest.mark.parametrize("name", NAMES)
def test_estimated_decoded_size_of_a_capture_is_near_its_encoded_size(name: str) -> None:
    spans = spans_of(name)

    decoded = decode_protobuf(encode_protobuf(spans), 2**30)

    size = sum(len(span.body) for span in spans)
    assert size < decoded.size < 10 * size


def with_many_scopes(scopes: int, size: int, last: bytes = b"") -> bytes:
    """Return a request whose scopes share a large resource, each with one span without ids."""
    resource = bytes_field(1, bytes_field(1, b"k") + bytes_field(2, bytes_field(1, b"x" * size)))
    scope_spans = bytes_field(2, bytes_field(2, b"")) * scopes + last
    return bytes_field(1, bytes_field(1, resource) + scope_spans)


def test_large_resource_counts_for_each_scope_of_rejected_spans() -> None:
    malformed = bytes_field(2, bytes_field(2, bytes_field(5, b"\xff")))
    parsed = with_many_scopes(100, 10 * KIB)
    by_parts = with_many_scopes(100, 10 * KIB, malformed)

    assert [len(decode_protobuf(each).refused) for each in (parsed, by_parts)] == [100, 101]
    assert is_too_large(decode_protobuf, parsed, 1000 * KIB)
    assert is_too_large(decode_protobuf, by_parts, 1000 * KIB)


def test_size_bound_counts_a_large_resource_for_each_scope_of_a_json_request() -> None:
    resource = {"attributes": [{"key": "k", "value": {"stringValue": "x" * 10 * KIB}}]}
    scopes: list[Any] = [{"spans": [{}]}] * 100
    body = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]}).encode()

    assert len(decode_json(body).refused) == 100
    assert is_too_large(decode_json, body, 1000 * KIB)


def test_a_malformed_resource_is_parsed_once_for_all_its_scopes() -> None:
    malformed = bytes_field(1, bytes_field(1, bytes_field(1, b"\xff" * 100 * KIB)))
    scopes = bytes_field(2, bytes_field(2, b"")) * 10_000
    body = bytes_field(1, bytes_field(1, malformed) + scopes)

    decoded = decode_protobuf(body)

    assert {each.reason for each in decoded.refused} == {
        "Its resource or its scope cannot be parsed."
    }
    assert decoded.count == len(decoded.refused) == 10_000
