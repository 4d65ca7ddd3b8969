"""Repack spans: put the spans of many messages into few blocks of a bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, TracesData

from tracer.otel.blocks import block_key, pack_block
from tracer.otel.wire_spans import Around

_FRAME_BYTES = 16
"""The most bytes that the fields around a resource add to a message."""


class Version(NamedTuple):
    """One version of a span. The greatest version of a span is the one that readers see."""

    end: int
    body: bytes
    """A serialized `ResourceSpans` with this span alone."""
    start: int
    span_id: bytes


@dataclass(frozen=True, slots=True)
class Block:
    """A block with what a store must know about it."""

    key: bytes
    spans: int
    size: int
    """The size of the uncompressed message in bytes."""
    recorded_at: datetime
    """The earliest arrival of a span in it."""
    body: bytes


def versions_of(message: bytes) -> Iterator[Version]:
    """Yield the spans of a serialized `TracesData` message.

    Raises:
        google.protobuf.message.DecodeError: The message cannot be parsed.
    """
    for resource_spans in TracesData.FromString(message).resource_spans:
        for scope_spans in resource_spans.scope_spans:
            around = Around.of_messages(resource_spans, scope_spans)
            for span in scope_spans.spans:
                body = around.body(span.SerializeToString(deterministic=True))
                start, end = span.start_time_unix_nano, span.end_time_unix_nano
                yield Version(end, body, start, span.span_id)


def merge_messages(messages: Iterable[tuple[bytes, datetime]]) -> list[tuple[bytes, datetime]]:
    """Return one version of each span, by (start, span id).

    Args:
        messages: Serialized `TracesData` messages of one trace with their arrivals, the earliest
            first.

    Returns:
        The body of each span and the arrival of the first message that holds the span.
    """
    newest: dict[bytes, Version] = {}
    arrivals: dict[bytes, datetime] = {}
    for message, recorded_at in messages:
        for version in versions_of(message):
            arrivals.setdefault(version.span_id, recorded_at)
            newest[version.span_id] = max(version, newest.get(version.span_id, version))
    in_order = sorted(newest.values(), key=lambda version: (version.start, version.span_id))
    return [(version.body, arrivals[version.span_id]) for version in in_order]


@dataclass(slots=True)
class _Message:
    """A message that grows."""

    content: TracesData = field(default_factory=TracesData)
    groups: dict[bytes, ScopeSpans] = field(default_factory=dict)
    """The spans of each resource and scope: without this, each span would repeat both."""
    arrivals: list[datetime] = field(default_factory=list)
    size: int = 0

    def add(self, body: bytes, recorded_at: datetime, max_bytes: int) -> bool:
        """Add a span unless the message has others and would exceed `max_bytes`."""
        resource_spans = ResourceSpans.FromString(body)
        [scope_spans] = resource_spans.scope_spans
        [span] = scope_spans.spans
        del scope_spans.spans[:]
        around = resource_spans.SerializeToString(deterministic=True)
        group = self.groups.get(around)
        added = len(body) + _FRAME_BYTES if group is None else len(body) - len(around)
        if self.arrivals and self.size + added > max_bytes:
            return False
        if group is None:
            self.content.resource_spans.append(resource_spans)
            group = self.groups[around] = self.content.resource_spans[-1].scope_spans[0]
        group.spans.append(span)
        self.arrivals.append(recorded_at)
        self.size += added
        return True

    def block(self) -> Block:
        message = self.content.SerializeToString(deterministic=True)
        return Block(
            block_key(message),
            len(self.arrivals),
            len(message),
            min(self.arrivals),
            pack_block(message),
        )


def blocks_with(spans: Iterable[tuple[bytes, datetime]], max_bytes: int) -> Iterator[Block]:
    """Yield blocks with these spans. The same spans in the same order make the same blocks.

    Args:
        spans: The bodies of spans of one trace, and when they arrived.
        max_bytes: The largest uncompressed size of a block. A larger span gets its own block.
    """
    message = _Message()
    for body, recorded_at in spans:
        if not message.add(body, recorded_at, max_bytes):
            yield message.block()
            message = _Message()
            message.add(body, recorded_at, max_bytes)
    if message.arrivals:
        yield message.block()
