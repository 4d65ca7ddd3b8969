"""Stored spans contain no secret, wherever the secret was in the received span."""

from __future__ import annotations

from dataclasses import replace

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tests.canaries import SECRETS
from tests.canary_events import CARD, PASSWORD, found_in
from tests.otel.canary_spans import field_paths, name_of, request_with
from tests.otel.decoded import redacted_spans, spans_in, spans_of_traces
from tests.otel.made_traces import make_span, spans_from
from tests.otel.sent import encode_json, traces_of
from tests.otel.wire import bytes_field
from tracer.otel.otlp import decode_json, decode_protobuf, redacted_traces
from tracer.otel.otlp.blocks import sent_spans
from tracer.records.masks import PayloadPolicy
from tracer.records.spans import Span
from tracer.redaction import Redaction

REDACTION = Redaction()
FIELD_PATHS = list(field_paths())


def admitted(spans: list[Span]) -> list[Span]:
    """Return the spans as a store keeps them."""
    stored = redacted_spans(REDACTION, spans)
    assert [span.key for span in stored] == [span.key for span in spans]
    return stored


def canaries_in(span: Span) -> list[str]:
    """Return the canaries in the fields of a span, in its JSON and in its bytes."""
    return found_in(b"\n".join([repr(span).encode(), encode_json([span]), span.body]))


def received_protobuf() -> list[Span]:
    """Return the decoded spans of a request with a span for each of `PLACES`."""
    return spans_in(decode_protobuf(request_with(b"t" * 16, FIELD_PATHS).SerializeToString()))


def leaks(spans: list[Span]) -> list[str]:
    """Return a line for each of `PLACES` whose span had no canary or is stored with one."""
    stored = admitted(spans)
    lines = []
    for path, before, after, again in zip(
        FIELD_PATHS, spans, stored, admitted(stored), strict=True
    ):
        if not canaries_in(before):
            lines.append(f"{name_of(path)}: no canary was sent")
        if found := canaries_in(after):
            lines.append(f"{name_of(path)}: {len(found)} canaries are stored, one is {found[0]}")
        if again != after:
            lines.append(f"{name_of(path)}: storing the stored span changes it")
    return lines


def test_secrets_at_any_place_of_protobuf_spans_are_not_stored() -> None:
    assert len(FIELD_PATHS) > 60
    assert leaks(received_protobuf()) == []


def test_secrets_at_any_place_of_json_spans_are_not_stored() -> None:
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
        [span] = spans_from(make_span(1, "a span"))
        sent = ResourceSpans.FromString(span.body)
        for owner in (sent.resource, sent.scope_spans[0].scope, sent.scope_spans[0].spans[0]):
            owner.attributes.add(key="db.client_password", value=value)
        [received] = spans_in(decode_protobuf(bytes_field(1, sent.SerializeToString())))
        assert canaries_in(received) == [PASSWORD]
        leaked += [value.WhichOneof("value") for each in admitted([received]) if canaries_in(each)]
    assert leaked == []


def test_secrets_are_found_after_any_protobuf_length_byte() -> None:
    # Protobuf puts a text's length before it. Some lengths are letters, and look like the
    # beginning of a longer word that is no secret.
    leaked = []
    for secret in SECRETS:
        texts = [secret.text + " " * more for more in range(130)]
        sent = spans_from(
            *(make_span(n, "a span", {"note": text}) for n, text in enumerate(texts, 1))
        )
        leaked += [
            f"{secret.rule} in a text of {len(text)} characters"
            for text, span in zip(texts, admitted(sent), strict=True)
            if found_in(span.body)
        ]
    assert leaked == []


def test_unknown_fields_of_spans_are_not_stored() -> None:
    [span] = spans_from(make_span(1, "a span"))
    sent = ResourceSpans.FromString(span.body)
    sent.scope_spans[0].spans[0].MergeFromString(bytes_field(999, SECRETS[0].text.encode()))
    [received] = spans_in(decode_protobuf(bytes_field(1, sent.SerializeToString())))
    assert found_in(received.body) != []  # the canary was sent

    stored = {policy: redacted_spans(REDACTION, [received], policy) for policy in PayloadPolicy}
    assert [policy for policy in PayloadPolicy if stored[policy] != [span]] == []


