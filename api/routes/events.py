"""Events: what programs in any language record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from http import HTTPStatus

from fastapi import APIRouter, Request

from api.event_bodies import sent_events
from api.event_schemas import EVENTS_BODY, EventsAnswer, RefusedEvent
from api.parts import RecordingIntake, Writer
from api.problems import documented
from api.request_bodies import admitted_body, media_type
from tracer.events import Event
from tracer.store import Refusal

BATCH_EVENTS = 1000
"""How many events are stored at once."""

router = APIRouter(prefix="/api/events", tags=["events"])


@router.post(
    "",
    openapi_extra={"requestBody": EVENTS_BODY},
    responses=documented(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
)
async def record_events(request: Request, writer: Writer, intake: RecordingIntake) -> EventsAnswer:
    """Record events, each stored or refused by itself. Those stored are committed.

    The body may be packed (`Content-Encoding: gzip`). After any answer but 200, some may be stored
    and others not: sending the same again is safe.
    """
    stored, refused = 0, list[Refusal]()
    with admitted_body(request, intake) as (body, share):
        async for batch in _batches(sent_events(media_type(request), body, share)):
            events = [(index, each) for index, each in batch if not isinstance(each, Refusal)]
            answer = await writer.write([event for _, event in events])
            stored += answer.stored
            refused += [each for _, each in batch if isinstance(each, Refusal)]
            refused += [replace(each, index=events[each.index][0]) for each in answer.refused]
    refused.sort(key=lambda each: each.index)
    return EventsAnswer(
        stored=stored, refused=[RefusedEvent.model_validate(each) for each in refused]
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
            await asyncio.sleep(0)  # a body that was read at once must not keep others waiting
    yield batch
