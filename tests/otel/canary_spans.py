"""Spans with canaries in every field of OTLP's definition: new fields are included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from tests.canary_events import CARD, EVERYTHING, VALUES

FieldPath = tuple[FieldDescriptor, ...]
"""The path of a field, from `ResourceSpans`."""

_MOST_OF_A_KIND = 2
"""The maximum nesting of a message within its own kind: values are recursive."""

_IDS = ("trace_id", "span_id", "parent_span_id")
"""Fields of spans that must be ids, or the span is rejected."""


def field_paths(
    message: Descriptor = ResourceSpans.DESCRIPTOR, above: FieldPath = ()
) -> Iterator[FieldPath]:
    """Yield the path of every text, bytes or number field of a span, its resource and scope."""
    for field in message.fields:
        path = (*above, field)
        below = field.message_type
        if below is not None:
            if sum(each.message_type is below for each in above) < _MOST_OF_A_KIND:
                yield from field_paths(below, path)
        elif message is WireSpan.DESCRIPTOR and field.name in _IDS:
            continue
        elif field.type in _EXAMPLES:
            yield path


def name_of(path: FieldPath) -> str:
    return ".".join(field.name for field in path)


def request_with(trace_id: bytes, found: list[FieldPath]) -> ExportTraceServiceRequest:
    """Return a request with one span for each path, with canaries at that path."""
    request = ExportTraceServiceRequest()
    for number, path in enumerate(found, 1):
        top = request.resource_spans.add()
        span = top.scope_spans.add().spans.add()
        span.trace_id, span.span_id = trace_id, number.to_bytes(8, "big")
        span.start_time_unix_nano, span.end_time_unix_nano = 10**18, 10**18 + number
        _fill(top, path)
        for key, value in _CALL.items():
            span.attributes.add(key=key).value.string_value = value
    return request


_CALL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "measure"}


def _fill(message: Any, path: FieldPath) -> None:
    for field in path[:-1]:
        message = getattr(message, field.name)
        if field.is_repeated:
            message = message[0] if len(message) else message.add()
        if isinstance(message, KeyValue):
            message.key = "card_number" if path[-1].type in _NUMBERS else "note"
    leaf = path[-1]
    example = _EXAMPLES[leaf.type]
    if leaf.name in ("key", "trace_state"):
        example = VALUES  # redaction does not look for keys in these fields
    if leaf.is_repeated:
        getattr(message, leaf.name).append(example)
    else:
        setattr(message, leaf.name, example)


_NUMBERS = (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_DOUBLE)

_EXAMPLES: dict[int, Any] = {
    FieldDescriptor.TYPE_STRING: EVERYTHING,
    FieldDescriptor.TYPE_BYTES: EVERYTHING.encode(),
    FieldDescriptor.TYPE_INT64: CARD,
    FieldDescriptor.TYPE_DOUBLE: float(CARD),
}
