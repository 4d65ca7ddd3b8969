"""Plans, steps, think-acts and tool calls, recorded by hand.

Their base class is in `tracer.client.block`. The methods of `tracer.client.tracing.Tracing` create
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import count
from typing import Any, Literal, NamedTuple
from uuid import UUID

from tracer.client.block import (
    Ending,
    Work,
    sound,
    text_of,
)
from tracer.client.connection import Connection
from tracer.records.events import (
    ChosenToolCall,
    Event,
    PlanFinished,
    PlannedStep,
    PlanStarted,
    StepFinished,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from tracer.records.offered_tools import offered_tools_text
from tracer.records.prices import TokenUsage, cost_of, token_count, usd
from tracer.records.status import Reason, Status


class Plan(Work):
    """What an agent set out to do: a run's root plan, or a sub-plan of a tool call or a step."""

    def __init__(
        self,
        connection: Connection,
        opener: ToolCall | Step | None,
        *,
        title: str | None = None,
        request: str | None = None,
        agent: str | None = None,
        steps: Iterable[tuple[str | None, str | None]] = (),
        session_id: str | None = None,
        subject: str | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        traceparent: str | None = None,
        plan_id: UUID | None = None,
        root_plan_id: UUID | None = None,
    ) -> None:
        """Take a place; see `Tracing.plan`. Ids are given only to what was started elsewhere."""
        super().__init__(connection)
        self.has_started = plan_id is not None
        self.plan_id = plan_id or connection.ids()
        parent = opener.step.plan if isinstance(opener, ToolCall) else opener and opener.plan
        own_run = root_plan_id or self.plan_id
        self.root_plan_id: UUID = parent.root_plan_id if parent else own_run
        self.ids = {"root_plan_id": self.root_plan_id, "plan_id": self.plan_id}
        self.depth: int = parent.depth + 1 if parent else 0
        self.parent = parent
        self.opener = opener
        self.title, self.request, self.agent = text_of(title), text_of(request), text_of(agent)
        self.session_id, self.subject = session_id, subject
        # One label is no series of labels of one letter each.
        self.tags: Sequence[str] = (tags,) if isinstance(tags, str) else tags or ()
        self.traceparent = traceparent
        self.metadata = text_of(metadata) if metadata else None
        self.offered_tools: dict[str, UUID] = parent.offered_tools if parent else {}
        """The round of the run that recorded each list of offered tools, by their JSON."""
        self.summary: str | None = None
        self.positions = count()
        self.steps = [Step(self, *_planned(each)) for each in steps or ()]
        self._own_steps: dict[None, Step] = {}

    @property
    def work_id(self) -> UUID:
        """The id of its record."""
        return self.plan_id

    @property
    def above(self) -> ToolCall | Step | None:
        """What it hangs under."""
        return self.opener

    def _starting_events(self) -> Iterable[Event]:
        opener = self.opener
        is_root = opener is None
        yield sound(
            PlanStarted,
            **self.stamp(),
            parent_plan_id=self.parent.plan_id if self.parent else None,
            tool_call_id=opener.tool_call_id if isinstance(opener, ToolCall) else None,
            opened_by_step_id=opener.step_id if isinstance(opener, Step) else None,
            position=next(opener.sub_plans) if opener else 0,
            depth=self.depth,
            title=self.title,
            user_request=self.request,
            agent_name=self.agent,
            steps=tuple(
                PlannedStep(step_id=step.step_id, agent_name=step.agent, request=step.request)
                for step in self.steps
            ),
            session_id=self.session_id if is_root else None,
            subject=self.subject if is_root else None,
            tags=self.tags if is_root else (),
            traceparent=self.traceparent if is_root else None,
            run_metadata=self.metadata if is_root else None,
        )

    @property
    def own_step(self) -> Step:
        """The step that does what belongs to no other; it starts when it is first asked for."""
        step = self._own_steps.get(None)
        if step is None:
            made = Step(self, self.agent, self.request)
            # Several threads may ask for it at once.
            step = self._own_steps.setdefault(None, made)
            if step is made and self.has_started:
                step.start()
        return step

    def start(self) -> None:
        """Record that it starts, and return before that is durable."""
        super().start()
        for step in self._own_steps.values():
            step.start()

    def finish(self, summary: Any = None) -> None:
        """Record that it succeeded, and what came of it."""
        self.summary = text_of(summary)
        self._end(Status.SUCCEEDED)

    def _ending_events(self, ending: Ending) -> Iterable[Event]:
        for step in self._own_steps.values():
            if not step.has_ended:
                step.has_ended = True
                step.result = step.result or self.summary
                yield from step._ending_events(ending)
        missed = tuple(step.step_id for step in self.steps if not step.has_started)
        yield sound(
            PlanFinished,
            **self.stamp(),
            **ending,
            summary=self.summary,
            not_reached_step_ids=missed,
        )


