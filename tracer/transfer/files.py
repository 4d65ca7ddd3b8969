"""Files of exported runs: JSON lines and OTLP, recognised by their content.

OTLP may be protobuf, one JSON document, or one JSON request per line, as the OpenTelemetry
Collector writes files. All of them may be compressed with gzip.
"""

from __future__ import annotations

import base64
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from tracer.errors import BadRequest
from tracer.otel.dialects import session_of
from tracer.otel.otlp.blocks import TraceSpans, single_spans
from tracer.otel.otlp.decode_json import decode_json, load_json
from tracer.otel.otlp.decode_logs import decode_logs_json, decode_logs_protobuf
from tracer.otel.otlp.decode_protobuf import decode_protobuf
from tracer.otel.otlp.logs import LOGS_FIELD
from tracer.otel.otlp.protobuf import Malformed, bytes_field, streamed_fields
from tracer.otel.otlp.request_items import Decoded
from tracer.records.record_json import ExportedRecord, read_record
from tracer.transfer.exporting import LOG, SPAN

_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEAD_BYTES = 64

MAX_SPANS_BYTES = 2**26
"""The spans of one trace are yielded one by one if they have more bytes than this, because the
size of a block is limited (`tracer.otel.otlp.blocks`)."""

_IS_JSON = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*(["}]|$)')
_IS_DOCUMENT = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*("resource_?([sS]pans|[lL]ogs)"|$)')
_HAS_LOGS = re.compile(rb'"resource_?[lL]ogs"')

UNKNOWN = "It is neither an export (JSON lines) nor OTLP."


@dataclass(frozen=True)
class Fault:
    """A part of a file that is not imported."""

    reason: str
    """A sentence, which does not quote the file."""


@dataclass(frozen=True)
class Piece:
    """One record of a file, spans of one trace, or a fault."""

    location: str
    """Its location in the file, such as `line 3`."""
    size: int
    """Its approximate size in bytes."""
    content: ExportedRecord | TraceSpans | Fault


def pieces(file: BinaryIO) -> Iterator[Piece]:
    """Yield the content of a file, in order. Parts that cannot be read are faults.

    Args:
        file: The file, which need not be seekable. A single OTLP/JSON document is read into memory;
            other formats are streamed.
    """
    try:
        yield from _pieces(file)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        yield _fault("the archive", "It is damaged or ends early.")


def _pieces(file: BinaryIO) -> Iterator[Piece]:
    head = file.read(len(_GZIP))
    stream: BinaryIO = io.BufferedReader(_Rejoined(head, file))
    if head == _GZIP:
        stream = io.BufferedReader(gzip.GzipFile(fileobj=stream))
    head = stream.read(_HEAD_BYTES).removeprefix(_BYTE_ORDER_MARK)
    stream = io.BufferedReader(_Rejoined(head, stream))
    if not head:
        yield _fault("the file", "It is empty.")
    elif not head.strip() or _IS_JSON.match(head):
        yield from _of_lines(stream, is_document=_IS_DOCUMENT.match(head) is not None)
    elif head[:1] == bytes_field(1, b"")[:1]:
        yield from _of_protobuf(stream)
    else:
        yield _fault("the file", UNKNOWN)


class _Rejoined(io.RawIOBase):
    """A stream that returns `head` first, and then the bytes of `rest`."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(data) :]
        buffer[: len(data)] = data
        return len(data)


def _of_lines(stream: BinaryIO, is_document: bool) -> Iterator[Piece]:
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            sent = load_json(line)
        except BadRequest:
            if is_document:
                yield from _of_document(line + stream.read(), "the file")
                return
            yield _fault(f"line {number}", "It is not JSON, or is nested too deeply.", len(line))
        else:
            yield from _of_line(f"line {number}", line, sent)
        is_document = False


def _of_line(location: str, line: bytes, sent: Any) -> Iterator[Piece]:
    fields = sent if isinstance(sent, dict) else {}
    if fields.get("kind") in _ITEMS:
        name, item, decode = _ITEMS[fields["kind"]]
        try:
            body = base64.b64decode(fields.get(name) or b"", validate=True)
            decoded = decode(bytes_field(1, body))
        except (TypeError, ValueError, BadRequest):
            decoded = Decoded()
        if decoded.count == 1:
            yield from _of_decoded(decoded, len(line), location)
        else:
            yield _fault(location, f"{name}: must be the bytes of one {item} in base64.", len(line))
    elif "kind" not in fields and not _OTLP_NAMES.isdisjoint(fields):
        yield from _of_document(line, location)
    else:
        try:
            yield Piece(location, len(line), read_record(sent))
        except BadRequest as error:
            yield _fault(location, str(error), len(line))


def _of_protobuf(stream: BinaryIO) -> Iterator[Piece]:
    """Yield the content of one or more concatenated OTLP protobuf messages.

    Each resource is decoded separately.
    """
    at = 0
    try:
        for number, content in streamed_fields(stream):
            at += 1
            if (decode := _DECODERS.get(number)) is not None:
                yield from _of_request(bytes_field(1, content), decode, f"part {at}")
    except Malformed:
        reason = "The file ends in the middle of it." if at else UNKNOWN
        yield _fault(f"part {at + 1}", reason)


_DECODERS: Mapping[int, Callable[[bytes], Decoded]] = {
    1: decode_protobuf,
    LOGS_FIELD: partial(decode_logs_protobuf, session_of=session_of),
}
"""The decoders of spans and of log records, by the number of the field that contains them in a
stored message (`tracer.otel.otlp.logs`)."""

_ITEMS = {
    SPAN: ("resourceSpans", "span", decode_protobuf),
    LOG: ("resourceLogs", "log record", _DECODERS[LOGS_FIELD]),
}
"""For each kind of line: the JSON key of its data, a name for error messages, and the decoder."""

_OTLP_NAMES = frozenset({"resourceSpans", "resource_spans", "resourceLogs", "resource_logs"})


def _of_document(document: bytes, location: str) -> Iterator[Piece]:
    """Yield the spans and the log records of an OTLP/JSON document."""
    yield from _of_request(document, decode_json, location)
    if _HAS_LOGS.search(document):
        yield from _of_request(document, partial(decode_logs_json, session_of=session_of), location)


def _of_request(
    request: bytes, decode: Callable[[bytes], Decoded], location: str
) -> Iterator[Piece]:
    try:
        yield from _of_decoded(decode(request), len(request), location)
    except BadRequest as error:
        yield _fault(location, str(error), len(request))


def _of_decoded(decoded: Decoded, size: int, location: str) -> Iterator[Piece]:
    each = size // max(decoded.count, 1)
    for refused in decoded.refused:
        yield _fault(f"{location}, span {refused.index + 1}", refused.reason, each)
    for trace in decoded.traces:
        is_large = len(trace.message) > MAX_SPANS_BYTES
        for part in single_spans(trace) if is_large else [trace]:
            yield Piece(location, each * part.count, part)


def _fault(location: str, reason: str, size: int = 0) -> Piece:
    return Piece(location, size, Fault(reason))
