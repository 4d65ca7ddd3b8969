"""Schemas of the route that records events."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from api.schemas import PLAN_ID, read_config
from tracer.records.events import EVENT

_REF = "#/components/schemas/{model}"

_EXAMPLE = {
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
            "example": {"events": [_EXAMPLE]},
        },
        "application/x-ndjson": {
            "schema": {"type": "string", "description": "One event a line."},
        },
    },
}
"""The description of the request body in the OpenAPI document. FastAPI cannot derive it, because
the endpoint reads the body as a stream."""
