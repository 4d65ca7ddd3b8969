"""Vercel AI SDK 5 to 7: spans of `ai.*` operations, and of the package `@ai-sdk/otel`.

Up to version 6, a span such as `ai.generateText` is an agent, and its child
`ai.generateText.doGenerate` is a model call. From version 7 on, `@ai-sdk/otel` sends spans of the
GenAI conventions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import (
    WRAPPER,
    Dialect,
    RequestedCall,
    Role,
    SpanFacts,
    count,
    first,
    first_text,
    text,
)
from tracer.otel.dialects.messages import all_calls, first_request, read_messages
from tracer.records.arguments import parsed
from tracer.records.spans import ReadableSpan

_SCOPE = "ai"
"""The scope of the SDK up to version 6."""
_SCOPE_OF_GENAI = "gen_ai"
"""The scope of the package `@ai-sdk/otel` (version 7 of the SDK). Its spans follow the GenAI
conventions."""

_AGENTS = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject", "ai.agent")
_EMBEDDINGS = ("ai.embed", "ai.embedMany")
_NAMES = ("ai.telemetry.functionId", "resource.name", "gen_ai.agent.name")
_CONVERSATIONS = ("ai.telemetry.metadata.sessionId", "ai.telemetry.metadata.threadId")
_SUBJECTS = ("ai.telemetry.metadata.userId",)
_ANSWERS = ("ai.response.text", "ai.response.object", "ai.result.text", "ai.result.object")
_PROMPTS = ("ai.prompt.messages", "ai.prompt")
_CALLS = ("ai.response.toolCalls", "ai.result.toolCalls")
_INPUT_TOKENS = ("ai.usage.promptTokens", "ai.usage.inputTokens", *genai.INPUT_TOKENS)
_OUTPUT_TOKENS = ("ai.usage.completionTokens", "ai.usage.outputTokens", *genai.OUTPUT_TOKENS)
_CACHE_READ_TOKENS = (
    "ai.usage.cachedInputTokens",
    "ai.usage.inputTokenDetails.cacheReadTokens",
    *genai.CACHE_READ_TOKENS,
)
_CACHE_WRITTEN_TOKENS = (
    "ai.usage.inputTokenDetails.cacheWriteTokens",
    *genai.CACHE_WRITTEN_TOKENS,
)
_REASONING_TOKENS = ("ai.usage.reasoningTokens", "ai.usage.outputTokenDetails.reasoningTokens")
_SETTINGS = "ai.settings."
_ARGUMENTS = ("ai.toolCall.args", "ai.toolCall.input")
_RESULTS = ("ai.toolCall.result", "ai.toolCall.output")


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of the AI SDK; None for any other span."""
    attributes = span.attributes
    if span.scope == _SCOPE_OF_GENAI:
        facts = genai.read(span)
        if facts is not None and facts.role is Role.TOOL:
            return facts._replace(result=_result(facts.result))
        return facts
    if "ai.operationId" not in attributes and not span.name.startswith("ai."):
        return None
    operation = text(attributes.get("ai.operationId")) or span.name.partition(" ")[0]
    if not operation.startswith("ai."):
        return None
    if operation == "ai.toolCall":
        return SpanFacts(
            Role.TOOL,
            name=first_text(attributes, ("ai.toolCall.name",)),
            call_id=first_text(attributes, ("ai.toolCall.id",)),
            arguments=first_text(attributes, _ARGUMENTS),
            result=_result(first(attributes, _RESULTS)),
        )
    outer, _, inner = operation.rpartition(".")
    if operation in _AGENTS:
        return _speaking(span, Role.AGENT)
    if outer in _AGENTS and inner.startswith("do"):
        return _speaking(span, Role.MODEL)
    if operation in _EMBEDDINGS:
        return SpanFacts(
            Role.TOOL,
            name=first_text(attributes, ("ai.model.id",)) or operation,
            tool_type="EMBEDDING",
            arguments=first_text(attributes, ("ai.value", "ai.values")),
        )
    return WRAPPER


