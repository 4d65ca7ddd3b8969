"""Blocks: the format in which spans and log records are stored in the database.

A block contains spans and log records of one trace, each with its resource and scope, as one
compressed message. `tracer.otel.otlp.logs` describes the message. A header precedes it, with three
fields in network byte order: the format version (1 byte), the codec (1 byte) and the size of the
uncompressed message (8 bytes).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from struct import Struct

from tracer.errors import TracerError
from tracer.otel.otlp.encode import encode_protobuf
from tracer.otel.otlp.logs import encode_logs, logs_in
from tracer.otel.otlp.protobuf import StoredMessage
from tracer.otel.otlp.protobuf_spans import Envelope, scopes_of, span_of
from tracer.records.spans import Span, TraceSpans, merge_spans

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_MESSAGE_BYTES = 2**28
"""The maximum size of an uncompressed message. If a header states a larger size, the block is
damaged, and no memory is allocated for it."""

KEY_BYTES = 16

_HEADER = Struct("!BBQ")
_VERSION = 1
_ZSTD = 1


class UnreadableBlock(TracerError):
    """A stored block is damaged, or was written by a newer version of Tracer."""


def pack_block(message: bytes, level: int = 1) -> bytes:
    """Return a serialized `TracesData` message as a block.

    Args:
        message: The message.
        level: The compression level of zstd.
    """
    return _HEADER.pack(_VERSION, _ZSTD, len(message)) + zstd.compress(message, level)


def unpack_block(block: bytes) -> bytes:
    """Return the uncompressed message of a block.

    Raises:
        UnreadableBlock: The format is unknown, or the content is damaged.
    """
    if len(block) < _HEADER.size:
        raise UnreadableBlock("A stored block of spans is damaged: it is shorter than its header.")
    version, codec, size = _HEADER.unpack_from(block)
    if (version, codec) != (_VERSION, _ZSTD):
        raise UnreadableBlock(
            f"A stored block of spans has format {version} and codec {codec}, which this version of"
            " Tracer cannot read. Use the version that wrote it, or a newer one."
        )
    if size > MAX_MESSAGE_BYTES:
        raise UnreadableBlock(
            f"A stored block of spans is damaged: its header states {size} uncompressed bytes; at"
            f" most {MAX_MESSAGE_BYTES} are possible."
        )
    try:
        # Never allocates more than the checked size.
        decompressor = zstd.ZstdDecompressor()
        message = decompressor.decompress(block[_HEADER.size :], max_length=size)
    except zstd.ZstdError as error:
        raise UnreadableBlock(
            "A stored block of spans is damaged: it cannot be decompressed."
        ) from error
    if len(message) != size or not decompressor.eof:
        raise UnreadableBlock(
            "A stored block of spans is damaged: its length differs from the length in its header."
        )
    return message


def block_key(message: bytes) -> bytes:
    """Return the key of the block that contains a message. Equal messages have equal keys."""
    return blake2b(message, digest_size=KEY_BYTES).digest()


def spans_of(messages: Iterable[bytes]) -> list[Span]:
    """Return the spans in serialized `TracesData` messages, sorted by start and span id.

    If a span was sent in several versions, one version is returned (`newer`).

    Raises:
        google.protobuf.message.DecodeError: A message cannot be parsed.
    """
    spans = (span for message in messages for span in sent_spans(message))
    return sorted(merge_spans(spans).values(), key=lambda span: span.order)


def sent_spans(message: bytes) -> Iterator[Span]:
    """Yield all spans in a serialized `TracesData` message, in the order of the message.

    If the message contains several versions of a span, all of them are yielded.

    Raises:
        google.protobuf.message.DecodeError: The message cannot be parsed.
    """
    for resource_spans, scope_spans in scopes_of(StoredMessage.FromString(message)):
        envelope = Envelope.of_messages(resource_spans, scope_spans)
        for span in scope_spans.spans:
            yield span_of(envelope, span)


def single_spans(trace: TraceSpans) -> list[TraceSpans]:
    """Split a message into messages with one item each: first the spans, then the log records."""
    if trace.count == 1:
        return [trace]
    messages = [encode_protobuf([span]) for span in sent_spans(trace.message)]
    data = StoredMessage.FromString(trace.message)
    messages += [encode_logs([record]) for record in logs_in(data)]
    return [TraceSpans(trace.trace_id, message, 1) for message in messages]


def traces_of(spans: Iterable[Span]) -> Sequence[TraceSpans]:
    """Group spans by trace, in the form that stores accept.

    The traces are in the order of their first spans.
    """
    by_trace: dict[bytes, list[Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace_id, []).append(span)
    return [
        TraceSpans(trace_id, encode_protobuf(items), len(items))
        for trace_id, items in by_trace.items()
    ]
