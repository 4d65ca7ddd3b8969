"""OpenTelemetry's GenAI conventions, in current and older versions.

The older versions include the attributes `llm.*` and messages in span events. Some emitters add
attributes of their own, which are read as well: pydantic-ai, agent-framework, Google ADK, OpenAI
Agents, Strands, VS Code and others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from tracer.otel.dialects.dialect import (
    Dialect,
    Role,
    SlimSpan,
    SpanFacts,
    count,
    first,
    first_text,
    text,
)
from tracer.otel.dialects.messages import (
    all_calls,
    all_executed,
    all_reasoning,
    first_request,
    flattened,
    flattened_values,
    last_answer,
    read_messages,
    unwrapped_result,
)
from tracer.records.arguments import offered_tools_text, parsed, strings_in
from tracer.records.prices import usd
from tracer.records.spans import LogRecord, ReadableSpan, SpanEvent

OPERATIONS: dict[str, tuple[Role, str | None]] = {
    "invoke_agent": (Role.AGENT, None),
    "invoke_workflow": (Role.WORKFLOW, None),
    "chat": (Role.MODEL, None),
    "generate_content": (Role.MODEL, None),
    "generate_live_content": (Role.MODEL, None),
    "realtime_inference": (Role.MODEL, None),
    "text_completion": (Role.MODEL, None),
    "completion": (Role.MODEL, None),
    "response": (Role.MODEL, None),
    "execute_tool": (Role.TOOL, None),
    "embeddings": (Role.TOOL, "EMBEDDING"),
    "retrieval": (Role.TOOL, "RETRIEVER"),
    "retrieve": (Role.TOOL, "RETRIEVER"),
    "vector_db_retrieve": (Role.TOOL, "RETRIEVER"),
    "rerank": (Role.TOOL, "RERANKER"),
    "create_memory_store": (Role.TOOL, "MEMORY"),
    "delete_memory_store": (Role.TOOL, "MEMORY"),
    "create_memory": (Role.TOOL, "MEMORY"),
    "update_memory": (Role.TOOL, "MEMORY"),
    "upsert_memory": (Role.TOOL, "MEMORY"),
    "search_memory": (Role.TOOL, "MEMORY"),
    "delete_memory": (Role.TOOL, "MEMORY"),
    "speech_to_text": (Role.TOOL, "SPEECH"),
    "text_to_speech": (Role.TOOL, "SPEECH"),
    "guardrail": (Role.TOOL, "GUARDRAIL"),
    "guardrail_check": (Role.TOOL, "GUARDRAIL"),
    "run_guardrail": (Role.TOOL, "GUARDRAIL"),
    "apply_guardrail": (Role.TOOL, "GUARDRAIL"),
    "create_agent": (Role.WRAPPER, None),
    "fetch_response": (Role.WRAPPER, None),  # of an earlier call, whose tokens already count
    "execute_task": (Role.CHAIN, None),
    "plan": (Role.CHAIN, None),
    "run_step": (Role.CHAIN, None),
}
"""The role of a span by its `gen_ai.operation.name`, with the type of the tool for a tool call.
`assumed_role` reads spans with other operations."""

AGENT_NAMES = ("gen_ai.agent.name", "agent_name", "gen_ai.agent.id")
CONVERSATIONS = ("gen_ai.conversation.id", "session.id", "gcp.vertex.agent.session_id")
SUBJECTS = ("user.id", "enduser.id", "gen_ai.user.id")
REQUESTED_MODELS = ("gen_ai.request.model", "llm.request.model")
MODELS = ("gen_ai.response.model", "llm.response.model")
INPUT_TOKENS = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.usage.prompt_tokens",
)
OUTPUT_TOKENS = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.usage.completion_tokens",
)
CACHE_READ_TOKENS = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "gen_ai.usage.details.cached_tokens",
    "gen_ai.usage.input_tokens.cached",
    "llm.usage.cache_read_input_tokens",
)
CACHE_WRITTEN_TOKENS = (
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_write_input_tokens",
    "gen_ai.usage.details.cache_write_tokens",
    "llm.usage.cache_creation_input_tokens",
)
REASONING_TOKENS = (
    "gen_ai.usage.reasoning.output_tokens",
    "gen_ai.usage.reasoning_tokens",
    "gen_ai.usage.details.reasoning_tokens",
    "gen_ai.usage.output_tokens.reasoning",
    "llm.usage.reasoning_tokens",
)
CACHE_WRITTEN_HOUR_TOKENS = (
    "gen_ai.usage.cache_creation.ephemeral_1h_input_tokens",
    "gen_ai.usage.cache_creation.1h.input_tokens",
    "gen_ai.usage.details.ephemeral_1h_input_tokens",
)
AUDIO_INPUT_TOKENS = (
    "gen_ai.usage.audio.input_tokens",
    "gen_ai.usage.input_audio_tokens",
    "gen_ai.usage.details.input_audio_tokens",
    "llm.token_count.prompt_details.audio",
)
AUDIO_OUTPUT_TOKENS = (
    "gen_ai.usage.audio.output_tokens",
    "gen_ai.usage.output_audio_tokens",
    "gen_ai.usage.details.output_audio_tokens",
    "llm.token_count.completion_details.audio",
)
TOTAL_TOKENS = (
    "gen_ai.usage.total_tokens",
    "llm.usage.total_tokens",
    "llm.token_count.total",
    "ai.usage.totalTokens",
)
SERVICE_TIERS = (
    "gen_ai.openai.response.service_tier",
    "openai.response.service_tier",
    "gen_ai.response.service_tier",
    "gen_ai.openai.request.service_tier",
    "openai.request.service_tier",
    "gen_ai.request.service_tier",
)
PARAMETERS = {
    "gen_ai.request.temperature": "temperature",
    "gen_ai.request.top_p": "top_p",
    "gen_ai.request.top_k": "top_k",
    "gen_ai.request.max_tokens": "max_tokens",
    "gen_ai.request.frequency_penalty": "frequency_penalty",
    "gen_ai.request.presence_penalty": "presence_penalty",
    "gen_ai.request.stop_sequences": "stop",
    "gen_ai.request.seed": "seed",
    "gen_ai.request.choice.count": "n",
    "gen_ai.request.reasoning.level": "reasoning_effort",
    "gen_ai.request.reasoning.effort": "reasoning_effort",
    "gen_ai.request.reasoning_effort": "reasoning_effort",
    "gen_ai.request.service_tier": "service_tier",
    "gen_ai.request.stream": "stream",
    "gen_ai.openai.request.service_tier": "service_tier",
    "gen_ai.output.type": "output_type",
    "gen_ai.request.previous_response.id": "previous_response_id",
    "gen_ai.conversation.compacted": "conversation_compacted",
    "gen_ai.prompt.name": "prompt_name",
    "gen_ai.prompt.version": "prompt_version",
    "llm.temperature": "temperature",
    "llm.top_p": "top_p",
    "llm.top_k": "top_k",
    "llm.request.max_tokens": "max_tokens",
    "llm.frequency_penalty": "frequency_penalty",
    "llm.presence_penalty": "presence_penalty",
}
"""The names of request parameters, by the attributes that contain their values."""
RESPONSE_STATUSES = ("gen_ai.response.status",)
"""The state of a response that the provider makes in the background: `queued`, `in_progress`,
`completed`, `incomplete`, `cancelled` or `failed`."""
RESPONSE_IDS = ("gen_ai.response.id",)
SHOWN = tuple(
    "gen_ai.prompt.variable.* gen_ai.request.stream_cursor gen_ai.retrieval.top_k"
    " gen_ai.usage.audio.cache_read.input_tokens gen_ai.usage.image.* gen_ai.usage.text.*"
    " gen_ai.evaluation.* gen_ai.data_source.id gen_ai.tool.description"
    " gen_ai.agent.description gen_ai.agent.version".split()
)
"""Attributes that fill no field."""
OFFERED_TOOLS = (
    "gen_ai.tool.definitions",
    "gen_ai.request.tools",
    "gen_ai.request.available_tools",
    "model_request_parameters",
    "llm.request.functions",
)
FINISH_REASONS = (
    "gen_ai.response.finish_reasons",
    "llm.response.finish_reason",
    "llm.finish_reason",
)
FIRST_TOKEN_SECONDS = (
    "gen_ai.response.time_to_first_chunk",
    "gen_ai.server.time_to_first_token",
)
PROVIDERS = ("gen_ai.provider.name", "gen_ai.system")
_FRAMEWORKS = frozenset(("autogen", "microsoft.agent_framework", "strands-agents"))
"""Frameworks that put their own name into the attribute for the model's provider."""
COSTS = tuple(
    "operation.cost gen_ai.usage.cost gen_ai.usage.total_cost gen_ai.cost.total"
    " gen_ai.cost.total_tokens gen_ai.cost.amount".split()
)
PARTS_OF_COST = (
    ("gen_ai.usage.input_cost", "gen_ai.usage.output_cost"),
    ("gen_ai.cost.input", "gen_ai.cost.output"),
    ("gen_ai.cost.input_tokens", "gen_ai.cost.output_tokens"),
)
"""Costs of the input and of the output of a model call, if no attribute has their sum."""
_COSTS = frozenset((*COSTS, *(name for names in PARTS_OF_COST for name in names)))
CALL_IDS = ("gen_ai.tool.call.id", "tool.call.id", "tool_call_id")
ARGUMENTS = (
    "gen_ai.tool.call.arguments",
    "tool_arguments",
    "gcp.vertex.agent.tool_call_args",
    "gen_ai.tool.arguments",
    "gen_ai.tool.input",
    "gen_ai.tool.args",
    "gen_ai.tool.call.args",
)
STATUSES = ("gen_ai.tool.status", "tool.status")
ERROR_FLAGS = ("gen_ai.tool.is_error", "gen_ai.tool.call.is_error", "tool.is_error")
_EXIT_CODE = "process.exit.code"
QUERIES = ("gen_ai.retrieval.query.text", "gen_ai.memory.query.text")
"""The attributes with the query of a retrieval or of a memory search."""
FOUND = ("gen_ai.retrieval.documents", "gen_ai.memory.records")
"""The attributes with the result of a retrieval or of a memory operation."""
TRANSFER_TARGETS = ("gen_ai.transfer.target.name",)
CALLERS = ("gen_ai.caller.name",)
RESULTS = (
    "gen_ai.tool.call.result",
    "tool_response",
    "gcp.vertex.agent.tool_response",
    "gen_ai.tool.result",
    "gen_ai.tool.output",
    "gen_ai.output",
)
INPUT_MESSAGES = (
    "gen_ai.input.messages",
    "pydantic_ai.all_messages",
    "all_messages_events",
    "gcp.vertex.agent.llm_request",
    "gen_ai.prompt",
    "gen_ai.request.messages",
    "gen_ai.input",
)
OUTPUT_MESSAGES = (
    "gen_ai.output.messages",
    "gcp.vertex.agent.llm_response",
    "gen_ai.completion",
    "gen_ai.output",
)
ANSWER_TEXTS = ("gen_ai.response.text",)
"""Attributes with the text of an answer, if no attribute has its message."""
ANSWER_CALLS = ("gen_ai.response.tool_calls",)
"""Attributes with the tool calls of an answer, if no attribute has its message."""
ANSWERS = ("final_result",)
_WORKFLOWS = "opentelemetry.instrumentation.openai_agents"
"""The scope of an instrumentation that reports a whole workflow as an agent without a name."""
_DETAILS = "gen_ai.client.inference.operation.details"
_HUMPS, _NO_LETTERS = re.compile("(?<=[a-z])(?=[A-Z])"), re.compile("[^A-Za-z0-9]+")
_NOT_A_CALL_ID = "<not specified>"
_CANCELLATION = "strands.cancellation.type"
"""An attribute that only spans of cancelled work have. The status of such a span may be unset."""


