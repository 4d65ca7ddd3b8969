"""OpenLLMetry (Traceloop SDK 0.62): spans with `traceloop.span.kind` and GenAI attributes."""

from __future__ import annotations

from typing import Any

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import Dialect, Role, SpanFacts, first, first_text, text
from tracer.otel.dialects.genai import returned
from tracer.otel.dialects.messages import (
    first_request,
    last_answer,
    read_messages,
    unwrapped_result,
)
from tracer.records.arguments import parsed
from tracer.records.spans import ReadableSpan

KIND = "traceloop.span.kind"
_ROLES = {"workflow": Role.WORKFLOW, "agent": Role.AGENT, "tool": Role.TOOL, "task": Role.CHAIN}
_NAMES = ("traceloop.entity.name", "traceloop.workflow.name")
_INPUTS = ("gen_ai.tool.call.arguments", "traceloop.entity.input")
_OUTPUTS = ("gen_ai.tool.call.result", "traceloop.entity.output")
_CONVERSATIONS = (
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
)
_SUBJECTS = ("traceloop.association.properties.user_id",)
_ENVELOPE = ("input_str", "kwargs", "tags", "metadata")


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span with `traceloop.span.kind`; None for other spans.

    Model calls have no kind; the GenAI dialect reads them. If a span has both a kind and a GenAI
    operation, the operation decides. LangChain's agents, for example, have the kind `workflow`.
    """
    kind = span.attributes.get(KIND)
    role = _ROLES.get(kind) if isinstance(kind, str) else None
    if role is None:
        return None
    tool_type = None
    by_operation = genai.kind_of(span)
    if by_operation is not None and by_operation[0] is not Role.WRAPPER:
        role, tool_type = by_operation
    if role is Role.TOOL:
        return _tool(span, tool_type)
    if role is Role.MODEL:
        return genai.speaking_facts(span, role)
    return _speaking(span, role)


def _tool(span: ReadableSpan, tool_type: str | None) -> SpanFacts:
    facts = genai.tool_facts(span, tool_type)
    name = first_text(span.attributes, ("gen_ai.tool.name", *_NAMES))
    arguments, call_id = _unwrapped_arguments(first(span.attributes, _INPUTS))
    result = unwrapped_result(returned(first(span.attributes, _OUTPUTS)))
    return facts._replace(
        name=(name or facts.name or span.name).removesuffix(".tool"),
        arguments=arguments,
        result=result.text,
        call_id=facts.call_id or call_id or result.call_id,
        has_failed=facts.has_failed or result.failed,
    )


def _unwrapped_arguments(value: Any) -> tuple[str | None, str | None]:
    """Return the arguments and the call id of a tool call.

    For LangChain, both are inside an object with keys such as `inputs` and `kwargs`. Other values
    are the arguments themselves, without a call id.
    """
    fields = parsed(value)
    if not isinstance(fields, dict) or not any(name in fields for name in _ENVELOPE):
        if isinstance(fields, dict) and set(fields) == {"inputs"}:
            return text(fields["inputs"]), None
        return text(value), None
    kwargs = fields.get("kwargs")
    call_id = text(kwargs.get("tool_call_id")) if isinstance(kwargs, dict) else None
    inputs = fields.get("inputs")
    if inputs is None and "args" in fields:  # the decorator's: positional and keyword arguments
        return text(kwargs if kwargs else fields["args"]), call_id
    return text(inputs if inputs is not None else fields.get("input_str")), call_id


def _speaking(span: ReadableSpan, role: Role) -> SpanFacts:
    facts = genai.speaking_facts(span, role)
    inputs = _content(span.attributes.get("traceloop.entity.input"), "inputs")
    outputs = _content(span.attributes.get("traceloop.entity.output"), "outputs")
    name = first_text(span.attributes, ("gen_ai.agent.name", *_NAMES))
    return facts._replace(
        name=name or facts.name,
        request=facts.request or first_request(inputs),
        answer=facts.answer or last_answer(read_messages(outputs)),
        conversation=facts.conversation or first_text(span.attributes, _CONVERSATIONS),
        subject=facts.subject or first_text(span.attributes, _SUBJECTS),
    )


def _content(value: Any, name: str) -> Any:
    fields = parsed(value)
    if isinstance(fields, dict) and name in fields:
        return parsed(fields[name])
    return fields


DIALECT = Dialect(
    "OpenLLMetry (Traceloop)",
    order=20,
    marks=(KIND,),
    read=read,
    reads={
        "role": (KIND,),
        "name": ("gen_ai.agent.name", "gen_ai.tool.name", *_NAMES),
        "conversation": _CONVERSATIONS,
        "subject": _SUBJECTS,
        "request": ("traceloop.entity.input",),
        "answer": ("traceloop.entity.output",),
        "arguments": _INPUTS,
        "result": _OUTPUTS,
    },
)
