"""A tool's answer as a message: LangChain wraps it, and says only there that the tool failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracer.otel.dialects.reading import parsed, text

_MARKS = ("tool_call_id", "status")


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool answered."""

    text: str | None
    call_id: str | None = None
    failed: bool = False


def unwrapped_result(value: Any) -> ToolAnswer:
    """Return the answer within LangChain's tool message; what is none, as it is."""
    fields = parsed(value)
    if isinstance(fields, dict) and "output" in fields and set(fields) <= {"output", "kwargs"}:
        value = fields["output"]
        fields = parsed(value)
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
