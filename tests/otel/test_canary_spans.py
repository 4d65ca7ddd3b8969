"""Stored spans contain no secret, wherever in the received span it was."""

from __future__ import annotations

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tests.canaries import SECRETS
from tests.canary_events import PASSWORD, found_in
from tests.otel.canary_spans import name_of, places, request_with
from tests.otel.decoded import admitted_spans, spans_in
from tests.otel.made_traces import made, spans_from
from tracer.otel.decode import decode_protobuf
from tracer.otel.decode_json import decode_json
from tracer.otel.encode import encode_json
from tracer.otel.spans import Span
from tracer.otel.wire import bytes_field
from tracer.project_settings import PayloadPolicy
from tracer.storage.admission import Admission

ADMISSION = Admission()
PLACES = list(places())


def admitted(spans: list[Span]) -> list[Span]:
    """Return the spans as a store keeps them."""
    stored = admitted_spans(ADMISSION, spans)
    assert [span.key for span in stored] == [span.key for span in spans]
    return stored


def canaries_in(span: Span) -> list[str]:
    """Return the canaries in the fields of a span, in its JSON and in its bytes."""
    return found_in(b"\n".join([repr(span).encode(), encode_json([span]), span.body]))


def received_protobuf() -> list[Span]:
    """Return the decoded spans of a request with a span for each of `PLACES`."""
    return spans_in(decode_protobuf(request_with(b"t" * 16, PLACES).SerializeToString()))


def leaks(spans: list[Span]) -> list[str]:
    """Return a line for each of `PLACES` whose span had no canary or is stored with one."""
    stored = admitted(spans)
    lines = []
    for place, before, after, again in zip(PLACES, spans, stored, admitted(stored), strict=True):
        if not canaries_in(before):
            lines.append(f"{name_of(place)}: no canary was sent")
        if found := canaries_in(after):
            lines.append(f"{name_of(place)}: {len(found)} canaries are stored, one is {found[0]}")
        if again != after:
            lines.append(f"{name_of(place)}: storing the stored span changes it")
    return lines


def test_protobuf_spans_are_stored_without_secrets_at_any_place() -> None:
    assert len(PLACES) > 60
    assert leaks(received_protobuf()) == []


def test_json_spans_are_stored_without_secrets_at_any_place() -> None:
    assert leaks(spans_in(decode_json(encode_json(received_protobuf())))) == []


def test_values_of_every_type_under_a_secret_key_are_masked() -> None:
    text = AnyValue(string_value=PASSWORD)
    leaked = []
    for value in (
        text,
        AnyValue(bytes_value=PASSWORD.encode()),
        AnyValue(array_value=ArrayValue(values=[text])),
        AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="a", value=text)])),
    ):
        [span] = spans_from(made(1, "a span"))
        sent = ResourceSpans.FromString(span.body)
        for owner in (sent.resource, sent.scope_spans[0].scope, sent.scope_spans[0].spans[0]):
            owner.attributes.add(key="db.client_password", value=value)
        [received] = spans_in(decode_protobuf(bytes_field(1, sent.SerializeToString())))
        assert canaries_in(received) == [PASSWORD]
        leaked += [value.WhichOneof("value") for each in admitted([received]) if canaries_in(each)]
    assert leaked == []


def test_secrets_are_found_after_any_length_byte() -> None:
    # Protobuf puts a text's length before it. Some lengths are letters, and look like the
    # beginning of a longer word that is no secret.
    leaked = []
    for secret in SECRETS:
        texts = [secret.text + " " * more for more in range(130)]
        sent = spans_from(*(made(n, "a span", {"note": text}) for n, text in enumerate(texts, 1)))
        leaked += [
            f"{secret.rule} in a text of {len(text)} characters"
            for text, span in zip(texts, admitted(sent), strict=True)
            if found_in(span.body)
        ]
    assert leaked == []


def test_unknown_fields_of_spans_are_not_stored() -> None:
    [span] = spans_from(made(1, "a span"))
    sent = ResourceSpans.FromString(span.body)
    sent.scope_spans[0].spans[0].MergeFromString(bytes_field(999, SECRETS[0].text.encode()))
    [received] = spans_in(decode_protobuf(bytes_field(1, sent.SerializeToString())))
    assert found_in(received.body) != []  # the canary was sent

    stored = {policy: admitted_spans(ADMISSION, [received], policy) for policy in PayloadPolicy}
    assert [policy for policy in PayloadPolicy if stored[policy] != [span]] == []
