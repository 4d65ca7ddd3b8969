"""The status of a record, and the lease that decides whether a running record is abandoned."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

# --- The status of a record: whether it is running, and how it ended.


class Status(StrEnum):
    """The status of a record.

    If two versions of a record are merged, the greater status wins. The order is part of the
    protocol: `unknown < pending < running < cancelled < failed < succeeded`.
    """

    UNKNOWN = "unknown"
    """A placeholder: another record referenced this one before it arrived."""
    PENDING = "pending"
    """Announced but not started, such as a later step or a queued call."""
    RUNNING = "running"
    CANCELLED = "cancelled"
    FAILED = "failed"
    SUCCEEDED = "succeeded"

    @property
    def rank(self) -> int:
        """The position of the status in the order of statuses, from 0 to 5."""
        return _RANKS[self]

    @property
    def is_ending(self) -> bool:
        """Whether the status is final: `cancelled`, `failed` or `succeeded`."""
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
    """Why a record has its final status. Other programs may record their own reasons."""

    TOOL_ERROR = "tool_error"
    """The tool raised an error."""
    INVALID_ARGUMENTS = "invalid_arguments"
    """The arguments were not a JSON object, or did not match the tool's schema."""
    INVALID_RESULT = "invalid_result"
    """The tool's result did not match its output schema."""
    MISSING_IDENTITY = "missing_identity"
    """The tool requires a caller, but the call had none."""
    IDENTITY_UNAVAILABLE = "identity_unavailable"
    """The token resolver failed, so the caller's token could not be looked up."""
    DENIED = "denied"
    """A guard rejected the call."""
    ADDRESS_REFUSED = "address_refused"
    """The tool tried to access an address that tools must not access."""
    UNAVAILABLE = "unavailable"
    """A service that the tool depends on did not answer."""
    STATE_CONFLICT = "state_conflict"
    """The session state did not have the value that the tool expected."""
    BUDGET_EXHAUSTED = "budget_exhausted"
    """The run's budget of calls or tokens was used up."""
    UNKNOWN_TOOL = "unknown_tool"
    """The model requested a tool that the agent does not have."""
    TIMED_OUT = "timed_out"
    """The deadline passed before it ended."""
    INTERRUPTED = "interrupted"
    """The process ended before the work did."""
    ROUND_LIMIT = "round_limit"
    """The agent used up its rounds without a final answer."""
    DEPTH_LIMIT = "depth_limit"
    """A sub-plan would have been nested deeper than allowed."""
    CYCLE = "cycle"
    """A sub-plan would have opened itself again with the same arguments."""
    MODEL_ERROR = "model_error"
    """The model could not be reached, or its response could not be used."""
    STEP_FAILED = "step_failed"
    """A plan stopped because one of its steps failed."""
    SUBPLAN_FAILED = "subplan_failed"
    """A tool call failed because the sub-plan that it opened failed."""
    NOT_REACHED = "not_reached"
    """The work around it ended before it began: a later step, or a tool call of the last round."""
    DEFERRED = "deferred"
    """The work waits, for example for an approval. Another run may continue it."""
    CANCEL_REQUESTED = "cancel_requested"
    """A client requested that the run be cancelled."""
    INTERNAL_ERROR = "internal_error"
    """The runtime itself failed."""


# --- Leases: how long a recorder counts as alive after a heartbeat.
#
# A recorder is a process that writes events. After its lease expires, its unfinished records are
# shown as `abandoned`.

MAX_DELAY = timedelta(days=36_500)
"""The maximum delay of an event. Larger delays are reduced to this one: they come from a wrong
clock, and times computed with them would be out of range."""


@dataclass(frozen=True)
class LeaseTerms:
    """The durations of leases."""

    lease: timedelta = timedelta(seconds=60)
    """How long a recorder counts as alive after a heartbeat."""
    span_idle: timedelta = timedelta(minutes=15)
    """How long a run without a recorder counts as alive after its last data. Most runs of
    OpenTelemetry spans have no recorder."""


DEFAULT_TERMS = LeaseTerms()


@dataclass(frozen=True)
class Lease:
    """The lease of one recorder. Times are those of the store's clock."""

    recorder_id: UUID
    """The id of the recorder, or of the run if the run has no recorder."""
    seen_at: datetime
    """The time of the last heartbeat."""
    length: timedelta
    """How long the lease lasts after `seen_at`."""

    @property
    def expires_at(self) -> datetime:
        """When the lease expires. It becomes the `abandoned_at` of the recorder's open records."""
        return self.seen_at + self.length

    @property
    def renew_after(self) -> timedelta:
        """The time after a heartbeat at which to renew the lease: a third of its length.

        Two renewals may then fail before the lease expires.
        """
        return self.length / 3