def read(span: ReadableSpan) -> SpanFacts | None:
    """Return the role and fields of a span of the GenAI conventions; None for any other span."""
    kind = kind_of(span)
    if kind is not None:
        facts = _read_as(span, *kind)
    elif (role := assumed_role(span.attributes)) is not None:
        facts = _read_as(span, role, None)._replace(is_assumed=role is not Role.TOOL)
    else:
        return None
    cancelled = text(span.attributes.get(_CANCELLATION))
    return facts if cancelled is None else facts._replace(cancelled=cancelled)


def _read_as(span: ReadableSpan, role: Role, tool_type: str | None) -> SpanFacts:
    if role is Role.TOOL:
        return tool_facts(span, tool_type)
    if span.scope == _WORKFLOWS and first(span.attributes, AGENT_NAMES) is None:
        role = Role.WORKFLOW if role is Role.AGENT else role
    if role in (Role.AGENT, Role.MODEL, Role.WORKFLOW):
        return speaking_facts(span, role)
    return SpanFacts(role, conversation=first_text(span.attributes, CONVERSATIONS))


def event_of(record: LogRecord) -> SpanEvent | None:
    """Return a log record as a span event, which is the form that older GenAI conventions use.

    Returns None if the record is no `gen_ai.*` event, or names no span.
    """
    if record.span_id is None or not record.name.startswith("gen_ai."):
        return None
    body = record.body if isinstance(record.body, dict) else {}
    return SpanEvent(record.name, record.time, {**body, **record.attributes})


