"""Spans of the Agent2Agent protocol. A span contains the work of the agent that was called."""

from __future__ import annotations

from tracer.otel.dialects.dialect import Dialect
from tracer.otel.dialects.genai import AGENT_NAMES, CONVERSATIONS
from tracer.otel.dialects.span_facts import Role, SpanFacts, first_text
from tracer.otel.otlp.spans import ReadableSpan

METHOD = "a2a.method.name"
_MESSAGES = ("SendMessage", "SendStreamingMessage")
"""The methods that ask an agent to work. All others ask for the state of its tasks."""


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the facts of a span that follows the A2A conventions; None for others.

    The agent's own span is separate. Without one, the server's span is the agent if a tool asked.
    """
    method = span.attributes.get(METHOD)
    if method is None:
        return None
    return SpanFacts(
        Role.WORKFLOW if method in _MESSAGES else Role.WRAPPER,
        name=first_text(span.attributes, AGENT_NAMES) or span.name,
        conversation=first_text(span.attributes, CONVERSATIONS),
    )


DIALECT = Dialect(
    "Agent2Agent protocol",
    order=91,
    read=read,
    reads={"role": (METHOD,), "name": AGENT_NAMES, "conversation": CONVERSATIONS},
)
