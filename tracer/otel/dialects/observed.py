"""Read spans of decorated functions, which contain arguments and return value as JSON.

Langfuse, Laminar, LangSmith, Logfire and MLflow send such spans. Their dialects use this module,
because only the names of the attributes differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tracer.otel.dialects.genai import finish_reasons, offered_tools_of
from tracer.otel.dialects.messages import all_calls, first_request, last_answer, read_messages
from tracer.otel.dialects.span_facts import Role, SpanFacts, text
from tracer.otel.dialects.tool_messages import unwrapped_result
from tracer.records.arguments import parsed, strings_in

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
