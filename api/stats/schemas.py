"""How the calls of tools went."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from api.schemas import PLAN_ID, TOOL_CALL_ID, ErrorSchema, ShownStatus, read_config
from tracer.records.tool_stats import ExampleCall

_FIGURES = {
    "calls": 14,
    "succeeded": 11,
    "failures": 1,
    "cancelled": 0,
    "abandoned": 1,
    "running": 1,
    "failureRate": 0.0833,
    "p50Ms": 120.5,
    "p95Ms": 900.25,
    "p99Ms": 1400.0,
}
_CALL: dict[str, Any] = {
    "toolCallId": TOOL_CALL_ID,
    "rootPlanId": PLAN_ID,
    "status": "failed",
    "startedAt": "2026-11-21T22:21:52.462812Z",
    "durationMs": 1400.0,
    "error": {"type": "ValueError", "message": "no such patient", "stack": None},
}
_AS_OF = "2026-11-21T22:21:30.104296Z"
_STATS: dict[str, Any] = {
    "name": "medication_check",
    "toolType": "SUBPLAN",
    "latestAt": "2026-11-21T22:21:52.462812Z",
    "subPlans": 13,
    **_FIGURES,
}


class CallFiguresSchema(BaseModel):
    """How calls went."""

    model_config = read_config()

    calls: int
    succeeded: int
    failures: int
    cancelled: int
    abandoned: int
    """Open, and the lease of their recorder ran out."""
    running: int
    """Open otherwise."""
    failure_rate: float | None
    """The failures among those that succeeded or failed, from 0 to 1; null where none did."""
    p50_ms: float | None
    """Half of those that ended took no longer, in milliseconds, to 1 %; null where none ended."""
    p95_ms: float | None
    p99_ms: float | None


class ToolStatsSchema(CallFiguresSchema):
    """How the calls of one tool went."""

    model_config = read_config(**_STATS)

    name: str
    tool_type: str | None
    """The kind of tool; of several, the last by name."""
    latest_at: datetime
    """When the latest call started, or else was recorded."""
    sub_plans: int
    """How many sub-plans the calls opened."""


class ToolStatsList(BaseModel):
    """Every tool that was called, by name."""

    model_config = read_config(items=[_STATS], asOf=_AS_OF)

    items: list[ToolStatsSchema]
    as_of: datetime | None
    """Calls that started more than two hours before this moment are counted as of this moment; null
    if all calls were counted when asked."""


class CallBucketSchema(CallFiguresSchema):
    """How the calls of a span of time went."""

    model_config = read_config()

    at: datetime
    """When it begins."""


class NamedCallSchema(BaseModel):
    """A call that is worth looking at."""

    model_config = read_config(**_CALL)

    tool_call_id: UUID
    root_plan_id: UUID
    status: ShownStatus
    started_at: datetime | None
    duration_ms: float | None
    error: ErrorSchema | None
    """Without its stack; of its message the first 2 kB."""

    @classmethod
    def of(cls, call: ExampleCall) -> NamedCallSchema:
        """Return `call` as it is shown."""
        error = None
        if call.error_type is not None:
            error = ErrorSchema(type=call.error_type, message=call.error_message, stack=None)
        return cls.model_validate({**vars(call), "error": error})


class ToolHistorySchema(BaseModel):
    """How the calls of one tool went over time."""

    model_config = read_config(
        stats=_STATS,
        bucketSeconds=3600,
        buckets=[{"at": "2026-11-21T22:00:00Z", **_FIGURES}],
        slowest=[_CALL],
        latestFailures=[_CALL],
        asOf=_AS_OF,
    )

    stats: ToolStatsSchema
    bucket_seconds: int
    """How long each bucket is: so that there are some dozens."""
    buckets: list[CallBucketSchema]
    """In order, from multiples of `bucketSeconds` since 1970; those without calls are left out."""
    slowest: list[NamedCallSchema]
    """The ten calls that took longest."""
    latest_failures: list[NamedCallSchema]
    """The ten failed calls that ended last."""
    as_of: datetime | None
    """The same as in the statistics of all tools."""
