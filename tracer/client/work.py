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
    EndFields,
    Work,
    text_of,
    valid_event,
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
from tracer.resource import NO_SERVICE, service_of_environment


class Plan(Work):
    """A run's root plan, or a sub-plan that a tool call or a step opened."""

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
        """Create a plan; see `Tracing.plan`.

        If `plan_id` is given, other code has already started the plan.
        """
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
        # A string is one label, not a sequence of labels of one letter each.
        self.tags: Sequence[str] = (tags,) if isinstance(tags, str) else tags or ()
        self.traceparent = traceparent
        self.metadata = text_of(metadata) if metadata else None
        self.offered_tools: dict[str, UUID] = parent.offered_tools if parent else {}
        """For each list of offered tools, as JSON: the id of the round that recorded the list."""
        self.summary: str | None = None
        self.positions = count()
        self.steps = [Step(self, *_planned(each)) for each in steps or ()]
        self._own_steps: dict[None, Step] = {}

    @property
    def work_id(self) -> UUID:
        """The id of the plan's record."""
        return self.plan_id

    @property
    def parent_work(self) -> ToolCall | Step | None:
        """The tool call or step that opened the plan; None for a root plan."""
        return self.opener

    def _starting_events(self) -> Iterable[Event]:
        opener = self.opener
        is_root = opener is None
        yield valid_event(
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
            **(service_of_environment() if is_root else NO_SERVICE),
        )

    @property
    def own_step(self) -> Step:
        """The step for everything outside of the steps that were passed to `Tracing.plan`.

        It is created at the first access.
        """
        step = self._own_steps.get(None)
        if step is None:
            new_step = Step(self, self.agent, self.request)
            # Several threads may do this at once: `setdefault` lets one of them win.
            step = self._own_steps.setdefault(None, new_step)
            if step is new_step and self.has_started:
                step.start()
        return step

    def start(self) -> None:
        """Record the start of the plan, without waiting until the event is durable."""
        super().start()
        for step in self._own_steps.values():
            step.start()

    def finish(self, summary: Any = None) -> None:
        """Record that the plan succeeded, with its summary."""
        self.summary = text_of(summary)
        self._end(Status.SUCCEEDED)

    def _ending_events(self, ending: EndFields) -> Iterable[Event]:
        for step in self._own_steps.values():
            if not step.has_ended:
                step.has_ended = True
                step.result = step.result or self.summary
                yield from step._ending_events(ending)
        unreached = tuple(step.step_id for step in self.steps if not step.has_started)
        yield valid_event(
            PlanFinished,
            **self.stamp(),
            **ending,
            summary=self.summary,
            not_reached_step_ids=unreached,
        )


def _planned(step: Any) -> tuple[str | None, str | None]:
    """Return the agent and the request of a step that was passed to `Tracing.plan`.

    A malformed step must not stop the agent. Anything but a pair is used as the request.
    """
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
        implicit_plan: Plan | None = None,
    ) -> None:
        """Create a step; see `Tracing.step`."""
        super().__init__(plan.connection, implicit_plan)
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
        """The id of the step's record."""
        return self.step_id

    @property
    def parent_work(self) -> Plan:
        """The plan that contains the step."""
        return self.plan

    def _starting_events(self) -> Iterable[Event]:
        yield valid_event(
            StepStarted,
            **self.stamp(),
            position=self._position,
            agent_name=self.agent,
            request=self.request,
        )

    def finish(self, result: Any = None) -> None:
        """Record that the step succeeded, with the agent's answer."""
        self.result = text_of(result)
        self._end(Status.SUCCEEDED)

    def _ending_events(self, ending: EndFields) -> Iterable[Event]:
        for call in list(self.unstarted.values()):
            yield from call._ending_events(
                {"status": Status.CANCELLED, "reason": Reason.NOT_REACHED, "error": None}
            )
        yield valid_event(StepFinished, **self.stamp(), **ending, result=self.result)


class Chosen(NamedTuple):
    """A tool call that a model requested in its answer; see `ThinkAct.finish`."""

    name: str
    arguments: Any = None
    """The text from the model, unchanged, or a value to convert to JSON."""
    provider_call_id: str | None = None
    """The id from the model's provider, unchanged."""
    tool_type: str | None = None


