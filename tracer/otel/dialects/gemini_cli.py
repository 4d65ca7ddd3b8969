"""Gemini CLI 0.61: spans with the operations `agent_call`, `llm_call` and `tool_call`.

With `--prompt`, Gemini CLI sends no agent span. Each model call and each batch of tool calls is
then a trace of its own, so one prompt becomes several runs. Only the conversation id connects them.
"""

from __future__ import annotations

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import WRAPPER, Dialect, Role, SpanFacts, first_text, text
from tracer.records.arguments import parsed
from tracer.records.spans import ReadableSpan

_SCOPE = "gemini-cli"
_ROLES = {"llm_call": Role.MODEL, "agent_call": Role.AGENT}


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of Gemini CLI; None for any other span."""
    if span.scope != _SCOPE:
        return None
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name")
    if operation == "tool_call":
        request = parsed(attributes.get("gen_ai.input.messages"))
        answer = parsed(attributes.get("gen_ai.output.messages"))
        response = answer.get("response") if isinstance(answer, dict) else None
        shown = response.get("resultDisplay") if isinstance(response, dict) else None
        error = response.get("error") if isinstance(response, dict) else None
        return SpanFacts(
            Role.TOOL,
            name=first_text(attributes, ("gen_ai.tool.name",)),
            conversation=first_text(attributes, genai.CONVERSATIONS),
            call_id=first_text(attributes, ("gen_ai.tool.call_id",)),
            arguments=text(request.get("args")) if isinstance(request, dict) else None,
            result=text(shown) or text(error),
            has_failed=isinstance(answer, dict) and answer.get("status") == "error",
        )
    role = _ROLES.get(operation) if isinstance(operation, str) else None
    return genai.speaking_facts(span, role) if role is not None else WRAPPER


DIALECT = Dialect(
    "Gemini CLI",
    order=60,
    scopes=(_SCOPE,),
    read=read,
    sessions={_SCOPE: "session.id"},
    reads={
        "role": ("gen_ai.operation.name",),
        "name": ("gen_ai.tool.name",),
        "conversation": genai.CONVERSATIONS,
        "call_id": ("gen_ai.tool.call_id",),
        "arguments": ("gen_ai.input.messages",),
        "result": ("gen_ai.output.messages",),
    },
)