def kind_of(span: ReadableSpan) -> tuple[Role, str | None] | None:
    """Return the role of a span and the type of its tool; None if neither is certain.

    The attribute `gen_ai.operation.name` decides. If it is missing, other attributes or the span's
    name decide.
    """
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name")
    if isinstance(operation, str) and operation:
        return OPERATIONS.get(operation) or OPERATIONS.get(_in_snake_case(operation))
    if "gen_ai.tool.name" in attributes or "gen_ai.tool.call.id" in attributes:
        return Role.TOOL, None
    if "agent_name" in attributes and "model_name" in attributes:  # pydantic-ai's `agent run`
        return Role.AGENT, None
    named = span.name.partition(" ")
    if named[0] in ("invoke_agent", "execute_tool") and named[2]:
        return OPERATIONS[named[0]]
    if first(attributes, ("llm.request.type",)) in ("chat", "completion"):
        return Role.MODEL, None
    speaks = "gen_ai.system" in attributes or "gen_ai.provider.name" in attributes
    if speaks and first(attributes, REQUESTED_MODELS) is not None:
        return Role.MODEL, None
    return None


def assumed_role(attributes: Mapping[str, Any]) -> Role | None:
    """Return the role of a span whose operation is missing or unknown; None if it has none.

    A span with a tool's name or call id is a tool call. Otherwise, a span with a model's name and
    token counts is a model call, and a span with an agent's name is an agent. The run's other spans
    may contradict: see `forest`.
    """
    if _ASSUMING.isdisjoint(attributes):
        return None
    if first(attributes, _TOOL_NAMES) is not None:
        return Role.TOOL
    model = first(attributes, (*MODELS, *REQUESTED_MODELS))
    tokens = count(first(attributes, INPUT_TOKENS)), count(first(attributes, OUTPUT_TOKENS))
    if model is not None and any(number is not None for number in tokens):
        return Role.MODEL
    agent = first(attributes, ("gen_ai.agent.name",))
    return Role.AGENT if agent is not None else None


