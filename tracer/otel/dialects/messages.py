"""Messages in the shapes that conventions and frameworks give them.

One tolerant reader for all: who spoke, what was said, and which tools were asked for. It knows
the parts of OpenTelemetry, the contents and tool calls of OpenAI, Anthropic, Gemini and Bedrock,
LangChain's serialized messages, and the Vercel AI SDK's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tracer.otel.dialects.reading import Chosen, parsed, text

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "aimessagechunk": "assistant",
    "function": "tool",
}
_TEXT_TYPES = (None, "text", "output_text", "input_text", "message_content")
_CALL_TYPES = ("tool_call", "tool-call", "tool_use", "function_call", "function")
_NESTED_CALLS = ("functionCall", "function_call", "toolUse", "tool_call")
_LISTS = ("messages", "contents", "inputs")
_CONTENTS = ("content", "parts", "tool_calls")
_IDS = ("call_id", "id", "toolCallId", "toolUseId", "tool_call_id")
_NAMES = ("name", "toolName")
_ARGUMENTS = ("arguments", "args", "input")


@dataclass(frozen=True, slots=True)
class Said:
    """One message."""

    role: str | None
    text: str
    calls: tuple[Chosen, ...] = ()


def read_messages(value: Any) -> list[Said]:
    """Return the messages that an attribute holds, in their order; of a bare text one."""
    value = parsed(value)
    if isinstance(value, dict):
        value = next((value[name] for name in _LISTS if name in value), value)
    if isinstance(value, str):
        return [Said(None, value)] if value else []
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        return []
    if len(value) == 1 and isinstance(value[0], list):  # LangChain: a batch of one
        value = value[0]
    return [_said(item) for item in value]


def first_request(messages: Iterable[Said]) -> str | None:
    """Return what the user asked first; a message of nobody counts as the user's."""
    return next((said.text for said in messages if said.role in ("user", None) and said.text), None)


def last_answer(messages: Iterable[Said]) -> str | None:
    """Return what the model said last."""
    answers = [said.text for said in messages if said.role in ("assistant", None) and said.text]
    return answers[-1] if answers else None


def all_calls(messages: Iterable[Said]) -> tuple[Chosen, ...]:
    """Return the calls that the messages ask for, in their order."""
    return tuple(call for said in messages for call in said.calls)


def flattened(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return messages that stand as attributes: `prefix.N.role`, `prefix.N.tool_calls.M.name`.

    OpenInference puts `message.` and `tool_call.function.` between; both ways are read.
    """
    found: dict[int, dict[str, Any]] = {}
    calls: dict[int, dict[int, dict[str, Any]]] = {}
    start = prefix + "."
    for key, value in attributes.items():
        if not key.startswith(start):
            continue
        number, _, rest = key[len(start) :].partition(".")
        if not number.isdecimal() or len(number) > 6:
            continue
        at = int(number)
        rest = rest.removeprefix("message.")
        if rest.startswith("tool_calls."):
            place, _, name = rest[len("tool_calls.") :].partition(".")
            name = name.removeprefix("tool_call.").removeprefix("function.")
            if place.isdecimal() and len(place) <= 6 and name in ("id", "name", "arguments"):
                calls.setdefault(at, {}).setdefault(int(place), {})[name] = value
                found.setdefault(at, {})
        elif rest.startswith("contents.") and rest.endswith("message_content.text"):
            found.setdefault(at, {}).setdefault("content", value)
        elif rest in ("role", "content", "tool_call_id", "name", "finish_reason"):
            found.setdefault(at, {})[rest] = value
    for at, chosen in calls.items():
        found[at]["tool_calls"] = [chosen[place] for place in sorted(chosen)]
    return [found[at] for at in sorted(found)]


def _said(item: Any) -> Said:
    if isinstance(item, str):
        return Said(None, item)
    if not isinstance(item, dict):
        return Said(None, "")
    role = item.get("role") or _role_of_event(item.get("event.name"))
    if role is None and item.get("type") not in (*_CALL_TYPES, *_TEXT_TYPES, "message"):
        role = item.get("type")
    for wrapper in ("data", "kwargs", "message", "content"):
        inner = item.get(wrapper)
        if isinstance(inner, dict) and any(name in inner for name in _CONTENTS):
            role = inner.get("role") or inner.get("type") or role
            item = inner
            break
    role = _ROLES.get(str(role).lower(), str(role).lower()) if role else None
    texts: list[str] = []
    calls: list[Chosen] = []
    _read_piece(item, texts, calls)
    for piece in _pieces(item):
        if isinstance(piece, str):
            texts.append(piece)
        elif isinstance(piece, dict):
            _read_piece(piece, texts, calls)
            if isinstance(piece.get("text"), str) and piece.get("type") in _TEXT_TYPES:
                texts.append(piece["text"])
            elif isinstance(piece.get("content"), str) and piece.get("type") in _TEXT_TYPES:
                texts.append(piece["content"])
    return Said(role, "\n".join(each for each in texts if each), tuple(calls))


def _pieces(message: Mapping[str, Any]) -> list[Any]:
    for name in ("parts", "content"):
        value = message.get(name)
        if name == "content" and isinstance(value, str) and value[:1] == "[":
            value = parsed(value)
            if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
                value = message[name]
        if isinstance(value, list):
            return value
        if isinstance(value, str):
            return [value]
    return []


def _read_piece(piece: Mapping[str, Any], texts: list[str], calls: list[Chosen]) -> None:
    """Add the calls that a message, or a part of one, asks for."""
    for each in _listed(piece.get("tool_calls")):
        if isinstance(each, dict):
            calls.append(_chosen(each))
    for name in _NESTED_CALLS:
        nested = piece.get(name)
        if isinstance(nested, dict):
            calls.append(_chosen(nested))
            return
    if piece.get("type") in _CALL_TYPES and "role" not in piece:
        calls.append(_chosen(piece))


def _listed(value: Any) -> list[Any]:
    value = parsed(value)
    return value if isinstance(value, list) else []


def _chosen(call: Mapping[str, Any]) -> Chosen:
    function = call.get("function")
    inner = function if isinstance(function, dict) else call
    return Chosen(
        call_id=_first_text(call, _IDS),
        name=_first_text(inner, _NAMES),
        arguments=_first_text(inner, _ARGUMENTS),
    )


def _first_text(fields: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((text(fields[name]) for name in names if fields.get(name) is not None), None)


def _role_of_event(name: Any) -> str | None:
    if not isinstance(name, str):
        return None
    return "assistant" if name == "gen_ai.choice" else name.split(".")[-2] if "." in name else None
