"""Repack a run: move the spans and log records of many blocks into few large blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tracer.otel.otlp.blocks import block_key, pack_block, sent_spans
from tracer.otel.otlp.logs import logs_of
from tracer.otel.otlp.protobuf import StoredParts
from tracer.records.spans import LogRecord, Span, newer

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
    newest: dict[bytes, Span] = {}
    arrivals: dict[bytes, datetime] = {}
    logs: dict[bytes, tuple[LogRecord, datetime]] = {}
    for message, recorded_at in messages:
        for span in sent_spans(message):
            arrivals.setdefault(span.span_id, recorded_at)
            newest[span.span_id] = newer(span, newest.get(span.span_id, span))
        for record in logs_of([message]):
            logs.setdefault(record.sent, (record, recorded_at))
    spans = sorted(newest.values(), key=lambda span: span.order)
    return [
        *(Item("resource_spans", span.body, arrivals[span.span_id]) for span in spans),
        *(
            Item("resource_logs", record.sent, recorded_at)
            for record, recorded_at in sorted(logs.values(), key=lambda each: each[0].order)
        ),
    ]


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
        if self.arrivals and self.size + added > max_bytes:
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
        max_bytes: The largest uncompressed size of a block. An item that is larger gets its own
            block.
    """
    message = _Message()
    for item in items:
        if not message.add(item, max_bytes):
            yield message.block()
            message = _Message()
            message.add(item, max_bytes)
    if message.arrivals:
        yield message.block()
