"""Statistics of tool calls."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query

from api.dependencies import ProjectedReader
from api.http.parameters import Period, StoredText
from api.http.problems import documented
from api.stats.schemas import (
    CallBucketSchema,
    ListedToolStatsSchema,
    NamedCallSchema,
    ToolHistorySchema,
    ToolStatsList,
    ToolStatsSchema,
)

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

    Calls are counted by the hour in the background. `asOf` is the time up to which older hours
    contain all changes; newer ones are counted at each request. Percentiles are actual durations,
    or within 1 % of them if older hours contribute.
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
    """Read one tool's calls over time, with the slowest calls and the latest failures.

    Calls are counted as in the statistics of all tools.
    """
    history = await reader.read_tool_history(name, period)
    return ToolHistorySchema(
        stats=ToolStatsSchema.model_validate(history.stats),
        bucket_seconds=history.bucket_seconds,
        buckets=[CallBucketSchema.model_validate(bucket) for bucket in history.buckets],
        slowest=[NamedCallSchema.of(call) for call in history.slowest],
        latest_failures=[NamedCallSchema.of(call) for call in history.latest_failures],
        latest_abandoned=[NamedCallSchema.of(call) for call in history.latest_abandoned],
        as_of=history.as_of,
    )
