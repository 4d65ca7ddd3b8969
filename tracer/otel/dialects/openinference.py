"""OpenInference: spans with `openinference.span.kind`.

The instrumentations of LangChain, LlamaIndex, Haystack, smolagents, CrewAI, AutoGen and the OpenAI
Agents SDK deviate from the convention in details, which this module handles.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import orjson

from tracer.otel.dialects import genai
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
from tracer.records.arguments import parsed
from tracer.records.prices import usd
from tracer.records.spans import ReadableSpan

KIND = "openinference.span.kind"
_TOOL_TYPES = {
    "TOOL": None,
    "RETRIEVER": "RETRIEVER",
    "EMBEDDING": "EMBEDDING",
    "RERANKER": "RERANKER",
    "GUARDRAIL": "GUARDRAIL",
}
_AGENT_NAMES = ("agent.name", "graph.node.name", "gen_ai.agent.name")
_OPENAI_AGENTS = "openinference.instrumentation.openai_agents"
"""The instrumentation of the OpenAI Agents SDK. It reports a whole workflow as an agent without a
name. Only in its spans does `graph.node.parent_id` mean a hand-off: for CrewAI and AutoGen, the
attribute contains the previous agent of a list."""
_OPENAI_AGENTS_JS = "@arizeai/openinference-instrumentation-openai-agents"
"""The instrumentation of the OpenAI Agents SDK for JavaScript. It also reports a whole workflow as
an agent. The name of a running agent is only in the name of its span."""
_LANGCHAIN = "openinference.instrumentation.langchain"
"""The instrumentation of LangChain. It gives the kind `AGENT` to everything with "agent" in its
name, such as nodes, hooks and tools."""
_CONVERSATIONS = ("session.id", "gen_ai.conversation.id")
_SUBJECTS = ("user.id",)
_MODELS = (
    "llm.model_name",
    "gen_ai.response.model",
    "gen_ai.request.model",
    "embedding.model_name",
)
_INPUT_TOKENS = ("llm.token_count.prompt", *genai.INPUT_TOKENS)
_OUTPUT_TOKENS = ("llm.token_count.completion", *genai.OUTPUT_TOKENS)
_CACHE_READ_TOKENS = ("llm.token_count.prompt_details.cache_read", *genai.CACHE_READ_TOKENS)
_CACHE_WRITTEN_TOKENS = (
    "llm.token_count.prompt_details.cache_write",
    *genai.CACHE_WRITTEN_TOKENS,
)
_REASONING_TOKENS = "llm.token_count.completion_details.reasoning"
_NO_PARAMETERS = frozenset(
    "tools functions messages input instructions model model_name _type id object"
    " created_at completed_at status output usage error incomplete_details billing"
    " response_format previous_response_id".split()
)
"""Fields of the request and of the response that are not request parameters. Some emitters add them
to the parameters."""
_PROVIDERS = ("llm.provider", "llm.system", *genai.PROVIDERS)
_COSTS = ("llm.cost.total", *genai.COSTS)
_TOOL_NAMES = ("tool.name", "gen_ai.tool.name", "embedding.model_name", "reranker.model_name")
_CALL_IDS = ("tool.id", "tool_call.id", "gen_ai.tool.call.id")
_RUNS = (
    ".arun",
    ".run",
    ".arun_stream",
    ".run_stream",
    ".acontinue_run",
    ".continue_run",
    "._execute_core",
)
_AGENT_RUNS = tuple("Agent" + end for end in _RUNS)
"""Endings of the names of chains that run an agent class of LlamaIndex or Haystack."""
_NO_ROUNDS = ("_prepare_chat_with_tools",)
"""Methods of LlamaIndex's models that send no request to a model."""
_OF_WRAPPER = frozenset(("args", "kwargs", "sanitize_inputs_outputs"))
"""The parameters of smolagents' wrapper around each tool."""
_LITERAL_LIMIT = 100_000


def reads_parent(span: ReadableSpan) -> bool:
    """Return whether `read` needs the parent of a span.

    Two instrumentations require it. LangChain puts the arguments of a tool call on the parent. In
    the OpenAI Agents SDK for JavaScript, only the parent shows whether a span is a workflow or an
    agent.
    """
    kind = _kind_of(span)
    return kind in _TOOL_TYPES or (kind == "AGENT" and span.scope == _OPENAI_AGENTS_JS)


def read(span: ReadableSpan, parent: ReadableSpan | None) -> SpanFacts | None:
    """Return the role and fields of a span of OpenInference; None for any other span.

    Args:
        span: The span.
        parent: The parent of the span; None if it is unknown. Needed only if `reads_parent` is
            true.
    """
    kind = _kind_of(span)
    if kind is None:
        return None
    if kind in _TOOL_TYPES:
        return _tool(span, parent, _TOOL_TYPES[kind])
    if kind == "LLM":
        return _model(span) if not span.name.endswith(_NO_ROUNDS) else WRAPPER
    if kind == "AGENT":
        name = first_text(span.attributes, _AGENT_NAMES)
        is_openai = span.scope in (_OPENAI_AGENTS, _OPENAI_AGENTS_JS)
        if span.scope == _OPENAI_AGENTS_JS and parent is not None and parent.scope == span.scope:
            name = name or span.name  # only the workflow has no parent of this scope
        role = Role.WORKFLOW if name is None and is_openai else Role.AGENT
        return _agent(span, role, name or _of_run(span.name))
    if kind == "CHAIN":
        return _chain(span)
    return SpanFacts(Role.WRAPPER, conversation=first_text(span.attributes, _CONVERSATIONS))


