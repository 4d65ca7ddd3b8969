"""Agent2Agent protocol (A2A): the spans of its clients and servers, by `a2a.method.name`.

The work of the called agent is below the server's span.
"""

from __future__ import annotations

from tracer.otel.dialects.dialect import Dialect, Role, SpanFacts, first_text
from tracer.otel.dialects.genai import AGENT_NAMES, CONVERSATIONS
from tracer.records.spans import ReadableSpan

METHOD = "a2a.method.name"
_MESSAGES = ("SendMessage", "SendStreamingMessage")
"""The methods that ask an agent to work. All others ask for the state of its tasks."""


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span with `a2a.method.name`; None for any other span.

    A request that makes an agent work has the role `WORKFLOW`. If the called agent has no span of
    its own and a tool made the request, the request's span then becomes the agent. Any other
    request is a wrapper.
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
    marks=(METHOD,),
    read=read,
    reads={"role": (METHOD,), "name": AGENT_NAMES, "conversation": CONVERSATIONS},
)
