"""Projection: the spans of one trace become records. It depends on the set of spans alone.

An agent's span becomes a plan of one step; a model's answer a think-act of its nearest agent; a
tool span a tool call of the think-act that chose it. Whatever hangs under a span that has not come
gets a placeholder there, under the ids that the span will have, so that little moves when it comes.

Spans that carry the records that they were made of become those (`tracer.otel.carried_records`).
"""

from __future__ import annotations

from collections.abc import Iterable

from tracer.otel.projected import Placed
from tracer.otel.spans import Span
from tracer.otel.trace_state import TraceState


def project(spans: Iterable[Span]) -> Placed:
    """Return the records of one trace's spans.

    Args:
        spans: Spans of one trace, in any order, in any number of versions; at least one.
    """
    state = TraceState()
    state.put(spans)
    return state.placed()
