"""Parse messages of all conventions and frameworks: their roles, texts and tool calls.

The parser is tolerant. It accepts messages of OpenTelemetry, OpenAI, Anthropic, Gemini, Bedrock,
LangChain (serialized) and the Vercel AI SDK.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from tracer.otel.dialects.dialect import ExecutedCall, RequestedCall, text
from tracer.otel.dialects.lenient_json import read_json
from tracer.records.arguments import parsed

_ROLES: dict[str | None, str] = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "aimessagechunk": "assistant",
    "function": "tool",
}
_TEXT_TYPES = (None, "text", "output_text", "input_text", "message_content")
_CALL_TYPES = ("tool_call", "tool-call", "tool_use", "function_call", "function")
_TYPES_OF_NOBODY = (*_CALL_TYPES, *_TEXT_TYPES, "message")
"""Values of a message's `type` that are not the role of a speaker."""
_NESTED_CALLS_IN_ORDER = ("functionCall", "function_call", "toolUse", "tool_call")
_NESTED_CALLS = frozenset(_NESTED_CALLS_IN_ORDER)
_LISTS = ("messages", "contents", "inputs", "items")
_CONTENTS = frozenset(("content", "parts", "tool_calls"))
_WRAPPERS = ("data", "kwargs", "message", "content")
_REASONING_TYPES = ("reasoning", "thinking")
_REASONING = ("content", "text", "thinking", "reasoning")
_EXECUTED = frozenset(
    "server_tool_call server_tool_use web_search_call file_search_call"
    " code_interpreter_call image_generation_call mcp_call".split()
)
"""The types of parts for tool calls that the provider executed. Source: the GenAI conventions, and
the APIs of Anthropic and OpenAI. OpenAI's other types, such as `local_shell_call`, are executed by
the program, and have spans of their own."""
_EXECUTED_RESULT = re.compile(r"server_tool_call_response|(?!function)\w+_tool_result")
_UNREAD = ('[{"role"', "[{'role'", '{"role"', '[{"parts"', '[{"content"')
"""The beginnings of messages that could not be read. They are no text to show."""
_IDS = ("call_id", "id", "toolCallId", "toolUseId", "tool_call_id")
_NAMES = ("name", "toolName", "tool.name")
_OBJECTS = ("ChatMessage(", "StopEvent(")
"""Prefixes of the `repr` of message objects of LlamaIndex, Haystack and smolagents. Such a text is
ignored."""
_SHOWN_CALL = "ResponseFunctionToolCall("
"""The prefix of the `repr` of a tool call. The `openai-agents-v2` instrumentation sends this
`repr`."""
_MAX_SHOWN_CHARACTERS = 100_000
_SPEAKERS = frozenset(("user", "human", "system", "assistant", "ai", "tool", "developer"))
_ARGUMENTS = ("arguments", "args", "input", "tool.args")


class ParsedMessage(NamedTuple):
    """One message."""

    role: str | None
    text: str
    calls: tuple[RequestedCall, ...] = ()
    reasoning: str = ""
    executed: tuple[ExecutedCall, ...] = ()


def read_messages(value: Any) -> list[ParsedMessage]:
    """Return the messages that an attribute contains, in order. Plain text is one message."""
    try:
        return [*map(_parse_typed, _decode_typed(value))]
    except _NOT_TYPED:
        return [*map(_parse_message, _listed_messages(value))]


def first_request(value: Any) -> str | None:
    """Return the text of the first user message; None if there is none.

    A message without a role counts as a user message.
    """
    try:
        return _first_request(map(_parse_typed, _decode_typed(value)))
    except _NOT_TYPED:
        return _first_request(map(_parse_message, _listed_messages(value)))


def _first_request(messages: Iterable[ParsedMessage]) -> str | None:
    requests = (each.text for each in messages if each.text and each.role in ("user", None))
    return next(requests, None)


# --- OpenTelemetry's messages --------------------------------------------------------------------
#
# GenAI messages that contain only texts and tool calls are parsed with a typed decoder. The result
# is the same as that of `_parse_message`, in a fifth of the time.

_NOT_TYPED = (DecodeError, TypeError, ValueError, RecursionError)
"""The exceptions for input of another form, or with values that `orjson` cannot write exactly.
Examples are integers of more than 64 bits and deeply nested arguments."""


class _TextPart(Struct, tag_field="type", tag="text", forbid_unknown_fields=True, gc=False):
    content: str


