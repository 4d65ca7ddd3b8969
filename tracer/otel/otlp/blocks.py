"""Blocks: the spans of one trace, compressed, as they are sent and stored."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from struct import Struct
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tracer.errors import UnreadableData
from tracer.otel.otlp.spans import (
    Envelope,
    StoredMessage,
    StoredParts,
    encode_logs,
    encode_protobuf,
    logs_in,
    logs_of,
    merge_logs,
    scopes_of,
    span_of,
)
from tracer.records.spans import (
    Contents,
    LogRecord,
    Span,
    TraceSpans,
    id_of_later,
    merge_spans,
    newest,
    spans_with_one_id,
)

# --- Blocks: the format in which spans and log records are stored in the database.
#
# A block contains spans and log records of one trace, each with its resource and scope, as one
# compressed message. `tracer.otel.otlp.spans` describes the message. A header precedes it, with
# three fields in network byte order: the format version (1 byte), the codec (1 byte) and the size
# of the uncompressed message (8 bytes).

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_MESSAGE_BYTES = 2**28
"""The maximum size of an uncompressed message. If a header states a larger size, the block is
damaged, and no memory is allocated for it."""

BLOCK_BYTES = 4_000_000
"""The largest weight of a block (`weight`). A block with a single larger span exceeds it."""

KEY_BYTES = 16

_HEADER = Struct("!BBQ")
_VERSION = 1
_ZSTD = 1


class UnreadableBlock(UnreadableData):
    """A stored block is damaged, or was written by a newer version of Tracer."""


def weight(size: int, spans: int) -> int:
    """Return about how many bytes of memory a message takes when it is parsed.

    Args:
        size: The size of the message in bytes.
        spans: The number of its spans and log records.
    """
    return size + 1_000 * spans


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


def contents_of(blocks: Iterable[bytes], span_ids: Collection[bytes] | None = None) -> Contents:
    """Return the contents of blocks. Damaged blocks are skipped and counted.

    Args:
        blocks: The blocks.
        span_ids: The ids of the wanted spans; None: all spans.
    """
    spans: list[Span] = []
    logs: list[LogRecord] = []
    unreadable = 0
    for block in blocks:
        try:
            data = StoredMessage.FromString(unpack_block(block))
        except (UnreadableBlock, DecodeError):
            unreadable += 1
            continue
        for resource_spans, scope_spans in scopes_of(data):
            envelope = Envelope.of_messages(resource_spans, scope_spans)
            spans += [
                span_of(envelope, span)
                for span in scope_spans.spans
                if span_ids is None
                or span.span_id in span_ids
                or id_of_later(span.span_id, span.start_time_unix_nano) in span_ids
            ]
        logs += logs_in(data)
    merged = merge_spans(spans).values()
    return Contents(sorted(merged, key=lambda span: span.order), merge_logs(logs), unreadable)


def parents_in(blocks: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the id of each span in blocks, and the id of its parent. Skip damaged blocks."""
    for block in blocks:
        with suppress(UnreadableBlock, DecodeError):
            for _, scope_spans in scopes_of(StoredMessage.FromString(unpack_block(block))):
                yield from ((span.span_id, span.parent_span_id) for span in scope_spans.spans)


def single_spans(trace: TraceSpans) -> list[TraceSpans]:
    """Split a message into messages with one item each: first the spans, then the log records."""
    if trace.count == 1:
        return [trace]
    messages = [encode_protobuf([span]) for span in sent_spans(trace.message)]
    data = StoredMessage.FromString(trace.message)
    messages += [encode_logs([record]) for record in logs_in(data)]
    return [TraceSpans(trace.trace_id, message, 1) for message in messages]


# --- Repack a run: move the spans and log records of many blocks into few large blocks.

_LEVEL = 3
"""The compression level of zstd. Blocks of arriving spans have level 1, which takes a quarter less
time but 6 % more space. Repacked blocks are stored for the lifetime of the run."""

_FRAME_BYTES = 16
"""The most bytes that the fields around a resource add to a message."""


@dataclass(frozen=True, slots=True)
class Item:
    """One stored span or log record."""

    field: str
    """The field of a stored message that holds it: `resource_spans` or `resource_logs`."""
    body: bytes
    """The item with its resource and scope, as a serialized `ResourceSpans` or `ResourceLogs`."""
    recorded_at: datetime
    """When the item first arrived."""


