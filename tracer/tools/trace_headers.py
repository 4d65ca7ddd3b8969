"""W3C trace context: what tells another system which tool call it works for."""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID

from tracer.context import ToolContext


def trace_headers(context: ToolContext) -> dict[str, str]:
    """Return `traceparent` and `tracestate` for what a tool call sends; nothing outside of any.

    The trace is the run, the parent span is the call. `tracestate` says the call's id in full, so
    that whoever receives it finds the record.
    """
    if context.toolcallId is None:
        return {}
    return {
        "traceparent": f"00-{context.root_plan_id.hex}-{span_id(context.toolcallId)}-01",
        "tracestate": f"tracer={context.toolcallId}",
    }


def span_id(tool_call_id: UUID) -> str:
    """Return the span id that stands for a tool call, the same one at each attempt.

    A digest: a UUIDv7's own first half is nearly the same for all calls of one millisecond.
    """
    return sha256(tool_call_id.bytes).digest()[:8].hex()
