"""The interface of language models, and the messages that they receive."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, Protocol

from tracer.text import storable
from tracer.tools.parameters import JsonSchema


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it."""

    name: str
    description: str
    parameters: JsonSchema


@dataclass(frozen=True, slots=True)
class ChosenCall:
    """A tool call that a model requested, as the model wrote it."""

    name: str
    arguments: str = ""
    """The text that the model wrote, usually JSON."""
    provider_call_id: str | None = None
    """The provider's id. It may be repeated, empty or missing."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation with a model.

    If an assistant message requests calls, one message with the result of each call follows, in the
    same order.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ChosenCall, ...] = ()
    """The tool calls that an assistant's message requests."""
    is_history: bool = False
    """Whether the message belongs to an earlier run of the session. The model receives the message,
    but not this flag."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A model's response."""

    text: str = ""
    tool_calls: Sequence[ChosenCall] = field(default=())
    """In the model's order; empty in a final answer."""
    model: str | None = None
    """The model that responded, as the provider names it."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | None = None
    finish_reason: str | None = None
    provider: str | None = None
    """The provider of the model, such as `openai`."""
    cache_read_tokens: int | None = None
    """The input tokens that the provider read from its cache."""
    cache_written_tokens: int | None = None
    """The input tokens that the provider wrote to its cache."""
    reasoning_tokens: int | None = None
    """The output tokens that the model spent on reasoning."""


class ChatModel(Protocol):
    """A language model that can call tools.

    A model may have an attribute `parameters`, a mapping such as `{"temperature": 0.2}`. Each round
    of the model then records these parameters.
    """

    @property
    def name(self) -> str:
        """The model's name, as requests to the provider contain it."""

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Generation:
        """Return the model's response to a conversation.

        Implementations must support concurrent calls, and cancellation.

        Args:
            messages: The conversation so far.
            tools: The tools that the model may call.

        Raises:
            ModelError: The model cannot be reached, or its response cannot be used.
        """


def wire_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a conversation as messages of OpenAI's chat completions, the form that is recorded.

    A tool's result refers to its call by the call's id. So an empty or repeated provider call id is
    replaced by a unique id. Other ids are unchanged. Text that is not valid Unicode is in stored
    form (`tracer.text`), so that every server can read it.
    """
    wire: list[dict[str, Any]] = []
    ids = _unique_ids(messages)
    result_ids: Iterator[str] = iter(())
    for message in messages:
        content = storable(message.content)
        if message.role == "tool":
            wire.append({"role": "tool", "tool_call_id": next(result_ids), "content": content})
        elif message.tool_calls:
            call_ids = [next(ids) for _ in message.tool_calls]
            result_ids = iter(call_ids)
            calls = [
                {
                    "id": wire_id,
                    "type": "function",
                    "function": {
                        "name": storable(call.name),
                        "arguments": storable(call.arguments),
                    },
                }
                for wire_id, call in zip(call_ids, message.tool_calls, strict=True)
            ]
            wire.append({"role": "assistant", "content": content or None, "tool_calls": calls})
        else:
            wire.append({"role": message.role, "content": content})
    return wire


def messages_json(messages: Sequence[Message]) -> str:
    """Return a conversation as the JSON text that is recorded."""
    return json.dumps(wire_messages(messages), separators=(",", ":"))


def _unique_ids(messages: Sequence[Message]) -> Iterator[str]:
    """Yield a unique id for each call of a conversation.

    This is the provider's id, unless that is empty or an earlier call has the same id.
    """
    provider_ids = [call.provider_call_id or "" for each in messages for call in each.tool_calls]
    taken = set(provider_ids)
    uses: Counter[str] = Counter()
    for provider_id in provider_ids:
        uses[provider_id] += 1
        if provider_id and uses[provider_id] == 1:
            yield storable(provider_id)
            continue
        number = uses[provider_id]
        while (candidate := f"{provider_id or 'call'}_{number}") in taken:
            number += 1
        taken.add(candidate)
        yield storable(candidate)
