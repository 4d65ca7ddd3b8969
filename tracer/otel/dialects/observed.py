"""Spans of observed functions: their arguments and return values as JSON.

Langfuse, Laminar, LangSmith and MLflow share this form. Each dialect names its own attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tracer.otel.dialects.genai import finish_reasons, offered_tools_of
from tracer.otel.dialects.messages import all_calls, first_request, last_answer, read_messages
from tracer.otel.dialects.span_facts import Role, SpanFacts, parsed, text
from tracer.otel.dialects.texts import strings_in
from tracer.otel.dialects.tool_messages import unwrapped_result

_CONVERSATIONS = ("messages", "input", "choices", "generations", "output")
"""The keys of lists of messages in the requests and answers of providers and of LangChain."""
_CREATED = "langchain_create_agent"
_CONTENT = ("request", "answer", "messages", "chosen", "offered_tools")
_PARAMETERS = ("args", "kwargs")
"""The keys of positional and named arguments, if a decorator separates them."""


class Observed(NamedTuple):
    """A function's arguments and return value, as the values of its span's attributes."""

    input: Any
    output: Any


def observed_agent(role: Role, name: str, observed: Observed) -> SpanFacts:
    """Return the facts of an agent, a workflow or a chain."""
    if role is Role.CHAIN:
        return SpanFacts(role, name=name)
    return SpanFacts(
        role,
        name=name,
        request=_request(observed.input),
        answer=last_answer(read_messages(returned(observed.output))),
    )


def observed_tool(name: str, observed: Observed, tool_type: str | None = None) -> SpanFacts:
    """Return the facts of a tool call."""
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
    """Return the facts of a model's call: the content of its request and its answer."""
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
    """Return the content of a model's call, from `other` where `preferred` has none."""
    return {name: getattr(preferred, name) or getattr(other, name) for name in _CONTENT}


def returned(value: Any) -> Any:
    """Return a function's result; None for an empty object.

    Unwrap text that is encoded as JSON, and the value of `output` if it is the only field.
    """
    result = parsed(value)
    if isinstance(result, dict) and not result:
        return None
    if isinstance(result, dict) and set(result) == {"output"}:
        result = result["output"]
        return result if isinstance(result, str) else text(result)
    return result if isinstance(result, str) else value


def is_created_agent(metadata: Mapping[str, Any], name: str) -> bool:
    """Return whether a chain of LangChain is an agent that `create_agent` made.

    Args:
        metadata: The metadata of the chain. Nodes of the agent's graph inherit them.
        name: The name of the chain.
    """
    if metadata.get("ls_integration") != _CREATED:
        return False
    node = metadata.get("langgraph_node")
    return node is None or (node != name and metadata.get("lc_agent_name") == name)


def _request(value: Any) -> str | None:
    """Return the user's message in an agent's arguments, or else their only text."""
    request = first_request(value)
    if request is None:
        texts = strings_in(text(value))
        request = texts.pop() if len(texts) == 1 else None
    return request


def _arguments(value: Any) -> str | None:
    """Return a tool's arguments. A single positional one is returned without its list."""
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
    """Return the messages in a request or an answer; the value itself if it is one message."""
    if isinstance(value, dict):
        found = (parsed(value.get(name)) for name in _CONVERSATIONS)
        value = next((each for each in found if isinstance(each, list | str)), value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]  # LangChain: a batch of one
    if isinstance(value, list):
        return [_unwrapped(each) for each in value]
    return value


def _unwrapped(generation: Any) -> Any:
    """Return the message in one of LangChain's generations."""
    message = generation.get("message") if isinstance(generation, dict) else None
    return message if isinstance(message, dict) and "kwargs" in message else generation


def _without_tools(messages: Any) -> tuple[Any, list[Any]]:
    """Separate messages from definitions of tools, which some emitters add to them."""
    if not isinstance(messages, list):
        return messages, []
    definitions = [content for each in messages if (content := _definition(each)) is not None]
    return [each for each in messages if _definition(each) is None], definitions


def _definition(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, dict) or content.get("type") != "function":
        return None
    return content if "function" in content else None
