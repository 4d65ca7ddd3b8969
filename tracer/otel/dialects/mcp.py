"""Model Context Protocol (MCP): spans with `mcp.method.name`.

Only requests with the method `tools/call` are tool calls. All other requests are wrappers.
"""

from __future__ import annotations

from tracer.otel.dialects.dialect import WRAPPER, Dialect, Role, SpanFacts, first_text
from tracer.otel.dialects.genai import ARGUMENTS, RESULTS
from tracer.records.spans import ReadableSpan

METHOD = "mcp.method.name"
_CALL = "tools/call"
_NAMES = ("gen_ai.tool.name", "mcp.tool.name")


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of the MCP conventions; None for any other span.

    The JSON-RPC id does not become the provider call id, because it is unique only within one MCP
    session.
    """
    method = span.attributes.get(METHOD)
    if method is None:
        return None
    if method != _CALL:
        return WRAPPER
    return SpanFacts(
        Role.TOOL,
        name=first_text(span.attributes, _NAMES) or span.name.removeprefix(_CALL).strip() or None,
        tool_type="MCP",
        arguments=first_text(span.attributes, ARGUMENTS),
        result=first_text(span.attributes, RESULTS),
        has_failed=span.attributes.get("error.type") == "tool_error",
        is_mcp=True,
    )


DIALECT = Dialect(
    "Model Context Protocol",
    order=90,
    marks=(METHOD,),
    read=read,
    reads={
        "role": (METHOD,),
        "name": _NAMES,
        "arguments": ARGUMENTS,
        "result": RESULTS,
        "has_failed": ("error.type",),
    },
)