class ThinkAct(Work):
    """One request to the model, with its answer and the tool calls that it chose."""

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
        implicit_plan: Plan | None = None,
    ) -> None:
        """Create a think-act; see `Tracing.think_act`."""
        super().__init__(step.connection, implicit_plan)
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
        """The id of the think-act's record."""
        return self.think_act_id

    @property
    def parent_work(self) -> Step:
        """The step that contains the think-act."""
        return self.step

    def _starting_events(self) -> Iterable[Event]:
        yield valid_event(
            ThoughtStarted,
            **self.stamp(),
            position=next(self.step.rounds),
            requested_model=self.model,
            messages=self._messages,
            **self._request,
        )

    def _offered(self, tools: Any) -> dict[str, Any]:
        """Return the event fields for the offered tools.

        If an earlier round recorded the same tools, the fields contain only the id of that round.
        """
        text = offered_tools_text(tools) if tools else None
        if text is None:
            return {}
        holder = self.step.plan.offered_tools.setdefault(text, self.think_act_id)
        if holder == self.think_act_id:
            return {"offered_tools": text}
        return {"offered_tools_from": holder}

    def note_first_token(self) -> None:
        """Note that the first token of the answer arrived. Only the first call has an effect."""
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
        """Record the model's answer. Call this method before any of the chosen tools runs.

        Args:
            thought: The text of the answer.
            model: The model that answered, as the provider names it.
            input_tokens: The number of input tokens.
            output_tokens: The number of output tokens.
            cost_usd: The cost in US dollars, to twelve decimal places; None if it is unknown. By
                default it is computed from the price list, the model's name and the tokens.
            provider: The provider of the model, if it was unknown when the think-act started.
            finish_reasons: Why the model stopped, such as `stop`.
            cache_read_tokens: How many of the input tokens the provider read from its cache.
            cache_written_tokens: How many of the input tokens the provider wrote to its cache.
            reasoning_tokens: How many of the output tokens the model spent on reasoning.
            tool_calls: The chosen tool calls. Each is a `Chosen`, a tuple of the fields of
                `Chosen`, or a name. A single `Chosen` or name is accepted, too.

        Returns:
            The chosen tool calls, which have not started. Each starts with its `with` block, or
            with `start`.
        """
        calls: Any = () if tool_calls is None else tool_calls
        if isinstance(calls, (str, Chosen, Mapping)) or not isinstance(calls, Iterable):
            calls = (calls,)  # a name is one call, not a sequence of names of one letter each
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

    def _ending_events(self, ending: EndFields) -> Iterable[Event]:
        answer = dict(self._answer)
        if (cost := answer.get("cost_usd")) == "listed":
            answer["cost_usd"] = _listed_cost(**answer)
        elif (amount := usd(cost)) is not None:  # `valid_event` omits and logs an invalid amount
            answer["cost_usd"] = amount
        chosen = tuple(
            valid_event(
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
        yield valid_event(ThoughtRecorded, **self.stamp(), **ending, **answer, tool_calls=chosen)


def _chosen(call: Chosen | tuple[Any, ...] | str) -> Chosen:
    """Convert a chosen call to `Chosen`.

    A malformed call must not stop the agent. It is recorded as completely as possible.
    """
    if isinstance(call, (tuple, list)):
        return Chosen(*call[: len(Chosen._fields)] or ("",))
    return Chosen(call)


def _texts(values: Iterable[str] | str | None) -> tuple[str, ...]:
    items = (values,) if isinstance(values, str) else values or ()
    return tuple(text for each in items if (text := text_of(each)))


def _listed_cost(
    model: str | None, input_tokens: Any, output_tokens: Any, **others: Any
) -> Decimal | None:
    input_count, output_count = token_count(input_tokens), token_count(output_tokens)
    if not model or input_count is None or output_count is None:
        return None
    kinds = ("cache_read_tokens", "cache_written_tokens", "reasoning_tokens")
    parts = (token_count(others.get(kind)) or 0 for kind in kinds)
    return cost_of(TokenUsage(input_count, output_count, *parts), model)


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
        implicit_plan: Plan | None = None,
    ) -> None:
        """Create a tool call; see `Tracing.tool_call`."""
        super().__init__(step.connection, implicit_plan)
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
        """The id of the tool call's record."""
        return self.tool_call_id

    @property
    def parent_work(self) -> ToolCall | ThinkAct | Step:
        """The tool call, think-act or step that contains this tool call."""
        return self.parent or self.thought or self.step

    def start(self, attempt: int = 1) -> None:
        """Record the start of the tool call, or the start of a retry.

        Args:
            attempt: The number of the attempt, from 1.
        """
        self.attempt = attempt
        self.step.unstarted.pop(self.tool_call_id, None)
        super().start()

    def _starting_events(self) -> Iterable[Event]:
        yield valid_event(
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
        """Record that the tool call succeeded, with its result."""
        self.result = text_of(result)
        self._end(Status.SUCCEEDED)

    def _ending_events(self, ending: EndFields) -> Iterable[Event]:
        self.step.unstarted.pop(self.tool_call_id, None)
        yield valid_event(
            ToolCallFinished, **self.stamp(), **ending, result=self.result, attempt=self.attempt
        )
