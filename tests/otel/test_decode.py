"""Request bodies are decoded and encoded exactly; hostile ones are refused."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tests.otel.captured import NAMES, bodies, spans_of
from tests.otel.decoded import spans_in
from tests.otel.made_traces import TRACE_ID, body_of, make_span, projection_of, spans_from
from tests.otel.projections import project
from tests.otel.sent import encode_json
from tests.otel.wire import bytes_field
from tests.profiles import scaled
from tracer.otel.otlp import UndecodableTraces, decode_json, decode_protobuf
from tracer.otel.otlp.spans import encode_protobuf
from tracer.records import Kind
from tracer.records.spans import Span, merge_spans


@pytest.mark.parametrize("name", NAMES)
def test_exported_spans_decode_and_encode_to_the_same_bytes(name: str) -> None:
    spans = list(merge_spans(spans_of(name)).values())

    exported = encode_protobuf(spans)

    assert spans_in(decode_protobuf(exported)) == spans
    assert encode_protobuf(spans_in(decode_protobuf(exported))) == exported
    assert len(ExportTraceServiceRequest.FromString(exported).resource_spans) == len(spans)


@pytest.mark.parametrize("name", NAMES)
def test_json_and_protobuf_give_the_same_spans(name: str) -> None:
    spans = spans_of(name)

    assert spans_in(decode_json(encode_json(spans))) == spans


def test_otlp_json_has_hexadecimal_ids_and_numeric_enums() -> None:
    (span,) = spans_from(make_span(7, "chat", {"n": 5}, parent=1, kind=3))

    exported = json.loads(encode_json([span]))["resourceSpans"][0]["scopeSpans"][0]["spans"][0]

    assert exported["traceId"] == TRACE_ID
    assert exported["spanId"] == "0000000000000007"
    assert exported["parentSpanId"] == "0000000000000001"
    assert (exported["kind"], exported["attributes"][0]["value"]) == (3, {"intValue": "5"})


def test_otlp_json_accepts_integers_as_text_and_unknown_fields() -> None:
    span = make_span(1, "x")
    span["startTimeUnixNano"] = 10**18 + 17
    span["attributes"] = [{"key": "n", "value": {"intValue": 5}}]
    span["brandNew"] = {"deep": [1]}

    (taken,) = spans_from(span)

    assert (taken.start, taken.attributes) == (10**18 + 17, {"n": 5})


INVALID_FIELDS: list[tuple[str, Any]] = [
    ("traceId", "00" * 16),
    ("traceId", "ab" * 15),
    ("traceId", "nonsense"),
    ("traceId", 5),
    ("traceId", None),
    ("spanId", ""),
    ("spanId", "00" * 8),
    ("spanId", "ab" * 9),
]


def test_only_the_span_with_an_invalid_field_is_rejected() -> None:
    failures = []
    for field, value in INVALID_FIELDS:
        bad = {**make_span(2, "b"), field: value}
        decoded = decode_json(body_of(make_span(1, "a"), bad, make_span(3, "c")))
        stored = [span.name for span in spans_in(decoded)]
        refused = [each.index for each in decoded.refused]
        if (stored, refused) != (["a", "c"], [1]):
            failures.append(f"{field}={value!r}: stored {stored}, refused {refused}")
    assert failures == []


def test_times_between_2000_and_2100_are_kept() -> None:
    for end in (0, 946_684_800 * 10**9, 4_102_444_800 * 10**9 - 1):
        span = {
            **make_span(1, "chat x", {"gen_ai.operation.name": "chat"}),
            "startTimeUnixNano": "0",
        }
        span["endTimeUnixNano"] = str(end)

        assert spans_from(span)[0].end == end
        assert len(projection_of(span).records) == 4, end


def test_invalid_utf8_costs_one_replacement_character_in_any_string() -> None:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add(schema_url="b@d")
    resource_spans.resource.attributes.add(key="b@d").value.string_value = "b@d"
    resource_spans.resource.entity_refs.add(type="b@d", id_keys=["b@d", "fine"])
    scope_spans = resource_spans.scope_spans.add(schema_url="b@d")
    scope_spans.scope.name = scope_spans.scope.version = "b@d"
    text = AnyValue(string_value="b@d")
    value = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="b@d", value=text)]))
    for number, trace_id in enumerate([b"1" * 16, b"1" * 16, b"2" * 16], 1):
        span = scope_spans.spans.add(trace_id=trace_id, span_id=number.to_bytes(8), name="b@d")
        span.trace_state = span.status.message = "b@d"
        span.attributes.add(key="bytes").value.bytes_value = b"\xff"
        span.attributes.add(key="nested", value=value)
        span.events.add(name="b@d").attributes.add(key="b@d", value=text)
        span.links.add(trace_id=b"\xff" * 16, trace_state="b@d")
    body = request.SerializeToString()
    expected = decode_protobuf(ExportTraceServiceRequest.FromString(body).SerializeToString())

    decoded = decode_protobuf(body.replace(b"b@d", b"b\xffd"))

    spans = spans_in(decoded)
    assert (len(spans), decoded.refused) == (3, [])
    as_sent = ExportTraceServiceRequest.FromString(encode_protobuf(spans_in(expected)))
    exported = ExportTraceServiceRequest.FromString(encode_protobuf(spans))
    as_json, exported_json = map(json_format.MessageToJson, (as_sent, exported))
    assert exported_json == as_json.replace("b@d", "b\\ufffdd")
    assert spans_in(decode_json(encode_json(spans))) == spans


def test_value_deeper_than_47_levels_rejects_a_protobuf_request() -> None:
    deep_span, flat_span = spans_from(make_span(1, "deep"), make_span(2, "flat"))
    for depth in (30, 46, 47, 48, 10_000):
        value = AnyValue(string_value="bottom").SerializeToString()
        for _ in range(depth):
            value = bytes_field(5, bytes_field(1, value))
        attribute = bytes_field(9, bytes_field(1, b"x") + bytes_field(2, value))
        scope_spans = bytes_field(2, _span_bytes(deep_span) + attribute)
        body = bytes_field(1, bytes_field(2, scope_spans)) + encode_protobuf([flat_span])
        if depth > 47:
            with pytest.raises(UndecodableTraces, match="nests"):
                decode_protobuf(body)
            continue

        decoded = decode_protobuf(body)

        assert [span.name for span in spans_in(decoded)] == ["deep", "flat"]
        assert spans_in(decode_json(encode_json(spans_in(decoded)))) == spans_in(decoded), depth
        project(spans_in(decoded))


def _span_bytes(span: Span) -> bytes:
    (found,) = ResourceSpans.FromString(span.body).scope_spans[0].spans
    return bytes(found.SerializeToString())


def test_attribute_in_json_that_nests_too_deeply_is_left_out() -> None:
    deep: str = '{"arrayValue":{"values":[' * 300 + '{"stringValue":"x"}' + "]}}" * 300
    span = json.dumps({**make_span(1, "a"), "attributes": []})
    bad = span.replace('"attributes": []', '"attributes": [{"key":"k","value":' + deep + "}]")
    body = f'{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{bad},{span}]}}]}}]}}'

    decoded = decode_json(body.encode())

    cleaned, _ = spans_in(decoded)
    assert cleaned.attributes == {"tracer.received.attributes": "1 malformed"}
    assert decoded.refused == []
    with pytest.raises(UndecodableTraces):
        decode_json(b"[" * 100_000)


def test_json_that_is_not_a_trace_request_is_rejected() -> None:
    decoded = []
    for body in (
        b"",
        b"null",
        b"[]",
        b"7",
        b'"x"',
        b"{",
        b'{"resourceSpans": 5}',
        b'{"resourceSpans": [5]}',
        b'{"resourceSpans": [{"scopeSpans": [null]}]}',
        b"\xff\xfe",
    ):
        with suppress(UndecodableTraces):
            decoded.append((body, decode_json(body).count))
    assert decoded == []


def test_an_empty_request_has_no_spans() -> None:
    assert decode_protobuf(b"").count == 0
    assert decode_json(b"{}").count == 0


def test_nul_and_lone_surrogates_are_kept() -> None:
    call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.arguments": "a\0b"}
    body = body_of(make_span(1, "execute_tool x", call)).replace(b"execute_tool x", rb"x \ud800")

    decoded = decode_json(body)

    (fields,) = project(spans_in(decoded)).records[Kind.TOOL_CALL].values()
    assert spans_in(decoded)[0].name == "x ␛d800"
    assert fields["arguments"] == "a␛0000b"
    assert spans_in(decode_protobuf(encode_protobuf(spans_in(decoded)))) == spans_in(decoded)


@given(st.sampled_from(NAMES), st.data())
@settings(max_examples=scaled(200))
def test_damaged_body_is_rejected_or_decoded_without_another_error(
    name: str, data: st.DataObject
) -> None:
    body = bytearray(data.draw(st.sampled_from(bodies(name))))
    for _ in range(data.draw(st.integers(0, 5))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(body)))

    try:
        spans = spans_in(decode_protobuf(bytes(body[:end])))
    except UndecodableTraces:
        return
    for span in spans:
        project([span])
    assert spans_in(decode_protobuf(encode_protobuf(spans))) == spans


@given(st.binary(max_size=200))
@settings(max_examples=scaled(200))
def test_random_bytes_are_rejected_or_decoded_without_another_error(body: bytes) -> None:
    for decode in (decode_protobuf, decode_json):
        with suppress(UndecodableTraces):
            decode(body)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["key", "value", "spans", "attributes", "stringValue", "kvlistValue", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=20,
)


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(make_span(1, "x"), _JSON)),
    st.fixed_dictionaries({}, optional={"resource": _JSON, "schemaUrl": _JSON}),
)
@settings(max_examples=scaled(200))
def test_random_json_is_rejected_or_decoded_without_another_error(
    span: dict[str, Any], around: Any
) -> None:
    request = json.loads(body_of({**make_span(1, "x"), **span}))
    request["resourceSpans"][0].update(around)

    decoded = decode_json(json.dumps(request).encode())

    assert decoded.count == 1
    for each in spans_in(decoded):
        project([each])


def test_a_span_with_ten_thousand_attributes_is_projected() -> None:
    many = {f"llm.input_messages.{n}.message.content": "x" for n in range(10_000)}

    run = projection_of(make_span(1, "x", {"openinference.span.kind": "LLM", **many}))

    assert len(run.record_of) == 1


@pytest.mark.parametrize("depth", [1_000, pytest.param(3_000, marks=pytest.mark.thorough)])
def test_deeply_nested_spans_are_projected(depth: int) -> None:
    numbers = range(2, depth)
    wrappers = [make_span(n, "deep", {}, parent=n - 1 if n > 2 else None) for n in numbers]
    calls = [
        make_span(n + 10_000, "execute_tool x", {"gen_ai.tool.name": "x"}, parent=n)
        for n in numbers
    ]
    agents = [make_span(n + 20_000, f"invoke_agent a{n}", parent=n) for n in numbers]
    spans = spans_from(*wrappers, *calls, *agents)

    run = project(spans)

    assert len(run.record_of) == len(spans)


def test_attributes_of_every_type_are_kept() -> None:
    attributes = {"list": [1, "a", {"b": [True, 2.5]}], "empty": "", "none": []}

    spans = spans_from(make_span(1, "x", attributes))

    assert spans[0].attributes == attributes
    assert spans_in(decode_protobuf(encode_protobuf(spans)))[0].attributes == attributes
    json_format.Parse(encode_json(spans), ExportTraceServiceRequest())
