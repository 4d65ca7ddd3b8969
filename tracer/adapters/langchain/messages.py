"""Convert LangChain's messages and outputs to recorded values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, convert_to_messages
from langchain_core.outputs import LLMResult

from tracer.client.block import text_of
from tracer.client.work import Chosen
from tracer.records.prices import TokenUsage, cost_of

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"}
_REQUEST_KEYS = ("input", "question", "query")
_FINISH_REASONS = ("finish_reason", "stop_reason", "done_reason")
_TOKENS = (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"))


class Answer(NamedTuple):
    """A model's answer."""

    text: str | None = None
    calls: tuple[Chosen, ...] = ()
    misformed: tuple[tuple[Chosen, str], ...] = ()
    """Calls whose arguments are not valid JSON, each with an error message."""
    model: str | None = None
    usage: tuple[int | None, int | None] = (None, None)
    """Input and output tokens."""
    cached: tuple[int, int] = (0, 0)
    """The numbers of input tokens that the provider read from its cache and wrote to its cache."""
    message_id: str | None = None
    finish_reason: str | None = None
    reasoning: int = 0
    """The output tokens that the model spent on reasoning."""

    def cost(self, asked_model: str | None) -> Decimal | None:
        """Compute the cost in US dollars by the price list; None if the model's price is unknown.

        Args:
            asked_model: The requested model, used if the answer names no model.
        """
        input_tokens, output_tokens = self.usage
        model = self.model or asked_model
        if input_tokens is None or output_tokens is None or model is None:
            return None
        usage = TokenUsage(input_tokens, output_tokens, *self.cached, self.reasoning)
        return cost_of(usage, model)


class ToolReply(NamedTuple):
    """A tool's answer to the model."""

    name: str | None
    call_id: str | None
    result: Any
    is_error: bool


def recorded_messages(messages: Iterable[BaseMessage]) -> list[dict[str, Any]]:
    """Return each message as recorded: a mapping with role, content, name and tool calls.

    The content is unchanged.
    """
    return [_recorded(each) for each in messages]


def _recorded(message: BaseMessage) -> dict[str, Any]:
    role = getattr(message, "role", None) or _ROLES.get(message.type, message.type)
    fields: dict[str, Any] = {"role": role, "content": message.content}
    if message.name:
        fields["name"] = message.name
    if isinstance(message, ToolMessage):
        fields["tool_call_id"] = message.tool_call_id
    if isinstance(message, AIMessage):
        calls, misformed = _calls(message)
        chosen = [*calls, *(call for call, _ in misformed)]
        if chosen:
            fields["tool_calls"] = [
                {"id": call.provider_call_id, "name": call.name, "arguments": call.arguments}
                for call in chosen
            ]
    return fields


def answer_of(response: LLMResult) -> Answer:
    """Return the answer in a model's response."""
    generation = next((each for several in response.generations for each in several), None)
    if generation is None:
        return Answer()
    usage = (response.llm_output or {}).get("token_usage")
    message = getattr(generation, "message", None)
    if not isinstance(message, AIMessage):
        return Answer(generation.text, usage=_usage(usage))
    calls, misformed = _calls(message)
    metadata = message.response_metadata
    return Answer(
        str(message.text) or None,
        tuple(calls),
        tuple(misformed),
        _text(metadata.get("model_name") or metadata.get("model")),
        _usage(message.usage_metadata or usage),
        _cached(message.usage_metadata),
        message.id,
        next((reason for name in _FINISH_REASONS if (reason := _text(metadata.get(name)))), None),
        _reasoning(message.usage_metadata),
    )


def _usage(usage: Any) -> tuple[int | None, int | None]:
    counts = usage if isinstance(usage, Mapping) else {}
    input_tokens, output_tokens = (
        next((counts[name] for name in names if isinstance(counts.get(name), int)), None)
        for names in _TOKENS
    )
    return input_tokens, output_tokens


def _cached(usage: Any) -> tuple[int, int]:
    details = (usage or {}).get("input_token_details") or {}
    return details.get("cache_read") or 0, details.get("cache_creation") or 0