class _CallPart(Struct, tag_field="type", tag="tool_call", forbid_unknown_fields=True):
    id: str | None = None
    name: str | None = None
    arguments: Any = None


class _TypedMessage(Struct, forbid_unknown_fields=True):
    role: str
    parts: list[_TextPart | _CallPart]
    finish_reason: str | None = None


_decode_typed = Decoder(list[_TypedMessage]).decode


def _parse_typed(message: _TypedMessage) -> ParsedMessage:
    texts: list[str] = []
    calls: list[RequestedCall] = []
    for part in message.parts:
        if isinstance(part, _CallPart):
            arguments = part.arguments
            if arguments is not None and not isinstance(arguments, str):
                arguments = orjson.dumps(arguments).decode()
            calls.append(RequestedCall(text(part.id), text(part.name), text(arguments)))
        elif (shown := _shown_call(part.content)) is not None:
            calls.append(shown)
        else:
            texts.append(part.content)
    role = message.role.lower() or None
    return ParsedMessage(_ROLES.get(role, role), _joined(texts), tuple(calls))


# --- Messages of any shape -----------------------------------------------------------------------


def _listed_messages(value: Any) -> list[Any]:
    value = read_json(value)
    if isinstance(value, dict):
        value = next((value[name] for name in _LISTS if name in value), value)
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, dict):
        return [value]
    if not isinstance(value, list):
        return []
    if _is_pair(value):
        return [value]
    if len(value) == 1 and isinstance(value[0], list) and not _is_pair(value[0]):
        return value[0]  # LangChain: a batch of one
    return [
        read_json(each) if isinstance(each, str) and each[:1] == "{" else each for each in value
    ]


def _is_pair(value: Any) -> bool:
    """Return whether a value is a list of a role and a text, a form of LangChain's messages."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], str)
        and value[0] in _SPEAKERS
    )


def last_answer(messages: Iterable[ParsedMessage]) -> str | None:
    """Return the text of the last message of the model that has text; None if there is none."""
    answers = [
        message.text for message in messages if message.role in ("assistant", None) and message.text
    ]
    return answers[-1] if answers else None


def all_reasoning(messages: Iterable[ParsedMessage]) -> str | None:
    """Return the reasoning in the messages; None if there is none."""
    return "\n".join(each.reasoning for each in messages if each.reasoning) or None


def all_executed(messages: Iterable[ParsedMessage]) -> tuple[ExecutedCall, ...]:
    """Return the calls in the messages that the provider executed, in their order."""
    return tuple(call for message in messages for call in message.executed)


def all_calls(messages: Iterable[ParsedMessage]) -> tuple[RequestedCall, ...]:
    """Return the tool calls in the messages, in their order."""
    return tuple(call for message in messages for call in message.calls)


def flattened(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return messages from attributes such as `PREFIX.0.role` and `PREFIX.0.tool_calls.0.name`.

    OpenInference inserts `message.` and `tool_call.function.` into these names. Both forms are
    accepted.
    """
    by_position: dict[int, dict[str, Any]] = {}
    calls: dict[int, dict[int, dict[str, Any]]] = {}
    contents: dict[int, dict[int, dict[str, Any]]] = {}
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
            number, _, name = rest[len("tool_calls.") :].partition(".")
            name = name.removeprefix("tool_call.").removeprefix("function.")
            if number.isdecimal() and len(number) <= 6 and name in ("id", "name", "arguments"):
                calls.setdefault(at, {}).setdefault(int(number), {})[name] = value
                by_position.setdefault(at, {})
        elif rest.startswith("contents."):
            number, _, name = rest[len("contents.") :].partition(".")
            if number.isdecimal() and len(number) <= 6:
                name = name.removeprefix("message_content.")
                contents.setdefault(at, {}).setdefault(int(number), {})[name] = value
                by_position.setdefault(at, {})
        elif rest in ("role", "content", "tool_call_id", "name", "finish_reason"):
            by_position.setdefault(at, {})[rest] = value
    for at, parts in contents.items():
        by_position[at].setdefault("content", [parts[number] for number in sorted(parts)])
    for at, chosen in calls.items():
        by_position[at]["tool_calls"] = [chosen[number] for number in sorted(chosen)]
    return [by_position[at] for at in sorted(by_position)]


