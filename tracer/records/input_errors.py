"""Error messages for invalid input. They quote field names, but no other part of the input."""

from __future__ import annotations

from pydantic import ValidationError

from tracer.text import preview, storable

_MAX_FIELD_BYTES = 64
"""The maximum length of a field's name in a message. A client can send any name."""

_MESSAGES = {
    "union_tag_invalid": "unknown type of event; use one of {expected_tags}",
    "union_tag_not_found": "an event needs a type",
    "uuid_parsing": "write it as a UUID",
}
"""Messages by pydantic's type of error. They replace pydantic's own messages, which quote the
input. A name in braces is replaced by the value that pydantic reports in the error's context."""


def validation_message(error: ValidationError) -> str:
    """Return the first validation error as a sentence, without values from the input."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(_field_name(part) for part in first["loc"])
    problem = first["msg"].removeprefix("Value error, ")
    if (message := _MESSAGES.get(first["type"])) is not None:
        problem = message.format_map(first.get("ctx", {}))
    return f"{path}: {problem}." if path else f"{problem}."


def _field_name(part: int | str) -> str:
    return preview(storable(str(part)), _MAX_FIELD_BYTES)