_TOOL_NAMES = ("gen_ai.tool.name", "gen_ai.tool.call.id")
_ASSUMING = frozenset((*_TOOL_NAMES, *MODELS, *REQUESTED_MODELS, "gen_ai.agent.name"))


def _in_snake_case(operation: str) -> str:
    """Return an operation as the conventions spell it, such as `execute_tool` for `ExecuteTool`."""
    return _NO_LETTERS.sub("_", _HUMPS.sub("_", operation)).lower()


def tool_facts(span: ReadableSpan, tool_type: str | None) -> SpanFacts:
    """Return the fields of a tool call."""
    attributes = span.attributes
    named = span.name.partition(" ")
    name = first_text(attributes, ("gen_ai.tool.name",))
    if name is None and named[0] == "execute_tool":
        name = named[2]
    arguments = first_text(attributes, ARGUMENTS)
    result = first_text(attributes, RESULTS)
    if arguments is None:
        arguments = _event_text(span, "gen_ai.tool.message", "content")
    if result is None:
        result = _event_text(span, "gen_ai.choice", "message")
    if tool_type is not None:
        arguments = first_text(attributes, QUERIES) if arguments is None else arguments
        result = first_text(attributes, FOUND) if result is None else result
    call_id = first_text(attributes, CALL_IDS)
    return SpanFacts(
        Role.TOOL,
        name=name or span.name,
        tool_type=tool_type,
        agent=first_text(attributes, AGENT_NAMES),
        call_id=None if call_id == _NOT_A_CALL_ID else call_id,
        arguments=arguments,
        result=result,
        conversation=first_text(attributes, CONVERSATIONS),
        has_failed=_has_failed(attributes),
        transfer_target=first_text(attributes, TRANSFER_TARGETS),
    )


def _has_failed(attributes: Mapping[str, Any]) -> bool:
    """Return whether the attributes of a tool call state that it failed.

    A command that ended with another exit code than 0 failed.
    """
    if first(attributes, STATUSES) in ("error", "failed", "failure"):
        return True
    if first(attributes, ERROR_FLAGS) in (True, "true", "True"):
        return True
    code = attributes.get(_EXIT_CODE)
    return isinstance(code, int) and code != 0


