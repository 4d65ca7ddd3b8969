"""Rounds and the tool calls that they choose, recorded by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import UUID

from tracer.client.block import Ending, Work, sound, text_of
from tracer.records.events import (
    ChosenToolCall,
    Event,
    ThoughtRecorded,
    ThoughtStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from tracer.records.prices import TokenUsage, cost_of, token_count, usd
from tracer.records.status import Reason, Status

if TYPE_CHECKING:
    from tracer.client.work import Plan, Step


class Chosen(NamedTuple):
    """A tool call that a model chose."""

    name: str
    arguments: Any = None
    """Text as the model gave it, or what becomes JSON."""
    provider_call_id: str | None = None
    """The id that the model's provider gave, as it came."""
    tool_type: str | None = None


class ThinkAct(Work):
    """One round: the model is asked, answers, and chooses tools."""

    failed_for = Reason.MODEL_ERROR

    def __init__(
        self,
        step: Step,
        *,
        messages: Sequence[Any] | str | None = None,
        model: str | None = None,
        around: Plan | None = None,
    ) -> None:
        """Take a place; see `Tracing.think_act`."""
        super().__init__(step.connection, around)
        self.step = step
        self.think_act_id = step.connection.ids()
        self.ids = {**step.ids, "think_act_id": self.think_act_id}
        self.model = text_of(model)
        self.calls = count()
        self._messages = text_of(messages)
        self._answer: dict[str, Any] = {}
        self._chosen: Sequence[ToolCall] = ()

    @property
    def work_id(self) -> UUID:
        """The id of its record."""
        return self.think_act_id

    @property
    def above(self) -> Step:
        """What it hangs under."""
        return self.step

    def _starting_events(self) -> Iterable[Event]:
        yield sound(
            ThoughtStarted,
            **self.stamp(),
            position=next(self.step.rounds),
            requested_model=self.model,
            messages=self._messages,
        )

    def finish(
        self,
        thought: Any = None,
        *,
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cost_usd: Decimal | float | Literal["listed"] | None = "listed",
        tool_calls: Iterable[Chosen | tuple[Any, ...] | str] | Chosen | None = (),
    ) -> list[ToolCall]:
        """Record the model's answer, before any of the tools that it chose runs.

        Args:
            thought: The text that it answered with.
            model: The model that answered, as the provider names it.
            input_tokens: How many tokens it was given.
            output_tokens: How many it answered with.
            cost_usd: What it cost, in US dollars; to twelve decimal places. Unless given, what the
                price list says of the model's name and the tokens; None where nobody knows.
            tool_calls: The tool calls that it chose, as `Chosen`, tuples in its order or names;
                one by itself as `Chosen` or as a name.

        Returns:
            The tool calls, pending: each starts with its block, or by `start`.
        """
        calls: Any = () if tool_calls is None else tool_calls
        if isinstance(calls, (str, Chosen, Mapping)) or not isinstance(calls, Iterable):
            calls = (calls,)  # a call by itself: a name is no series of names of one letter each
        chosen = [
            ToolCall(
                self.step,
                call.name,
                call.arguments,
                thought=self,
                provider_call_id=call.provider_call_id,
                tool_type=call.tool_type,
            )
            for call in map(_chosen, calls)
        ]
        self._answer = {
            "thought": text_of(thought),
            "model": text_of(model) or self.model,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cost_usd": cost_usd,
        }
        self._chosen = chosen
        self.step.unstarted.update((call.tool_call_id, call) for call in chosen)
        self._end(Status.SUCCEEDED)
        return chosen

    def _ending_events(self, ending: Ending) -> Iterable[Event]:
        answer = dict(self._answer)
        if (cost := answer.get("cost_usd")) == "listed":
            answer["cost_usd"] = _listed_cost(**answer)
        elif (amount := usd(cost)) is not None:  # what is none is left out, and logged, by `sound`
            answer["cost_usd"] = amount
        chosen = tuple(
            sound(
                ChosenToolCall,
                tool_call_id=call.tool_call_id,
                name=call.name,
                arguments=call.arguments,
                provider_call_id=call.provider_call_id,
                tool_type=call.tool_type,
                status=Status.PENDING,
            )
            for call in self._chosen
        )
        yield sound(ThoughtRecorded, **self.stamp(), **ending, **answer, tool_calls=chosen)


def _chosen(call: Chosen | tuple[Any, ...] | str) -> Chosen:
    """Return a call as it was given: whatever else it is, the agent goes on, and has its call."""
    if isinstance(call, (tuple, list)):
        return Chosen(*call[: len(Chosen._fields)] or ("",))
    return Chosen(call)


def _listed_cost(
    model: str | None, input_tokens: Any, output_tokens: Any, **_other: Any
) -> Decimal | None:
    given, answered = token_count(input_tokens), token_count(output_tokens)
    if not model or given is None or answered is None:
        return None
    return cost_of(TokenUsage(given, answered), model)


class ToolCall(Work):
    """One request to run one tool."""

    failed_for = Reason.TOOL_ERROR

    def __init__(
        self,
        step: Step,
        name: str,
        arguments: Any = None,
        *,
        thought: ThinkAct | None = None,
        parent: ToolCall | None = None,
        provider_call_id: str | None = None,
        tool_type: str | None = None,
        tool_call_id: UUID | None = None,
        around: Plan | None = None,
    ) -> None:
        """Take a place; see `Tracing.tool_call`."""
        super().__init__(step.connection, around)
        self.step = step
        self.thought = thought
        self.parent = parent
        self.tool_call_id = tool_call_id or step.connection.ids()
        self.ids = {**(thought or step).ids, "tool_call_id": self.tool_call_id}
        if parent is not None:
            self.ids["parent_tool_call_id"] = parent.tool_call_id
        self.name = text_of(name) or ""
        self.arguments = text_of(arguments)
        self.provider_call_id, self.tool_type = text_of(provider_call_id), text_of(tool_type)
        self.attempt = 1
        self.result: str | None = None
        self.calls, self.sub_plans = count(), count()
        self._position = next((parent or thought or step).calls)

    @property
    def work_id(self) -> UUID:
        """The id of its record."""
        return self.tool_call_id

    @property
    def above(self) -> ToolCall | ThinkAct | Step:
        """What it hangs under."""
        return self.parent or self.thought or self.step

    def start(self, attempt: int = 1) -> None:
        """Record that it starts, or that it is tried again.

        Args:
            attempt: Which attempt it is, from 1.
        """
        self.attempt = attempt
        self.step.unstarted.pop(self.tool_call_id, None)
        super().start()

    def _starting_events(self) -> Iterable[Event]:
        yield sound(
            ToolCallStarted,
            **self.stamp(),
            name=self.name,
            arguments=self.arguments,
            provider_call_id=self.provider_call_id,
            tool_type=self.tool_type,
            position=self._position,
            attempt=self.attempt,
        )

    def finish(self, result: Any = None) -> None:
        """Record that it succeeded, and what it returned."""
        self.result = text_of(result)
        self._end(Status.SUCCEEDED)

    def _ending_events(self, ending: Ending) -> Iterable[Event]:
        self.step.unstarted.pop(self.tool_call_id, None)
        yield sound(
            ToolCallFinished, **self.stamp(), **ending, result=self.result, attempt=self.attempt
        )
