"""Routes of recorders: they send events and heartbeats, in any language."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, NoReturn, Self
from uuid import UUID

import orjson
from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field, ValidationError

from api.dependencies import MetricsDep, Reader, RecordingIntake, Writer
from api.problems import documented
from api.requests import RootPlanId, admitted_body, media_type
from api.schemas import PLAN_ID, read_config
from tracer.errors import BadRequest, TooLarge, UnknownFormat
from tracer.logs import bind_request_ids
from tracer.records import Lease
from tracer.records.events import (
    EVENT,
    FROM_THE_WIRE,
    PROTOCOL_HEADER,
    PROTOCOL_VERSION,
    Event,
    validation_message,
)
from tracer.store import Refusal
from tracer.text import MAX_JSON_VALUES, check_json_values

# --- Schemas of the route that records events.

_REF = "#/components/schemas/{model}"

_EVENT_EXAMPLE = {
    "type": "plan_started",
    "at": "2026-11-21T22:21:52.462812Z",
    "rootPlanId": PLAN_ID,
    "planId": PLAN_ID,
    "title": "Weekly health review",
}


class RefusedEvent(BaseModel):
    """An event that was not stored, and why."""

    model_config = read_config(
        index=1, code="invalid_event", detail="plan_started.planId: Field required."
    )

    index: int
    """The index of the event in the request, from 0. Blank lines do not count."""
    code: str
    """A stable code for programs; see docs/reference/protocol.md."""
    detail: str
    """Why the event was rejected, as a text for people."""


class EventsAnswer(BaseModel):
    """How many events were stored, and which events were rejected."""

    model_config = read_config(stored=1, refused=[])

    stored: int
    """The number of committed events."""
    refused: list[RefusedEvent] = Field(default_factory=list)
    """The rejected events, in the order in which they were sent."""


def event_components() -> dict[str, Any]:
    """Return the schemas of an event and its parts, for the OpenAPI document's components."""
    schema = EVENT.json_schema(ref_template=_REF)
    return {**schema.pop("$defs"), "Event": schema}


EVENTS_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["events"],
                "additionalProperties": False,
                "properties": {
                    "events": {
                        "type": "array",
                        # Any value is valid: an invalid event does not fail the request.
                        "items": {"anyOf": [{"$ref": _REF.format(model="Event")}, {}]},
                        "description": "Events. An invalid one is rejected by itself.",
                    }
                },
            },
            "example": {"events": [_EVENT_EXAMPLE]},
        },
        "application/x-ndjson": {
            "schema": {"type": "string", "description": "One event a line."},
        },
    },
}
"""The description of the request body in the OpenAPI document. FastAPI cannot derive it, because
the endpoint reads the body as a stream."""


# --- Decode the events in a request body, which is one JSON object or has one JSON event per line.

MAX_EVENTS = 100_000
"""The largest number of events in a request. The response may contain a refusal for each."""

MAX_FIELDS = 1000
"""An object with more fields is rejected as a whole, because each unknown field would be a separate
error."""

_TOO_MANY = f"A request may contain at most {MAX_EVENTS} events. Send the rest in another request."

_NOT_JSON = object()
"""Marks a line that cannot be parsed."""


async def sent_events(
    kind: str, body: AsyncIterator[bytes]
) -> AsyncIterator[tuple[int, Event | Refusal]]:
    """Yield the items of a body in order, each with its index.

    An item is an event, or a refusal if the event is invalid.

    Args:
        kind: The media type of the request.
        body: The decompressed body in chunks.

    Raises:
        UnknownFormat: The media type is not supported.
        TooLarge: The body contains too many events or values.
        BadRequest: The body does not match its media type.
    """
    split = _FORMATS.get(kind)
    if split is None:
        raise UnknownFormat(f"Send events with one of the Content-Types {', '.join(_FORMATS)}.")
    index = 0
    async for sent in split(body):
        if index == MAX_EVENTS:
            raise TooLarge(_TOO_MANY)
        if not _is_end_of_export(sent):
            yield index, _event_or_refusal(index, sent)
        index += 1


def _is_end_of_export(sent: object) -> bool:
    """Return whether an item is the last line of an export, which is accepted and not stored."""
    return isinstance(sent, dict) and sent.keys() == {"end", "unreadableBlocks"}


