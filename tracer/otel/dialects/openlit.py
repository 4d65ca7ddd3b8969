"""OpenLIT 1: GenAI attributes, with two deviations: agents without a name, and costs of zero."""

from __future__ import annotations

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import WRAPPER, Dialect, Role, SpanFacts
from tracer.records.spans import ReadableSpan

_SCOPES = "openlit."


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of OpenLIT; None for any other span.

    OpenLIT reports turns and tasks of the OpenAI Agents SDK as agents without a name. They become
    wrappers. It reports a cost of zero for models without a known price. That cost is ignored.
    """
    if not span.scope.startswith(_SCOPES):
        return None
    facts = genai.read(span)
    if facts is None:
        return None
    if facts.role is Role.AGENT and facts.agent is None:
        return WRAPPER
    return facts._replace(cost_usd=facts.cost_usd or None)


DIALECT = Dialect("OpenLIT", order=5, scopes=(_SCOPES + "*",), read=read, reads={})
