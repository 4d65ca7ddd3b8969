"""Convert the messages of a model call to one form, independent of the provider's API.

The input may be Chat Completions messages, items of OpenAI's Responses API, content blocks, or
parts of OpenTelemetry messages. A part of an unknown kind becomes `OtherPart` with its JSON, so
that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tracer.text import nests_too_deep

MAX_FILE_CHARACTERS = 6_700_000
"""The maximum length of `FilePart.uri`, 5 MB as base64. A longer one is omitted."""

Role = Literal["system", "user", "assistant", "tool"]


class _ConversationModel(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, use_attribute_docstrings=True
    )


class TextPart(_ConversationModel):
    """A text."""

    type: Literal["text"] = "text"
    text: str


class ReasoningPart(_ConversationModel):
    """The reasoning of the model before its answer."""

    type: Literal["reasoning"] = "reasoning"
    text: str


class ToolCallPart(_ConversationModel):
    """A tool call that the model chose."""

    type: Literal["toolCall"] = "toolCall"
    id: str | None
    """The id that the provider gave the call."""
    name: str | None
    arguments: str
    """The arguments as text, usually JSON."""


class ToolResultPart(_ConversationModel):
    """The result of a tool call."""

    type: Literal["toolResult"] = "toolResult"
    id: str | None
    """The id that the provider gave the call."""
    name: str | None
    text: str
    """The result as text, usually JSON."""


class FilePart(_ConversationModel):
    """An image, a sound or another file."""

    type: Literal["file"] = "file"
    media_type: str | None
    name: str | None
    uri: str | None
    """The file's address, or its data as a `data:` URI; null above 5 MB of data."""
    size: int | None
    """The size of its data in bytes; null if the message holds an address only."""


class OtherPart(_ConversationModel):
    """A part of an unknown kind."""

    type: Literal["other"] = "other"
    json_text: str = Field(alias="json")
    """The part as JSON."""


Part = Annotated[
    TextPart | ReasoningPart | ToolCallPart | ToolResultPart | FilePart | OtherPart,
    Field(discriminator="type"),
]


class ConversationMessage(_ConversationModel):
    """One message."""

    role: Role
    name: str | None = None
    """The name of the speaker."""
    parts: list[Part]