def speaking_facts(span: ReadableSpan, role: Role) -> SpanFacts:
    """Return the fields of an agent, a workflow or a model call."""
    attributes = span.attributes
    input_messages, output_messages = _conversation(span)
    output = read_messages(output_messages)
    answer = first_text(attributes, ANSWERS) if role is not Role.MODEL else None
    provider = first_text(attributes, PROVIDERS)
    name = agent = first_text(attributes, AGENT_NAMES)
    if role is Role.WORKFLOW:
        name = first_text(attributes, ("gen_ai.workflow.name",)) or name
    if name is None and role is not Role.MODEL:
        name = span.name.partition(" ")[2] or span.name
    return SpanFacts(
        role,
        name=name,
        agent=agent,
        conversation=first_text(attributes, CONVERSATIONS),
        subject=first_text(attributes, SUBJECTS),
        request=first_request(input_messages),
        answer=answer or last_answer(output),
        reasoning=all_reasoning(output) if role is Role.MODEL else None,
        executed=all_executed(output) if role is Role.MODEL else (),
        requested_model=first_text(attributes, REQUESTED_MODELS),
        model=first_text(attributes, MODELS),
        provider=provider if provider not in _FRAMEWORKS else None,
        messages=_with_instructions(input_messages, attributes.get("gen_ai.system_instructions"))
        if role is Role.MODEL
        else None,
        chosen=all_calls(output) if role is Role.MODEL else (),
        input_tokens=count(first(attributes, INPUT_TOKENS)),
        output_tokens=count(first(attributes, OUTPUT_TOKENS)),
        cache_read_tokens=count(first(attributes, CACHE_READ_TOKENS)),
        cache_written_tokens=count(first(attributes, CACHE_WRITTEN_TOKENS)),
        total_tokens=count(first(attributes, TOTAL_TOKENS)),
        cost_usd=cost_in(attributes),
        caller=first_text(attributes, CALLERS) if role is Role.AGENT else None,
        **(model_details(attributes, output_messages) if role is Role.MODEL else {}),
        **(_state_of(attributes) if role is Role.MODEL else {}),
    )


