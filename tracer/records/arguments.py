"""Arguments of tool calls as values, and the tools that a model may choose from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from tracer.text import nests_too_deep

# --- Compare the arguments of tool calls: JSON as values, anything else as text.


def parsed(value: Any) -> Any:
    """Return the value of JSON text. Other values and invalid JSON are returned unchanged."""
    if not isinstance(value, str) or value[:1] not in ("{", "[", '"') or nests_too_deep(value):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def canonical(arguments: str | None) -> bytes | None:
    """Return arguments in canonical form: arguments with equal content give equal bytes."""
    if arguments is None:
        return None
    value = parsed(arguments)
    if value is not arguments:
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except (TypeError, ValueError, RecursionError):
            pass
    return b"text:" + arguments.encode(errors="surrogatepass")


def same_arguments(one: str | None, other: str | None) -> bool:
    """Return whether the arguments of two calls have equal content."""
    return canonical(one) == canonical(other)


class Canonical(dict[str | None, bytes | None]):
    """A cache of `canonical`: maps arguments to their canonical form."""

    def __missing__(self, arguments: str | None) -> bytes | None:
        text = self[arguments] = canonical(arguments)
        return text


def strings_in(arguments: str | None) -> set[str]:
    """Return all texts inside the arguments, without surrounding white space.

    If the arguments are not JSON, they count as one text.
    """
    if arguments is None:
        return set()
    strings: set[str] = set()
    waiting: list[Any] = [parsed(arguments)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and value.strip():
            strings.add(value.strip())
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return strings


class Texts(dict[str | None, frozenset[str]]):
    """A cache of `strings_in`: maps arguments to the texts inside them."""

    def __missing__(self, arguments: str | None) -> frozenset[str]:
        strings = self[arguments] = frozenset(strings_in(arguments))
        return strings


# --- Convert the tools that a model may choose from to one form, independent of the provider's API.
#
# Each tool becomes `{"name": …, "description": …, "parameters": …}`. `parameters` is the JSON
# Schema of its arguments. Some tools have no name, such as web search that a provider offers. Their
# `type` becomes the name, and their other fields become the parameters.

_SCHEMAS = ("parameters", "input_schema", "inputSchema", "parameters_json_schema", "schema")
_LISTS = ("function_declarations", "functionDeclarations", "function_tools", "tools")
_WRAPPERS = ("function", "toolSpec", "custom")


def offered_tools(value: Any) -> list[dict[str, Any]]:
    """Return tools in the form that the module's docstring describes.

    Args:
        value: A list of tools in the form of OpenAI, Anthropic, Gemini or Bedrock, or an object
            that contains such a list.

    Returns:
        The tools; an empty list if there are none.
    """
    return list(_tools(value))


def offered_tools_text(value: Any) -> str | None:
    """Return the result of `offered_tools` as JSON text; None if there are no tools."""
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
