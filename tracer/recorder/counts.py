"""What became of the recorded events, as figures and as ids for the log."""

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
    """What became of a recorder's events since it was made."""

    stored: int = 0
    """Events that the store took, directly or from the spool."""
    refused: int = 0
    """Events that the store refused; the log has the code of each."""
    spooled: int = 0
    """Events that were fsynced to the spool."""
    drained: int = 0
    """Events that left the spool because the store answered for them."""
    dropped: int = 0
    """Events lost: neither store nor spool took them, or no store can; the log has their ids."""
    write_failures: int = 0
    """Writes that the store failed, or did not answer in time."""

    def note_answer(self, events: Sequence[Event], answer: WriteAnswer) -> None:
        """Count what the store answered, and log each refusal.

        Args:
            events: What was written.
            answer: What became of it.
        """
        self.stored += answer.stored
        self.refused += len(answer.refused)
        for refusal in answer.refused:
            log.warning("event_refused", code=refusal.code, **ids_of([events[refusal.index]]))

    def note_drop(self, events: Sequence[Event], reason: str) -> None:
        """Count and log events that are lost.

        Args:
            events: The lost events.
            reason: Why, without a word of what they hold.
        """
        self.dropped += len(events)
        log.error("events_dropped", reason=reason, **ids_of(events))


def ids_of(events: Sequence[Event]) -> dict[str, object]:
    """Return log fields that say which events these are and nothing that they hold."""
    return {
        "events": len(events),
        "event_types": sorted({event.type for event in events}),
        "root_plan_ids": sorted({str(event.root_plan_id) for event in events}),
        "record_ids": sorted({str(_record_id(event)) for event in events}),
    }


def error_place(error: BaseException) -> str:
    """Return the kind of an error and where it was raised: its text may quote a payload."""
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
