"""Messages as OpenTelemetry's GenAI conventions want them in attributes: roles with typed parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from tracer.otel.dialects.messages import read_messages
from tracer.otel.dialects.reading import Chosen, parsed

Part = dict[str, Any]


def message(role: str, *parts: Part) -> dict[str, Any]:
    """Return one message."""
    return {"role": role, "parts": list(parts)}


def text_part(text: str) -> Part:
    """Return the part that says a text."""
    return {"type": "text", "content": text}


def call_part(call: Chosen) -> Part:
    """Return the part that asks for a tool."""
    arguments = parsed(call.arguments)
    return {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": arguments}


def messages_text(messages: Iterable[Any]) -> str:
    """Return messages as the text of an attribute."""
    return orjson.dumps(list(messages), default=str).decode()


def given_messages(recorded: str | None) -> list[dict[str, Any]] | None:
    """Return the messages that a model was given, whatever shape they were recorded in.

    Args:
        recorded: The text of a JSON array.

    Returns:
        None where it is none.
    """
    listed = parsed(recorded)
    return [_message(each) for each in listed] if isinstance(listed, list) else None


def _message(item: Any) -> dict[str, Any]:
    if isinstance(item, dict) and isinstance(item.get("parts"), list) and "role" in item:
        return item
    said = next(iter(read_messages([item])), None)
    if said is None:
        return message("user")
    if said.role == "tool" and isinstance(item, dict):
        call_id = item.get("tool_call_id")
        return message("tool", {"type": "tool_call_response", "id": call_id, "response": said.text})
    texts = [text_part(said.text)] if said.text else []
    return message(said.role or "user", *texts, *map(call_part, said.calls))
