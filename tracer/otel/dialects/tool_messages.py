"""Extract the result of a tool from a message of LangChain or LlamaIndex.

Both frameworks wrap the result in a message. Only this message states whether the tool failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracer.otel.dialects.messages import read_messages
from tracer.otel.dialects.span_facts import text
from tracer.records.arguments import parsed

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