_ROLES: dict[str, Role] = {
    "human": "user",
    "ai": "assistant",
    "aimessagechunk": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_LISTS = ("messages", "contents", "input", "inputs", "prompt")
_SYSTEMS = ("system", "instructions", "system_instruction", "systemInstruction")
_WRAPPERS = ("data", "kwargs", "message")
_TEXTS = frozenset(("text", "input_text", "output_text", "message_content", "refusal"))
_REASONING = frozenset(("reasoning", "thinking", "redacted_thinking", "thought"))
_CALLS = frozenset(("tool_call", "tool-call", "tool_use", "function_call", "custom_tool_call"))
_RESULTS = frozenset(
    "tool_result tool-result tool_call_response tool_call_output function_call_output"
    " custom_tool_call_output function_response".split()
)
_FILES = frozenset(
    "image_url image input_image input_audio audio file input_file document video media"
    " blob uri image_uri binary".split()
)
_IDS = ("call_id", "tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "id")


def conversation(messages: str | None) -> list[ConversationMessage] | None:
    """Convert the messages of a model call to `ConversationMessage` objects.

    Args:
        messages: The text of a JSON array, as `ThinkActRecord.messages` holds it.

    Returns:
        The messages; None if `messages` is None or not JSON, for example because it was shortened.
    """
    if messages is None or nests_too_deep(messages):
        return None
    try:
        value = orjson.loads(messages)
    except orjson.JSONDecodeError:
        return None
    return [message for message in _messages(value) if message.parts]


def _messages(value: Any) -> Iterator[ConversationMessage]:
    if isinstance(value, Mapping):
        for name in _SYSTEMS:
            if name in value and "role" not in value:
                yield ConversationMessage(role="system", parts=[*_parts(value[name])])
        held = next((value[name] for name in _LISTS if name in value), None)
        if held is None or "role" in value:
            yield _message(value)
        elif isinstance(held, str):
            yield ConversationMessage(role="user", parts=[*_parts(held)])
        else:
            yield from _messages(held)
    elif isinstance(value, list):
        if _is_pair(value):
            yield ConversationMessage(role=_ROLES[value[0]], parts=[TextPart(text=value[1])])
            return
        for each in value:
            if isinstance(each, list):
                yield from _messages(each)
            else:
                yield _message(each)
    elif value is not None:
        yield ConversationMessage(role="user", parts=[*_parts(value)])


def _is_pair(value: list[Any]) -> bool:
    """Return whether a value is a list of a role and a text, a form of LangChain's messages."""
    return len(value) == 2 and all(isinstance(each, str) for each in value) and value[0] in _ROLES


def _message(item: Any) -> ConversationMessage:
    if not isinstance(item, Mapping):
        return ConversationMessage(role="user", parts=[*_parts(item)])
    outer = item
    for wrapper in _WRAPPERS:
        inner = item.get(wrapper)
        if isinstance(inner, Mapping) and ("content" in inner or "parts" in inner):
            item = inner
            break
    kind = item.get("type")
    role_name = item.get("role") or outer.get("role") or _role_of_event(outer.get("event.name"))
    role = _ROLES.get(str(role_name or kind or outer.get("type")).lower())
    if role_name is None and role is None and kind is not None:  # an item of OpenAI's responses
        parts = [*_part(item)]
        is_result = any(isinstance(part, ToolResultPart) for part in parts)
        is_said = any(isinstance(part, ToolCallPart | ReasoningPart) for part in parts)
        role = "tool" if is_result else "assistant" if is_said else "user"
        return ConversationMessage(role=role, parts=parts)
    parts = []
    for name in ("reasoning_content", "reasoning"):
        if isinstance(item.get(name), str) and item[name]:
            parts.append(ReasoningPart(text=item[name]))
    content = item.get("parts") if item.get("parts") is not None else item.get("content")
    call_id = _first(item, _IDS[:-1])
    if role == "tool" and (call_id is not None or not isinstance(content, list)):
        text = _text(content)
        parts.append(ToolResultPart(id=call_id, name=_string(item.get("name")), text=text))
    else:
        parts += _parts(content)
    parts += [
        _call(each) for each in _json_list(item.get("tool_calls")) if isinstance(each, Mapping)
    ]
    if isinstance(item.get("function_call"), Mapping):
        parts.append(_call(item["function_call"]))
    if isinstance(item.get("refusal"), str):
        parts.append(TextPart(text=item["refusal"]))
    return ConversationMessage(
        role=role or "user",
        name=None if role == "tool" else _string(item.get("name")),
        parts=parts,
    )


def _parts(content: Any) -> Iterator[Any]:
    if isinstance(content, str):
        if content[:2] in ("[{", "[ ") and (items := _json_list(content)):
            yield from _parts(items)
        elif content:
            yield TextPart(text=content)
    elif isinstance(content, list):
        for each in content:
            yield from _parts(each) if not isinstance(each, Mapping) else _part(each)
    elif isinstance(content, Mapping):
        if "parts" in content and "type" not in content:
            yield from _parts(content["parts"])
        else:
            yield from _part(content)
    elif content is not None:
        yield OtherPart(json_text=_dumped(content))


def _part(part: Mapping[str, Any]) -> Iterator[Any]:
    kind = part.get("type")
    nested = _nested(part)
    if nested is not None:
        yield nested
    elif kind in _CALLS:
        yield _call(part)
    elif kind in _RESULTS:
        yield _result(part)
    elif kind in _REASONING or part.get("thought") is True:
        text = _first_text(part, ("text", "thinking", "content", "summary", "reasoning", "data"))
        yield ReasoningPart(text=text)
    elif kind in _FILES or "inlineData" in part or "inline_data" in part or "fileData" in part:
        yield _file(part)
    elif kind in _TEXTS or (kind is None and isinstance(part.get("text"), str)):
        yield TextPart(text=_first_text(part, ("text", "content", "refusal")))
    else:
        yield OtherPart(json_text=_dumped(part))


def _nested(part: Mapping[str, Any]) -> ToolCallPart | ToolResultPart | None:
    """Return the tool call or result in a part of Gemini or Bedrock. Such parts have no `type`."""
    for name in ("functionCall", "function_call", "toolUse", "tool_call"):
        if isinstance(part.get(name), Mapping):
            return _call(part[name])
    for name in ("functionResponse", "function_response", "toolResult"):
        if isinstance(part.get(name), Mapping):
            return _result(part[name])
    return None


def _call(call: Mapping[str, Any]) -> ToolCallPart:
    function = call.get("function")
    inner = function if isinstance(function, Mapping) else call
    names = ("arguments", "args", "input")
    call_arguments = next((inner[name] for name in names if inner.get(name) is not None), "")
    return ToolCallPart(
        id=_first(call, _IDS),
        name=_first(inner, ("name", "toolName")),
        arguments=_text(call_arguments),
    )


def _result(part: Mapping[str, Any]) -> ToolResultPart:
    names = ("content", "output", "result", "response")
    result_content = next((part[name] for name in names if part.get(name) is not None), "")
    return ToolResultPart(
        id=_first(part, _IDS), name=_first(part, ("name", "toolName")), text=_text(result_content)
    )


def _file(part: Mapping[str, Any]) -> FilePart:
    held: Any = part
    for name in ("image_url", "source", "input_audio", "file", "inlineData", "inline_data"):
        if isinstance(part.get(name), Mapping):
            held = part[name]
            break
    else:
        held = part.get("fileData") if isinstance(part.get("fileData"), Mapping) else part
    uri = _first(held, ("url", "uri", "image_url", "file_uri", "fileUri", "file_url", "image"))
    data = _first(held, ("data", "file_data", "content", "bytes", "base64"))
    media_type = _first(
        held, ("media_type", "mime_type", "mimeType", "mediaType", "format", "file_format")
    ) or _first(part, ("media_type", "mime_type", "mimeType", "mediaType"))
    if media_type is not None and held is part.get("input_audio"):
        # OpenAI names the format only: `wav` or `mp3`.
        media_type = {"mp3": "audio/mpeg"}.get(media_type, f"audio/{media_type.split('/')[-1]}")
    if uri is None and data is not None:
        kind = media_type or "application/octet-stream"
        uri = data if data.startswith("data:") else f"data:{kind};base64,{data}"
    size = None
    if uri is not None and uri.startswith("data:"):
        head, _, body = uri.partition(",")
        media_type = media_type or head[len("data:") :].partition(";")[0] or None
        size = len(body) * 3 // 4 - body[-2:].count("=") if "base64" in head else len(body)
    if uri is not None and len(uri) > MAX_FILE_CHARACTERS:
        uri = None
    names = ("filename", "name", "title", "file_id", "fileId")
    return FilePart(
        media_type=media_type,
        name=_first(held, names) or _first(part, names),
        uri=uri,
        size=size,
    )


def _json_list(value: Any) -> list[Any]:
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return []
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    """Return a value as text.

    A list that contains only texts is joined by line feeds. Other values are returned as JSON.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, list):
        parts = [*_parts(value)]
        if parts and all(isinstance(part, TextPart) for part in parts):
            return "\n".join(part.text for part in parts)
    return _dumped(value)


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((fields[name] for name in names if isinstance(fields.get(name), str)), None)


def _first_text(fields: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return _text(next((fields[name] for name in names if fields.get(name) is not None), ""))


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _dumped(value: Any) -> str:
    return orjson.dumps(value).decode()


def _role_of_event(name: Any) -> str | None:
    """Return the role of a message that was recorded as an event such as `gen_ai.user.message`."""
    if not isinstance(name, str) or not name.startswith("gen_ai."):
        return None
    return "assistant" if name == "gen_ai.choice" else name.split(".")[1]