def _kind_of(span: ReadableSpan) -> str | None:
    kind = span.attributes.get(KIND)
    if not isinstance(kind, str):
        return None
    kind = kind.upper()
    if kind == "AGENT" and span.scope == _LANGCHAIN:
        return "TOOL" if "tool.name" in span.attributes else "CHAIN"
    return kind


def _chain(span: ReadableSpan) -> SpanFacts:
    """Return the role and fields of a span of kind `CHAIN`.

    The span is an agent if LangChain's `create_agent` created it, or if its name ends with an agent
    class and its run method, such as `Agent.run`.
    """
    if span.name.endswith(_AGENT_RUNS):
        return _agent(span, Role.AGENT, _of_run(span.name))
    metadata = parsed(span.attributes.get("metadata"))
    if isinstance(metadata, dict) and metadata.get("ls_integration") == "langchain_create_agent":
        node = metadata.get("langgraph_node")
        if node is None or (node != span.name and metadata.get("lc_agent_name") == span.name):
            return _agent(span, Role.AGENT, span.name)
    is_workflow = span.name == "LangGraph" or span.attributes[KIND] == "AGENT"
    return _agent(span, Role.WORKFLOW if is_workflow else Role.CHAIN, span.name)


def _agent(span: ReadableSpan, role: Role, name: str) -> SpanFacts:
    attributes = span.attributes
    hands_over = span.scope in (_OPENAI_AGENTS, _OPENAI_AGENTS_JS)
    return SpanFacts(
        role,
        name=name,
        conversation=first_text(attributes, _CONVERSATIONS),
        subject=first_text(attributes, _SUBJECTS),
        request=_request(attributes.get("input.value")) if role is not Role.CHAIN else None,
        answer=last_answer(read_messages(attributes.get("output.value")))
        if role is not Role.CHAIN
        else None,
        node=first_text(attributes, ("graph.node.id",)) if hands_over else None,
        node_above=first_text(attributes, ("graph.node.parent_id",)) if hands_over else None,
    )


def _request(input_value: Any) -> str | None:
    """Return the request to an agent.

    smolagents puts it into the argument `task` of the traced method.
    """
    request = first_request(input_value)
    fields = parsed(input_value) if request is None else None
    task = fields.get("task") if isinstance(fields, dict) else None
    return task if isinstance(task, str) else request


def _of_run(span_name: str) -> str:
    return next(
        (span_name.removesuffix(end) for end in _RUNS if span_name.endswith(end)), span_name
    )


def _model(span: ReadableSpan) -> SpanFacts:
    attributes = span.attributes
    output = read_messages(flattened(attributes, "llm.output_messages"))
    if not all_calls(output) and not last_answer(output):
        output = read_messages(attributes.get("gen_ai.output.messages"))
    messages = flattened(attributes, "llm.input_messages") or first(
        attributes, ("gen_ai.input.messages", "input.value")
    )
    return SpanFacts(
        Role.MODEL,
        conversation=first_text(attributes, _CONVERSATIONS),
        subject=first_text(attributes, _SUBJECTS),
        request=first_request(messages),
        answer=last_answer(output),
        reasoning=all_reasoning(output),
        executed=all_executed(output),
        requested_model=first_text(attributes, ("gen_ai.request.model", *_MODELS)),
        model=first_text(attributes, _MODELS),
        provider=first_text(attributes, _PROVIDERS),
        messages=text(messages),
        chosen=all_calls(output),
        input_tokens=count(first(attributes, _INPUT_TOKENS)),
        output_tokens=count(first(attributes, _OUTPUT_TOKENS)),
        cache_read_tokens=count(first(attributes, _CACHE_READ_TOKENS)),
        cache_written_tokens=count(first(attributes, _CACHE_WRITTEN_TOKENS)),
        total_tokens=count(first(attributes, genai.TOTAL_TOKENS)),
        cost_usd=usd(first(attributes, _COSTS)),
        **_details(attributes),
    )


