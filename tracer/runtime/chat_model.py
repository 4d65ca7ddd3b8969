"""What the runtime asks of a language model, and the messages that it gives it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, Protocol

from tracer.text import storable
from tracer.tools.definition.arguments import JsonSchema


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it."""

    name: str
    description: str
    parameters: JsonSchema


@dataclass(frozen=True, slots=True)
class ChosenCall:
    """A tool call that a model chose, in the model's own words."""

    name: str
    arguments: str = ""
    """The text that the model wrote, usually JSON."""
    provider_call_id: str | None = None
    """The provider's id: may repeat, be empty or be missing."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation with a model.

    The results of an assistant message's calls follow it in the order of the calls, one each.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ChosenCall, ...] = ()
    """What an assistant's message chose."""
    is_history: bool = False
    """Whether an earlier run of the session exchanged it. Not sent to the model."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A model's answer."""

    text: str = ""
    tool_calls: Sequence[ChosenCall] = field(default=())
    """In the model's order; none in a final answer."""
    model: str | None = None
    """The model that answered, as the provider names it."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | None = None
    finish_reason: str | None = None


class ChatModel(Protocol):
    """A language model that can choose tools."""

    @property
    def name(self) -> str:
        """The model as it is asked for."""

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Generation:
        """Return the model's answer to a conversation.

        Safe to be called concurrently, and to be cancelled.

        Args:
            messages: The conversation so far.
            tools: What the model may choose from.

        Raises:
            ModelError: It could not be asked, or its answer cannot be used.
        """


def wire_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a conversation in the form of OpenAI's chat completions, which the records keep too.

    A provider's call ids come back as they were, save those that were empty or used before: those
    get a number, since a result is told to its call by its id. Text that is no valid Unicode is
    in stored form (`tracer.text`), so that every server can read it.
    """
    wire: list[dict[str, Any]] = []
    ids = _unique_ids(messages)
    awaiting: Iterator[str] = iter(())
    for message in messages:
        content = storable(message.content)
        if message.role == "tool":
            wire.append({"role": "tool", "tool_call_id": next(awaiting), "content": content})
        elif message.tool_calls:
            named = [next(ids) for _ in message.tool_calls]
            awaiting = iter(named)
            calls = [
                {
                    "id": wire_id,
                    "type": "function",
                    "function": {
                        "name": storable(call.name),
                        "arguments": storable(call.arguments),
                    },
                }
                for wire_id, call in zip(named, message.tool_calls, strict=True)
            ]
            wire.append({"role": "assistant", "content": content or None, "tool_calls": calls})
        else:
            wire.append({"role": message.role, "content": content})
    return wire


def messages_json(messages: Sequence[Message]) -> str:
    """Return a conversation as the JSON text that the records keep."""
    return json.dumps(wire_messages(messages), separators=(",", ":"))


def _unique_ids(messages: Sequence[Message]) -> Iterator[str]:
    """Yield an id for each call of a conversation: the provider's where it is usable."""
    given = [call.provider_call_id or "" for each in messages for call in each.tool_calls]
    taken = set(given)
    uses: Counter[str] = Counter()
    for provider_id in given:
        uses[provider_id] += 1
        if provider_id and uses[provider_id] == 1:
            yield storable(provider_id)
            continue
        number = uses[provider_id]
        while (candidate := f"{provider_id or 'call'}_{number}") in taken:
            number += 1
        taken.add(candidate)
        yield storable(candidate)
