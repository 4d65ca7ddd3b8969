"""A language model that follows scripts, for tests and for the demonstration.

The model raises an error if no script or several scripts match a conversation, and if a
conversation is longer than its script. `check_used_up` finds the turns that were never requested.

The conversation determines the script. The number of the model's earlier answers in the
conversation determines the turn. The order of requests does not matter, so agents that run in
parallel get the same answers each time. Messages of the session's earlier runs are ignored, so each
run needs a script of its own.
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
from tracer.runtime.application import introduction
from tracer.runtime.chat_model import ChosenCall, Generation, Message, ToolSpec


class ScriptError(ModelError):
    """A request to the model does not match the scripts."""


@dataclass(frozen=True)
class Gate:
    """Delays the model's response until `opened` is set."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the response of the turn is requested."""
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    """The model responds once this is set."""


@dataclass(frozen=True)
class Turn:
    """One response of the model."""

    text: str = ""
    calls: Sequence[ChosenCall] = ()
    """The requested tool calls. A turn without tool calls is a final answer."""
    error: Exception | None = None
    """Raised in place of a response."""
    gate: Gate | None = None
    """Delays the response until the gate is opened."""
    model: str | None = None
    """The model that responds, if it is not the requested one."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | None = None


@dataclass(frozen=True, eq=False)
class Script:
    """The turns of one conversation."""

    turns: Sequence[Turn]
    request: str = ""
    """Text that the conversation's first user message contains."""
    agent: str | None = None
    """The name of the agent that has the conversation. None: any agent."""
    times: int | None = 1
    """How many conversations must use this script. None: any number, including 0."""

    def __str__(self) -> str:
        return f"the script for {self.agent or 'any agent'} and {self.request!r}"


def call(
    name: str, arguments: Mapping[str, Any] | str | None = None, provider_call_id: str | None = None
) -> ChosenCall:
    """Return a tool call for a script.

    Args:
        name: The tool.
        arguments: An object, or its text, which may be malformed.
        provider_call_id: The provider's id; it may be repeated, empty or None.
    """
    text = arguments if isinstance(arguments, str) else orjson.dumps(dict(arguments or {})).decode()
    return ChosenCall(name, text, provider_call_id)


class ScriptedModel:
    """Responds according to its scripts."""

    def __init__(self, scripts: Sequence[Script], name: str = "scripted") -> None:
        self.name = name
        self._scripts = tuple(scripts)
        self._request_counts: Counter[tuple[Script, int]] = Counter()
        self._unexpected: list[str] = []

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Generation:
        """Return the response of the conversation's script; see `ChatModel`.

        Raises:
            ScriptError: The scripts contain no turn for this request.
            Exception: The turn's `error`.
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
        """Check that each turn was requested as often as its script states, and no other turns.

        Raises:
            ScriptError: A turn was never requested, or a request matched no script.
        """
        problems = list(self._unexpected)
        for script in self._scripts:
            for number in range(len(script.turns)):
                count = self._request_counts[script, number]
                if script.times is not None and count != script.times:
                    problems.append(
                        f"Turn {number} of {script} was requested {count} of {script.times} times."
                    )
        if problems:
            raise ScriptError(" ".join(problems))

    def _turn(self, messages: Sequence[Message]) -> Turn:
        messages = [each for each in messages if not each.is_history]
        system = next((each.content for each in messages if each.role == "system"), "")
        request = next((each.content for each in messages if each.role == "user"), "")
        number = sum(each.role == "assistant" for each in messages)
        matching = [each for each in self._scripts if _matches(each, system, request)]
        if len(matching) != 1:
            names = " and ".join(map(str, matching)) or "No script"
            raise self._unexpected_turn(
                f"{names} would answer {request[:200]!r} ({system[:80]!r})."
            )
        [script] = matching
        if number >= len(script.turns):
            raise self._unexpected_turn(f"{script} has no turn {number}.")
        self._request_counts[script, number] += 1
        if script.times is not None and self._request_counts[script, number] > script.times:
            raise self._unexpected_turn(
                f"Turn {number} of {script} was requested more than {script.times} times."
            )
        return script.turns[number]

    def _unexpected_turn(self, problem: str) -> ScriptError:
        self._unexpected.append(problem)
        return ScriptError(problem)


def _matches(script: Script, system: str, request: str) -> bool:
    fits_agent = script.agent is None or system.startswith(introduction(script.agent))
    return fits_agent and script.request in request
