"""Decode the events in a request body, which is one JSON object or has one JSON event per line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NoReturn

import orjson
from pydantic import ValidationError

from tracer.errors import BadRequest, TooLarge, UnknownFormat
from tracer.records.events import EVENT, FROM_THE_WIRE, Event
from tracer.records.input_errors import validation_message
from tracer.store import Refusal
from tracer.text import MAX_JSON_VALUES, check_json_values

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
        yield index, _event_or_refusal(index, sent)
        index += 1


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
