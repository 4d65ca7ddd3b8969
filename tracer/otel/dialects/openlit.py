"""OpenLIT: the GenAI conventions, except for wrapper spans and unknown costs."""

from __future__ import annotations

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import Dialect
from tracer.otel.dialects.span_facts import WRAPPER, Role, SpanFacts
from tracer.otel.otlp.spans import ReadableSpan

_SCOPES = "openlit."


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the facts of one of OpenLIT's spans; None for others.

    Turns and tasks of the OpenAI Agents SDK are agents without a name. The cost is zero if OpenLIT
    has no price of the model.
    """
    if not span.scope.startswith(_SCOPES):
        return None
    facts = genai.read(span)
    if facts is None:
        return None
    if facts.role is Role.AGENT and facts.agent is None:
        return WRAPPER
    return facts._replace(cost_usd=facts.cost_usd or None)


DIALECT = Dialect("OpenLIT", order=5, read=read, reads={})
