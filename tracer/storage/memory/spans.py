"""The spans and log records of a run in memory, and their projection.

`Projector` does the same in Postgres.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from tracer.otel.otlp.blocks import TraceSpans, block_key, spans_of
from tracer.otel.otlp.spans import Span
from tracer.otel.projection.project import (
    RUN_FIELDS,
    TOTALS,
    ProjectedRun,
    fields_of,
    fields_of_run,
    project_run,
)
from tracer.records.merge import Fields
from tracer.records.record_classes import FROM_ROOT_PLAN, RECORDS, Kind
from tracer.storage.run_changes import Removed

QUIET = timedelta(milliseconds=100)
"""A run is due for projection if no span of it has arrived for that long. See also
`LONGEST_WAIT`."""

LONGEST_WAIT = timedelta(seconds=1)
"""A run is also due if the oldest of its pending spans has waited for that long.

The Postgres store also pauses after a projection, for ten times its duration. The memory store does
not: by its clock, a projection takes no time.
"""

OWN_FIELDS = tuple(
    name for name in RUN_FIELDS if name not in (*FROM_ROOT_PLAN, *TOTALS, "is_agent_work")
)
"""The projected fields of a run that are not derived from its records."""


MessagesOf = Callable[[bytes], list[bytes]]
"""Returns the stored messages with a session's log records, given the session's hashed id."""


@dataclass(frozen=True)
class SpanBlock:
    """The spans of one run that arrived together."""

    message: bytes
    spans: int
    recorded_at: datetime
    seen_at: datetime | None
    """When the spans arrived, by the lease clock. None if they were imported: an import is no
    heartbeat, and imported spans are projected at once."""


@dataclass
class StoredRunSpans:
    """The spans of one run."""

    blocks: dict[bytes, SpanBlock] = field(default_factory=dict)
    """The blocks by their keys, in the order of arrival."""
    size: int = 0
    """The bytes of all messages."""
    pending: list[SpanBlock] = field(default_factory=list)
    """The blocks that no projection has read yet."""
    projected: ProjectedRun | None = None
    """The last projection."""

    def add(
        self, trace: TraceSpans, recorded_at: datetime, seen_at: datetime | None, *, pends: bool
    ) -> None:
        """Store the spans of a message, unless the same message is stored already.

        Args:
            trace: The message.
            recorded_at: When it arrived.
            seen_at: See `SpanBlock.seen_at`.
            pends: Whether the message still has to be projected.
        """
        key = block_key(trace.message)
        if key not in self.blocks:
            block = self.blocks[key] = SpanBlock(trace.message, trace.count, recorded_at, seen_at)
            self.size += len(trace.message)
            if pends:
                self.pending.append(block)

    def exceeds(self, trace: TraceSpans, max_bytes: int) -> bool:
        """Return whether a message is new and would exceed the run's size limit."""
        is_new = block_key(trace.message) not in self.blocks
        return is_new and self.size + len(trace.message) > max_bytes

    def is_due(self, now: datetime) -> bool:
        """Return whether pending spans must be projected at this time."""
        times = [block.seen_at for block in self.pending if block.seen_at is not None]
        return bool(times) and now >= min(times[-1] + QUIET, times[0] + LONGEST_WAIT)

    def by_start(self, span_ids: Collection[bytes] | None) -> list[Span]:
        """Return spans, each in one version, ordered by start and span id.

        Args:
            span_ids: The spans; None: all spans of the run.
        """
        spans = spans_of(self.messages)
        return [span for span in spans if span_ids is None or span.span_id in span_ids]

    @property
    def messages(self) -> list[bytes]:
        """All messages, in the order of their arrival."""
        return [block.message for block in self.blocks.values()]

    @property
    def sessions(self) -> frozenset[bytes]:
        """The sessions that the run names, by hashed id, as of the last projection."""
        return frozenset() if self.projected is None else self.projected.sessions

    @property
    def count(self) -> int:
        """The number of spans. A span that arrived in several messages counts several times."""
        return sum(block.spans for block in self.blocks.values())


@dataclass(frozen=True)
class Changes:
    """The differences between a run's latest projection and the previous one."""

    run: Fields | None
    """The run's own fields; None if none of them has changed."""
    is_agent_work: bool
    changed: dict[Kind, dict[UUID, tuple[Fields, datetime]]]
    """The new and the changed rows, each with the time when its span first arrived."""
    removed: list[Removed]

    @property
    def are_visible(self) -> bool:
        """Whether readers can see any difference."""
        return self.run is not None or any(self.changed.values()) or bool(self.removed)


def project_blocks(spans: StoredRunSpans, messages_of: MessagesOf) -> Changes:
    """Project all blocks of a run and return the changes since the last projection.

    A record is only written if its projected row differs from the previous one. Other records keep
    fields that an import has set.

    Args:
        spans: The spans of the run, at least one block.
        messages_of: Returns the messages with a session's log records.
    """
    blocks = list(spans.blocks.values())
    before, after = spans.projected, project_run(spans.messages)
    of_sessions = [each for session in sorted(after.sessions) for each in messages_of(session)]
    if of_sessions:
        after = project_run(spans.messages, of_sessions)
    spans.projected, spans.pending = after, []
    changed: dict[Kind, dict[UUID, tuple[Fields, datetime]]] = {}
    removed: list[Removed] = []
    for kind in RECORDS:
        old = {} if before is None else before.rows[kind]
        changed[kind] = {
            UUID(bytes=record_id): (
                fields_of(kind, row),
                blocks[after.later.get(record_id, 0)].recorded_at,
            )
            for record_id, row in after.rows[kind].items()
            if old.get(record_id) != row
        }
        removed += [(kind, UUID(bytes=each)) for each in old.keys() - after.rows[kind].keys()]
    run = fields_of_run(after.run)
    has_changed = before is None or before.run != after.run
    return Changes(
        {name: run[name] for name in OWN_FIELDS} if has_changed else None,
        run["is_agent_work"],
        changed,
        removed,
    )