def _planned(step: Any) -> tuple[str | None, str | None]:
    """Return an announced step's agent and request: whatever it is, the agent goes on."""
    if isinstance(step, (tuple, list)):
        agent, request = (*step, None, None)[:2]
        return agent, request
    return None, step


class Step(Work):
    """One item of a plan, carried out by one agent."""

    def __init__(
        self,
        plan: Plan,
        agent: str | None,
        request: str | None,
        step_id: UUID | None = None,
        around: Plan | None = None,
    ) -> None:
        """Take a place; see `Tracing.step`."""
        super().__init__(plan.connection, around)
        self.plan = plan
        self.step_id = step_id or plan.connection.ids()
        self.ids = {**plan.ids, "step_id": self.step_id}
        self.agent, self.request = text_of(agent), text_of(request)
        self.result: str | None = None
        self.unstarted: dict[UUID, ToolCall] = {}
        """The tool calls that a model chose and that have not started yet."""
        self.rounds, self.calls, self.sub_plans = count(), count(), count()
        self._position = next(plan.positions)

    @property
    def work_id(self) -> UUID:
        """The id of its record."""
        return self.step_id

    @property
    def above(self) -> Plan:
        """What it hangs under."""
        return self.plan

    def _starting_events(self) -> Iterable[Event]:
        yield sound(
            StepStarted,
            **self.stamp(),
            position=self._position,
            agent_name=self.agent,
            request=self.request,
        )

    def finish(self, result: Any = None) -> None:
        """Record that it succeeded, and the agent's answer."""
        self.result = text_of(result)
        self._end(Status.SUCCEEDED)

    def _ending_events(self, ending: Ending) -> Iterable[Event]:
        for call in list(self.unstarted.values()):
            yield from call._ending_events(
                {"status": Status.CANCELLED, "reason": Reason.NOT_REACHED, "error": None}
            )
        yield sound(StepFinished, **self.stamp(), **ending, result=self.result)


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
        provider: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        tools: Any = None,
        node: str | None = None,
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
        self._request = {
            "provider": text_of(provider),
            "parameters": text_of(parameters) if parameters else None,
            "node": text_of(node),
            **self._offered(tools),
        }
        self._first_token_at: datetime | None = None
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
            **self._request,
        )

    def _offered(self, tools: Any) -> dict[str, Any]:
        """Return the fields of its tools: the tools, or the round that holds the same."""
        text = offered_tools_text(tools) if tools else None
        if text is None:
            return {}
        holder = self.step.plan.offered_tools.setdefault(text, self.think_act_id)
        if holder == self.think_act_id:
            return {"offered_tools": text}
        return {"offered_tools_from": holder}

    def note_first_token(self) -> None:
        """Note that the first token of the answer arrived; later calls change nothing."""
        if self._first_token_at is None:
            self._first_token_at = self.connection.stamp()["at"]

    def finish(
        self,
        thought: Any = None,
        *,
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cost_usd: Decimal | float | Literal["listed"] | None = "listed",
        provider: str | None = None,
        finish_reasons: Iterable[str] | str | None = (),
        cache_read_tokens: int | None = None,
        cache_written_tokens: int | None = None,
        reasoning_tokens: int | None = None,
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
            provider: The provider of the model, if it is known only now.
            finish_reasons: Why the model stopped, such as `stop`.
            cache_read_tokens: How many of the input tokens the provider read from its cache.
            cache_written_tokens: How many of them it wrote to its cache.
            reasoning_tokens: How many of the output tokens the model spent on reasoning.
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
            "provider": text_of(provider),
            "finish_reasons": _texts(finish_reasons),
            "cache_read_tokens": cache_read_tokens,
            "cache_written_tokens": cache_written_tokens,
            "reasoning_tokens": reasoning_tokens,
            "first_token_at": self._first_token_at,
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


def _texts(values: Iterable[str] | str | None) -> tuple[str, ...]:
    listed = (values,) if isinstance(values, str) else values or ()
    return tuple(text for each in listed if (text := text_of(each)))


def _listed_cost(
    model: str | None, input_tokens: Any, output_tokens: Any, **others: Any
) -> Decimal | None:
    given, answered = token_count(input_tokens), token_count(output_tokens)
    if not model or given is None or answered is None:
        return None
    kinds = ("cache_read_tokens", "cache_written_tokens", "reasoning_tokens")
    parts = (token_count(others.get(kind)) or 0 for kind in kinds)
    return cost_of(TokenUsage(given, answered, *parts), model)


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