def _state_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a model call ended, according to the state of its response.

    The keys of the result are names of fields of `SpanFacts`.
    """
    state = first_text(attributes, RESPONSE_STATUSES)
    return {"has_failed": state == "failed", "cancelled": state if state == "cancelled" else None}


def add_fetched_answers(spans: Iterable[SlimSpan]) -> None:
    """Add the answers that were fetched later to the model calls that made them in the background.

    The span of the model call and that of `fetch_response` have the same response id. If an answer
    was fetched several times, the last one counts.
    """
    fetched: dict[str, SlimSpan] = {}
    for span in spans:
        if span.attributes.get("gen_ai.operation.name") == "fetch_response":
            response = first_text(span.attributes, RESPONSE_IDS)
            if response is not None and span.end:
                fetched[response] = span
    for span in spans if fetched else ():
        facts = span.facts
        source = fetched.get(first_text(span.attributes, RESPONSE_IDS) or "")
        if source is None or facts.role is not Role.MODEL or facts.answer or facts.chosen:
            continue
        answer = speaking_facts(source, Role.MODEL)
        names = ("answer", "reasoning", "chosen", "executed", "finish_reasons", "model")
        span.facts = facts._replace(
            **{name: getattr(facts, name) or getattr(answer, name) for name in names},
            **_state_of(source.attributes),
        )


def cost_in(attributes: Mapping[str, Any]) -> Decimal | None:
    """Return the cost that the emitter reports for a model call, in US dollars."""
    if _COSTS.isdisjoint(attributes):
        return None
    value = parsed(first(attributes, COSTS))
    if isinstance(value, dict):  # an object with the sum, or with its parts
        total = usd(first(value, _TOTAL_COSTS))
        return total if total is not None else _sum_of_costs(value, (("input", "output"),))
    total = usd(value.strip().removeprefix("$") if isinstance(value, str) else value)
    return total if total is not None else _sum_of_costs(attributes, PARTS_OF_COST)


_TOTAL_COSTS = ("total", "total_cost", "totalCost", "cost", "usd")


def _sum_of_costs(
    values: Mapping[str, Any], names_of_parts: Iterable[tuple[str, ...]]
) -> Decimal | None:
    for names in names_of_parts:
        parts = [part for name in names if (part := usd(values.get(name))) is not None]
        if parts:
            return sum(parts, Decimal(0))
    return None


def _with_instructions(input_messages: Any, instructions: Any) -> str | None:
    """Return the input messages as JSON text, with the system instructions as the first message."""
    messages = text(input_messages)
    parts = text(instructions)
    if messages is None or parts is None or messages[:1] != "[" or parts[:1] != "[":
        return messages
    rest = messages[1:].lstrip()
    separator = "" if rest.startswith("]") else ","
    return f'[{{"role":"system","parts":{parts}}}{separator}{rest}'


def model_details(attributes: Mapping[str, Any], output_messages: Any = None) -> dict[str, Any]:
    """Return reasoning tokens, parameters, offered tools, finish reasons and time to first token.

    The keys of the result are names of fields of `SpanFacts`.

    Args:
        attributes: The attributes of the model call's span.
        output_messages: The messages of the answer. They may contain finish reasons.
    """
    parameters = {
        name: value
        for attribute, name in PARAMETERS.items()
        if (value := attributes.get(attribute)) is not None
    }
    tools = first(attributes, OFFERED_TOOLS)
    if tools is None:
        tools = flattened_values(attributes, "llm.request.functions")
    seconds = first(attributes, FIRST_TOKEN_SECONDS)
    return {
        "reasoning_tokens": count(first(attributes, REASONING_TOKENS)),
        "cache_written_hour_tokens": count(first(attributes, CACHE_WRITTEN_HOUR_TOKENS)),
        "audio_input_tokens": count(first(attributes, AUDIO_INPUT_TOKENS)),
        "audio_output_tokens": count(first(attributes, AUDIO_OUTPUT_TOKENS)),
        "service_tier": first_text(attributes, SERVICE_TIERS),
        "parameters": text(parameters) if parameters else None,
        "offered_tools": offered_tools_of(tools),
        "finish_reasons": finish_reasons(first(attributes, FINISH_REASONS), output_messages),
        "first_token_seconds": seconds if isinstance(seconds, float) else None,
    }


def offered_tools_of(value: Any) -> str | None:
    """Return the tools that an attribute lists, as the text of a JSON array; None without any."""
    if isinstance(value, str):
        read = (
            _offered_tools_in_text
            if len(value) < _MAX_CACHED_CHARACTERS
            else _offered_tools_in_text.__wrapped__
        )
        return read(value)
    if isinstance(value, list | tuple):
        value = [parsed(each) for each in value]
    return offered_tools_text(value)


@lru_cache(maxsize=64)
def _offered_tools_in_text(text: str) -> str | None:
    # Cached, because all rounds of a run usually offer the same tools.
    return offered_tools_text(parsed(text))


_MAX_CACHED_CHARACTERS = 100_000


def finish_reasons(value: Any, output_messages: Any = None) -> tuple[str, ...]:
    """Return the finish reasons of a model call.

    Args:
        value: The value of an attribute with finish reasons.
        output_messages: Messages to search if `value` is None.
    """
    value = parsed(value)
    if value is None:
        if isinstance(output_messages, str) and '"finish_reason"' not in output_messages:
            return ()
        messages = parsed(output_messages)
        items = messages if isinstance(messages, list) else [messages]
        value = [each.get("finish_reason") for each in items if isinstance(each, dict)]
    reasons = value if isinstance(value, list | tuple) else [value]
    return tuple(each for each in reasons if isinstance(each, str) and each)


def _conversation(span: ReadableSpan) -> tuple[Any, Any]:
    """Return the input and output messages of a span, from its attributes or its events."""
    attributes = span.attributes
    input_messages = first(attributes, INPUT_MESSAGES)
    output_messages = first(attributes, OUTPUT_MESSAGES)
    if input_messages is None:
        input_messages = flattened(attributes, "gen_ai.prompt") or None
    if output_messages is None:
        output_messages = flattened(attributes, "gen_ai.completion") or _answer_of(attributes)
    if (input_messages is None or output_messages is None) and attributes.get("events") is not None:
        input_messages, output_messages = _split_choices(
            attributes["events"], input_messages, output_messages
        )
    if input_messages is None or output_messages is None:
        input_messages, output_messages = _from_events(span, input_messages, output_messages)
    return input_messages, output_messages


def _answer_of(attributes: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the answer of a span that has its text and its tool calls in two attributes."""
    answer = first(attributes, ANSWER_TEXTS)
    calls = first(attributes, ANSWER_CALLS)
    if answer is None and calls is None:
        return None
    texts = parsed(answer)
    content = "\n".join(map(str, texts)) if isinstance(texts, list) else answer
    return [{"role": "assistant", "content": content, "tool_calls": calls}]


def _split_choices(events: Any, input_messages: Any, output_messages: Any) -> tuple[Any, Any]:
    listed = parsed(events)
    if not isinstance(listed, list):
        return input_messages, output_messages
    choices = [each for each in listed if _is_choice(each)]
    return input_messages or [
        each for each in listed if not _is_choice(each)
    ], output_messages or choices or None


def _is_choice(event: Any) -> bool:
    return isinstance(event, dict) and event.get("event.name") == "gen_ai.choice"