def _details(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters, offered tools, reasoning tokens, finish reasons and graph node.

    The keys of the result are names of fields of `SpanFacts`.
    """
    details = genai.model_details(attributes)
    invocation = parsed(attributes.get("llm.invocation_parameters"))
    tools = [
        each.get("tool.json_schema") or each.get("json_schema")
        for each in flattened_values(attributes, "llm.tools")
    ]
    if isinstance(invocation, dict):
        tools = tools or invocation.get("tools") or []
        parameters = {
            name: value
            for name, value in invocation.items()
            if value is not None and name not in _NO_PARAMETERS
        }
        details["parameters"] = text(parameters) if parameters else details["parameters"]
    if tools:
        details["offered_tools"] = genai.offered_tools_of(tools)
    reasoning = count(attributes.get(_REASONING_TOKENS))
    if reasoning is not None:
        details["reasoning_tokens"] = reasoning
    metadata = parsed(attributes.get("metadata"))
    node = metadata.get("langgraph_node") if isinstance(metadata, dict) else None
    details["graph_node"] = node if isinstance(node, str) else None
    return details


def _tool(span: ReadableSpan, parent: ReadableSpan | None, tool_type: str | None) -> SpanFacts:
    attributes = span.attributes
    name = first_text(attributes, _TOOL_NAMES) or span.name.removesuffix(".__call__")
    arguments, call_id = _from_node(parent, name, attributes.get("input.value"))
    if arguments is None:
        arguments = _arguments(attributes)
    result = unwrapped_result(first(attributes, ("output.value", "gen_ai.tool.call.result")))
    return SpanFacts(
        Role.TOOL,
        name=name,
        tool_type=tool_type,
        conversation=first_text(attributes, _CONVERSATIONS),
        call_id=first_text(attributes, _CALL_IDS) or call_id or result.call_id,
        arguments=arguments,
        result=result.text,
        has_failed=result.failed,
    )


def _arguments(attributes: Mapping[str, Any]) -> str | None:
    """Return the arguments of a tool call.

    The attribute `tool.parameters` is skipped if it contains the JSON Schema of the tool, as with
    some emitters.
    """
    value = first(attributes, ("gen_ai.tool.call.arguments", "input.value"))
    parameters = attributes.get("tool.parameters")
    if value is None and parameters is not None:
        fields = parsed(parameters)
        is_schema = isinstance(fields, dict) and "properties" in fields
        value = None if is_schema else parameters
    fields = parsed(value)
    if isinstance(fields, dict) and "kwargs" in fields and set(fields) <= _OF_WRAPPER:
        return text(fields["kwargs"] if not fields.get("args") else fields)
    if isinstance(value, str) and fields is value and value.startswith("{"):
        return _of_literal(value)
    return text(value)


def _of_literal(value: str) -> str:
    """Convert a Python literal to JSON; return any other text unchanged.

    LangChain writes the arguments of a tool as a Python literal if there are several. A literal
    with values that JSON lacks, such as a set, is returned unchanged.
    """
    if len(value) <= _LITERAL_LIMIT:
        try:
            return orjson.dumps(ast.literal_eval(value)).decode()
        except (TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
            pass
    return value


def _from_node(
    parent: ReadableSpan | None, name: str, input_value: Any
) -> tuple[str | None, str | None]:
    """Return the arguments and the id of a tool call, from its parent.

    In LangGraph, the parent is the node that runs the tools, and its input lists the calls.
    """
    if parent is None or _kind_of(parent) != "CHAIN":
        return None, None
    calls = parsed(parent.attributes.get("input.value"))
    if isinstance(calls, dict):
        calls = [calls.get("tool_call", calls)]
    if not isinstance(calls, list):
        return None, None
    named = [
        call
        for call in calls
        if isinstance(call, dict) and call.get("name") == name and "args" in call
    ]
    if len(named) > 1:
        named = [
            call for call in named if input_value in (text(call["args"]), *_values(call["args"]))
        ]
    if len(named) != 1:
        return None, None
    return text(named[0]["args"]), text(named[0].get("id"))


def _values(arguments: Any) -> list[Any]:
    return list(arguments.values()) if isinstance(arguments, dict) else []


DIALECT = Dialect(
    "OpenInference",
    order=10,
    marks=(KIND,),
    read_with_parent=read,
    reads_parent=reads_parent,
    reads={
        "role": (KIND,),
        "name": (*_AGENT_NAMES, *_TOOL_NAMES),
        "conversation": _CONVERSATIONS,
        "subject": _SUBJECTS,
        "node": ("graph.node.id",),
        "node_above": ("graph.node.parent_id",),
        "graph_node": ("metadata",),
        "request": ("input.value",),
        "answer": ("output.value",),
        "requested_model": ("gen_ai.request.model",),
        "model": _MODELS,
        "provider": _PROVIDERS,
        "messages": ("llm.input_messages.*", "input.value", "gen_ai.input.messages"),
        "chosen": ("llm.output_messages.*", "output.value", "gen_ai.output.messages"),
        "input_tokens": _INPUT_TOKENS,
        "output_tokens": _OUTPUT_TOKENS,
        "cache_read_tokens": _CACHE_READ_TOKENS,
        "cache_written_tokens": _CACHE_WRITTEN_TOKENS,
        "reasoning_tokens": (_REASONING_TOKENS, *genai.REASONING_TOKENS),
        "cost_usd": _COSTS,
        "parameters": ("llm.invocation_parameters",),
        "offered_tools": ("llm.tools.*",),
        "call_id": _CALL_IDS,
        "arguments": ("gen_ai.tool.call.arguments", "tool.parameters", "input.value"),
        "result": ("gen_ai.tool.call.result", "output.value"),
    },
)
