"""Logfire 5: spans of its own instrumentations, and its two special kinds of spans.

Logfire sends log lines as spans. It also sends a *pending span* when a span starts, to announce
that span before it ends. The pending span has its own id. Its parent is the announced span, and an
attribute contains the parent of the announced span.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import (
    WRAPPER,
    Dialect,
    PendingSpans,
    Role,
    SpanFacts,
    count,
    first,
    first_text,
)
from tracer.otel.dialects.genai import Observed, content_of, observed_model, observed_tool
from tracer.records.arguments import parsed
from tracer.records.spans import SPAN_ID_BYTES, ReadableSpan

_SCOPES = "logfire."
"""The prefix of the scopes of Logfire's own instrumentations. Spans of other instrumentations have
GenAI attributes."""
_TYPE = "logfire.span_type"
_PARENT = "logfire.pending_parent_id"
_TEMPLATE = "logfire.msg_template"
_AGENT = "Agent run: {name!r}"
_TOOL = "Function: {name}"
_WORKFLOW = "OpenAI Agents trace: {name}"
_INPUTS = ("input", "raw_input", "request_data")
_OUTPUTS = ("output", "response", "response_data")
_USAGE = ("usage", "gen_ai.usage.raw")
_NULL = "null"


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of Logfire's own instrumentations; None for other spans.

    A log line is a wrapper in any instrumentation.
    """
    if is_log(span):
        return WRAPPER
    if not span.scope.startswith(_SCOPES):
        return None
    attributes = span.attributes
    template = attributes.get(_TEMPLATE)
    name = first_text(attributes, ("name",)) or span.name
    if template == _AGENT:
        return SpanFacts(Role.AGENT, name=name)
    if template == _WORKFLOW:
        group = first_text(attributes, ("group_id",))
        return SpanFacts(Role.WORKFLOW, name=name, conversation=group if group != _NULL else None)
    if template == _TOOL:
        return observed_tool(name, Observed(_first(span, ("input",)), _first(span, ("output",))))
    kind = genai.kind_of(span)
    if kind is None or kind[0] is not Role.MODEL:
        return None
    return _model(span)


def _model(span: ReadableSpan) -> SpanFacts:
    facts = genai.speaking_facts(span, Role.MODEL)
    own = observed_model(Observed(_first(span, _INPUTS), _first(span, _OUTPUTS)))
    usage = parsed(_first(span, _USAGE))
    usage = usage if isinstance(usage, dict) else {}
    return facts._replace(
        **content_of(own, facts),
        finish_reasons=facts.finish_reasons or own.finish_reasons,
        cache_read_tokens=_detail(usage, ("input", "prompt"), "cached_tokens")
        if facts.cache_read_tokens is None
        else facts.cache_read_tokens,
        reasoning_tokens=_detail(usage, ("output", "completion"), "reasoning_tokens")
        if facts.reasoning_tokens is None
        else facts.reasoning_tokens,
    )


def _detail(usage: Mapping[str, Any], kinds: tuple[str, ...], name: str) -> int | None:
    details = first(usage, [f"{kind}_tokens_details" for kind in kinds])
    return count(details.get(name)) if isinstance(details, dict) else None


def _first(span: ReadableSpan, names: tuple[str, ...]) -> Any:
    values = (span.attributes.get(name) for name in names)
    return next((value for value in values if value not in (None, "", _NULL)), None)


def is_pending(span: ReadableSpan) -> bool:
    """Return whether a span is a pending span, which announces another span before it ends."""
    return span.attributes.get(_TYPE) == "pending_span" and span.parent_span_id is not None


def is_log(span: ReadableSpan) -> bool:
    """Return whether a span is a log line that was sent as a span."""
    return span.attributes.get(_TYPE) == "log"


def announced_parent(pending: ReadableSpan) -> bytes | None:
    """Return the parent id of the span that a pending span announces; None for a root span."""
    value = pending.attributes.get(_PARENT)
    try:
        span_id = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        return None
    return span_id if len(span_id) == SPAN_ID_BYTES and any(span_id) else None


DIALECT = Dialect(
    "Logfire",
    order=0,
    scopes=(_SCOPES + "*",),
    marks=(_TYPE,),
    read=read,
    pending=PendingSpans(is_pending, announced_parent),
    reads={
        "spans": (_TYPE,),
        "links": (_PARENT,),
        "role": (_TEMPLATE,),
        "name": ("name",),
        "conversation": ("group_id",),
        "messages": _INPUTS,
        "chosen": _OUTPUTS,
        "answer": _OUTPUTS,
        "arguments": ("input",),
        "result": ("output",),
        "cache_read_tokens": _USAGE,
        "reasoning_tokens": _USAGE,
    },
)
