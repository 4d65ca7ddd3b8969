"""The outcomes of recorded events: counts for metrics, and ids for the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from traceback import extract_tb
from uuid import UUID

from tracer.logs import get_logger
from tracer.records.events import (
    Event,
    PlanFinished,
    PlanStarted,
    StepFinished,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
)
from tracer.store import WriteAnswer

log = get_logger(__name__)


@dataclass
class RecorderCounts:
    """The outcomes of a recorder's events since it was created."""

    stored: int = 0
    """Events that the store accepted, directly or from the spool."""
    refused: int = 0
    """Events that the store rejected; the log has the code of each."""
    spooled: int = 0
    """Events that were fsynced to the spool."""
    drained: int = 0
    """Events that left the spool because the store accepted or rejected them."""
    dropped: int = 0
    """Lost events: neither store nor spool could take them. The log has their ids."""
    write_failures: int = 0
    """Writes that failed or timed out."""

    def note_answer(self, events: Sequence[Event], answer: WriteAnswer) -> None:
        """Count the results of a write, and log each rejected event.

        Args:
            events: The events that were written.
            answer: The store's answer.
        """
        self.stored += answer.stored
        self.refused += len(answer.refused)
        for refusal in answer.refused:
            log.warning("event_refused", code=refusal.code, **ids_of([events[refusal.index]]))

    def note_drop(self, events: Sequence[Event], reason: str) -> None:
        """Count and log events that are lost.

        Args:
            events: The lost events.
            reason: Why the events are lost. Must not quote the events.
        """
        self.dropped += len(events)
        log.error("events_dropped", reason=reason, **ids_of(events))


def ids_of(events: Sequence[Event]) -> dict[str, object]:
    """Return log fields that identify events, without anything of their content."""
    return {
        "events": len(events),
        "event_types": sorted({event.type for event in events}),
        "root_plan_ids": sorted({str(event.root_plan_id) for event in events}),
        "record_ids": sorted({str(_record_id(event)) for event in events}),
    }


def error_location(error: BaseException) -> str:
    """Return an error's class and line. The message is left out, because it may quote a payload."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    frames = extract_tb(error.__traceback__)
    return f"{kind} at {frames[-1].filename}:{frames[-1].lineno}" if frames else kind


def _record_id(event: Event) -> UUID:
    match event:
        case PlanStarted() | PlanFinished():
            return event.plan_id
        case StepStarted() | StepFinished():
            return event.step_id
        case ThoughtStarted() | ThoughtRecorded():
            return event.think_act_id
        case _:
            return event.tool_call_id
