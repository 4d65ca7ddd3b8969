"""What was started and will end: plans, steps, think-acts and tool calls.

Each is a context manager. Inside of it, it is current: what starts there, in tasks and in threads
too, hangs under it. It ends with its block, as failed where that raises, unless it was ended
before. A program that is told of starts and ends by callbacks calls `start` and `finish`, `fail` or
`cancel` itself.

Nothing here raises because of what is recorded: an event that cannot be made is logged.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextvars import Token
from decimal import Decimal
from itertools import count
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self, TypedDict
from uuid import UUID

from opentelemetry import context as otel_context

from tracer.client.connection import DONE, Connection
from tracer.events import (
    ChosenToolCall,
    EndingStatus,
    ErrorInfo,
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
from tracer.logs import get_logger
from tracer.recorder.counts import error_place
from tracer.recorder.recorder import Stamp
from tracer.status import Reason, Status
from tracer.tools.results import error_info, result_text

log = get_logger(__name__)

_CURRENT = otel_context.create_key("tracer-work")
_CANCELLATIONS = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


class Chosen(NamedTuple):
    """A tool call that a model chose."""

    name: str
    arguments: Any = None
    """Text as the model gave it, or what becomes JSON."""
    provider_call_id: str | None = None
    """The id that the model's provider gave, as it came."""
    tool_type: str | None = None


class _Ending(TypedDict):
    status: EndingStatus
    reason: str | None
    error: ErrorInfo | None


class _InPlan(Stamp):
    root_plan_id: UUID
    plan_id: UUID


def current_work() -> Work | None:
    """Return the innermost work that this code runs in; None outside of any."""
    work = otel_context.get_value(_CURRENT)
    return work if isinstance(work, Work) else None


def text_of(value: Any) -> str | None:
    """Return a value as it is recorded: text as it is, None as nothing, anything else as JSON."""
    return None if value is None else result_text(value)


