"""What is kept of spans has no secret, wherever in them it stood."""

from __future__ import annotations

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tests.canaries import SECRETS, Secret
from tests.canary_events import PASSWORD, found_in
from tests.otel.canary_spans import Place, name_of, places, request_with
from tests.otel.made_traces import made, spans_from
from tracer.otel.decode import decode_protobuf
from tracer.otel.encode import encode_json
from tracer.otel.spans import Span
from tracer.otel.wire import bytes_field
from tracer.project_settings import PayloadPolicy
from tracer.storage.admission import Admission

ADMISSION = Admission()


def kept_of(spans: list[Span]) -> list[Span]:
    kept = ADMISSION.spans(spans)
    assert ADMISSION.spans(kept) == kept
    assert [span.key for span in kept] == [span.key for span in spans]
    return kept


def said_by(spans: list[Span]) -> bytes:
    return b"\n".join([repr(spans).encode(), encode_json(spans), *(span.body for span in spans)])


@pytest.mark.parametrize("place", list(places()), ids=name_of)
def test_nothing_is_kept_of_secrets_at_any_place(place: Place) -> None:
    spans = decode_protobuf(request_with(b"t" * 16, [place]).SerializeToString()).spans
    assert found_in(said_by(spans)) != []  # they were sent

    assert found_in(said_by(kept_of(spans))) == []


@pytest.mark.parametrize(
    "value",
    [
        AnyValue(string_value=PASSWORD),
        AnyValue(bytes_value=PASSWORD.encode()),
        AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=PASSWORD)])),
        AnyValue(
            kvlist_value=KeyValueList(
                values=[KeyValue(key="a", value=AnyValue(string_value=PASSWORD))]
            )
        ),
    ],
    ids=lambda value: value.WhichOneof("value"),
)
def test_whatever_a_secret_key_names_is_masked(value: AnyValue) -> None:
    [span] = spans_from(made(1, "a span"))
    sent = ResourceSpans.FromString(span.body)
    for owner in (sent.resource, sent.scope_spans[0].scope, sent.scope_spans[0].spans[0]):
        owner.attributes.add(key="db.client_password", value=value)
    spans = decode_protobuf(bytes_field(1, sent.SerializeToString())).spans

    assert found_in(said_by(kept_of(spans))) == []


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.rule)
def test_a_secret_is_found_whatever_byte_tells_its_length(secret: Secret) -> None:
    # The lengths are letters, too: a secret looks as if it went on before it begins.
    spans = [
        span
        for length in range(130)
        for span in spans_from(made(1, "a span", {"note": secret.text + " " * length}))
    ]

    assert found_in(b"".join(span.body for span in kept_of(spans))) == []


@pytest.mark.parametrize("policy", PayloadPolicy)
def test_a_field_that_nobody_knows_is_not_kept_with_secrets(policy: PayloadPolicy) -> None:
    [span] = spans_from(made(1, "a span"))
    sent = ResourceSpans.FromString(span.body)
    sent.scope_spans[0].spans[0].MergeFromString(bytes_field(999, SECRETS[0].text.encode()))
    spans = decode_protobuf(bytes_field(1, sent.SerializeToString())).spans
    assert found_in(spans[0].body) != []  # it was sent

    assert ADMISSION.spans(spans, policy) == [span]