def _from_events(span: ReadableSpan, input_messages: Any, output_messages: Any) -> tuple[Any, Any]:
    inputs: list[Any] = []
    outputs: list[Any] = []
    for event in span.events:
        if event.name == _DETAILS:
            input_messages = input_messages or event.attributes.get("gen_ai.input.messages")
            output_messages = output_messages or event.attributes.get("gen_ai.output.messages")
        elif event.name == "gen_ai.choice":
            outputs.append(_event_message(event.attributes, "assistant"))
        elif event.name.startswith("gen_ai.") and event.name.endswith(".message"):
            inputs.append(_event_message(event.attributes, event.name.split(".")[1]))
        elif event.name == "gen_ai.content.prompt":
            input_messages = input_messages or event.attributes.get("gen_ai.prompt")
        elif event.name == "gen_ai.content.completion":
            output_messages = output_messages or event.attributes.get("gen_ai.completion")
    return input_messages or inputs or None, output_messages or outputs or None


def _event_message(attributes: Mapping[str, Any], role: str) -> dict[str, Any]:
    body = first(attributes, ("content", "message", "gen_ai.event.content"))
    fields = parsed(body)
    if isinstance(fields, dict):
        return {"role": role, **fields}
    return {"role": attributes.get("role") or role, "content": body, **_calls_of(attributes)}


def _calls_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    calls = attributes.get("tool_calls")
    return {"tool_calls": calls} if calls is not None else {}


def _event_text(span: ReadableSpan, name: str, attribute: str) -> str | None:
    texts = [text(e.attributes.get(attribute)) for e in span.events if e.name == name]
    return next((each for each in texts if each is not None), None)


DIALECT = Dialect(
    "GenAI conventions",
    order=100,
    read=read,
    reads={
        "role": ("gen_ai.operation.name", "llm.request.type", "agent_name", "model_name"),
        "name": (*AGENT_NAMES, "gen_ai.workflow.name", "gen_ai.tool.name"),
        "agent": AGENT_NAMES,
        "caller": CALLERS,
        "transfer_target": TRANSFER_TARGETS,
        "conversation": CONVERSATIONS,
        "subject": SUBJECTS,
        "request": INPUT_MESSAGES,
        "messages": (
            *INPUT_MESSAGES,
            *"gen_ai.system_instructions events gen_ai.prompt.* content message role".split(),
            *"tool_calls gen_ai.event.content".split(),
        ),
        "answer": (*ANSWERS, *OUTPUT_MESSAGES, "gen_ai.completion.*", *ANSWER_TEXTS),
        "chosen": (*OUTPUT_MESSAGES, "gen_ai.completion.*", *ANSWER_CALLS),
        "requested_model": REQUESTED_MODELS,
        "model": MODELS,
        "provider": PROVIDERS,
        "input_tokens": INPUT_TOKENS,
        "output_tokens": OUTPUT_TOKENS,
        "cache_read_tokens": CACHE_READ_TOKENS,
        "cache_written_tokens": CACHE_WRITTEN_TOKENS,
        "reasoning_tokens": REASONING_TOKENS,
        "cache_written_hour_tokens": CACHE_WRITTEN_HOUR_TOKENS,
        "audio_input_tokens": AUDIO_INPUT_TOKENS,
        "audio_output_tokens": AUDIO_OUTPUT_TOKENS,
        "total_tokens": TOTAL_TOKENS,
        "service_tier": SERVICE_TIERS,
        "cost_usd": tuple(sorted(_COSTS)),
        "parameters": tuple(PARAMETERS),
        "offered_tools": (*OFFERED_TOOLS, "llm.request.functions.*"),
        "finish_reasons": FINISH_REASONS,
        "first_token_seconds": FIRST_TOKEN_SECONDS,
        "call_id": CALL_IDS,
        "arguments": (*ARGUMENTS, *QUERIES),
        "result": (*RESULTS, *FOUND),
        "has_failed": (*STATUSES, *ERROR_FLAGS, _EXIT_CODE, *RESPONSE_STATUSES),
        "cancelled": (_CANCELLATION, *RESPONSE_STATUSES),
        "links": RESPONSE_IDS,
        "shown": SHOWN,
    },
)


# --- Read spans of decorated functions, which contain arguments and return value as JSON.
#
# Langfuse, Laminar, LangSmith, Logfire and MLflow send such spans. Their dialects use this module,
# because only the names of the attributes differ.

_CONVERSATIONS = ("messages", "input", "choices", "generations", "output")
"""The keys of lists of messages in the requests and answers of providers and of LangChain."""
_CREATED = "langchain_create_agent"
_CONTENT = ("request", "answer", "messages", "chosen", "offered_tools")
_PARAMETERS = ("args", "kwargs")
"""The keys of positional and named arguments, if a decorator separates them."""


class Observed(NamedTuple):
    """The input (arguments) and output (return value) of a function, as its span contains them."""

    input: Any
    output: Any


