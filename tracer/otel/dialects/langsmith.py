"""LangSmith 0.15: its OpenTelemetry export, with `langsmith.span.kind`.

Inputs and outputs are in `gen_ai.prompt` and `gen_ai.completion`. The general GenAI dialect would
misread these spans: a prompt template has the operation `chat`, and tool calls have their arguments
and results in the attributes for model messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import (
    WRAPPER,
    Dialect,
    Role,
    SlimSpan,
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
from tracer.records.spans import STATUS_ERROR, LogRecord, ReadableSpan

SCOPE = "langsmith"
_KIND = "langsmith.span.kind"
_METADATA = "langsmith.metadata."
_ROLES = {
    "chain": Role.CHAIN,
    "llm": Role.MODEL,
    "tool": Role.TOOL,
    "retriever": Role.TOOL,
    "embedding": Role.TOOL,
}
_CONVERSATIONS = tuple(_METADATA + each for each in ("thread_id", "session_id", "conversation_id"))
_SUBJECTS = tuple(_METADATA + each for each in ("user_id", "ls_user_id"))
_MODELS = ("gen_ai.response.model", _METADATA + "ls_model_name", "gen_ai.request.model")


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of an exported LangSmith run; None for any other span."""
    attributes = span.attributes
    kind = attributes.get(_KIND)
    if not isinstance(kind, str):
        return None
    role = _ROLES.get(kind)
    if role is None:
        return WRAPPER
    observed = Observed(attributes.get("gen_ai.prompt"), attributes.get("gen_ai.completion"))
    if role is Role.MODEL:
        facts = _model(span, observed)
    elif role is Role.TOOL:
        name = first_text(attributes, ("gen_ai.tool.name",)) or span.name
        facts = observed_tool(name, observed, None if kind == "tool" else kind.upper())
        call_id = first_text(attributes, ("gen_ai.tool.call.id", _METADATA + "tool_call_id"))
        facts = facts._replace(call_id=call_id or facts.call_id)
    else:
        facts = observed_agent(_role_of_chain(span), span.name, observed)
    return facts._replace(
        conversation=first_text(attributes, _CONVERSATIONS),
        subject=first_text(attributes, _SUBJECTS),
    )


def complete(spans: list[SlimSpan], _logs: list[LogRecord]) -> list[SlimSpan]:
    """Mark spans that contain an exception as failed.

    LangSmith's exporter may set their status to `OK`.
    """
    for span in spans:
        if span.scope == SCOPE and any(event.name == "exception" for event in span.events):
            span.status_code = STATUS_ERROR
    return spans


def _role_of_chain(span: ReadableSpan) -> Role:
    """Return the role of a span of kind `chain`.

    The kind is used for LangChain's chains and agents, and for functions with the decorator
    `traceable`.
    """
    metadata = {
        name: span.attributes.get(_METADATA + name)
        for name in ("ls_integration", "lc_agent_name", "langgraph_node")
    }
    if is_created_agent(metadata, span.name):
        return Role.AGENT
    is_of_langchain = any(value is not None for value in metadata.values())
    return Role.CHAIN if is_of_langchain else Role.WORKFLOW


def _model(span: ReadableSpan, observed: Observed) -> SpanFacts:
    attributes = span.attributes
    facts = observed_model(observed)
    details = genai.model_details(attributes)
    usage = parsed(attributes.get(_METADATA + "usage_metadata"))
    usage = usage if isinstance(usage, dict) else {}
    node = attributes.get(_METADATA + "langgraph_node")
    return facts._replace(
        requested_model=first_text(attributes, ("gen_ai.request.model", *_MODELS)),
        model=first_text(attributes, _MODELS),
        provider=first_text(attributes, (_METADATA + "ls_provider", *genai.PROVIDERS)),
        input_tokens=count(first(attributes, genai.INPUT_TOKENS) or usage.get("input_tokens")),
        output_tokens=count(first(attributes, genai.OUTPUT_TOKENS) or usage.get("output_tokens")),
        cache_read_tokens=_detail(usage, "input", "cache_read"),
        cache_written_tokens=_detail(usage, "input", "cache_creation"),
        reasoning_tokens=_detail(usage, "output", "reasoning"),
        parameters=details["parameters"],
        offered_tools=facts.offered_tools or details["offered_tools"],
        finish_reasons=details["finish_reasons"] or facts.finish_reasons,
        graph_node=text(node) if node is not None else None,
    )


def _detail(usage: Mapping[str, Any], of: str, name: str) -> int | None:
    details = usage.get(f"{of}_token_details")
    return count(details.get(name)) if isinstance(details, dict) else None


_USAGE = _METADATA + "usage_metadata"
DIALECT = Dialect(
    "LangSmith",
    order=3,
    scopes=(SCOPE,),
    marks=(_KIND,),
    read=read,
    complete=complete,
    reads={
        "role": (
            _KIND,
            *(_METADATA + each for each in ("ls_integration", "lc_agent_name", "langgraph_node")),
        ),
        "name": ("gen_ai.tool.name",),
        "conversation": _CONVERSATIONS,
        "subject": _SUBJECTS,
        "request": ("gen_ai.prompt",),
        "messages": ("gen_ai.prompt",),
        "answer": ("gen_ai.completion",),
        "chosen": ("gen_ai.completion",),
        "requested_model": ("gen_ai.request.model", *_MODELS),
        "model": _MODELS,
        "provider": (_METADATA + "ls_provider", *genai.PROVIDERS),
        "input_tokens": (*genai.INPUT_TOKENS, _USAGE),
        "output_tokens": (*genai.OUTPUT_TOKENS, _USAGE),
        "cache_read_tokens": (_USAGE,),
        "cache_written_tokens": (_USAGE,),
        "reasoning_tokens": (_USAGE,),
        "graph_node": (_METADATA + "langgraph_node",),
        "call_id": ("gen_ai.tool.call.id", _METADATA + "tool_call_id"),
        "arguments": ("gen_ai.prompt",),
        "result": ("gen_ai.completion",),
    },
)
