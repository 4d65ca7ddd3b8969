"""W3C trace context: requests to other systems name the tool call that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tracer.context import ToolContext
from tracer.records.ids import span_id


def trace_headers(context: ToolContext) -> dict[str, str]:
    """Return the headers `traceparent` and `tracestate` for the requests of a tool call.

    Return no headers outside of a call, and for a call that is not recorded. The trace id
    is the run's id, and the parent span id is derived from the call's id. `tracestate` contains the
    call's whole id, so that the receiver can find the record.
    """
    if context.tool_call_id is None or not context.is_recorded:
        return {}
    return {
        "traceparent": f"00-{context.root_plan_id.hex}-{span_id(context.tool_call_id)}-01",
        "tracestate": f"tracer={context.tool_call_id}",
    }


@contextmanager
def call_as_span(context: ToolContext) -> Iterator[None]:
    """Within the block, make a tool call the current span of OpenTelemetry.

    Does nothing if another span is current, if no tool call is in progress, or if the call is not
    recorded.

    If an OpenTelemetry SDK is installed, some libraries replace our trace headers by those of their
    own span. With this function, their span is a child of the call, in the run's trace.
    """
    from opentelemetry import trace  # where such a library is imported, this is too

    has_span = trace.get_current_span().get_span_context().is_valid
    if context.tool_call_id is None or not context.is_recorded or has_span:
        yield
        return
    of_call = trace.SpanContext(
        trace_id=context.root_plan_id.int,
        span_id=int(span_id(context.tool_call_id), 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
        trace_state=trace.TraceState([("tracer", str(context.tool_call_id))]),
    )
    span = trace.NonRecordingSpan(of_call)
    with trace.use_span(span, record_exception=False, set_status_on_exception=False):
        yield
