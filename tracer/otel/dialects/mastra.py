"""Mastra 1: GenAI attributes, and inputs and outputs in `mastra.*` attributes.

An agent consists of steps. The span of a step contains one model call and the tool calls that the
model chose. Only the step's own attributes list these tool calls.
"""

from __future__ import annotations

from datetime import datetime

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import WRAPPER, Dialect, Role, SpanFacts, text
from tracer.otel.dialects.messages import all_calls, first_request, read_messages
from tracer.records.arguments import parsed
from tracer.records.spans import ReadableSpan

_KIND = "mastra.span.type"
_MODEL = "model_inference"
_STEP = "model_step"
_FIRST_TOKEN = "mastra.completion_start_time"
_REQUEST = "mastra.agent_run.input"
_ANSWER = "mastra.agent_run.output"
_MESSAGES = "mastra.model_step.input"
_CHOICE = "mastra.model_step.output"
_FAILED = "error"
"""The finish reason of a request that the provider rejected. The status of its span is still OK."""


def reads_parent(span: ReadableSpan) -> bool:
    """Return whether a span is a model call. Its parent, the step, lists the chosen tool calls."""
    return span.attributes.get(_KIND) == _MODEL


def read(span: ReadableSpan, parent: ReadableSpan | None) -> SpanFacts | None:
    """Return the role and fields of a span of Mastra; None for any other span.

    Args:
        span: The span.
        parent: The span of the step, if `span` is a model call and the step has arrived.
    """
    if _KIND not in span.attributes:
        return None
    facts = genai.read(span) or WRAPPER
    if facts.role is Role.AGENT:
        return _agent(span, facts)
    if facts.role is Role.MODEL:
        return _model(span, facts, parent)
    return facts


def _agent(span: ReadableSpan, facts: SpanFacts) -> SpanFacts:
    request = span.attributes.get(_REQUEST)
    output = parsed(span.attributes.get(_ANSWER))
    answer = output.get("text") if isinstance(output, dict) else output
    return facts._replace(
        request=facts.request or first_request(request) or text(request),
        answer=facts.answer or text(answer) or None,
    )


def _model(span: ReadableSpan, facts: SpanFacts, step: ReadableSpan | None) -> SpanFacts:
    facts = facts._replace(
        answer=facts.answer or None,
        first_token_seconds=_seconds_to_first_token(span),
        has_failed=_FAILED in facts.finish_reasons,
    )
    if step is None or step.attributes.get(_KIND) != _STEP:
        return facts
    messages = step.attributes.get(_MESSAGES)
    output = parsed(step.attributes.get(_CHOICE))
    calls = output.get("toolCalls") if isinstance(output, dict) else None
    return facts._replace(
        request=facts.request or first_request(messages),
        messages=facts.messages or text(messages),
        chosen=all_calls(read_messages([{"role": "assistant", "tool_calls": calls}]))
        if calls
        else facts.chosen,
    )


def _seconds_to_first_token(span: ReadableSpan) -> float | None:
    written = span.attributes.get(_FIRST_TOKEN)
    try:
        first = datetime.fromisoformat(written) if isinstance(written, str) else None
    except ValueError:
        return None
    if first is None or first.tzinfo is None:
        return None
    seconds = first.timestamp() - span.start / 1e9
    return seconds if seconds >= 0 else None


DIALECT = Dialect(
    "Mastra",
    order=7,
    marks=(_KIND,),
    read_with_parent=read,
    reads_parent=reads_parent,
    reads={
        "role": (_KIND,),
        "request": (_REQUEST, _MESSAGES),
        "answer": (_ANSWER,),
        "messages": (_MESSAGES,),
        "chosen": (_CHOICE,),
        "first_token_seconds": (_FIRST_TOKEN,),
        "has_failed": ("gen_ai.response.finish_reasons",),
    },
)