def observed_agent(role: Role, name: str, observed: Observed) -> SpanFacts:
    """Return the fields of an agent, a workflow or a chain."""
    if role is Role.CHAIN:
        return SpanFacts(role, name=name)
    return SpanFacts(
        role,
        name=name,
        request=_request(observed.input),
        answer=last_answer(read_messages(returned(observed.output))),
    )


def observed_tool(name: str, observed: Observed, tool_type: str | None = None) -> SpanFacts:
    """Return the fields of a tool call."""
    answer = unwrapped_result(returned(observed.output))
    return SpanFacts(
        Role.TOOL,
        name=name,
        tool_type=tool_type,
        call_id=answer.call_id,
        arguments=_arguments(observed.input),
        result=answer.text,
        has_failed=answer.failed,
    )


def observed_model(observed: Observed) -> SpanFacts:
    """Return the fields of a model call that its request and its answer contain."""
    request = parsed(observed.input)
    messages = _messages(request)
    answers = _messages(parsed(observed.output))
    answer = read_messages(answers)
    tools = request.get("tools") if isinstance(request, dict) else None
    if tools is None:
        messages, tools = _without_tools(messages)
    return SpanFacts(
        Role.MODEL,
        request=first_request(messages),
        answer=last_answer(answer),
        messages=text(messages),
        chosen=all_calls(answer),
        offered_tools=offered_tools_of(tools),
        finish_reasons=finish_reasons(None, answers),
    )


def content_of(preferred: SpanFacts, other: SpanFacts) -> dict[str, Any]:
    """Return messages, request, answer, tools and chosen calls of a model call.

    A field that `preferred` lacks is taken from `other`.
    """
    return {name: getattr(preferred, name) or getattr(other, name) for name in _CONTENT}


def returned(value: Any) -> Any:
    """Return the return value of a function; None for an empty object.

    Text that is encoded as JSON is decoded. If `output` is the only key of an object, its value is
    returned.
    """
    result = parsed(value)
    if isinstance(result, dict) and not result:
        return None
    if isinstance(result, dict) and set(result) == {"output"}:
        result = result["output"]
        return result if isinstance(result, str) else text(result)
    return result if isinstance(result, str) else value


def is_created_agent(metadata: Mapping[str, Any], name: str) -> bool:
    """Return whether a LangChain chain is an agent that `create_agent` created.

    Args:
        metadata: The metadata of the chain. The nodes inside an agent's graph inherit the agent's
            metadata, so the metadata alone does not identify the agent.
        name: The name of the chain.
    """
    if metadata.get("ls_integration") != _CREATED:
        return False
    node = metadata.get("langgraph_node")
    return node is None or (node != name and metadata.get("lc_agent_name") == name)


def _request(value: Any) -> str | None:
    """Return the user's message in an agent's arguments.

    If the arguments contain no messages but exactly one text, this text is returned.
    """
    request = first_request(value)
    if request is None:
        texts = strings_in(text(value))
        request = texts.pop() if len(texts) == 1 else None
    return request


def _arguments(value: Any) -> str | None:
    """Return a tool's arguments as JSON text.

    Some decorators separate `args` from `kwargs`. If only one of the two has values, only this one
    is returned. A single positional argument is returned without its list.
    """
    fields = parsed(value)
    if not isinstance(fields, dict) or set(fields) != set(_PARAMETERS):
        return text(value)
    positional, named = (fields[name] for name in _PARAMETERS)
    if not positional:
        return text(named)
    if named or not isinstance(positional, list):
        return text(value)
    return text(positional[0] if len(positional) == 1 else positional)


def _messages(value: Any) -> Any:
    """Return the list of messages in a request or an answer.

    If no list is found, `value` itself is returned: it may be a single message.
    """
    if isinstance(value, dict):
        found = (parsed(value.get(name)) for name in _CONVERSATIONS)
        value = next((each for each in found if isinstance(each, list | str)), value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]  # LangChain: a batch of one
    if isinstance(value, list):
        return [_unwrapped(each) for each in value]
    return value


def _unwrapped(generation: Any) -> Any:
    """Return the message inside a LangChain generation; any other value unchanged."""
    message = generation.get("message") if isinstance(generation, dict) else None
    return message if isinstance(message, dict) and "kwargs" in message else generation


def _without_tools(messages: Any) -> tuple[Any, list[Any]]:
    """Separate messages from tool definitions, which some emitters add to the messages."""
    if not isinstance(messages, list):
        return messages, []
    definitions = [content for each in messages if (content := _definition(each)) is not None]
    return [each for each in messages if _definition(each) is None], definitions


def _definition(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, dict) or content.get("type") != "function":
        return None
    return content if "function" in content else None