def test_a_message_without_secrets_is_stored_byte_for_byte() -> None:
    unknown = bytes_field(999, b"a new field")
    [trace] = traces_of(spans_from(make_span(1, "a span", {"n": 5, "id": 2**60, "ratio": 2.0**60})))
    message = trace.message + bytes_field(1, unknown) + unknown

    [stored] = redacted_traces([replace(trace, message=message)], REDACTION)

    assert stored.message is message


def test_spans_next_to_a_span_with_a_secret_keep_their_bytes() -> None:
    [plain, secret] = spans_from(
        make_span(1, "plain"), make_span(2, "secret", {"note": SECRETS[0].text})
    )
    unknown = bytes_field(999, b"a new field")
    sent = ResourceSpans.FromString(plain.body)
    sent.scope_spans[0].spans[0].MergeFromString(unknown)
    [plain] = spans_in(decode_protobuf(bytes_field(1, sent.SerializeToString())))

    [stored_plain, stored_secret] = admitted([plain, secret])

    assert stored_plain == plain
    assert unknown in stored_plain.body
    assert found_in(stored_secret.body) == []


def test_unknown_fields_around_spans_are_not_stored_with_secrets() -> None:
    [trace] = traces_of(spans_from(make_span(1, "a span")))
    unknown = bytes_field(999, SECRETS[0].text.encode())
    kept = []
    for message in (
        trace.message + unknown,
        trace.message + bytes_field(1, unknown),
        trace.message + bytes_field(1, bytes_field(2, unknown)),
    ):
        assert found_in(message) != []
        [stored] = redacted_traces([replace(trace, message=message)], REDACTION)
        assert list(sent_spans(stored.message)) == list(sent_spans(trace.message))
        kept += found_in(stored.message)
    assert kept == []


def test_secret_in_an_overwritten_field_value_is_not_stored() -> None:
    # The last one of several values of a field counts. Parsers do not show the others.
    text = SECRETS[0].text.encode()
    value = bytes_field(2, bytes_field(1, text) + bytes_field(1, b"harmless"))
    span = bytes_field(1, b"t" * 16) + bytes_field(2, b"12345678")
    span += bytes_field(9, bytes_field(1, b"note") + value)
    message = bytes_field(1, bytes_field(2, bytes_field(2, span)))
    assert text in message
    [stored] = redacted_traces(decode_protobuf(message).traces, REDACTION)
    assert text not in stored.message


def test_card_number_is_redacted_if_bytes_before_it_look_like_digits() -> None:
    leaked = []
    for before in (b"", b"\x18\xff\xff\xff\xff\xff", b"!1234567", b"\x18\xff\xff\xff\xff\xff\x18"):
        for value in (AnyValue(int_value=CARD), AnyValue(double_value=CARD)):
            [span] = spans_from(make_span(1, "a span"))
            sent = ResourceSpans.FromString(span.body)
            attributes = sent.scope_spans[0].spans[0].attributes
            attributes.add(key="id").value.bytes_value = before
            attributes.add(key="card_number", value=value)
            [stored] = admitted(spans_in(decode_protobuf(bytes_field(1, sent.SerializeToString()))))
            if stored.attributes["card_number"] != "[masked: card_number]":
                leaked.append((before, value))
    assert leaked == []


def test_card_number_in_a_padded_varint_is_redacted() -> None:
    padded = _varint(CARD)[:-1] + bytes([_varint(CARD)[-1] | 0x80, 0x80, 0x00])
    value = bytes_field(2, b"\x18" + padded)
    span = bytes_field(1, b"t" * 16) + bytes_field(2, b"12345678")
    span += bytes_field(9, bytes_field(1, b"card_number") + value)
    decoded = decode_protobuf(bytes_field(1, bytes_field(2, bytes_field(2, span))))
    assert spans_in(decoded)[0].attributes == {"card_number": CARD}

    [stored] = spans_of_traces(redacted_traces(decoded.traces, REDACTION))

    assert stored.attributes == {"card_number": "[masked: card_number]"}


def test_card_number_is_redacted_among_thousands_of_long_numbers() -> None:
    numbers = [2**50 + number for number in range(2000)]
    spans = spans_from(
        *(
            make_span(number + 1, "a span", {"ids": numbers, "n": CARD, "cardNumber": CARD})
            for number in range(3)
        )
    )

    stored = admitted(spans)

    assert [span.attributes["cardNumber"] for span in stored] == ["[masked: card_number]"] * 3
    assert [span.attributes["n"] for span in stored] == [CARD] * 3
    assert all(span.attributes["ids"][-1] == numbers[-1] for span in stored)


def _varint(value: int) -> bytes:
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
