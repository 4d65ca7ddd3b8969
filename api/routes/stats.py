"""Routes for statistics of tool calls, and for the overview of a project."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel

from api.dependencies import ProjectedReader
from api.problems import documented
from api.requests import Period, StoredText
from api.schemas import PLAN_ID, TOOL_CALL_ID, ErrorSchema, ShownStatus, read_config
from tracer.records.pages import (
    CallCounts,
    ExampleCall,
    Overview,
    OverviewFilter,
    SpendOf,
    ToolStats,
)

# --- Schemas of statistics of tool calls.

_FIGURES = {
    "calls": 14,
    "succeeded": 10,
    "failed": 2,
    "failedBelow": 1,
    "failedHere": 1,
    "ended": 12,
    "cancelled": 0,
    "abandoned": 1,
    "running": 1,
    "failureRate": 0.0833,
    "p50Ms": 120.5,
    "p95Ms": 900.25,
    "p99Ms": 1400.0,
    "ownP50Ms": 20.5,
    "ownP95Ms": 80.25,
    "ownP99Ms": 120.0,
}
_CALL: dict[str, Any] = {
    "toolCallId": TOOL_CALL_ID,
    "rootPlanId": PLAN_ID,
    "status": "failed",
    "startedAt": "2026-11-21T22:21:52.462812Z",
    "durationMs": 1400.0,
    "reason": "tool_error",
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


_COUNTS: dict[str, Any] = {"at": "2026-11-21T22:00:00Z", "calls": 14, "failed": 1}


class CallFiguresSchema(BaseModel):
    """The outcomes and durations of calls."""

    model_config = read_config()

    calls: int
    succeeded: int
    failed: int
    failed_below: int
    """How many of the failed calls opened an agent that failed."""
    failed_here: int
    """How many calls failed themselves: `failed` without `failedBelow`."""
    ended: int
    """The number of failed and succeeded calls, the denominator of `failureRate`."""
    cancelled: int
    abandoned: int
    """The number of open calls whose recorder's lease expired."""
    running: int
    """The number of all other open calls."""
    failure_rate: float | None
    """`failedHere` divided by `ended`, 0 to 1; null if no call has ended."""
    p50_ms: float | None
    """The median duration of ended calls in milliseconds, accurate to 1 %. Null without ended
    calls."""
    p95_ms: float | None
    p99_ms: float | None
    own_p50_ms: float | None
    """The median of the calls' own time in milliseconds, accurate to 1 %. A call's own time is
    its duration minus the time in which the sub-agents that it opened were running."""
    own_p95_ms: float | None
    own_p99_ms: float | None


class ToolStatsSchema(CallFiguresSchema):
    """The statistics of one tool."""

    model_config = read_config(**_STATS)

    name: str
    tool_type: str | None
    """The kind of tool. If calls had several kinds, this is the last one in alphabetical order."""
    latest_at: datetime
    """When the latest call started. If a call has no start, the time of recording counts."""
    sub_plans: int
    """The number of sub-plans that the calls opened."""


class CallCountsSchema(BaseModel):
    """The number of calls in a time interval."""

    model_config = read_config()

    at: datetime
    """The start of the interval."""
    calls: int
    failed: int


class ListedToolStatsSchema(ToolStatsSchema):
    """The statistics of one tool, with its calls over time."""

    model_config = read_config(**_STATS, buckets=[_COUNTS])

    buckets: list[CallCountsSchema]
    """The intervals with calls, in order of time. Each starts at a multiple of `bucketSeconds`
    since 1970."""

    @classmethod
    def of(cls, stats: ToolStats, counts: list[CallCounts]) -> ListedToolStatsSchema:
        """Return the schema of a tool's statistics."""
        of_tool = ToolStatsSchema.model_validate(stats)
        return cls.model_validate({**vars(of_tool), "buckets": counts})


class ToolStatsList(BaseModel):
    """The statistics of every tool that was called, sorted by name."""

    model_config = read_config(
        items=[{**_STATS, "buckets": [_COUNTS]}], bucketSeconds=3600, asOf=_AS_OF
    )

    items: list[ListedToolStatsSchema]
    bucket_seconds: int
    """The length of an interval in seconds, chosen so that there are a few dozen intervals; 0 if
    there are no calls."""
    as_of: datetime | None
    """Calls that started more than two hours before this time are counted with their state at this
    time. Null if all calls were counted for this response."""


class CallBucketSchema(CallFiguresSchema):
    """The statistics of calls in a time interval."""

    model_config = read_config()

    at: datetime
    """The start of the interval."""


class NamedCallSchema(BaseModel):
    """An example call, such as a slow or failed one."""

    model_config = read_config(**_CALL)

    tool_call_id: UUID
    root_plan_id: UUID
    status: ShownStatus
    started_at: datetime | None
    duration_ms: float | None
    reason: str | None
    """The reason of the call's status, as a code."""
    error: ErrorSchema | None
    """The error, without a stack trace, and with the first 2 kB of its message."""

    @classmethod
    def of(cls, call: ExampleCall) -> NamedCallSchema:
        """Return the schema of an example call."""
        error = ErrorSchema.of(call.error_type, call.error_message, stack=None)
        return cls.model_validate({**vars(call), "error": error})


