"""The Model Context Protocol's spans: of its requests only `tools/call` is a tool call."""

from __future__ import annotations

from tracer.otel.dialects.genai import ARGUMENTS, RESULTS
from tracer.otel.dialects.reading import WRAPPER, Reading, Role, first_text
from tracer.otel.otlp.spans import ReadableSpan

METHOD = "mcp.method.name"
_CALL = "tools/call"
_NAMES = ("gen_ai.tool.name", "mcp.tool.name")


def read(span: ReadableSpan) -> Reading | None:
    """Return what the MCP conventions say of a span; None where it follows none of them.

    JSON-RPC ids count within a session: they are no call ids.
    """
    method = span.attributes.get(METHOD)
    if method is None:
        return None
    if method != _CALL:
        return WRAPPER
    return Reading(
        Role.TOOL,
        name=first_text(span.attributes, _NAMES) or span.name.removeprefix(_CALL).strip() or None,
        tool_type="MCP",
        arguments=first_text(span.attributes, ARGUMENTS),
        result=first_text(span.attributes, RESULTS),
        tool_failed=span.attributes.get("error.type") == "tool_error",
        is_mcp=True,
    )
