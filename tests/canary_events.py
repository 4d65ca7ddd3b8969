"""Events with canaries in every text field, generated from the schema: new fields are included."""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from uuid import UUID

from pydantic.alias_generators import to_camel

from tests.canaries import SECRETS
from tests.schema_examples import example_of
from tracer.records import new_id
from tracer.records.events import EVENT, FROM_THE_WIRE, Event
from tracer.records.masks import WHOLE_TEXTS

PASSWORD = "canary-of-a-password"
"""A secret that only its key reveals."""

VALUES = json.dumps([each.text for each in SECRETS])
"""Every secret that its form reveals."""

EVERYTHING = json.dumps([{"password": PASSWORD, "n": [each.text for each in SECRETS]}])
"""Every secret, including the one that only its key reveals."""

CARD = 4111111111111111
"""A valid card number, as an integer, which only its key reveals."""

HIDDEN = (PASSWORD, str(CARD), *(each.hidden for each in SECRETS))
"""The texts that must not be found anywhere."""

CODE = "sk_live_" + "canary0123456789abcdef01"
"""A secret that fits fields whose pattern allows lower case letters, digits and `_` only."""

_LINKS = ("parentPlanId", "toolCallId", "openedByStepId", "parentToolCallId")


_OBJECTS = ("parameters", "runMetadata")
"""Fields that hold a JSON object."""


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
    event: dict[str, Any] = example_of(schema["$defs"], {"$ref": reference}, _text)
    event |= {name: ids[name] for name in event.keys() & ids.keys()}
    if event["type"].endswith("_finished"):
        event["status"] = "failed"  # the overview names the tool and the error
    if event["type"] in ("plan_started", "plan_finished"):
        return {name: value for name, value in event.items() if name not in _LINKS}
    return event | {"parentToolCallId": None} if "parentToolCallId" in event else event


def _text(shape: dict[str, Any], name: str) -> str:
    if name == "costUsd":
        return "0.5"
    if "pattern" in shape:
        return CODE
    if name in _OBJECTS:
        return f'{{"all":{EVERYTHING}}}'
    return EVERYTHING if name in {to_camel(each) for each in WHOLE_TEXTS} else VALUES


def run_of(events: list[Event]) -> UUID:
    """Return the root plan id of events."""
    return events[0].root_plan_id


def found_in(data: bytes) -> list[str]:
    """Return the canaries in bytes: plain, escaped as JSON, in base64 or in hex."""
    packed = [_of_base64(each) for each in _BASE64.findall(data)]
    shown = [bytes.fromhex(each.decode()) for each in _HEX.findall(data)]
    forms = [b"\n".join([data, *packed, *shown])]
    while (unescaped := _ESCAPED.sub(rb"\1", forms[-1])) != forms[-1]:
        forms.append(unescaped)
    return [each for each in (*HIDDEN, CODE) if any(each.encode() in form for form in forms)]


_ESCAPED = re.compile(rb"""\\(["'\\/])""")
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}")
_HEX = re.compile(rb"(?:[0-9a-f]{2}){8,}")


def _of_base64(text: bytes) -> bytes:
    # A single character at the end encodes no byte.
    whole = text[: len(text) - (len(text) % 4 == 1)]
    return base64.urlsafe_b64decode(whole.translate(_URL_SAFE) + b"=" * (-len(whole) % 4))


_URL_SAFE = bytes.maketrans(b"+/", b"-_")
