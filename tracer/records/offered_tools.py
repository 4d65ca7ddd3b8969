"""The tools that a model may choose from, in one form whatever API they were offered by.

A tool is `{"name": …, "description": …, "parameters": …}`: the parameters are its JSON Schema. If a
tool has no name, such as a provider's own, its `type` is the name, and all else the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

_SCHEMAS = ("parameters", "input_schema", "inputSchema", "parameters_json_schema", "schema")
_LISTS = ("function_declarations", "functionDeclarations", "function_tools", "tools")
_WRAPPERS = ("function", "toolSpec", "custom")


def offered_tools(value: Any) -> list[dict[str, Any]]:
    """Return tools in the form above.

    Args:
        value: The tools as an API takes them: a list of any of OpenAI's, Anthropic's, Gemini's or
            Bedrock's tools, or an object that holds such a list.

    Returns:
        An empty list if no tool is found.
    """
    return list(_tools(value))


def offered_tools_text(value: Any) -> str | None:
    """Return tools as the text of a JSON array; None if no tool is found."""
    tools = offered_tools(value)
    return orjson.dumps(tools, default=str).decode() if tools else None


def _tools(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _tools(each)
    elif isinstance(value, Mapping):
        held = [value[name] for name in _LISTS if isinstance(value.get(name), list)]
        if held:
            yield from _tools(held)
            return
        wrapped = (value[name] for name in _WRAPPERS if isinstance(value.get(name), Mapping))
        inner = next(wrapped, value)
        schema = next((inner[name] for name in _SCHEMAS if inner.get(name) is not None), None)
        name = inner.get("name")
        if not isinstance(name, str):
            name = value.get("type")
            schema = {key: each for key, each in value.items() if key != "type"} or None
        if isinstance(schema, Mapping) and isinstance(schema.get("json"), Mapping):
            schema = schema["json"]  # Bedrock's
        if isinstance(name, str):
            yield {
                "name": name,
                "description": inner.get("description"),
                "parameters": schema,
            }