class Work(ABC):
    """Something that was started and will end."""

    failed_for: ClassVar[Reason | None] = None
    """The reason of a failure that gives none."""

    def __init__(self, connection: Connection, around: Plan | None = None) -> None:
        """Take a place; nothing is recorded yet.

        Args:
            connection: Where to record.
            around: A plan that was made for this alone, and ends with it.
        """
        self.connection = connection
        self.has_started = False
        self.has_ended = False
        self._around = around
        self._durable: Future[None] = DONE
        self._token: Token[otel_context.Context] | None = None

    # --- The block -----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._enter()
        self.wait()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(error)
        self.wait()

    async def __aenter__(self) -> Self:
        self._enter()
        await self.durable()
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(error)
        await self.durable()

    def _enter(self) -> None:
        if not self.has_started:
            self.start()
        self._token = otel_context.attach(otel_context.set_value(_CURRENT, self))

    def _leave(self, error: BaseException | None) -> None:
        # In another context, an async generator is closed that nobody read to its end.
        if self._token is not None and current_work() is self:
            otel_context.detach(self._token)
        if error is None:
            self._end(Status.SUCCEEDED)
        elif isinstance(error, _CANCELLATIONS):
            self._end(Status.CANCELLED)
        else:
            self.fail(error)

    # --- Its life ------------------------------------------------------------------------------

    def start(self) -> None:
        """Record that it starts, and return before that is durable."""
        self.has_started = True
        self._record(self._starting_events())

    def fail(self, error: BaseException | ErrorInfo | str, reason: str | None = None) -> None:
        """Record that it failed.

        Args:
            error: What went wrong.
            reason: Which kind of ending it was, such as `timed_out`.
        """
        if isinstance(error, str):
            error = ErrorInfo(type="Error", message=error)
        elif isinstance(error, BaseException):
            error = error_info(error)
        self._end(Status.FAILED, reason or self.failed_for, error)

    def cancel(self, reason: str | None = None) -> None:
        """Record that it was cancelled."""
        self._end(Status.CANCELLED, reason)

    def wait(self) -> None:
        """Wait until what was recorded of it is durable. Not from an event loop's thread."""
        self._durable.result()

    async def durable(self) -> None:
        """Wait until what was recorded of it is durable."""
        if not self._durable.done():
            await asyncio.wrap_future(self._durable)

    def _end(
        self, status: EndingStatus, reason: str | None = None, error: ErrorInfo | None = None
    ) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        self._record(self._ending_events({"status": status, "reason": reason, "error": error}))
        if self._around is not None:
            self._around._end(status, None, error)
            self._durable = self._around._durable

    @abstractmethod
    def _starting_events(self) -> Iterable[Event]:
        """Return what is to be recorded of its start."""

    @abstractmethod
    def _ending_events(self, ending: _Ending) -> Iterable[Event]:
        """Return what is to be recorded of its end."""

    def _record(self, events: Iterable[Event]) -> None:
        try:
            self._durable = self.connection.record(*events)
        except ValueError as error:
            log.error("event_not_made", work=type(self).__name__, error=error_place(error))


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
        traceparent: str | None = None,
        plan_id: UUID | None = None,
    ) -> None:
        """Take a place; see `Tracing.plan`. An id is given only to what was started elsewhere."""
        super().__init__(connection)
        self.plan_id = plan_id or connection.ids()
        above = opener.step.plan if isinstance(opener, ToolCall) else opener and opener.plan
        self.root_plan_id: UUID = above.root_plan_id if above else self.plan_id
        self.depth: int = above.depth + 1 if above else 0
        self.opener = opener
        self.above = above
        self.title = title
        self.request = request
        self.agent = agent
        self.session_id, self.subject, self.tags = session_id, subject, tags
        self.traceparent = traceparent
        self.summary: str | None = None
        self.positions = count()
        self.steps = [Step(self, agent_name, asked) for agent_name, asked in steps]
        self._own_step: Step | None = None

    def _starting_events(self) -> Iterable[Event]:
        opener = self.opener
        is_root = opener is None
        yield PlanStarted(
            **self.stamp(),
            parent_plan_id=self.above.plan_id if self.above else None,
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
            tags=tuple(self.tags) if is_root else (),
            traceparent=self.traceparent if is_root else None,
        )

    @property
    def own_step(self) -> Step:
        """The step that does what belongs to no other; it starts when it is first asked for."""
        if self._own_step is None:
            self._own_step = Step(self, self.agent, self.request)
            self._own_step.start()
        return self._own_step

    def finish(self, summary: Any = None) -> None:
        """Record that it succeeded, and what came of it."""
        self.summary = text_of(summary)
        self._end(Status.SUCCEEDED)

    def stamp(self) -> _InPlan:
        """Return what every event within it starts with."""
        return {
            **self.connection.stamp(),
            "root_plan_id": self.root_plan_id,
            "plan_id": self.plan_id,
        }

    def _ending_events(self, ending: _Ending) -> Iterable[Event]:
        if self._own_step is not None and not self._own_step.has_ended:
            self._own_step.has_ended = True
            self._own_step.result = self._own_step.result or self.summary
            yield from self._own_step._ending_events(ending)
        missed = tuple(step.step_id for step in self.steps if not step.has_started)
        yield PlanFinished(
            **self.stamp(), **ending, summary=self.summary, not_reached_step_ids=missed
        )


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
        self.agent = agent
        self.request = request
        self.result: str | None = None
        self.rounds, self.calls, self.sub_plans = count(), count(), count()
        self._position = next(plan.positions)

    def _starting_events(self) -> Iterable[Event]:
        yield StepStarted(
            **self.stamp(), position=self._position, agent_name=self.agent, request=self.request
        )

    def finish(self, result: Any = None) -> None:
        """Record that it succeeded, and the agent's answer."""
        self.result = text_of(result)
        self._end(Status.SUCCEEDED)

    def stamp(self) -> Any:
        """Return what every event within it starts with."""
        return {**self.plan.stamp(), "step_id": self.step_id}

    def _ending_events(self, ending: _Ending) -> Iterable[Event]:
        yield StepFinished(**self.stamp(), **ending, result=self.result)


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
        self.model = model
        self.calls = count()
        self._messages = text_of(messages)
        self._answer: dict[str, Any] = {}

    def _starting_events(self) -> Iterable[Event]:
        yield ThoughtStarted(
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
        cost_usd: Decimal | None = None,
        tool_calls: Iterable[Chosen | tuple[Any, ...]] = (),
    ) -> list[ToolCall]:
        """Record the model's answer, before any of the tools that it chose runs.

        Args:
            thought: The text that it answered with.
            model: The model that answered, as the provider names it.
            input_tokens: How many tokens it was given.
            output_tokens: How many it answered with.
            cost_usd: What it cost, in US dollars.
            tool_calls: The tool calls that it chose, as `Chosen` or tuples in its order.

        Returns:
            The tool calls, pending: each starts with its block, or by `start`.
        """
        chosen = [
            ToolCall(
                self.step,
                call.name,
                call.arguments,
                thought=self,
                provider_call_id=call.provider_call_id,
                tool_type=call.tool_type,
            )
            for call in (Chosen(*each) for each in tool_calls)
        ]
        self._answer = {
            "thought": text_of(thought),
            "model": model or self.model,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cost_usd": cost_usd,
            "tool_calls": tuple(
                ChosenToolCall(
                    tool_call_id=call.tool_call_id,
                    name=call.name,
                    arguments=call.arguments,
                    provider_call_id=call.provider_call_id,
                    tool_type=call.tool_type,
                    status=Status.PENDING,
                )
                for call in chosen
            ),
        }
        self._end(Status.SUCCEEDED)
        return chosen

    def stamp(self) -> Any:
        """Return what every event of it starts with."""
        return {**self.step.stamp(), "think_act_id": self.think_act_id}

    def _ending_events(self, ending: _Ending) -> Iterable[Event]:
        yield ThoughtRecorded(**self.stamp(), **ending, **self._answer)


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
        self.name = name
        self.arguments = text_of(arguments)
        self.provider_call_id = provider_call_id
        self.tool_type = tool_type
        self.attempt = 1
        self.result: str | None = None
        self.calls, self.sub_plans = count(), count()
        self._position = next((parent or thought or step).calls)

    def start(self, attempt: int = 1) -> None:
        """Record that it starts, or that it is tried again.

        Args:
            attempt: Which attempt it is, from 1.
        """
        self.attempt = attempt
        super().start()

    def _starting_events(self) -> Iterable[Event]:
        yield ToolCallStarted(
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

    def stamp(self) -> Any:
        """Return what every event of it starts with."""
        return {
            **self.step.stamp(),
            "think_act_id": self.thought and self.thought.think_act_id,
            "parent_tool_call_id": self.parent and self.parent.tool_call_id,
            "tool_call_id": self.tool_call_id,
        }

    def _ending_events(self, ending: _Ending) -> Iterable[Event]:
        yield ToolCallFinished(**self.stamp(), **ending, result=self.result, attempt=self.attempt)
