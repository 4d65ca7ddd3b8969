"""Gemini CLI 0.61: spans with the operations `agent_call`, `llm_call` and `tool_call`.

With `--prompt`, Gemini CLI sends no agent span. Each model call and each batch of tool calls is
then a trace of its own, so one prompt becomes several runs. Only the conversation id connects them.
"""

from __future__ import annotations

import re
from typing import Any

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
            has_failed=(isinstance(answer, dict) and answer.get("status") == "error")
            or _exit_code(response) != 0,
        )
    role = _ROLES.get(operation) if isinstance(operation, str) else None
    return genai.speaking_facts(span, role) if role is not None else WRAPPER


def _exit_code(response: Any) -> int:
    """Return the exit code of a shell command; 0 if the response has none.

    Gemini CLI reports a command as successful whatever its exit code is. It tells only the model
    the code, and only if it is not 0.
    """
    parts = response.get("responseParts") if isinstance(response, dict) else None
    for part in parts if isinstance(parts, list) else ():
        function = part.get("functionResponse") if isinstance(part, dict) else None
        if isinstance(function, dict) and function.get("name") == "run_shell_command":
            answer = function.get("response")
            output = answer.get("output") if isinstance(answer, dict) else None
            match = _EXIT_CODE.search(output) if isinstance(output, str) else None
            return int(match[1]) if match is not None else 0
    return 0


# After the output, which may contain such a line itself.
_EXIT_CODE = re.compile(
    r"^Exit Code: (-?\d{1,10})(?:\n(?:Signal|Background PIDs|Process Group PGID): .*)*"
    r"(?:\n</untrusted_context>)?\s*\Z",
    re.MULTILINE,
)

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
