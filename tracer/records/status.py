"""Status: how far a record has come, and how it ended."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """How far a record has come, in the order in which one status supersedes another.

    Merging two versions of a record keeps the greater status, so the order is part of the
    protocol: `unknown < pending < running < cancelled < failed < succeeded`.
    """

    UNKNOWN = "unknown"
    """A placeholder: a child or a parent named this record before it arrived."""
    PENDING = "pending"
    """Announced, not started: a step whose turn has not come, a call that queues."""
    RUNNING = "running"
    CANCELLED = "cancelled"
    FAILED = "failed"
    SUCCEEDED = "succeeded"

    @property
    def rank(self) -> int:
        """The place in the order, 0 to 5."""
        return _RANKS[self]

    @property
    def is_ending(self) -> bool:
        """Whether a record with this status has ended."""
        return _RANKS[self] >= _RANKS[Status.CANCELLED]


_RANKS = {status: rank for rank, status in enumerate(Status)}

ABANDONED = "abandoned"
"""Shown in place of the status of an open record whose `abandoned_at` is set; never stored."""


def shown_status(status: Status, abandoned: bool) -> str:
    """Return the status as the API and the SQL views show it.

    Args:
        status: The stored status.
        abandoned: Whether the record's `abandoned_at` is set.
    """
    return ABANDONED if abandoned and not status.is_ending else status.value


class Reason(StrEnum):
    """Kinds of ending that the runtime tells apart. Other programs may record reasons of theirs."""

    TOOL_ERROR = "tool_error"
    """The tool raised."""
    INVALID_ARGUMENTS = "invalid_arguments"
    """The arguments were no JSON object, or did not fit the tool's schema."""
    INVALID_RESULT = "invalid_result"
    """The tool returned what its own schema does not allow."""
    MISSING_IDENTITY = "missing_identity"
    """The tool needs to know who the caller is, and nobody said so."""
    IDENTITY_UNAVAILABLE = "identity_unavailable"
    """The token resolver failed, so the caller's token could not be looked up."""
    DENIED = "denied"
    """A guard refused the call."""
    ADDRESS_REFUSED = "address_refused"
    """The tool would have reached an address that it may not."""
    UNAVAILABLE = "unavailable"
    """What the tool stands on did not answer."""
    STATE_CONFLICT = "state_conflict"
    """The session's state was not what the tool took it for."""
    BUDGET_EXHAUSTED = "budget_exhausted"
    """The run had used up its calls or tokens."""
    UNKNOWN_TOOL = "unknown_tool"
    """The model chose a tool that the agent does not have."""
    TIMED_OUT = "timed_out"
    """The deadline passed before it ended."""
    INTERRUPTED = "interrupted"
    """The process ended, and the work with it."""
    ROUND_LIMIT = "round_limit"
    """The agent used up its rounds without a final answer."""
    DEPTH_LIMIT = "depth_limit"
    """A sub-plan would have been nested deeper than allowed."""
    CYCLE = "cycle"
    """A sub-plan would have opened itself again with the same arguments."""
    MODEL_ERROR = "model_error"
    """The model could not be asked, or its answer could not be used."""
    STEP_FAILED = "step_failed"
    """A plan stopped because one of its steps failed."""
    SUBPLAN_FAILED = "subplan_failed"
    """A tool call failed because the sub-plan that it opened failed."""
    NOT_REACHED = "not_reached"
    """A step that its plan never came to."""
    DEFERRED = "deferred"
    """It waits for somebody, to approve it for example: where it goes on, that is another run."""
    CANCEL_REQUESTED = "cancel_requested"
    """Somebody asked for the run to be cancelled."""
    INTERNAL_ERROR = "internal_error"
    """The runtime itself failed."""
