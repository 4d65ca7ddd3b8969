"""What all stores agree on, beside the promises: words, and what the lists go by."""

from __future__ import annotations

from datetime import UTC, datetime

from tracer.errors import BadRequest
from tracer.records.record_classes import Kind, Record
from tracer.records.status import ABANDONED, Status
from tracer.store import MAX_RUN_BYTES

SEARCHED = {
    Kind.PLAN: ("title", "agent_name", "error_type", "error_message"),
    Kind.STEP: ("agent_name", "error_type", "error_message"),
    Kind.THINK_ACT: ("error_type", "error_message"),
    Kind.TOOL_CALL: ("name", "error_type", "error_message"),
}
"""Where the search of the run list looks."""

SEARCHED_OF_ROOT_PLAN = ("user_request", "summary")
"""Where it looks besides: in the question and the answer of the run."""

SEARCHED_CHARACTERS = 2_000
"""How much of each of these it looks at, from the beginning."""

KIND_WORDS = {
    Kind.RUN: "run",
    Kind.PLAN: "plan",
    Kind.STEP: "step",
    Kind.THINK_ACT: "think-act",
    Kind.TOOL_CALL: "tool call",
}
"""What an error calls a record."""

REFUSED_RUNS = {
    "run_deleted": "The run was deleted; it takes no more events.",
    "run_of_spans": "The run came as OpenTelemetry spans; it takes no events.",
}
"""Why a run takes no events: the code of the refusal, and its sentence."""

REFUSED_SPANS = {
    "run_deleted": "The run was deleted; it takes no more spans.",
    "run_too_large": f"The run has {MAX_RUN_BYTES // 10**9} GB of spans; it takes no more.",
}
"""Why a run takes no spans: the code of the refusal, and its sentence."""

LATEST = datetime(8999, 12, 31, tzinfo=UTC)
"""When something counts as recorded until what an export says of that is merged into it."""


def moment_of(record: Record) -> datetime:
    """Return when a record started, or else was recorded."""
    moment = record.started_at or record.recorded_at
    assert moment is not None
    return moment


def check_status(shown: str | None) -> None:
    """Return if `shown` is None or a status as it is shown.

    Raises:
        BadRequest: There is no such status.
    """
    allowed = [*Status, ABANDONED]
    if shown is not None and shown not in allowed:
        raise BadRequest(f"There is no status {shown!r}: ask for one of {', '.join(allowed)}.")
