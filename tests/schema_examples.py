"""Examples of JSON schemas with every field filled, so that a new field is in them by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

TextOf = Callable[[dict[str, Any], str], str]
"""Returns the text for a field, by its shape and its name."""


def example_of(
    definitions: dict[str, Any], shape: dict[str, Any], text_of: TextOf, name: str = ""
) -> Any:
    """Return an example of a shape, with all its fields.

    Args:
        definitions: What references name, by the last part of them.
        shape: A JSON schema.
        text_of: What to put where any text may stand.
        name: The field that the shape is of.
    """
    if "$ref" in shape:
        shape = definitions[shape["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in shape:
        wanted = [each for each in shape["anyOf"] if each.get("type") == "string"]
        return example_of(definitions, (wanted or shape["anyOf"])[0], text_of, name)
    if "const" in shape or "enum" in shape:
        return shape.get("const") or shape["enum"][-1]
    match shape.get("type"):
        case "object":
            fields = shape["properties"].items()
            return {key: example_of(definitions, below, text_of, key) for key, below in fields}
        case "array":
            return [example_of(definitions, shape["items"], text_of, name)]
        case "string":
            return _text(shape, name, text_of)
        case "boolean":
            return True
    return shape.get("minimum", 1)


def _text(shape: dict[str, Any], name: str, text_of: TextOf) -> str:
    if shape.get("format") == "uuid":
        return str(uuid4())
    if shape.get("format") == "date-time":
        return "2026-11-22T10:00:00Z"
    return text_of(shape, name)
