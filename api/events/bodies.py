"""Events as requests bring them: a JSON object, or one event a line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NoReturn

import orjson
from pydantic import ValidationError

from api.http.intake import Share
from tracer.errors import BadRequest, TooLarge, UnknownFormat
from tracer.records.events import EVENT, FROM_THE_WIRE, Event
from tracer.records.input_errors import validation_message
from tracer.store import Refusal
from tracer.text import has_more_json_values, most_json_values

MAX_EVENTS = 100_000
"""How many events a request may hold: there may be as many refusals to answer."""

MAX_FIELDS = 1000
"""How many fields an object may have where fields are checked: each unknown one is a fault."""

MAX_VALUES = 1_000_000
"""The most JSON values in a body that is one object, or in a line. A value takes 60 to 200 bytes of
memory once it is read, and may take 2 bytes in the body."""

_VALUE_BYTES = 60
"""About what a value takes up in memory besides what it says."""

_TOO_MANY = f"A request may hold {MAX_EVENTS} events. Send the rest in another."

_NOT_JSON = object()
"""Stands for a line that cannot be read."""


async def sent_events(
    kind: str, body: AsyncIterator[bytes], share: Share
) -> AsyncIterator[tuple[int, Event | Refusal]]:
    """Yield what a request's body holds, in order: each event with its index, or its refusal.

    Args:
        kind: The media type that the request says it has.
        body: Its body in parts, unpacked.
        share: The request's share of the memory: what is read whole takes up more than it is long.

    Raises:
        TooBusy: There is no room for that.
        UnknownFormat: The body is in none of the formats.
        TooLarge: It holds too much.
        BadRequest: It cannot be read as what it says that it is.
    """
    split = _FORMATS.get(kind)
    if split is None:
        raise UnknownFormat(f"Send events with one of the Content-Types {', '.join(_FORMATS)}.")
    index = 0
    async for sent in split(body, share):
        if index == MAX_EVENTS:
            raise TooLarge(_TOO_MANY)
        yield index, _event_or_refusal(index, sent)
        index += 1


async def _in_an_object(body: AsyncIterator[bytes], share: Share) -> AsyncIterator[Any]:
    """Yield the items of `{"events": […]}`."""
    whole = b"".join([part async for part in body])
    await _check_values(whole)
    share.hold(len(whole) + _VALUE_BYTES * most_json_values(whole))
    try:
        envelope = _parsed(whole)
    except ValueError:
        raise BadRequest("The body is not JSON: write it as {'events': […]}.") from None
    del whole
    match envelope:
        case {"events": list(events), **others} if not others:
            if len(events) > MAX_EVENTS:
                raise TooLarge(_TOO_MANY)
            events.reverse()
            while events:  # what is read is let go of: it takes up many times its size in the body
                yield events.pop()
        case _:
            raise BadRequest('The body has to be {"events": […]} and nothing else.')


async def _on_lines(body: AsyncIterator[bytes], share: Share) -> AsyncIterator[Any]:
    """Yield what the lines say; blank ones do not count."""
    is_empty = True
    async for line in _lines(body):
        is_empty = False
        await _check_values(line)
        try:
            yield _parsed(line)
        except ValueError:
            yield _NOT_JSON
    if is_empty:
        raise BadRequest("The body is empty: write one event a line.")


async def _check_values(json: bytes) -> None:
    """Raise `TooLarge` if JSON holds more than `MAX_VALUES` values."""
    if len(json) > MAX_VALUES and await asyncio.to_thread(has_more_json_values, json, MAX_VALUES):
        raise TooLarge(f"An object may hold {MAX_VALUES} values. Send the rest in another.")


_FORMATS: Mapping[str, Callable[[AsyncIterator[bytes], Share], AsyncIterator[Any]]] = {
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
    """Return what JSON text says.

    Raises:
        ValueError: It is not JSON, or nests too deep to be read.
    """
    try:
        return orjson.loads(text)
    except ValueError:
        pass  # it may have lone surrogates, which orjson refuses and some languages write
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
        return Refusal(index, "invalid_event", "It has too many fields.")
    try:
        return EVENT.validate_python(sent, context=FROM_THE_WIRE, by_alias=True, by_name=False)
    except ValidationError as error:
        return Refusal(index, "invalid_event", validation_message(error))
    except RecursionError:
        return Refusal(index, "invalid_event", "It nests too deep.")


def _has_too_many_fields(sent: object) -> bool:
    if not isinstance(sent, dict):
        return False
    values = [item for each in sent.values() if isinstance(each, list) for item in each]
    objects = [each for each in (sent, *sent.values(), *values) if isinstance(each, dict)]
    return any(len(each) > MAX_FIELDS for each in objects)
