"""An HTTP writer that prints the address of the first run that the server has stored."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING
from uuid import UUID

from tracer.records.events import Event
from tracer.storage.http.writer import HttpWriter
from tracer.store import WriteAnswer

if TYPE_CHECKING:
    from tracer.records.spans import TraceSpans

_stored = count()
"""Counts the stored writes of the process. A counter needs no lock."""


class AnnouncingWriter(HttpWriter):
    """Prints one line to standard error, once per process, if standard error is a terminal."""

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        """Store `events`."""
        answer = await super().write(events)
        if answer.stored:
            self._announce(events[0].root_plan_id)
        return answer

    async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        """Store OpenTelemetry spans."""
        answer = await super().write_spans(traces)
        if answer.stored:
            self._announce(UUID(bytes=traces[0].trace_id))
        return answer

    def _announce(self, run_id: UUID) -> None:
        if next(_stored) == 0:
            with suppress(Exception):  # standard error may be closed or replaced
                if sys.stderr.isatty():
                    sys.stderr.write(f"tracer: recording to {self._url}/runs/{run_id}\n")
