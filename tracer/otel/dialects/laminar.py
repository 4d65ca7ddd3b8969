"""Laminar (`lmnr` 0.8): spans with `lmnr.span.type`, and with inputs and outputs as JSON.

Spans of model calls also have GenAI attributes, which are preferred.
"""

from __future__ import annotations

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import WRAPPER, Dialect, Role, SpanFacts, first_text
from tracer.otel.dialects.genai import (
    Observed,
    content_of,
    observed_agent,
    observed_model,
    observed_tool,
)
from tracer.records.spans import ReadableSpan

_KIND = "lmnr.span.type"
_ROLES = {
    "DEFAULT": Role.WORKFLOW,
    "LLM": Role.MODEL,
    "CACHED": Role.MODEL,
    "TOOL": Role.TOOL,
}
"""The role of each type of span. Laminar has no type for agents. The projection turns a function
that calls models into an agent if a tool called the function."""
_CONVERSATIONS = ("lmnr.association.properties.session_id",)
_SUBJECTS = ("lmnr.association.properties.user_id",)


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of Laminar; None for any other span."""
    kind = span.attributes.get(_KIND)
    if not isinstance(kind, str):
        return None
    role = _ROLES.get(kind)
    if role is None:
        return WRAPPER
    observed = Observed(
        span.attributes.get("lmnr.span.input"), span.attributes.get("lmnr.span.output")
    )
    if role is Role.MODEL:
        facts = _model(span, observed)
    elif role is Role.TOOL:
        facts = observed_tool(span.name, observed)
    else:
        facts = observed_agent(role, span.name, observed)
    return facts._replace(
        conversation=first_text(span.attributes, _CONVERSATIONS),
        subject=first_text(span.attributes, _SUBJECTS),
    )


def _model(span: ReadableSpan, observed: Observed) -> SpanFacts:
    """Return the fields of a model call.

    If the GenAI attributes contain no messages, the messages are read from Laminar's own input and
    output.
    """
    facts = genai.speaking_facts(span, Role.MODEL)
    own = observed_model(observed)
    return facts._replace(
        **content_of(facts, own),
        finish_reasons=facts.finish_reasons or own.finish_reasons,
    )


DIALECT = Dialect(
    "Laminar",
    order=2,
    marks=(_KIND,),
    read=read,
    reads={
        "role": (_KIND,),
        "conversation": _CONVERSATIONS,
        "subject": _SUBJECTS,
        "request": ("lmnr.span.input",),
        "messages": ("lmnr.span.input",),
        "offered_tools": ("lmnr.span.input",),
        "answer": ("lmnr.span.output",),
        "chosen": ("lmnr.span.output",),
        "arguments": ("lmnr.span.input",),
        "result": ("lmnr.span.output",),
    },
)
