"""What is wrong with something that was sent, in a sentence that quotes nothing of it."""

from __future__ import annotations

from pydantic import ValidationError

from tracer.text import preview, storable

_MAX_FIELD_BYTES = 64
"""How much of a field's name is told: who misspelt it wrote it."""

_OWN_WORDS = {
    "union_tag_invalid": "it is none of the types of event",
    "union_tag_not_found": "an event needs a type",
    "uuid_parsing": "write it as a UUID",
}
"""What is said where pydantic's own words would quote what was sent."""


def validation_message(error: ValidationError) -> str:
    """Return a sentence that quotes nothing of what was sent but the names of fields."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(_named(part) for part in first["loc"])
    said = _OWN_WORDS.get(first["type"], first["msg"].removeprefix("Value error, "))
    return f"{place}: {said}." if place else f"{said}."


def _named(part: int | str) -> str:
    return preview(storable(str(part)), _MAX_FIELD_BYTES)
