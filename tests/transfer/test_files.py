"""File formats are detected by content, and invalid files are reported."""

from __future__ import annotations

import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.transfers import export_of, import_into
from tests.otel.captured import spans_of
from tests.otel.decoded import spans_in, spans_of_traces
from tests.otel.made_traces import body_of, made
from tests.sample_runs import sample_run
from tracer.otel.otlp.blocks import TraceSpans
from tracer.otel.otlp.decode_json import decode_json
from tracer.otel.otlp.encode import encode_json, encode_protobuf
from tracer.otel.otlp.spans import Span
from tracer.records.ids import sequential_ids
from tracer.records.record_json import ExportedRecord
from tracer.storage.memory.store import MemoryStore
from tracer.transfer.files import Fault, Piece, pieces
from tracer.transfer.importing import SHOWN_REFUSALS

SPANS = spans_of("pydantic-ai-default-single")


def read(data: bytes) -> list[Piece]:
    return list(pieces(io.BytesIO(data)))


def spans_read(data: bytes) -> list[Span]:
    found = [piece.content for piece in read(data)]
    assert all(isinstance(each, TraceSpans) for each in found), found
    return spans_of_traces(each for each in found if isinstance(each, TraceSpans))


def faults_in(data: bytes) -> list[tuple[str, str]]:
    return [
        (piece.location, piece.content.reason)
        for piece in read(data)
        if isinstance(piece.content, Fault)
    ]


async def lines() -> bytes:
    """Return a run as JSON lines."""
    run = sample_run(ids=sequential_ids())
    store = MemoryStore()
    await store.write(run.events)
    return await export_of(store, run.root)


def test_spans_are_read_from_protobuf_and_json_in_any_wrapping() -> None:
    document = encode_json(SPANS)
    pretty = json.dumps(json.loads(document), indent=2).encode()
    collected = b"\n".join(encode_json([span]) for span in SPANS)
    for data in (
        encode_protobuf(SPANS),
        document,
        pretty,
        b"\n  " + pretty,
        b"\xef\xbb\xbf" + document,
        collected,
        gzip.compress(document),
        gzip.compress(encode_protobuf(SPANS[:5])) + gzip.compress(encode_protobuf(SPANS[5:])),
    ):
        assert [span.body for span in spans_read(data)] == [span.body for span in SPANS]


def test_protobuf_file_that_starts_with_a_json_character_is_read_as_protobuf() -> None:
    # 0x0a 0x7b is a line break and a brace, and a field of 123 bytes.
    [span] = spans_in(decode_json(body_of(made(1, "x" * 65))))
    data = encode_protobuf([span])
    assert data[:2] == b"\n{"
    assert spans_read(data) == [span]


@pytest.mark.parametrize("wrap", [bytes, gzip.compress])
async def test_json_lines_may_have_a_byte_order_mark_and_blank_lines(wrap: object) -> None:
    data = await lines()
    dressed = b"\xef\xbb\xbf\r\n" + data.replace(b"\n", b"\r\n\n")
    assert callable(wrap)
    found = [piece.content for piece in read(wrap(dressed))]
    assert found == [piece.content for piece in read(data)]
    assert all(isinstance(each, ExportedRecord) for each in found)


UNKNOWN_FILES = [
    b"",
    b"[7]",
    b"\xff\xfe{\x00",
    b"hello",
    b"\x00" * 100,
    b"PK\x03\x04",
    "字".encode(),
    b"\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x1f\x8b",
    b"\x1f\x8bnonsense",
    gzip.compress(b"", mtime=0),
]


def test_file_of_an_unknown_format_is_reported_as_one_error() -> None:
    failures = [
        f"{data!r}: expected one fault, got {read(data)}"
        for data in UNKNOWN_FILES
        if not len(faults_in(data)) == len(read(data)) == 1
    ]

    assert failures == []


async def test_complete_records_of_a_truncated_file_are_read() -> None:
    data = await lines()
    count = data.count(b"\n")
    assert [place for place, _ in faults_in(data[:-20])] == [f"line {count}"]
    assert len(read(data[:-20])) == count
    packed = gzip.compress(data)
    assert faults_in(packed[:-9])[-1][0] == "the archive"
    protobuf = encode_protobuf(SPANS)
    assert len(read(protobuf[:-9])) == len(SPANS)
    assert faults_in(protobuf[:-9]) == [
        (f"part {len(SPANS)}", "The file ends in the middle of it.")
    ]
    assert faults_in(encode_json(SPANS)[:-9])[0][0] == "the file"


async def test_invalid_lines_are_reported_without_their_content() -> None:
    first = (await lines()).splitlines()[1]
    good = json.loads(first)
    cases = [
        ({**good, "secret": "s3cr3t"}, "secret"),
        ({**good, "startedAt": "s3cr3t"}, "startedAt"),
        ({**good, "status": "s3cr3t"}, "status"),
        ({**good, "planId": "s3cr3t"}, "planId"),
        ({**good, "depth": 2**31}, "depth"),
        ({**good, "parentPlanId": good["planId"]}, "root plan"),
        ({**good, "rootPlanId": "00000000-0000-7000-8000-000000000000"}, "sub-plan"),
        ({**good, "kind": "s3cr3t"}, "kind"),
        ({**good, "error": {"type": 5}}, "error"),
        ([good], "kind"),
        (7, "kind"),
        ({"kind": "span", "resourceSpans": "s3cr3t!"}, "base64"),
        ({"kind": "span", "resourceSpans": ["s3cr3t"]}, "base64"),
        ({"kind": "span"}, "base64"),
    ]
    for sent, named in cases:
        [_, (place, reason)] = faults_in(b"{}\n" + json.dumps(sent).encode())
        assert place == "line 2"
        assert named in reason, (sent, reason)
        assert "s3cr3t" not in reason
    nested = b"[" * 100_000
    assert faults_in(b"{}\n" + nested)[1:] == [
        ("line 2", "It is not JSON, or is nested too deeply.")
    ]


@given(
    is_protobuf=st.booleans(),
    fraction=st.floats(0, 1),
    noise=st.binary(max_size=6),
    removed=st.integers(0, 9),
)
async def test_damaged_file_is_imported_or_reported(
    is_protobuf: bool, fraction: float, noise: bytes, removed: int
) -> None:
    whole = encode_protobuf(SPANS[:4]) if is_protobuf else await lines()
    position = int(fraction * len(whole))
    damaged = whole[:position] + noise + whole[position + removed :]

    imported = await import_into(MemoryStore(), damaged)

    assert len(imported.reasons) == min(imported.refused, SHOWN_REFUSALS)
