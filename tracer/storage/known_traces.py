"""Known traces: what the spans of a run were at its last write, so that the next reads none anew.

It is worth something for traces that come in parts, which most long ones do. What is known of a run
holds as long as nobody else has written to it, which its revision tells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from cachetools import LRUCache

from tracer.otel.projected import Projected
from tracer.otel.trace_state import TraceState

MAX_BYTES = 76 * 2**20
"""About how much memory they may take up: a trace of 10,000 spans of a kilobyte just fits. One that
does not is read and projected anew for each of its parts."""


@dataclass
class KnownTrace:
    """The spans of a run, and what their projection was."""

    state: TraceState = field(default_factory=TraceState)
    projected: Projected | None = None
    """None where it has not been projected yet."""
    is_whole: bool = True
    """Whether the run has the records of `projected` and no others: then what is new is known."""


class KnownTraces:
    """The traces written last, by their runs. One is taken out while it is written."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._kept: LRUCache[UUID, tuple[int, KnownTrace]] = LRUCache(
            max_bytes, lambda known: known[1].state.size
        )

    def take(self, run_id: UUID, revision: int) -> KnownTrace | None:
        """Return what is known of a run of this revision; None where that is nothing."""
        known_revision, trace = self._kept.pop(run_id, (None, None))
        return trace if known_revision == revision else None

    def keep(self, run_id: UUID, revision: int, trace: KnownTrace) -> None:
        """Remember a trace as it is after a commit; the oldest are forgotten for it."""
        if trace.state.size <= self._kept.maxsize:
            self._kept[run_id] = revision, trace
