"""Langfuse 3 to 5: spans with `langfuse.observation.type`.

Input, output, token usage and costs are attributes with JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tracer.otel.dialects.dialect import (
    WRAPPER,
    Dialect,
    Role,
    SpanFacts,
    count,
    first,
    first_text,
    text,
)
from tracer.otel.dialects.genai import (
    Observed,
    is_created_agent,
    observed_agent,
    observed_model,
    observed_tool,
)
from tracer.records.arguments import parsed
from tracer.records.prices import usd
from tracer.records.spans import ReadableSpan

_PREFIX = "langfuse.observation."
_KIND = _PREFIX + "type"
_METADATA = _PREFIX + "metadata."
_ROLES = {
    "agent": Role.AGENT,
    "chain": Role.CHAIN,
    "span": Role.WORKFLOW,
    "tool": Role.TOOL,
    "retriever": Role.TOOL,
    "embedding": Role.TOOL,
    "guardrail": Role.TOOL,
    "generation": Role.MODEL,
}
_CONVERSATIONS = ("session.id", "langfuse.session.id")
_SUBJECTS = ("user.id", "langfuse.user.id")
_CACHE_READ = (
    "input_cache_read",
    "cache_read_input_tokens",
    "input_cached_tokens",
    "input_cache_read_input_tokens",
)
_CACHE_WRITTEN = (
    "input_cache_creation",
    "cache_creation_input_tokens",
    "input_cache_creation_input_tokens",
)
_REASONING = ("output_reasoning", "output_reasoning_tokens")
_NO_PARTS = "priority"
"""Token counts with this word in their name are not added, because other counts include them."""


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a Langfuse observation; None for any other span."""
    attributes = span.attributes
    kind = attributes.get(_KIND)
    if not isinstance(kind, str):
        return None
    role = _ROLES.get(kind)
    if role is None:
        return WRAPPER
    metadata = {
        name.removeprefix(_METADATA): parsed(value)
        for name, value in attributes.items()
        if name.startswith(_METADATA)
    }
    observed = Observed(attributes.get(_PREFIX + "input"), attributes.get(_PREFIX + "output"))
    if role is Role.MODEL:
        facts = _model(span, observed, metadata)
    elif role is Role.TOOL:
        tool_type = None if kind == "tool" else kind.upper()
        facts = observed_tool(span.name, observed, tool_type)
        facts = facts._replace(call_id=facts.call_id or text(metadata.get("tool_call_id")))
    else:
        if role is Role.CHAIN and is_created_agent(metadata, span.name):
            role = Role.AGENT
        facts = observed_agent(role, span.name, observed)
    return facts._replace(
        conversation=first_text(attributes, _CONVERSATIONS),
        subject=first_text(attributes, _SUBJECTS),
    )


def _model(span: ReadableSpan, observed: Observed, metadata: Mapping[str, Any]) -> SpanFacts:
    attributes = span.attributes
    facts = observed_model(observed)
    model = first_text(attributes, (_PREFIX + "model.name",))
    cost = parsed(attributes.get(_PREFIX + "cost_details"))
    node = metadata.get("langgraph_node")
    facts = facts._replace(
        requested_model=model,
        model=model,
        provider=text(metadata.get("ls_provider")),
        parameters=_parameters(parsed(attributes.get(_PREFIX + "model.parameters"))),
        cost_usd=usd(cost.get("total")) if isinstance(cost, dict) else None,
        first_token_seconds=_first_token_seconds(span),
        graph_node=node if isinstance(node, str) else None,
    )
    usage = parsed(attributes.get(_PREFIX + "usage_details"))
    return facts._replace(**_counts(usage)) if isinstance(usage, dict) else facts


def _parameters(value: Any) -> str | None:
    """Return the request parameters, without those that are null or `Infinity`.

    The SDK writes `Infinity` for a limit that the user did not set.
    """
    if not isinstance(value, dict):
        return None
    stated = {name: each for name, each in value.items() if each not in (None, "Infinity")}
    return text(stated) if stated else None


def _counts(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token counts of a model call.

    A provider's usage object contains totals. Langfuse's own usage object contains separate parts,
    so these are added up.
    """
    if "prompt_tokens" in usage or "input_tokens" in usage:  # as a provider sends them
        return {
            "input_tokens": count(first(usage, ("prompt_tokens", "input_tokens"))),
            "output_tokens": count(first(usage, ("completion_tokens", "output_tokens"))),
            "cache_read_tokens": _part(usage, ("prompt", "input"), "cached_tokens"),
            "reasoning_tokens": _part(usage, ("completion", "output"), "reasoning_tokens"),
        }
    cache_read = count(first(usage, _CACHE_READ))
    cache_written = count(first(usage, _CACHE_WRITTEN))
    reasoning = count(first(usage, _REASONING))
    return {
        "input_tokens": _sum(usage, "input", (*_CACHE_READ, *_CACHE_WRITTEN)),
        "output_tokens": _sum(usage, "output", _REASONING),
        "cache_read_tokens": cache_read,
        "cache_written_tokens": cache_written,
        "reasoning_tokens": reasoning,
    }


def _part(usage: Mapping[str, Any], kinds: tuple[str, ...], name: str) -> int | None:
    details = first(usage, [f"{kind}_tokens_details" for kind in kinds])
    return count(details.get(name)) if isinstance(details, dict) else None


def _sum(usage: Mapping[str, Any], whole: str, parts: tuple[str, ...]) -> int | None:
    names = {
        name
        for name in usage
        if name == whole
        or name in parts
        or (name.startswith(f"{whole}_") and _NO_PARTS not in name)
    }
    counts = [number for name in names if (number := count(usage[name])) is not None]
    return sum(counts) if counts else None


def _first_token_seconds(span: ReadableSpan) -> float | None:
    moment = parsed(span.attributes.get(_PREFIX + "completion_start_time"))
    try:
        at = datetime.fromisoformat(moment) if isinstance(moment, str) else None
    except ValueError:
        return None
    if at is None or at.tzinfo is None:
        return None
    seconds = at.timestamp() - span.start / 1e9
    return seconds if seconds >= 0 else None


_INPUT, _OUTPUT, _USAGE = _PREFIX + "input", _PREFIX + "output", _PREFIX + "usage_details"
DIALECT = Dialect(
    "Langfuse",
    order=1,
    marks=(_KIND,),
    read=read,
    reads={
        "role": (_KIND, _METADATA + "*"),
        "conversation": _CONVERSATIONS,
        "subject": _SUBJECTS,
        "request": (_INPUT,),
        "messages": (_INPUT,),
        "offered_tools": (_INPUT,),
        "answer": (_OUTPUT,),
        "chosen": (_OUTPUT,),
        "requested_model": (_PREFIX + "model.name",),
        "model": (_PREFIX + "model.name",),
        "provider": (_METADATA + "ls_provider",),
        "parameters": (_PREFIX + "model.parameters",),
        "input_tokens": (_USAGE,),
        "output_tokens": (_USAGE,),
        "cache_read_tokens": (_USAGE,),
        "cache_written_tokens": (_USAGE,),
        "reasoning_tokens": (_USAGE,),
        "cost_usd": (_PREFIX + "cost_details",),
        "first_token_seconds": (_PREFIX + "completion_start_time",),
        "graph_node": (_METADATA + "langgraph_node",),
        "call_id": (_METADATA + "tool_call_id",),
        "arguments": (_INPUT,),
        "result": (_OUTPUT,),
    },
)
