"""Routes for statistics of tool calls."""

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
