"""A request is refused before it is parsed if that would take too much memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.otel.made_traces import make_span
from tests.otel.wire import bytes_field
from tracer.errors import TooLarge
from tracer.otel.otlp import decode_json, decode_protobuf
from tracer.otel.otlp.decode import MAX_FIELDS
from tracer.text import MAX_JSON_VALUES

KIB = 2**10


def with_a_large_resource(spans: int, size: int) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.add(key="k").value.string_value = "x" * size
    scope_spans = resource_spans.scope_spans.add()
    for number in range(spans):
        scope_spans.spans.add(trace_id=b"1" * 16, span_id=f"{number:08}".encode())
    return request


def test_resource_that_is_too_large_for_so_many_spans_is_refused() -> None:
    """A gzipped body of 64 kB, split by trace, would take terabytes of memory."""
    body = with_a_large_resource(spans=1000, size=1024 * KIB).SerializeToString()

    with pytest.raises(TooLarge, match="several requests"):
        decode_protobuf(body)
    assert decode_protobuf(with_a_large_resource(100, 1024 * KIB).SerializeToString()).count == 100


def test_resource_that_is_too_large_is_parsed_once_in_a_json_request() -> None:
    spans: list[Any] = [make_span(number + 1, "x") for number in range(1000)]
    resource = {"attributes": [{"key": "k", "value": {"stringValue": "x" * 1000 * KIB}}]}
    request = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}

    with pytest.raises(TooLarge, match="several requests"):
        decode_json(json.dumps(request).encode())


def of_one_span(attributes: bytes) -> bytes:
    span = bytes_field(1, b"1" * 16) + bytes_field(2, b"12345678") + attributes
    return bytes_field(1, bytes_field(2, bytes_field(2, span)))


def array(values: bytes) -> bytes:
    return bytes_field(9, bytes_field(1, b"k") + bytes_field(2, bytes_field(5, values)))


_MANY = MAX_FIELDS + 1
CROWDS = {
    "empty values": lambda: of_one_span(array(b"\x0a\x00" * _MANY)),
    "maps": lambda: of_one_span(array(bytes_field(1, b"\x32\x00") * _MANY)),
    "attributes": lambda: of_one_span(b"\x4a\x00" * _MANY),
    "resources": lambda: b"\x0a\x00" * _MANY,
}


@pytest.mark.parametrize("name", CROWDS)
def test_many_empty_protobuf_messages_are_refused_unparsed(name: str) -> None:
    with pytest.raises(TooLarge, match="fields"):
        decode_protobuf(CROWDS[name]())


@pytest.mark.parametrize("item", ["{}", "[]", "0", '""'])
def test_many_empty_json_values_are_refused_unparsed(item: str) -> None:
    body = f'{{"no span": [{",".join([item] * (MAX_JSON_VALUES + 1))}]}}'.encode()

    with pytest.raises(TooLarge, match="values"):
        decode_json(body)
