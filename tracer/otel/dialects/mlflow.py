"""MLflow 3: spans with `mlflow.spanType`. The value of each attribute is JSON text."""

from __future__ import annotations

from typing import Any

from tracer.otel.dialects.dialect import WRAPPER, Dialect, Role, SpanFacts, count, text
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

_KIND = "mlflow.spanType"
_ROLES = {
    "AGENT": Role.AGENT,
    "CHAIN": Role.CHAIN,
    "TASK": Role.CHAIN,
    "WORKFLOW": Role.WORKFLOW,
    "UNKNOWN": Role.WORKFLOW,
    "TOOL": Role.TOOL,
    "RETRIEVER": Role.TOOL,
    "EMBEDDING": Role.TOOL,
    "RERANKER": Role.TOOL,
    "GUARDRAIL": Role.TOOL,
    "CHAT_MODEL": Role.MODEL,
    "LLM": Role.MODEL,
}
_CONVERSATIONS = ("mlflow.trace.session", "session.id")
_SUBJECTS = ("mlflow.trace.user", "user.id")
_PARAMETERS = tuple(
    "temperature top_p top_k max_tokens max_completion_tokens seed stop frequency_penalty"
    " presence_penalty n reasoning_effort stream".split()
)


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of MLflow; None for any other span."""
    kind = _value(span, _KIND)
    if not isinstance(kind, str):
        return None
    role = _ROLES.get(kind)
    if role is None:
        return WRAPPER
    observed = Observed(
        span.attributes.get("mlflow.spanInputs"), span.attributes.get("mlflow.spanOutputs")
    )
    if role is Role.MODEL:
        facts = _model(span, observed)
    elif role is Role.TOOL:
        facts = observed_tool(span.name, observed, None if kind == "TOOL" else kind)
        call_id = text(_value(span, "tool_call_id"))
        facts = facts._replace(call_id=facts.call_id or call_id)
    else:
        metadata = _value(span, "metadata")
        created = isinstance(metadata, dict) and is_created_agent(metadata, span.name)
        facts = observed_agent(Role.AGENT if created else role, span.name, observed)
    return facts._replace(
        conversation=_first_text(span, _CONVERSATIONS), subject=_first_text(span, _SUBJECTS)
    )


def _model(span: ReadableSpan, observed: Observed) -> SpanFacts:
    facts = observed_model(observed)
    usage = _value(span, "mlflow.chat.tokenUsage")
    usage = usage if isinstance(usage, dict) else {}
    cost = _value(span, "mlflow.llm.cost")
    request, answer = parsed(observed.input), parsed(observed.output)
    request = request if isinstance(request, dict) else {}
    parameters = {name: request[name] for name in _PARAMETERS if request.get(name) is not None}
    model = text(_value(span, "mlflow.llm.model")) or text(request.get("model"))
    answered = answer.get("model") if isinstance(answer, dict) else None
    return facts._replace(
        requested_model=text(request.get("model")) or model,
        model=text(answered) or model,
        provider=text(_value(span, "mlflow.llm.provider")),
        parameters=text(parameters) if parameters else None,
        input_tokens=count(usage.get("input_tokens")),
        output_tokens=count(usage.get("output_tokens")),
        total_tokens=count(usage.get("total_tokens")),
        cache_read_tokens=count(usage.get("cache_read_input_tokens")),
        cache_written_tokens=count(usage.get("cache_creation_input_tokens")),
        cost_usd=usd(cost.get("total_cost")) if isinstance(cost, dict) else None,
    )


def _value(span: ReadableSpan, name: str) -> Any:
    return parsed(span.attributes.get(name))


def _first_text(span: ReadableSpan, names: tuple[str, ...]) -> str | None:
    return next((found for name in names if (found := text(_value(span, name)))), None)


_INPUTS, _OUTPUTS, _USAGE = "mlflow.spanInputs", "mlflow.spanOutputs", "mlflow.chat.tokenUsage"
DIALECT = Dialect(
    "MLflow",
    order=4,
    marks=(_KIND,),
    read=read,
    reads={
        "role": (_KIND, "metadata"),
        "conversation": _CONVERSATIONS,
        "subject": _SUBJECTS,
        "request": (_INPUTS,),
        "messages": (_INPUTS,),
        "offered_tools": (_INPUTS,),
        "parameters": (_INPUTS,),
        "answer": (_OUTPUTS,),
        "chosen": (_OUTPUTS,),
        "requested_model": (_INPUTS, "mlflow.llm.model"),
        "model": (_OUTPUTS, "mlflow.llm.model"),
        "provider": ("mlflow.llm.provider",),
        "input_tokens": (_USAGE,),
        "output_tokens": (_USAGE,),
        "cache_read_tokens": (_USAGE,),
        "cache_written_tokens": (_USAGE,),
        "cost_usd": ("mlflow.llm.cost",),
        "call_id": ("tool_call_id",),
        "arguments": (_INPUTS,),
        "result": (_OUTPUTS,),
    },
)
