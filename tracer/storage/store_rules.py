"""Rules of lists, searches and rejections that all stores share."""

from __future__ import annotations

from datetime import datetime

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
"""The fields that the search of the run list examines."""

SEARCHED_OF_ROOT_PLAN = ("user_request", "summary")
"""Fields of the root plan that the search examines too: the question and the answer of the run."""

SEARCHED_CHARACTERS = 2_000
"""How many characters of the question and of the answer are searched, from the beginning."""

KIND_WORDS = {
    Kind.RUN: "run",
    Kind.PLAN: "plan",
    Kind.STEP: "step",
    Kind.THINK_ACT: "think-act",
    Kind.TOOL_CALL: "tool call",
}
"""The names of records in error messages."""

REFUSED_RUNS = {
    "run_deleted": "The run was deleted, so it accepts no more events.",
    "run_of_spans": "The run arrived as OpenTelemetry spans, so it accepts no events.",
}
"""Why a run rejects events: the code and the message."""

REFUSED_SPANS = {
    "run_deleted": "The run was deleted, so it accepts no more spans.",
    "run_too_large": f"The run has {MAX_RUN_BYTES // 10**9} GB of spans, which is the limit.",
}
"""Why a run rejects spans: the code and the message."""


def moment_of(record: Record) -> datetime:
    """Return when a record started; if it has no start, when it was recorded."""
    moment = record.started_at or record.recorded_at
    assert moment is not None
    return moment


def check_status(shown: str | None) -> None:
    """Check that `shown` is None or a status as the API shows it.

    Raises:
        BadRequest: `shown` is another text.
    """
    allowed = [*Status, ABANDONED]
    if shown is not None and shown not in allowed:
        raise BadRequest(f"Unknown status {shown!r}. Use one of {', '.join(allowed)}.")