@dataclass(frozen=True, slots=True)
class PackedBlock:
    """A new block, with the values that a store saves next to it."""

    key: bytes
    spans: int
    """The number of spans and log records."""
    size: int
    """The size of the uncompressed message in bytes."""
    recorded_at: datetime
    """The earliest arrival of an item in the block."""
    body: bytes


def merge_messages(messages: Iterable[tuple[bytes, datetime]]) -> list[Item]:
    """Return the spans and log records of a run without duplicates.

    Spans come first, sorted by start and span id, in one version each. Log records follow, sorted
    by time.

    Args:
        messages: The stored messages of the run with the times of their arrival, earliest first.
    """
    sent: dict[bytes, list[_Arrived]] = {}
    logs: dict[bytes, tuple[LogRecord, datetime]] = {}
    for message, recorded_at in messages:
        for span in sent_spans(message):
            sent.setdefault(span.span_id, []).append(_Arrived(span, recorded_at))
        for record in logs_of([message]):
            logs.setdefault(record.sent, (record, recorded_at))
    spans = [
        (newest(each.span for each in versions), versions[0].recorded_at)
        for of_id in sent.values()
        for versions in spans_with_one_id(of_id)
    ]
    return [
        *(
            Item("resource_spans", span.body, recorded_at)
            for span, recorded_at in sorted(spans, key=lambda each: each[0].order)
        ),
        *(
            Item("resource_logs", record.sent, recorded_at)
            for record, recorded_at in sorted(logs.values(), key=lambda each: each[0].order)
        ),
    ]


class _Arrived(NamedTuple):
    span: Span
    recorded_at: datetime

    @property
    def start(self) -> int:
        return self.span.start

    @property
    def end(self) -> int:
        return self.span.end


@dataclass(slots=True)
class _Message:
    """A message to which items are added until it has the size of a block."""

    resources: list[tuple[str, Any]] = field(default_factory=list)
    """The resources with their items, each with its field in the message (`Item.field`)."""
    groups: dict[tuple[str, bytes], Any] = field(default_factory=dict)
    """The list of items for each field, resource and scope. Items with the same resource and
    scope share a list, so that the message contains both only once."""
    arrivals: list[datetime] = field(default_factory=list)
    size: int = 0

    def add(self, item: Item, max_bytes: int) -> bool:
        """Add an item. Return False, without adding it, if the message would exceed `max_bytes`.

        The first item is always added.
        """
        resource, items = _parsed(item)
        [alone] = items
        del items[:]
        envelope = resource.SerializeToString(deterministic=True)
        group = self.groups.get((item.field, envelope))
        added = len(item.body) + _FRAME_BYTES if group is None else len(item.body) - len(envelope)
        if self.arrivals and weight(self.size + added, len(self.arrivals) + 1) > max_bytes:
            return False
        if group is None:
            self.resources.append((item.field, resource))
            group = self.groups[item.field, envelope] = items
        group.append(alone)
        self.arrivals.append(item.recorded_at)
        self.size += added
        return True

    def block(self) -> PackedBlock:
        parts = StoredParts()
        for name, resource in self.resources:
            getattr(parts, name).append(resource.SerializeToString(deterministic=True))
        message = parts.SerializeToString()
        return PackedBlock(
            block_key(message),
            len(self.arrivals),
            len(message),
            min(self.arrivals),
            pack_block(message, _LEVEL),
        )


def _parsed(item: Item) -> tuple[Any, Any]:
    """Return the parsed resource of an item, and the list in it that contains the item."""
    if item.field == "resource_logs":
        resource_logs = ResourceLogs.FromString(item.body)
        [scope_logs] = resource_logs.scope_logs
        return resource_logs, scope_logs.log_records
    resource_spans = ResourceSpans.FromString(item.body)
    [scope_spans] = resource_spans.scope_spans
    return resource_spans, scope_spans.spans


def blocks_with(items: Iterable[Item], max_bytes: int) -> Iterator[PackedBlock]:
    """Yield blocks that contain the items. Equal input gives equal blocks.

    Args:
        items: Items of one run.
        max_bytes: The largest weight of a block. An item that is larger gets its own block.
    """
    message = _Message()
    for item in items:
        if not message.add(item, max_bytes):
            yield message.block()
            message = _Message()
            message.add(item, max_bytes)
    if message.arrivals:
        yield message.block()
