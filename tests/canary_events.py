"""Events with canaries in every text: made of the schema, so that a new field has one, too."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

from pydantic.alias_generators import to_camel

from tests.canaries import SECRETS
from tracer.events import EVENT, FROM_THE_WIRE, Event
from tracer.ids import new_id
from tracer.masked_events import WHOLE_TEXTS

PASSWORD = "canary-of-a-password"
"""A secret by its key alone."""

VALUES = json.dumps([each.text for each in SECRETS])
"""Every secret that is one by its form."""

EVERYTHING = json.dumps([{"password": PASSWORD, "n": [each.text for each in SECRETS]}])
"""Every secret, with what is one by its key."""

HIDDEN = (PASSWORD, *(each.hidden for each in SECRETS))
"""What must not be found anywhere."""

CODE = "sk_live_canary0123456789"
"""What fits into a name in lower case letters."""

_LINKS = ("parentPlanId", "toolCallId", "openedByStepId", "parentToolCallId")


def canary_events() -> list[Event]:
    """Return the events of a run, one of each type, with canaries in every text."""
    schema = EVENT.json_schema(by_alias=True)
    ids = {name: str(new_id()) for name in ("rootPlanId", "stepId", "thinkActId", "toolCallId")}
    ids["planId"] = ids["rootPlanId"]
    return [
        EVENT.validate_python(_event(schema, reference["$ref"], ids), context=FROM_THE_WIRE)
        for reference in schema["oneOf"]
    ]


def _event(schema: dict[str, Any], reference: str, ids: dict[str, str]) -> dict[str, Any]:
    event: dict[str, Any] = _filled(schema, {"$ref": reference}, "")
    event |= {name: ids[name] for name in event.keys() & ids.keys()}
    if event["type"] in ("plan_started", "plan_finished"):
        return {name: value for name, value in event.items() if name not in _LINKS}
    return event | {"parentToolCallId": None} if "parentToolCallId" in event else event


def _filled(schema: dict[str, Any], shape: dict[str, Any], name: str) -> Any:
    """Return an example of a shape: where it may hold text, canaries."""
    if "$ref" in shape:
        shape = schema["$defs"][shape["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in shape:
        wanted = [each for each in shape["anyOf"] if each.get("type") == "string"]
        return _filled(schema, (wanted or shape["anyOf"])[0] | {"name": name}, name)
    if "const" in shape or "enum" in shape:
        return shape.get("const") or shape["enum"][-1]
    match shape.get("type"):
        case "object":
            return {key: _filled(schema, below, key) for key, below in shape["properties"].items()}
        case "array":
            return [_filled(schema, shape["items"], name)]
        case "string":
            return _text(shape, name)
        case "boolean":
            return True
    return shape.get("minimum", 1)


def _text(shape: dict[str, Any], name: str) -> str:
    if shape.get("format") == "uuid":
        return str(uuid4())
    if shape.get("format") == "date-time":
        return "2026-11-22T10:00:00Z"
    if name == "costUsd":
        return "0.5"
    if "pattern" in shape:
        return CODE
    return EVERYTHING if name in {to_camel(each) for each in WHOLE_TEXTS} else VALUES


def run_of(events: list[Event]) -> UUID:
    """Return the run that events are of."""
    return events[0].root_plan_id


def found_in(data: bytes) -> list[str]:
    """Return the canaries that bytes hold, as they are or as Postgres shows bytes."""
    return [
        each
        for each in (*HIDDEN, CODE)
        if each.encode() in data or each.encode().hex().encode() in data
    ]