class ToolHistorySchema(BaseModel):
    """The statistics of one tool over time."""

    model_config = read_config(
        stats=_STATS,
        bucketSeconds=3600,
        buckets=[{"at": "2026-11-21T22:00:00Z", **_FIGURES}],
        slowest=[_CALL],
        latestFailed=[_CALL],
        latestAbandoned=[],
        asOf=_AS_OF,
    )

    stats: ToolStatsSchema
    bucket_seconds: int
    """The length of an interval in seconds, chosen so that there are a few dozen intervals."""
    buckets: list[CallBucketSchema]
    """The intervals with calls, in order of time. Each starts at a multiple of `bucketSeconds`
    since 1970."""
    slowest: list[NamedCallSchema]
    """The ten slowest calls."""
    latest_failed: list[NamedCallSchema]
    """The ten failed calls that ended last."""
    latest_abandoned: list[NamedCallSchema]
    """The ten abandoned calls that started last."""
    as_of: datetime | None
    """Calls that started more than two hours before this time are counted with their state at this
    time. Null if all calls were counted for this response."""


router = APIRouter(prefix="/api/stats/tools", tags=["statistics"])

# With slashes, because a tool may have any name.
ToolName = Annotated[StoredText, Path(alias="name", description="The tool's name.")]


@router.get("")
async def read_tool_stats(
    reader: ProjectedReader,
    period: Period,
    name: Annotated[StoredText | None, Query(description="This tool only.")] = None,
) -> ToolStatsList:
    """Read the number, outcomes and durations of each tool's calls.

    Calls of older hours are counted in the background, so their numbers may be a little old: they
    contain all changes up to `asOf`. Calls of recent hours are counted at each request. If calls of
    older hours contribute, percentiles are accurate to 1 %; otherwise they are exact.
    """
    page = await reader.read_tool_stats(period, name)
    return ToolStatsList(
        items=[
            ListedToolStatsSchema.of(stats, page.counts.get(stats.name, [])) for stats in page.items
        ],
        bucket_seconds=page.bucket_seconds,
        as_of=page.as_of,
    )


@router.get("/{name:path}", responses=documented(HTTPStatus.NOT_FOUND))
async def read_tool_history(
    name: ToolName, reader: ProjectedReader, period: Period
) -> ToolHistorySchema:
    """Read one tool's calls over time, with the slowest calls and the latest failed calls.

    Older calls are counted in the background, as explained for the statistics of all tools.
    """
    history = await reader.read_tool_history(name, period)
    return ToolHistorySchema(
        stats=ToolStatsSchema.model_validate(history.stats),
        bucket_seconds=history.bucket_seconds,
        buckets=[CallBucketSchema.model_validate(bucket) for bucket in history.buckets],
        slowest=[NamedCallSchema.of(call) for call in history.slowest],
        latest_failed=[NamedCallSchema.of(call) for call in history.latest_failed],
        latest_abandoned=[NamedCallSchema.of(call) for call in history.latest_abandoned],
        as_of=history.as_of,
    )


# --- The overview of a project: runs, failures and spend of whole days.


class SpendList(BaseModel):
    """Spend, the most expensive first."""

    items: list[SpendOf]
    """At most 100."""


async def _overview_filter(
    service: Annotated[StoredText | None, Query(description="The service's name.")] = None,
    environment: Annotated[StoredText | None, Query(description="The environment.")] = None,
    agent: Annotated[
        StoredText | None,
        Query(description="Runs in which the agent took part, and its own model calls."),
    ] = None,
    model: Annotated[
        StoredText | None, Query(description="Runs that used the model, and calls of it.")
    ] = None,
) -> OverviewFilter:
    return OverviewFilter(service, environment, agent, model)


WantedFigures = Annotated[OverviewFilter, Depends(_overview_filter)]

overview_router = APIRouter(prefix="/api", tags=["statistics"])


@overview_router.get("/overview")
async def read_overview(reader: ProjectedReader, period: Period, wanted: WantedFigures) -> Overview:
    """Read the outcomes, the failures and the cost of the runs of a period.

    The period is extended to whole days in UTC. Changes of the newest 200 runs are counted at once,
    others within a minute.
    """
    return await reader.read_overview(period, wanted)


@overview_router.get("/spend", responses=documented(HTTPStatus.BAD_REQUEST))
async def read_spend(
    reader: ProjectedReader,
    period: Period,
    wanted: WantedFigures,
    by: Annotated[
        Literal["model", "agent", "service", "user", "day"],
        Query(description="How spend is divided. By `user`, the period has at most 30 days."),
    ] = "model",
) -> SpendList:
    """Read what model calls used and cost, as accurate as the overview."""
    return SpendList(items=await reader.read_spend(period, by, wanted))