def _speaking(span: ReadableSpan, role: Role) -> SpanFacts:
    attributes = span.attributes
    prompt = first(attributes, _PROMPTS)
    request = first_request(prompt)
    if request is None and prompt is not None:
        request = _bare_prompt(prompt)
    facts = genai.speaking_facts(span, role)
    return facts._replace(
        name=first_text(attributes, _NAMES) or first_text(attributes, ("operation.name",)),
        conversation=first_text(attributes, _CONVERSATIONS) or facts.conversation,
        subject=first_text(attributes, _SUBJECTS) or facts.subject,
        request=request or facts.request,
        answer=first_text(attributes, _ANSWERS) or facts.answer,
        requested_model=facts.requested_model or first_text(attributes, ("ai.model.id",)),
        model=facts.model or first_text(attributes, ("ai.response.model",)),
        provider=facts.provider or first_text(attributes, ("ai.model.provider",)),
        messages=(first_text(attributes, _PROMPTS) or facts.messages)
        if role is Role.MODEL
        else None,
        chosen=_chosen(span) or facts.chosen if role is Role.MODEL else (),
        input_tokens=count(first(attributes, _INPUT_TOKENS)),
        output_tokens=count(first(attributes, _OUTPUT_TOKENS)),
        cache_read_tokens=count(first(attributes, _CACHE_READ_TOKENS)),
        cache_written_tokens=count(first(attributes, _CACHE_WRITTEN_TOKENS)),
        **(_details(attributes) if role is Role.MODEL else {}),
    )


def _details(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters, offered tools, reasoning tokens, finish reasons and time to first token.

    The values come from the GenAI attributes or from `ai.*` attributes.
    """
    details = genai.model_details(attributes)
    if (tools := attributes.get("ai.prompt.tools")) is not None:
        details["offered_tools"] = genai.offered_tools_of(tools)
    settings = {
        name.removeprefix(_SETTINGS): value
        for name, value in attributes.items()
        if name.startswith(_SETTINGS) and value is not None
    }
    if details["parameters"] is None and settings:
        details["parameters"] = text(settings)
    if not details["finish_reasons"]:
        details["finish_reasons"] = genai.finish_reasons(attributes.get("ai.response.finishReason"))
    if details["reasoning_tokens"] is None:
        details["reasoning_tokens"] = count(first(attributes, _REASONING_TOKENS))
    milliseconds = attributes.get("ai.response.msToFirstChunk")
    if isinstance(milliseconds, int | float):
        details["first_token_seconds"] = milliseconds / 1000
    return details


def _result(result: Any) -> str | None:
    """Return a tool's result as text.

    The SDK encodes results as JSON. A JSON string is decoded, because the tool returned plain text.
    """
    value = parsed(result)
    return value if isinstance(value, str) else text(result)


def _bare_prompt(prompt: object) -> str | None:
    fields = parsed(prompt)
    nested = fields.get("prompt") if isinstance(fields, dict) else None
    return first_request(nested) if nested is not None else None


def _chosen(span: ReadableSpan) -> tuple[RequestedCall, ...]:
    calls = first(span.attributes, _CALLS)
    return all_calls(read_messages([{"role": "assistant", "tool_calls": calls}])) if calls else ()


DIALECT = Dialect(
    "Vercel AI SDK",
    order=30,
    scopes=(_SCOPE, _SCOPE_OF_GENAI),
    marks=("ai.operationId", "ai.telemetry.functionId", *_PROMPTS),
    read=read,
    reads={
        "role": ("ai.operationId",),
        "name": (*_NAMES, "operation.name", "ai.toolCall.name"),
        "conversation": _CONVERSATIONS,
        "subject": _SUBJECTS,
        "request": _PROMPTS,
        "messages": _PROMPTS,
        "answer": _ANSWERS,
        "requested_model": ("ai.model.id",),
        "model": ("ai.response.model",),
        "provider": ("ai.model.provider",),
        "chosen": _CALLS,
        "input_tokens": _INPUT_TOKENS,
        "output_tokens": _OUTPUT_TOKENS,
        "cache_read_tokens": _CACHE_READ_TOKENS,
        "cache_written_tokens": _CACHE_WRITTEN_TOKENS,
        "reasoning_tokens": _REASONING_TOKENS,
        "parameters": (_SETTINGS + "*",),
        "offered_tools": ("ai.prompt.tools",),
        "finish_reasons": ("ai.response.finishReason",),
        "first_token_seconds": ("ai.response.msToFirstChunk",),
        "call_id": ("ai.toolCall.id",),
        "arguments": (*_ARGUMENTS, "ai.value", "ai.values"),
        "result": _RESULTS,
    },
)
