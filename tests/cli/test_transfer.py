"""Files are divided into requests by their content."""

from __future__ import annotations

import gzip
import io
import json

import pytest

from tests.otel.captured import spans_of
from tests.otel.decoded import spans_in
from tests.otel.made_logs import logs_as_traces, made_log
from tests.otel.made_traces import body_of, make_span
from tests.otel.sent import encode_json
from tracer.cli import transfer
from tracer.cli.transfer import Part, parts_of
from tracer.errors import BadRequest
from tracer.otel.dialects import session_of
from tracer.otel.otlp import decode_json, decode_logs_json, decode_logs_protobuf, decode_protobuf
from tracer.otel.otlp.spans import encode_logs, encode_protobuf, logs_of
from tracer.records.spans import Span

SPANS = spans_of("pydantic-ai-default-single")


def parts(data: bytes) -> list[Part]:
    return list(parts_of(io.BufferedReader(io.BytesIO(data))))


def spans_sent(data: bytes) -> list[Span]:
    sent = parts(data)
    assert {each.path for each in sent} == {"v1/traces"}
    decoders = {"application/json": decode_json, "application/x-protobuf": decode_protobuf}
    return [span for each in sent for span in spans_in(decoders[each.media_type](each.body))]


def test_spans_are_sent_from_protobuf_and_json_in_any_wrapping() -> None:
    document = encode_json(SPANS)
    pretty = json.dumps(json.loads(document), indent=2).encode()
    for data in (
        encode_protobuf(SPANS),
        document,
        pretty,
        b"\n  " + pretty,
        b"\xef\xbb\xbf" + document,
        b"\n".join(encode_json([span]) for span in SPANS),
        gzip.compress(document),
        gzip.compress(encode_protobuf(SPANS[:5])) + gzip.compress(encode_protobuf(SPANS[5:])),
    ):
        assert [span.body for span in spans_sent(data)] == [span.body for span in SPANS]


def test_protobuf_that_starts_like_json_is_sent_as_protobuf() -> None:
    # 0x0a 0x7b is a line break and a brace, and a field of 123 bytes.
    [span] = spans_in(decode_json(body_of(make_span(1, "x" * 65))))
    data = encode_protobuf([span])
    assert data[:2] == b"\n{"
    assert [each.body for each in spans_sent(data)] == [span.body]


@pytest.mark.parametrize("is_json", [True, False])
def test_log_records_are_sent_apart_from_spans(is_json: bool) -> None:
    logs = logs_of(each.message for each in logs_as_traces(made_log("asked")))
    data = encode_json(SPANS, logs) if is_json else encode_protobuf(SPANS) + encode_logs(logs)

    spans, records = parts(data)

    assert (spans.path, records.path) == ("v1/traces", "v1/logs")
    decode = decode_logs_json if is_json else decode_logs_protobuf
    (sent,) = decode(records.body, session_of=session_of).traces
    assert logs_of([sent.message]) == logs


def test_events_are_sent_in_batches_with_the_numbers_of_their_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfer, "BATCH_BYTES", 20)
    lines = [b'{"type":"a"}\n', b"\n", b'{"type":"b"}\r\n', b'{"type":"c"}']

    assert [(each.path, each.body, each.lines) for each in parts(b"".join(lines))] == [
        ("api/events", lines[0] + lines[2], (1, 3)),
        ("api/events", lines[3], (4,)),
    ]


def test_lines_of_a_file_may_be_events_and_documents() -> None:
    event, document, end = (
        b'{"type":"a"}\n',
        encode_json(SPANS),
        b'{"end":true,"unreadableBlocks":0}',
    )
    for data in (event + document + b"\n" + end, document + b"\n" + event + end):
        assert [each.path for each in parts(data)] == ["v1/traces", "api/events"]
        assert parts(data)[1].body == event


@pytest.mark.parametrize(
    "data", [b"", b"[7]", b"hello", b"\x00" * 100, b"PK\x03\x04", b"\x1f\x8bnonsense"]
)
def test_file_of_an_unknown_format_is_rejected(data: bytes) -> None:
    with pytest.raises(BadRequest):
        parts(data)


def test_truncated_archive_is_rejected() -> None:
    with pytest.raises(BadRequest, match="damaged"):
        parts(gzip.compress(encode_json(SPANS))[:-9])
