"""Strands Agents 1: GenAI attributes, with tool results as lists of content blocks."""

from __future__ import annotations

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import Dialect, Role, SpanFacts, text
from tracer.otel.dialects.messages import read_messages
from tracer.records.arguments import parsed
from tracer.records.spans import ReadableSpan

_SCOPE = "strands.telemetry.tracer"


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of Strands Agents; None for any other span.

    Some values differ from the conventions. An answer ends with an added line feed. A tool result
    is a list of content blocks, or an object with such a list and the status `error` or `success`.
    The time to the first token is in milliseconds.
    """
    if span.scope != _SCOPE:
        return None
    facts = genai.read(span)
    if facts is None:
        return None
    if facts.role is Role.AGENT and facts.answer is not None:
        # The SDK adds the line feed when it converts its result to text.
        return facts._replace(answer=facts.answer.removesuffix("\n"))
    if facts.role is Role.TOOL:
        result = parsed(facts.result)
        if not isinstance(result, dict) or not isinstance(result.get("content"), list):
            result = {"content": facts.result}
        content = read_messages([{"role": "tool", "content": result["content"]}])[0].text
        return facts._replace(
            result=content or facts.result,
            has_failed=facts.has_failed or result.get("status") == "error",
        )
    if facts.role is Role.MODEL:
        milliseconds = span.attributes.get("gen_ai.server.time_to_first_token")
        reasons = (each.attributes.get("finish_reason") for each in span.events)
        return facts._replace(
            finish_reasons=tuple(found for each in reasons if (found := text(each))),
            first_token_seconds=milliseconds / 1000 if isinstance(milliseconds, int) else None,
        )
    return facts


DIALECT = Dialect(
    "Strands Agents",
    order=6,
    scopes=(_SCOPE,),
    read=read,
    reads={
        "finish_reasons": ("finish_reason",),
        "first_token_seconds": ("gen_ai.server.time_to_first_token",),
    },
)
