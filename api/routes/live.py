"""The route that streams a run's changes as they happen, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import StreamingResponse

from api.dependencies import CallerCheck, LiveSettings, ProjectedReader, Watch
from api.problems import documented
from api.requests import RootPlanId
from api.routes.plans import REF
from api.run_events import run_events
from api.schemas import TOOL_CALL_ID
from tracer.records import Kind

# --- The response of a run's event stream, for the OpenAPI document.


def _data(model: str) -> dict[str, Any]:
    return {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"$ref": REF.format(name=model)},
    }


def _event(name: str | None, data: dict[str, Any], description: str) -> dict[str, Any]:
    named = {} if name is None else {"event": {"const": name}}
    return {
        "type": "object",
        "description": description,
        "required": ["data", *named],
        "properties": {"id": {"type": "string"}, **named, "data": data},
    }


RUN_STREAM: dict[str, Any] = {
    "description": "The stream. It does not end while the run exists.",
    "content": {
        "text/event-stream": {
            "itemSchema": {
                "oneOf": [
                    _event(None, _data("ChangedRecords"), "The changes; `id` is the revision."),
                    _event("reset", _data("RunRevision"), "Too far behind: read the tree again."),
                    _event("stale", {"const": "{}"}, "The store is down until the next message."),
                    _event("deleted", {"const": "{}"}, "The run was deleted; the stream ends."),
                ]
            },
            "example": 'id: 43\ndata: {"changed":[{"kind":"toolCall","toolCallId":'
            f'"{TOOL_CALL_ID}","status":"succeeded"}}],"removed":[]}}\n\n',
        }
    },
}
"""The description of the response for the OpenAPI document. FastAPI cannot derive the messages."""


router = APIRouter(prefix="/api/runs", tags=["runs"])

_LARGEST = 2**63 - 1

_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class _RunStream(StreamingResponse):
    """A response that creates each message only after the client has accepted the previous one."""

    media_type = "text/event-stream"


async def _watched(
    root_plan_id: RootPlanId, reader: ProjectedReader, watch: Watch
) -> AsyncIterator[asyncio.Event]:
    """Watch a run, and yield the event that is set when the run may have changed."""
    await reader.read_revision(Kind.RUN, root_plan_id)
    with watch.watching(root_plan_id) as woken:
        yield woken


@router.get(
    "/{rootPlanId}/events",
    response_class=_RunStream,
    responses={200: RUN_STREAM, **documented(HTTPStatus.NOT_FOUND)},
)
async def watch_run(
    root_plan_id: RootPlanId,
    reader: ProjectedReader,
    watch: Watch,
    check_caller: CallerCheck,
    settings: LiveSettings,
    woken: Annotated[asyncio.Event, Depends(_watched)],
    after: Annotated[
        int, Query(ge=0, le=_LARGEST, description="The `revision` of the tree that you have.")
    ] = 0,
    last_event_id: Annotated[
        int | None,
        Header(
            ge=0,
            le=_LARGEST,
            description="The `id` of the last message, if a connection is resumed. It replaces "
            "`after`.",
        ),
    ] = None,
) -> _RunStream:
    """Watch a run. Each message contains the changes since the previous message.

    The `id` of a message is the revision of the run. If a record changes several times between two
    messages, only its latest state is sent. `docs/reference/protocol.md` explains how to apply the
    messages to a tree.
    """
    start = after if last_event_id is None else last_event_id
    events = run_events(reader, watch, woken, root_plan_id, start, check_caller, settings)
    return _RunStream(events, headers=_UNBUFFERED)