def _reasoning(usage: Any) -> int:
    details = (usage or {}).get("output_token_details") or {}
    return details.get("reasoning") or 0


def _calls(message: AIMessage) -> tuple[list[Chosen], list[tuple[Chosen, str]]]:
    """Return two lists of a message's tool calls: those with valid arguments, and the others.

    The second list has an error message for each call, because its arguments cannot be parsed.
    """
    texts = _argument_texts(message)
    calls = [
        Chosen(
            each["name"],
            texts.get((position, each["name"], each["id"]), each["args"]),
            each["id"] or None,
        )
        for position, each in enumerate(message.tool_calls)
    ]
    misformed = [
        (
            Chosen(each["name"] or "", each["args"], each["id"] or None),
            each["error"] or "The arguments are not a JSON object.",
        )
        for each in message.invalid_tool_calls
    ]
    return calls, misformed


def _argument_texts(message: AIMessage) -> dict[tuple[int, str | None, str | None], str]:
    """Return the original text of the calls' arguments, if the provider's answer contains it."""
    texts = {}
    chunks = getattr(message, "tool_call_chunks", None) or ()
    for position, chunk in enumerate(chunks):
        texts[position, chunk["name"], chunk["id"]] = chunk["args"]
    for position, call in enumerate(message.additional_kwargs.get("tool_calls") or ()):
        function = call.get("function") or {}
        texts[position, function.get("name"), call.get("id")] = function.get("arguments")
    return {key: text for key, text in texts.items() if isinstance(text, str) and text}


def messages_in(value: Any) -> list[BaseMessage]:
    """Return the messages in the input or output of a graph; an empty list if it has none."""
    if isinstance(value, BaseMessage):
        return [value]
    if isinstance(value, Mapping):
        value = value.get("messages")
    elif hasattr(value, "to_messages"):
        value = value.to_messages()
    if not isinstance(value, list):
        return []
    try:
        return convert_to_messages(value)
    except (ValueError, NotImplementedError):
        return []


def request_in(inputs: Any) -> str | None:
    """Return the last message of the user.

    If the input has no message, return the input as text.
    """
    if user_messages := [each for each in messages_in(inputs) if each.type == "human"]:
        return str(user_messages[-1].text)
    if isinstance(inputs, Mapping):
        inputs = next((inputs[each] for each in _REQUEST_KEYS if each in inputs), inputs)
    if hasattr(inputs, "resume") and inputs.resume is not None:
        inputs = inputs.resume
    return text_of(inputs) or None


def answer_in(output: Any) -> Any:
    """Return an agent's answer: its structured response, else the model's last text.

    If the output contains neither of them, return the whole output.
    """
    if isinstance(output, Mapping) and output.get("structured_response") is not None:
        return output["structured_response"]
    messages = messages_in(output)
    texts = [each.text for each in messages if isinstance(each, AIMessage) and each.text]
    return str(texts[-1]) if texts else str(messages[-1].text) if messages else output


def answered_in(messages: Sequence[BaseMessage]) -> tuple[str | None, list[ToolReply]]:
    """Find the latest message with tool calls. Return its id, and the tools' replies after it."""
    answers = []
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answers.append(_tool_reply(message))
        elif isinstance(message, AIMessage) and message.tool_calls:
            return message.id, answers[::-1]
    return None, []


def result_of(output: Any, call_id: str | None) -> tuple[Any, bool]:
    """Return a tool's result, and whether it is an error."""
    if not isinstance(output, ToolMessage):
        # A LangGraph `Command` contains the message for the model, among other updates.
        update = getattr(output, "update", None)
        messages = [each for each in messages_in(update) if isinstance(each, ToolMessage)]
        output = next((each for each in messages if each.tool_call_id == call_id), output)
    if not isinstance(output, ToolMessage):
        return output, False
    answer = _tool_reply(output)
    return answer.result, answer.is_error


def _tool_reply(message: ToolMessage) -> ToolReply:
    return ToolReply(
        message.name,
        message.tool_call_id or None,
        message.content,
        message.status == "error",
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