async def _in_an_object(body: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """Yield the items of a body that is a JSON object `{"events": […]}`."""
    whole = b"".join([part async for part in body])
    await _check_values(whole)
    try:
        envelope = _parsed(whole)
    except ValueError:
        raise BadRequest('The body is not JSON. Write it as {"events": […]}.') from None
    del whole
    match envelope:
        case {"events": list(events), **others} if not others:
            if len(events) > MAX_EVENTS:
                raise TooLarge(_TOO_MANY)
            events.reverse()
            while events:  # frees each parsed event after use: it is much larger than its text
                yield events.pop()
        case _:
            raise BadRequest('The body must be an object {"events": […]} without other fields.')


async def _on_lines(body: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """Yield the parsed JSON value of each line. Skip blank lines."""
    is_empty = True
    async for line in _lines(body):
        is_empty = False
        await _check_values(line)
        try:
            yield _parsed(line)
        except ValueError:
            yield _NOT_JSON
    if is_empty:
        raise BadRequest("The body is empty. Write one event per line.")


async def _check_values(json: bytes) -> None:
    """Raise `TooLarge` if JSON contains more than `MAX_JSON_VALUES` values."""
    if len(json) > MAX_JSON_VALUES:
        await asyncio.to_thread(check_json_values, json)


_FORMATS: Mapping[str, Callable[[AsyncIterator[bytes]], AsyncIterator[Any]]] = {
    "application/json": _in_an_object,
    "application/x-ndjson": _on_lines,
}


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    begun: list[bytes] = []
    async for part in parts:
        *ended, rest = part.split(b"\n")
        if ended:
            ended[0] = b"".join([*begun, ended[0]])
            begun = []
        for line in ended:
            if line.strip():
                yield line
        begun.append(rest)
    last = b"".join(begun)
    if last.strip():
        yield last


def _parsed(text: bytes) -> Any:
    """Return the value of JSON text.

    Raises:
        ValueError: The text is not JSON, or is nested too deeply.
    """
    try:
        return orjson.loads(text)
    except ValueError:
        pass  # it may contain lone surrogates, which orjson rejects but some languages write
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("too deep") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and Infinity are not JSON


def _event_or_refusal(index: int, sent: object) -> Event | Refusal:
    if sent is _NOT_JSON:
        return Refusal(index, "not_json", "The line is not JSON.")
    if _has_too_many_fields(sent):
        return Refusal(index, "invalid_event", "The event has too many fields.")
    try:
        return EVENT.validate_python(sent, context=FROM_THE_WIRE, by_alias=True, by_name=False)
    except ValidationError as error:
        return Refusal(index, "invalid_event", validation_message(error))
    except RecursionError:
        return Refusal(index, "invalid_event", "The event is nested too deeply.")


def _has_too_many_fields(sent: object) -> bool:
    if not isinstance(sent, dict):
        return False
    values = [item for each in sent.values() if isinstance(each, list) for item in each]
    objects = [each for each in (sent, *sent.values(), *values) if isinstance(each, dict)]
    return any(len(each) > MAX_FIELDS for each in objects)


# --- The route that records events, by which agents in any language can be recorded.

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
    senders = set[tuple[UUID, UUID | None]]()
    hint = _upgrade_hint(request)
    async with admitted_body(request, intake) as body:
        async for batch in _batches(sent_events(media_type(request), body)):
            events = [(index, each) for index, each in batch if not isinstance(each, Refusal)]
            if len(senders) < 2:
                senders |= {(event.root_plan_id, event.recorder_id) for _, event in events}
            root_plan_id, recorder_id = next(iter(senders)) if len(senders) == 1 else (None, None)
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


# --- Schemas of recorders' leases.

_LEASE_EXAMPLE = {
    "recorderId": "01a20033-9c01-7f00-8a9b-5c6d7e8f9012",
    "seenAt": "2026-11-21T22:21:52.462812Z",
    "leaseSeconds": 60.0,
    "expiresAt": "2026-11-21T22:22:52.462812Z",
    "renewAfterSeconds": 20.0,
}


class LeaseSchema(BaseModel):
    """A recorder's lease: the time until which the recorder counts as alive.

    All times are by the server's clock.
    """

    model_config = read_config(**_LEASE_EXAMPLE)

    recorder_id: UUID
    """The recorder's id. Spans have no recorder, so their lease has the run's `rootPlanId`."""
    seen_at: datetime
    """When the last heartbeat arrived: an event, a span or a renewal."""
    lease_seconds: float
    """How long a heartbeat counts, in seconds."""
    expires_at: datetime
    """When the lease expires. Records that are open then get this time as `abandonedAt`."""
    renew_after_seconds: float
    """The time after which to renew the lease, in seconds."""

    @classmethod
    def of(cls, lease: Lease) -> Self:
        """Return the schema of a lease."""
        return cls(
            recorder_id=lease.recorder_id,
            seen_at=lease.seen_at,
            lease_seconds=lease.length.total_seconds(),
            expires_at=lease.expires_at,
            renew_after_seconds=lease.renew_after.total_seconds(),
        )


class LeasesSchema(BaseModel):
    """The leases of a run's recorders."""

    model_config = read_config(items=[_LEASE_EXAMPLE])

    items: list[LeaseSchema]
    """The leases, sorted by `recorderId`."""


# --- Routes that receive recorders' heartbeats, and list the leases of a run's recorders.
#
# A lease is the time for which a heartbeat counts.

lease_router = APIRouter(prefix="/api", tags=["leases"])


@lease_router.post("/recorders/{recorderId}/lease")
async def renew_lease(
    recorder_id: Annotated[UUID, Path(alias="recorderId", description="The recorder's id.")],
    writer: Writer,
) -> LeaseSchema:
    """Send a heartbeat for a recorder. Repeat it every `renewAfterSeconds` until the recorder ends.

    If the lease expires without a heartbeat, the recorder's open records are shown as `abandoned`.
    The next heartbeat reverts this.
    """
    return LeaseSchema.of(await writer.renew(recorder_id))


@lease_router.get("/runs/{rootPlanId}/leases", responses=documented(HTTPStatus.NOT_FOUND))
async def list_leases(root_plan_id: RootPlanId, reader: Reader) -> LeasesSchema:
    """List the leases of the recorders that may have open records in a run.

    If a record is `abandoned`, its `abandonedAt` is the `expiresAt` of its recorder's lease.
    """
    leases = await reader.read_leases(root_plan_id)
    return LeasesSchema(items=[LeaseSchema.of(lease) for lease in leases])
