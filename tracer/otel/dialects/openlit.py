"""OpenLIT: the GenAI conventions, except for wrapper spans and unknown costs."""

from __future__ import annotations

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import Dialect
from tracer.otel.dialects.reading import WRAPPER, Reading, Role
from tracer.otel.otlp.spans import ReadableSpan

_SCOPES = "openlit."


def read(span: ReadableSpan) -> Reading | None:
    """Return the reading of one of OpenLIT's spans; None for others.

    Turns and tasks of the OpenAI Agents SDK are agents without a name. The cost is zero if OpenLIT
    has no price of the model.
    """
    if not span.scope.startswith(_SCOPES):
        return None
    reading = genai.read(span)
    if reading is None:
        return None
    if reading.role is Role.AGENT and reading.agent is None:
        return WRAPPER
    return reading._replace(cost_usd=reading.cost_usd or None)


DIALECT = Dialect("OpenLIT", order=5, read=read, reads={})
