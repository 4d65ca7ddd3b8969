"""The route that records events, by which agents in any language can be recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from http import HTTPStatus
from uuid import UUID

from fastapi import APIRouter, Request

from api.dependencies import MetricsDep, RecordingIntake, Writer
from api.events.bodies import sent_events
from api.events.schemas import EVENTS_BODY, EventsAnswer, RefusedEvent
from api.http.problems import documented
from api.http.request_bodies import admitted_body, media_type
from tracer.logs import bind_request_ids
from tracer.records.events import PROTOCOL_HEADER, PROTOCOL_VERSION, Event
from tracer.store import Refusal

BATCH_EVENTS = 1000
"""The number of events in one write."""

router = APIRouter(prefix="/api/events", tags=["events"])


@router.post(
    "",
    openapi_extra={"requestBody": EVENTS_BODY},
    responses=documented(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    ),
)
async def record_events(
    request: Request, writer: Writer, intake: RecordingIntake, metrics: MetricsDep
) -> EventsAnswer:
    """Record events. Each event is stored or rejected independently of the others.

    All stored events are committed before the response. The body may be compressed
    (`Content-Encoding: gzip`). If the status is not 200, some events may be stored and others not.
    It is safe to send all of them again.
    """
    stored, refused = 0, list[Refusal]()
    places = set[tuple[UUID, UUID | None]]()
    hint = _upgrade_hint(request)
    async with admitted_body(request, intake) as body:
        async for batch in _batches(sent_events(media_type(request), body)):
            events = [(index, each) for index, each in batch if not isinstance(each, Refusal)]
            if len(places) < 2:
                places |= {(event.root_plan_id, event.recorder_id) for _, event in events}
            root_plan_id, recorder_id = next(iter(places)) if len(places) == 1 else (None, None)
            bind_request_ids(root_plan_id=root_plan_id, recorder_id=recorder_id)
            answer = await writer.write([event for _, event in events])
            others = [
                replace(each, detail=each.detail + hint)
                for _, each in batch
                if isinstance(each, Refusal)
            ]
            others += [replace(each, index=events[each.index][0]) for each in answer.refused]
            metrics.note_ingest("events", answer.stored, others)
            stored += answer.stored
            refused += others
    refused.sort(key=lambda each: each.index)
    return EventsAnswer(
        stored=stored, refused=[RefusedEvent.model_validate(each) for each in refused]
    )


def _upgrade_hint(request: Request) -> str:
    """If the client uses a newer protocol than the server, return a hint for refusals, else ""."""
    spoken = request.headers.get(PROTOCOL_HEADER, "")
    if not spoken.isdecimal() or int(spoken[:9]) <= PROTOCOL_VERSION:
        return ""
    return (
        f" The client uses version {spoken[:9]} of the protocol, and this server version "
        f"{PROTOCOL_VERSION}. To record such events, upgrade the server."
    )


async def _batches(
    sent: AsyncIterator[tuple[int, Event | Refusal]],
) -> AsyncIterator[list[tuple[int, Event | Refusal]]]:
    batch = []
    async for each in sent:
        batch.append(each)
        if len(batch) == BATCH_EVENTS:
            yield batch
            batch = []
            await asyncio.sleep(0)  # let other requests run if the body arrived at once
    yield batch
