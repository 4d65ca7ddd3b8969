"""Statistics: how the calls of tools went."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query

from api.parts import ProjectedReader
from api.problems import documented
from api.routes.parameters import StoredText, Within
from api.stats_schemas import (
    CallBucketSchema,
    NamedCallSchema,
    ToolHistorySchema,
    ToolStatsList,
    ToolStatsSchema,
)

router = APIRouter(prefix="/api/stats/tools", tags=["statistics"])

# With slashes: a tool may be called anything.
ToolName = Annotated[StoredText, Path(alias="name", description="The tool's name.")]


@router.get("")
async def read_tool_stats(
    reader: ProjectedReader,
    within: Within,
    name: Annotated[StoredText | None, Query(description="This tool alone.")] = None,
) -> ToolStatsList:
    """Read how the calls of each tool went.

    Counts are exact. Percentiles are durations that there were, or within 1 % of them where hours
    take part that are summed up, which are those that ended more than 26 hours ago.
    """
    found = await reader.read_tool_stats(within, name)
    return ToolStatsList(items=[ToolStatsSchema.model_validate(stats) for stats in found])


@router.get("/{name:path}", responses=documented(HTTPStatus.NOT_FOUND))
async def read_tool_history(
    name: ToolName, reader: ProjectedReader, within: Within
) -> ToolHistorySchema:
    """Read how the calls of one tool went over time, with the slowest and the latest failures.

    Counts are exact, and percentiles as in the statistics of all tools.
    """
    history = await reader.read_tool_history(name, within)
    return ToolHistorySchema(
        stats=ToolStatsSchema.model_validate(history.stats),
        bucket_seconds=history.bucket_seconds,
        buckets=[CallBucketSchema.model_validate(bucket) for bucket in history.buckets],
        slowest=[NamedCallSchema.of(call) for call in history.slowest],
        latest_failures=[NamedCallSchema.of(call) for call in history.latest_failures],
    )
