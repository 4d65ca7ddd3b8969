"""Gemini CLI 0.61: spans with the operations `agent_call`, `llm_call` and `tool_call`.

There is no span for a prompt. Each model call and each batch of tool calls of the main agent is a
trace of its own, so one prompt becomes several runs. They share the id of the prompt, which is
their work key. Sub-agents are complete: their spans are below the call that started them.
"""

from __future__ import annotations

import re
from typing import Any

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import (
    WRAPPER,
    Dialect,
    Role,
    SlimSpan,
    SpanFacts,
    first_text,
    text,
)
from tracer.otel.dialects.messages import read_messages
from tracer.records.arguments import parsed
from tracer.records.spans import LogRecord, ReadableSpan

_SCOPE = "gemini-cli"
_CONTEXT = re.compile(r"\A\s*<session_context>.*?</session_context>\s*", re.DOTALL)
"""What Gemini CLI writes before the first prompt of a session."""


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of Gemini CLI; None for any other span."""
    if span.scope != _SCOPE:
        return None
    operation = span.attributes.get("gen_ai.operation.name")
    is_top = span.parent_span_id is None
    if operation == "llm_call":
        facts = genai.speaking_facts(span, Role.MODEL)
        return _of_prompt(span, facts) if is_top else facts
    if operation == "agent_call":
        return _agent_facts(span)
    if operation == "tool_call":
        return _tool_facts(span)
    if operation == "schedule_tool_calls" and is_top:
        calls = parsed(span.attributes.get("gen_ai.input.messages"))
        first = calls[0] if isinstance(calls, list) and calls else None
        return SpanFacts(Role.WRAPPER, work_key=_field(first, "prompt_id"))
    return WRAPPER


def _of_prompt(span: ReadableSpan, facts: SpanFacts) -> SpanFacts:
    """Return the facts of a model call of the main agent: its request is the latest prompt."""
    messages = read_messages(span.attributes.get("gen_ai.input.messages"))
    prompts = [_CONTEXT.sub("", each.text) for each in messages if each.role == "user"]
    return facts._replace(
        request=next((each for each in reversed(prompts) if each), None),
        work_key=text(span.attributes.get("gen_ai.prompt.name")),
    )


def _agent_facts(span: ReadableSpan) -> SpanFacts:
    facts = genai.speaking_facts(span, Role.AGENT)
    asked = parsed(span.attributes.get("gen_ai.input.messages"))
    if not isinstance(asked, dict) or "agent_name" not in asked:
        return facts
    progress = _progress(parsed(span.attributes.get("gen_ai.output.messages")), "returnDisplay")
    answer = _field(progress, "result")
    result = parsed(answer)
    if isinstance(result, dict) and result.keys() == {"response"}:
        answer = _field(result, "response")
    return facts._replace(
        name=_field(asked, "agent_name"), request=_field(asked, "prompt"), answer=answer
    )


def _tool_facts(span: ReadableSpan) -> SpanFacts:
    attributes = span.attributes
    request = parsed(attributes.get("gen_ai.input.messages"))
    answer = parsed(attributes.get("gen_ai.output.messages"))
    response = answer.get("response") if isinstance(answer, dict) else None
    shown = response.get("resultDisplay") if isinstance(response, dict) else None
    error = response.get("error") if isinstance(response, dict) else None
    told = next((each for _, each in _outputs(response)), None)
    progress = _progress(response, "resultDisplay")
    return SpanFacts(
        Role.TOOL,
        name=first_text(attributes, ("gen_ai.tool.name",)),
        conversation=first_text(attributes, genai.CONVERSATIONS),
        call_id=first_text(attributes, ("gen_ai.tool.call_id",)),
        arguments=text(request.get("args")) if isinstance(request, dict) else None,
        result=(shown if isinstance(shown, str) else None)
        or (told if progress is not None else None)
        or text(shown)
        or text(error),
        has_failed=_field(answer, "status") == "error"
        or _exit_code(response) != 0
        or _field(progress, "terminateReason") not in (None, "GOAL"),
    )


def _field(value: Any, name: str) -> str | None:
    """Return a field of a JSON object if it is text."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else None


def _progress(value: Any, name: str) -> dict[str, Any] | None:
    """Return the progress of a sub-agent that a field of a JSON object describes."""
    shown = value.get(name) if isinstance(value, dict) else None
    return shown if isinstance(shown, dict) and shown.get("isSubagentProgress") else None


def _exit_code(response: Any) -> int:
    """Return the exit code of a shell command; 0 if the response has none.

    Gemini CLI reports a command as successful whatever its exit code is. It tells only the model
    the code, and only if it is not 0.
    """
    for name, output in _outputs(response):
        if name == "run_shell_command":
            match = _EXIT_CODE.search(output)
            return int(match[1]) if match is not None else 0
    return 0


def _outputs(response: Any) -> list[tuple[Any, str]]:
    """Return the tools and results that a response tells the model."""
    parts = response.get("responseParts") if isinstance(response, dict) else None
    found = []
    for part in parts if isinstance(parts, list) else ():
        function = part.get("functionResponse") if isinstance(part, dict) else None
        if isinstance(function, dict) and (output := _field(function.get("response"), "output")):
            found.append((function.get("name"), output))
    return found


# After the output, which may contain such a line itself.
_EXIT_CODE = re.compile(
    r"^Exit Code: (-?\d{1,10})(?:\n(?:Signal|Background PIDs|Process Group PGID): .*)*"
    r"(?:\n</untrusted_context>)?\s*\Z",
    re.MULTILINE,
)


def complete(spans: list[SlimSpan], logs: list[LogRecord]) -> list[SlimSpan]:
    """Set the requests of spans of the main agent to the prompts that log records contain.

    The records have no trace id. They belong to the run because they name its session.
    """
    prompts = {
        text(record.attributes.get("prompt_id")): text(record.attributes.get("prompt"))
        for record in logs
        if record.scope == _SCOPE and record.name == "gemini_cli.user_prompt"
    }
    for span in spans:
        if span.facts.work_key is not None and (prompt := prompts.get(span.facts.work_key)):
            span.facts = span.facts._replace(request=prompt)
    return spans


DIALECT = Dialect(
    "Gemini CLI",
    order=60,
    scopes=(_SCOPE,),
    read=read,
    complete=complete,
    sessions={_SCOPE: "session.id"},
    reads={
        "role": ("gen_ai.operation.name",),
        "name": ("gen_ai.tool.name", "gen_ai.input.messages"),
        "conversation": genai.CONVERSATIONS,
        "call_id": ("gen_ai.tool.call_id",),
        "request": ("gen_ai.input.messages", "prompt"),
        "answer": ("gen_ai.output.messages",),
        "arguments": ("gen_ai.input.messages",),
        "result": ("gen_ai.output.messages",),
        "has_failed": ("gen_ai.output.messages",),
        "work_key": ("gen_ai.prompt.name", "gen_ai.input.messages"),
        "links": ("prompt_id",),
    },
)
