"""A request becomes one message per trace, with exactly the accepted spans of the request."""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tests.otel.decoded import spans_in, spans_of_traces
from tests.otel.wire import bytes_field
from tests.profiles import scaled
from tracer.otel.otlp import Decoded, decode_json, decode_protobuf
from tracer.otel.otlp.blocks import sent_spans

TRACE_IDS = [b"a trace 16 bytes", b"other, 16 bytes.", bytes(15) + b"\1"]
INVALID_TRACE_IDS = [b"", bytes(16), b"too short"]

_TEXTS = st.sampled_from(["", "x", "token", "血压", "a\0b"])
_TIMES = st.sampled_from([0, 10**18, 10**18 + 1, 4 * 10**18])


@st.composite
def _spans(draw: st.DrawFn) -> dict[str, Any]:
    is_valid = draw(st.integers(0, 9)) > 0
    return {
        "trace_id": draw(st.sampled_from(TRACE_IDS if is_valid else INVALID_TRACE_IDS)),
        "span_id": draw(st.integers(1, 5)).to_bytes(8, "big"),
        "parent_span_id": draw(st.sampled_from([b"", b"a parent"])),
        "name": draw(_TEXTS),
        "start_time_unix_nano": draw(_TIMES),
        "end_time_unix_nano": draw(_TIMES),
    }


@st.composite
def requests(draw: st.DrawFn) -> ExportTraceServiceRequest:
    """Draw a request, with empty and repeated resources and scopes."""
    request = ExportTraceServiceRequest()
    for _ in range(draw(st.integers(0, 3))):
        resource_spans = request.resource_spans.add(schema_url=draw(_TEXTS))
        if draw(st.booleans()):
            resource_spans.resource.attributes.add(key="service.name").value.string_value = "s"
        for _ in range(draw(st.integers(0, 3))):
            scope_spans = resource_spans.scope_spans.add(schema_url=draw(_TEXTS))
            scope_spans.scope.name = draw(_TEXTS)
            for fields in draw(st.lists(_spans(), max_size=4)):
                span = scope_spans.spans.add(**fields)
                span.attributes.add(key="n").value.int_value = len(request.resource_spans)
    return request


def is_valid(span: Any) -> bool:
    return span.trace_id in TRACE_IDS


def as_json(request: ExportTraceServiceRequest) -> bytes:
    """Return a request as OTLP/JSON: ids in hex."""
    fields = json_format.MessageToDict(request, use_integers_for_enums=True)
    for resource_spans in fields.get("resourceSpans", ()):
        for scope_spans in resource_spans.get("scopeSpans", ()):
            for span in scope_spans.get("spans", ()):
                for name in {"traceId", "spanId", "parentSpanId"} & span.keys():
                    span[name] = base64.b64decode(span[name]).hex()
    return json.dumps(fields).encode()


def check_traces(decoded: Decoded, sent: list[Any]) -> None:
    """Assert that traces, indexes and counts match the sent spans, in order."""
    accepted = [index for index, span in enumerate(sent) if is_valid(span)]
    trace_ids = list(dict.fromkeys(sent[index].trace_id for index in accepted))
    assert decoded.count == len(sent)
    assert [each.trace_id for each in decoded.traces] == trace_ids
    assert decoded.indexes == sorted(accepted, key=lambda at: trace_ids.index(sent[at].trace_id))
    assert [each.index for each in decoded.refused] == [
        index for index, span in enumerate(sent) if not is_valid(span)
    ]
    for trace in decoded.traces:
        assert trace.count == len(list(sent_spans(trace.message)))
        assert {span.trace_id for span in sent_spans(trace.message)} == {trace.trace_id}


@given(requests())
@settings(max_examples=scaled(300))
def test_stored_messages_have_exactly_the_accepted_spans_of_a_request(
    request: ExportTraceServiceRequest,
) -> None:
    body = request.SerializeToString()
    sent = [
        span
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]
    every_sent = list(sent_spans(body))

    decoded = decode_protobuf(body)

    check_traces(decoded, sent)
    accepted = [every_sent[index] for index in range(len(sent)) if is_valid(sent[index])]
    assert spans_in(decoded) == accepted
    if len(decoded.traces) == 1 and not decoded.refused:
        assert decoded.traces[0].message is body

    decoded_json = decode_json(as_json(request))

    check_traces(decoded_json, sent)
    assert spans_in(decoded_json) == accepted


@given(requests())
@settings(max_examples=scaled(100))
def test_malformed_span_does_not_affect_other_spans_of_the_request(
    request: ExportTraceServiceRequest,
) -> None:
    body = request.SerializeToString()
    malformed = bytes_field(1, bytes_field(2, bytes_field(2, bytes_field(5, b"\xff"))))

    decoded, with_malformed = decode_protobuf(body), decode_protobuf(body + malformed)

    assert spans_in(with_malformed) == spans_in(decoded)
    assert with_malformed.indexes == decoded.indexes
    assert [each.index for each in with_malformed.refused] == [
        *(each.index for each in decoded.refused),
        decoded.count,
    ]


def test_spans_of_one_scope_share_its_resource_in_each_message() -> None:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.add(key="k").value.string_value = "x" * 1000
    scope_spans = resource_spans.scope_spans.add()
    for number in range(100):
        span_id = number.to_bytes(7, "big") + b"1"
        scope_spans.spans.add(trace_id=TRACE_IDS[number % 2], span_id=span_id)

    decoded = decode_protobuf(request.SerializeToString())

    for trace in decoded.traces:
        assert trace.count == 50
        [alone] = TracesData.FromString(trace.message).resource_spans
        assert [len(each.spans) for each in alone.scope_spans] == [50]


def test_fields_that_otlp_does_not_define_are_kept_in_assembled_messages() -> None:
    spans = b"".join(
        bytes_field(2, bytes_field(1, trace_id) + bytes_field(2, b"12345678") + unknown)
        for trace_id, unknown in zip(TRACE_IDS, [bytes_field(999, b"new"), b"", b""], strict=True)
    )

    decoded = decode_protobuf(bytes_field(1, bytes_field(2, spans)))

    assert len(decoded.traces) == 3
    assert b"new" in spans_of_traces(decoded.traces)[0].body
