"""A language model that follows a script: for tests, and for the demonstration.

It is strict. A conversation that no script knows, or that two know, and a turn beyond a script's
end are errors, and `check_used_up` finds the turns that nobody asked for.

A script is found by its conversation and a turn by how often the model has answered in it, never
by the order of asking. So any number of agents can run at once and get the same answers each time.
The history of a session is ignored: each message has a script of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import orjson

from tracer.errors import ModelError
from tracer.runtime.agent import introduction
from tracer.runtime.chat_model import ChosenCall, Generation, Message, ToolSpec


class ScriptError(ModelError):
    """The script and what the model was asked do not fit."""


@dataclass(frozen=True)
class Gate:
    """Holds a turn until it is opened."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the model is asked for the turn."""
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    """The turn is answered once this is set."""


@dataclass(frozen=True)
class Turn:
    """One answer of the model."""

    text: str = ""
    calls: Sequence[ChosenCall] = ()
    """The chosen tools; none makes it a final answer."""
    error: Exception | None = None
    """Raised instead of answering."""
    gate: Gate | None = None
    """What a slow turn waits for."""
    model: str | None = None
    """The model that answers, where it is not the one that was asked."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | None = None


@dataclass(frozen=True, eq=False)
class Script:
    """The turns of a conversation."""

    turns: Sequence[Turn]
    request: str = ""
    """Text that the conversation's first user message contains."""
    agent: str | None = None
    """The name of the agent that has the conversation; None: any."""
    times: int | None = 1
    """How many such conversations there will be; None: any number, none included."""

    def __str__(self) -> str:
        return f"the script for {self.agent or 'any agent'} and {self.request!r}"


def call(
    name: str, arguments: Mapping[str, Any] | str | None = None, provider_call_id: str | None = None
) -> ChosenCall:
    """Return a tool call for a script.

    Args:
        name: The tool.
        arguments: An object, or the text of one, malformed if the script wants it so.
        provider_call_id: The provider's id; may repeat, be empty or None.
    """
    text = arguments if isinstance(arguments, str) else orjson.dumps(dict(arguments or {})).decode()
    return ChosenCall(name, text, provider_call_id)


class ScriptedModel:
    """Answers as its scripts say."""

    def __init__(self, scripts: Sequence[Script], name: str = "scripted") -> None:
        self.name = name
        self._scripts = tuple(scripts)
        self._asked: Counter[tuple[Script, int]] = Counter()
        self._unexpected: list[str] = []

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Generation:
        """Return the answer that the conversation's script holds; see `ChatModel`.

        Raises:
            ScriptError: There is no such turn.
            Exception: What the turn says.
        """
        turn = self._turn(messages)
        if turn.gate is not None:
            turn.gate.reached.set()
            await turn.gate.opened.wait()
        if turn.error is not None:
            raise turn.error
        return Generation(
            text=turn.text,
            tool_calls=tuple(turn.calls),
            model=turn.model or self.name,
            input_tokens=turn.input_tokens,
            output_tokens=turn.output_tokens,
            cost_usd=turn.cost_usd,
            finish_reason="tool_calls" if turn.calls else "stop",
        )

    def check_used_up(self) -> None:
        """Return if everything happened as scripted.

        Raises:
            ScriptError: A turn was not asked for as often as its script says, or the model was
                asked for what no script holds.
        """
        problems = list(self._unexpected)
        for script in self._scripts:
            for number in range(len(script.turns)):
                asked = self._asked[script, number]
                if script.times is not None and asked != script.times:
                    problems.append(
                        f"Turn {number} of {script} was asked for {asked} of {script.times} times."
                    )
        if problems:
            raise ScriptError(" ".join(problems))

    def _turn(self, messages: Sequence[Message]) -> Turn:
        messages = [each for each in messages if not each.is_history]
        system = next((each.content for each in messages if each.role == "system"), "")
        request = next((each.content for each in messages if each.role == "user"), "")
        number = sum(each.role == "assistant" for each in messages)
        found = [each for each in self._scripts if _knows(each, system, request)]
        if len(found) != 1:
            names = " and ".join(map(str, found)) or "No script"
            raise self._unexpected_turn(
                f"{names} would answer {request[:200]!r} ({system[:80]!r})."
            )
        [script] = found
        if number >= len(script.turns):
            raise self._unexpected_turn(f"{script} has no turn {number}.")
        self._asked[script, number] += 1
        if script.times is not None and self._asked[script, number] > script.times:
            raise self._unexpected_turn(
                f"Turn {number} of {script} was asked for more than {script.times} times."
            )
        return script.turns[number]

    def _unexpected_turn(self, problem: str) -> ScriptError:
        self._unexpected.append(problem)
        return ScriptError(problem)


def _knows(script: Script, system: str, request: str) -> bool:
    fits_agent = script.agent is None or system.startswith(introduction(script.agent))
    return fits_agent and script.request in request