def flattened_values(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Return objects from attributes such as `PREFIX.0.name`, sorted by the number in the name."""
    by_position: dict[int, dict[str, Any]] = {}
    start = prefix + "."
    for key, value in attributes.items():
        if key.startswith(start):
            number, _, name = key[len(start) :].partition(".")
            if number.isdecimal() and len(number) <= 6 and name:
                by_position.setdefault(int(number), {})[name] = parsed(value)
    return [by_position[at] for at in sorted(by_position)]


def _parse_message(item: Any) -> ParsedMessage:
    if isinstance(item, str):
        return ParsedMessage(None, item if not item.startswith((*_OBJECTS, *_UNREAD)) else "")
    if _is_pair(item):
        return ParsedMessage(_ROLES.get(item[0], item[0]), item[1])
    if not isinstance(item, dict):
        return ParsedMessage(None, "")
    role = item.get("role") or _role_of_event(item.get("event.name"))
    if role is None and item.get("type") not in _TYPES_OF_NOBODY:
        role = item.get("type")
    for wrapper in _WRAPPERS:
        inner = item.get(wrapper)
        if isinstance(inner, dict) and not _CONTENTS.isdisjoint(inner):
            role = inner.get("role") or inner.get("type") or role
            item = inner
            break
    spoken_by = str(role).lower() if role else None
    texts: list[str] = []
    calls: list[RequestedCall] = []
    reasoning: list[str] = []
    executed: list[ExecutedCall] = []
    _read_piece(item, calls)
    if (own := item.get("reasoning_content")) and isinstance(own, str):
        reasoning.append(own)
    for piece in _pieces(item):
        if isinstance(piece, str):
            texts.append(piece)
        elif isinstance(piece, dict):
            kind = piece.get("type")
            if kind in _REASONING_TYPES:
                reasoning.append(_first_text(piece, _REASONING) or "")
                continue
            if isinstance(kind, str) and _read_executed(piece, kind, executed):
                continue
            _read_piece(piece, calls)
            if kind in _TEXT_TYPES:
                content = piece.get("text")
                content = content if isinstance(content, str) else piece.get("content")
                shown = _shown_call(content)
                if shown is not None:
                    calls.append(shown)
                elif isinstance(content, str):
                    texts.append(content)
    return ParsedMessage(
        _ROLES.get(spoken_by, spoken_by),
        _joined(texts),
        tuple(calls),
        _joined(reasoning),
        tuple(executed),
    )


def _read_executed(piece: Mapping[str, Any], kind: str, executed: list[ExecutedCall]) -> bool:
    """Add a call that the provider executed, or its result, to `executed`.

    Returns:
        Whether the part is such a call or result.
    """
    if _EXECUTED_RESULT.fullmatch(kind):
        call_id = _first_text(piece, ("id", "tool_use_id", "call_id"))
        result = _first_text(piece, ("server_tool_call_response", "content", "output", "result"))
        for at, call in enumerate(executed):
            if call.call_id == call_id and call.result is None:
                executed[at] = call._replace(result=result)
        return True
    if piece.get("builtin") is not True and kind not in _EXECUTED:
        return False
    executed.append(
        ExecutedCall(
            call_id=_first_text(piece, ("id", "call_id", "tool_use_id")),
            name=_first_text(piece, _NAMES) or kind.removesuffix("_call"),
            arguments=_first_text(piece, (*_ARGUMENTS, "server_tool_call", "action", "queries")),
            result=_first_text(piece, ("output", "result", "results")),
        )
    )
    return True


def _joined(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else "\n".join([each for each in texts if each])


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


def _read_piece(piece: Mapping[str, Any], calls: list[RequestedCall]) -> None:
    """Add the tool calls of a message, or of one part of a message, to `calls`."""
    if "tool_calls" in piece:
        calls += [
            _chosen(each) for each in _json_list(piece["tool_calls"]) if isinstance(each, dict)
        ]
    if not _NESTED_CALLS.isdisjoint(piece):
        for name in _NESTED_CALLS_IN_ORDER:
            nested = piece.get(name)
            if isinstance(nested, dict):
                calls.append(_chosen(nested))
                return
    is_call = piece.get("type") in _CALL_TYPES or "tool.name" in piece
    if is_call and "role" not in piece:
        calls.append(_chosen(piece))


def _shown_call(content: Any) -> RequestedCall | None:
    if not isinstance(content, str) or not content.startswith(_SHOWN_CALL):
        return None
    if len(content) > _MAX_SHOWN_CHARACTERS:
        return None
    try:
        shown = ast.parse(content, mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    keywords = shown.keywords if isinstance(shown, ast.Call) else []
    return _chosen(
        {
            each.arg: each.value.value
            for each in keywords
            if each.arg
            and isinstance(each.value, ast.Constant)
            and isinstance(each.value.value, str)
        }
    )


def _json_list(value: Any) -> list[Any]:
    value = parsed(value)
    return value if isinstance(value, list) else []


def _chosen(call: Mapping[str, Any]) -> RequestedCall:
    function = call.get("function")
    inner = function if isinstance(function, dict) else call
    return RequestedCall(
        call_id=_first_text(call, _IDS),
        name=_first_text(inner, _NAMES),
        arguments=_first_text(inner, _ARGUMENTS),
    )


def _first_text(fields: Mapping[str, Any], names: Iterable[str]) -> str | None:
    for name in names:
        value = fields.get(name)
        if value is not None:
            return text(value)
    return None


def _role_of_event(name: Any) -> str | None:
    if not isinstance(name, str):
        return None
    return "assistant" if name == "gen_ai.choice" else name.split(".")[-2] if "." in name else None


# --- Extract the result of a tool from a message of LangChain or LlamaIndex.
#
# Both frameworks wrap the result in a message. Only this message states whether the tool failed.

_MARKS = ("tool_call_id", "status")
_MARKS_OF_OUTPUT = ("blocks", "raw_output", "is_error")
"""The keys that identify an object as the output of a LlamaIndex tool."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a tool, extracted from its message."""

    text: str | None
    call_id: str | None = None
    failed: bool = False


def unwrapped_result(value: Any) -> ToolAnswer:
    """Return the tool result inside a message. A value that is no message is the result itself."""
    fields = parsed(value)
    if isinstance(fields, dict) and "output" in fields and set(fields) <= {"output", "kwargs"}:
        value = fields["output"]
        fields = parsed(value)
    if isinstance(fields, dict) and all(mark in fields for mark in _MARKS_OF_OUTPUT):
        content = read_messages([{"content": fields["blocks"]}])[0].text
        return ToolAnswer(content or text(fields["raw_output"]), failed=fields["is_error"] is True)
    for wrapper in ("data", "kwargs"):
        inner = fields.get(wrapper) if isinstance(fields, dict) else None
        if isinstance(inner, dict) and "content" in inner:
            fields = inner
    if not isinstance(fields, dict) or "content" not in fields:
        return ToolAnswer(text(value))
    if not all(mark in fields for mark in _MARKS) and fields.get("type") != "tool":
        return ToolAnswer(text(value))
    return ToolAnswer(
        text=text(fields["content"]),
        call_id=text(fields.get("tool_call_id")),
        failed=fields.get("status") == "error",
    )


def reported_failure(result: str | None) -> str | None:
    """Return the message of a tool result that reports a failure (MCP); None for other results.

    Only the fields `isError` of MCP and `is_error` of Anthropic's tool results count. The result
    may be JSON, JSON in JSON, the `repr` of a Python object, or wrapped in another object. A result
    that merely contains the word error is a success.
    """
    if result is None or not ("isError" in result or "is_error" in result):
        return None
    if result.startswith(_SHOWN_RESULTS):
        if "isError=True" not in result:
            return None
        shown = [ast.literal_eval(each) for each in _SHOWN_TEXT.findall(result)]
        return "\n".join(shown) or result
    fields: Any = read_json(result)
    for wrapper in ("", "result", "output", "response"):
        if isinstance(fields, list) and len(fields) == 1:
            fields = fields[0]
        inner = fields.get(wrapper) if isinstance(fields, dict) else None
        fields = read_json(inner) if inner is not None else fields
    if not isinstance(fields, dict) or "content" not in fields:
        return None
    if True not in (fields.get("isError"), fields.get("is_error")):
        return None
    content: Any = fields["content"]
    parts = content if isinstance(content, list) else [content]
    texts = [each.get("text") if isinstance(each, dict) else text(each) for each in parts]
    return "\n".join(each for each in texts if isinstance(each, str) and each) or result


_SHOWN_RESULTS = ("meta=", "CallToolResult(")
"""The beginnings of `str` and `repr` of a result in MCP's Python SDK."""
_SHOWN_TEXT = re.compile(r"""\btext=('(?:[^'\\]|\\.){0,10000}'|"(?:[^"\\]|\\.){0,10000}")""")
