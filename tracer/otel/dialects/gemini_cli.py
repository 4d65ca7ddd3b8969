"""Gemini CLI: `llm_call` is a model call, `tool_call` a call.

With `--prompt`, it sends no span of an agent, and each model call and each batch of calls is a
trace of its own. Only the conversation joins them.
"""

from __future__ import annotations

from tracer.otel.dialects import genai
from tracer.otel.dialects.reading import WRAPPER, Reading, Role, first_text, parsed, text
from tracer.otel.otlp.spans import ReadableSpan

_SCOPE = "gemini-cli"
_ROLES = {"llm_call": Role.MODEL, "agent_call": Role.AGENT}


def read(span: ReadableSpan) -> Reading | None:
    """Return what Gemini CLI says of a span; None where it is not Gemini CLI's."""
    if span.scope != _SCOPE:
        return None
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name")
    if operation == "tool_call":
        given = parsed(attributes.get("gen_ai.input.messages"))
        answered = parsed(attributes.get("gen_ai.output.messages"))
        response = answered.get("response") if isinstance(answered, dict) else None
        shown = response.get("resultDisplay") if isinstance(response, dict) else None
        error = response.get("error") if isinstance(response, dict) else None
        return Reading(
            Role.TOOL,
            name=first_text(attributes, ("gen_ai.tool.name",)),
            conversation=first_text(attributes, genai.CONVERSATIONS),
            call_id=first_text(attributes, ("gen_ai.tool.call_id",)),
            arguments=text(given.get("args")) if isinstance(given, dict) else None,
            result=text(shown) or text(error),
            tool_failed=isinstance(answered, dict) and answered.get("status") == "error",
        )
    role = _ROLES.get(operation) if isinstance(operation, str) else None
    return genai.speaking_reading(span, role) if role is not None else WRAPPER
