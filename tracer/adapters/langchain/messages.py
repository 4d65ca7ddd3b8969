"""What LangChain's messages and outputs say, as it is recorded."""

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
_ASKED = ("input", "question", "query")
_FINISH_REASONS = ("finish_reason", "stop_reason", "done_reason")
_TOKENS = (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"))


class Answer(NamedTuple):
    """A model's answer."""

    text: str | None = None
    calls: tuple[Chosen, ...] = ()
    misformed: tuple[tuple[Chosen, str], ...] = ()
    """Calls whose arguments are no JSON, and what is wrong with them."""
    model: str | None = None
    usage: tuple[int | None, int | None] = (None, None)
    """Input and output tokens."""
    cached: tuple[int, int] = (0, 0)
    """Those of the input that the provider had in its cache, and that it put there."""
    message_id: str | None = None
    finish_reason: str | None = None
    reasoning: int = 0
    """The output tokens that the model spent on reasoning."""

    def cost(self, asked_model: str | None) -> Decimal | None:
        """Return what it costs by the price list, in US dollars; None where that does not say.

        Args:
            asked_model: The model that was asked, which counts where the answer names none.
        """
        given, said = self.usage
        model = self.model or asked_model
        if given is None or said is None or model is None:
            return None
        return cost_of(TokenUsage(given, said, *self.cached, self.reasoning), model)


class Told(NamedTuple):
    """A tool's answer, as the model is told it."""

    name: str | None
    call_id: str | None
    result: Any
    is_error: bool


def recorded_messages(messages: Iterable[BaseMessage]) -> list[dict[str, Any]]:
    """Return messages as they are recorded: role, content as it is, calls, and what it answers."""
    return [_recorded(each) for each in messages]


def _recorded(message: BaseMessage) -> dict[str, Any]:
    role = getattr(message, "role", None) or _ROLES.get(message.type, message.type)
    found: dict[str, Any] = {"role": role, "content": message.content}
    if message.name:
        found["name"] = message.name
    if isinstance(message, ToolMessage):
        found["tool_call_id"] = message.tool_call_id
    if isinstance(message, AIMessage):
        calls, misformed = _calls(message)
        chosen = [*calls, *(call for call, _ in misformed)]
        if chosen:
            found["tool_calls"] = [
                {"id": call.provider_call_id, "name": call.name, "arguments": call.arguments}
                for call in chosen
            ]
    return found


def answer_of(response: LLMResult) -> Answer:
    """Return what a model answered."""
    generation = next((each for several in response.generations for each in several), None)
    if generation is None:
        return Answer()
    usage = (response.llm_output or {}).get("token_usage")
    message = getattr(generation, "message", None)
    if not isinstance(message, AIMessage):
        return Answer(generation.text, usage=_usage(usage))
    calls, misformed = _calls(message)
    about = message.response_metadata
    return Answer(
        str(message.text) or None,
        tuple(calls),
        tuple(misformed),
        _text(about.get("model_name") or about.get("model")),
        _usage(message.usage_metadata or usage),
        _cached(message.usage_metadata),
        message.id,
        next((reason for name in _FINISH_REASONS if (reason := _text(about.get(name)))), None),
        _reasoning(message.usage_metadata),
    )


def _usage(usage: Any) -> tuple[int | None, int | None]:
    counts = usage if isinstance(usage, Mapping) else {}
    given, said = (
        next((counts[name] for name in names if isinstance(counts.get(name), int)), None)
        for names in _TOKENS
    )
    return given, said


def _cached(usage: Any) -> tuple[int, int]:
    details = (usage or {}).get("input_token_details") or {}
    return details.get("cache_read") or 0, details.get("cache_creation") or 0


def _reasoning(usage: Any) -> int:
    details = (usage or {}).get("output_token_details") or {}
    return details.get("reasoning") or 0


def _calls(message: AIMessage) -> tuple[list[Chosen], list[tuple[Chosen, str]]]:
    """Return the calls that a message asks for, and those whose arguments cannot be read."""
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
            each["error"] or "The arguments are no JSON object.",
        )
        for each in message.invalid_tool_calls
    ]
    return calls, misformed


def _argument_texts(message: AIMessage) -> dict[tuple[int, str | None, str | None], str]:
    """Return what the model itself wrote, where the provider's answer still has it."""
    found = {}
    chunks = getattr(message, "tool_call_chunks", None) or ()
    for position, chunk in enumerate(chunks):
        found[position, chunk["name"], chunk["id"]] = chunk["args"]
    for position, call in enumerate(message.additional_kwargs.get("tool_calls") or ()):
        function = call.get("function") or {}
        found[position, function.get("name"), call.get("id")] = function.get("arguments")
    return {place: text for place, text in found.items() if isinstance(text, str) and text}


def messages_in(value: Any) -> list[BaseMessage]:
    """Return the messages that something given to a graph or returned by it has."""
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
    """Return what the user asks: the last of the user's messages, else all that is given."""
    if asked := [each for each in messages_in(inputs) if each.type == "human"]:
        return str(asked[-1].text)
    if isinstance(inputs, Mapping):
        inputs = next((inputs[each] for each in _ASKED if each in inputs), inputs)
    if hasattr(inputs, "resume") and inputs.resume is not None:
        inputs = inputs.resume
    return text_of(inputs) or None


def answer_in(output: Any) -> Any:
    """Return what came of a run: the last text that a model said, else all that it returned."""
    if isinstance(output, Mapping) and output.get("structured_response") is not None:
        return output["structured_response"]
    messages = messages_in(output)
    said = [each.text for each in messages if isinstance(each, AIMessage) and each.text]
    return str(said[-1]) if said else str(messages[-1].text) if messages else output


def answered_in(messages: Sequence[BaseMessage]) -> tuple[str | None, list[Told]]:
    """Return what tools answered to the latest message that chose any, and that message's id."""
    told = []
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            told.append(_told(message))
        elif isinstance(message, AIMessage) and message.tool_calls:
            return message.id, told[::-1]
    return None, []


def result_of(output: Any, call_id: str | None) -> tuple[Any, bool]:
    """Return a tool's result, and whether it tells of an error."""
    if not isinstance(output, ToolMessage):
        # A command to the graph holds what the model is told, and more.
        update = getattr(output, "update", None)
        messages = [each for each in messages_in(update) if isinstance(each, ToolMessage)]
        output = next((each for each in messages if each.tool_call_id == call_id), output)
    if not isinstance(output, ToolMessage):
        return output, False
    told = _told(output)
    return told.result, told.is_error


def _told(message: ToolMessage) -> Told:
    return Told(
        message.name,
        message.tool_call_id or None,
        message.content,
        message.status == "error",
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
