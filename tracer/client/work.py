"""Work, recorded by hand: plans, steps, think-acts and tool calls, and their base class `Work`.

The methods of `tracer.client.tracing.Tracing` create them. If work is used as a `with` block, it
starts and ends with the block. The innermost open block is the current work of the code inside: new
work becomes its child.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import Token
from datetime import datetime
from decimal import Decimal
from functools import cache
from itertools import count
from threading import get_ident
from types import TracebackType
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypedDict, TypeVar
from uuid import UUID

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_snake

from tracer.client.connection import DONE, Connection
from tracer.errors import LineageError, ToolError
from tracer.logs import get_logger
from tracer.recorder import error_location
from tracer.records import Reason, Status
from tracer.records.arguments import offered_tools_text
from tracer.records.events import (
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
from tracer.records.prices import TokenUsage, cost_of, token_count, usd
from tracer.records.results import error_info, result_text
from tracer.resource import NO_SERVICE, service_of_environment

# --- `Work`, the base of plans, steps, think-acts and tool calls that are recorded by hand.
#
# If work is used as a `with` block, it starts and ends with the block. The innermost open block is
# the current work of the code inside: new work becomes its child. If the block raises an exception,
# the work is recorded as failed. If the work has already ended, its recorded end does not change.
#
# Some programs learn about starts and ends only by callbacks. They call `start` and then `finish`,
# `fail` or `cancel` themselves.
#
# Invalid values raise no exceptions here. An invalid field is omitted from the event and logged.

log = get_logger(__name__)

Model = TypeVar("Model", bound=BaseModel)

_CURRENT = otel_context.create_key("tracer-work")
_finders: list[Callable[[], Work | None]] = []
_CANCELLATIONS = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


class EndFields(TypedDict):
    """The fields of every event that records the end of a record."""

    status: EndingStatus
    reason: str | None
    error: ErrorInfo | None


class _ContextFrame:
    """An entry in the stack of current work: the work, and the entry below it."""

    __slots__ = ("is_detached", "outer", "thread", "token", "work")

    def __init__(self, work: Work) -> None:
        """Make `work` current."""
        self.work = work
        self.outer = _innermost()
        self.is_detached = False
        """Whether the frame was left in a context other than the one in which it was entered."""
        self.token: Token[Context] = otel_context.attach(otel_context.set_value(_CURRENT, self))
        self.thread = get_ident()
        self._count(1)

    def _count(self, change: int) -> None:
        blocks = self.work.connection.open_blocks
        number = blocks.get(self.thread, 0) + change
        if number > 0:
            blocks[self.thread] = number
        else:
            blocks.pop(self.thread, None)

    def leave(self) -> None:
        """Make the outer frame current again, even if inner frames were never left."""
        self._count(-1)
        frame = _innermost()
        while frame is not None and frame is not self:
            frame = frame.outer
        try:
            if frame is self:
                # `detach` would log an error if the token belongs to another context.
                self.token.var.reset(self.token)
                return
        except (ValueError, RuntimeError):
            pass
        # A generator that was not read to its end is closed in another context, or by the garbage
        # collector. This frame then remains in its reader's context, where it must not count.
        self.is_detached = True


def _innermost() -> _ContextFrame | None:
    frame = otel_context.get_value(_CURRENT)
    return frame if isinstance(frame, _ContextFrame) else None


def current_work(connection: Connection | None = None) -> Work | None:
    """Return the innermost open record (`Work`) around the calling code; None if there is none.

    Args:
        connection: Consider only work that this connection records; None: any connection.
    """
    frame = _innermost()
    while frame is not None and (
        frame.is_detached or (connection is not None and frame.work.connection is not connection)
    ):
        frame = frame.outer
    work = None if frame is None else frame.work
    for find in _finders:
        try:
            external = find()
        except Exception as error:
            log.error("current_work_not_found", error=error_location(error))
            continue
        if external is not None and connection in (None, external.connection):
            work = innermost_of(external, work)
    return work


def note_root_plan(connection: Connection) -> None:
    """Log once in a process that a run starts in a thread that may have lost its parent.

    This is so if no block is open in this thread, but blocks are open in other threads.
    """
    blocks = connection.open_blocks
    if blocks and get_ident() not in blocks and not connection.is_disabled:
        _log_lost_parent()


@cache  # once for a process
def _log_lost_parent() -> None:
    log.warning(
        "run_started_in_another_thread",
        what_to_do="Nothing, if this run is a run of its own. If it is a part of the work that is "
        "open in another thread, pass the thread's function through `tracer.in_context(function)`, "
        "or call `tracer.instrument_threads()` when the program starts.",
    )


def add_work_finder(find: Callable[[], Work | None]) -> Callable[[], None]:
    """Make `current_work` also search the context of an agent framework.

    Args:
        find: Returns the innermost record around the calling code according to the framework's own
            context; None if there is none.

    Returns:
        A function that removes `find` again.
    """
    _finders.append(find)

    def remove_finder() -> None:
        with suppress(ValueError):
            _finders.remove(find)

    return remove_finder


def innermost_of(work: Work | None, other: Work | None) -> Work | None:
    """Return `other` if `work` contains it, otherwise `work`.

    If one of them is None, return the other one.
    """
    if work is None or other is None:
        return work or other
    parent_work = other.parent_work
    while parent_work is not None:
        if parent_work.work_id == work.work_id:
            return other
        parent_work = parent_work.parent_work
    return work


def text_of(value: Any) -> str | None:
    """Return a value as text to record.

    Text and None are returned unchanged. Any other value is converted to JSON.
    """
    return None if value is None else result_text(value)


def valid_event(event: type[Model], **fields: Any) -> Model:
    """Create an event from the valid fields. Log the names of invalid fields.

    Raises:
        ValueError: A required field is invalid.
    """
    validate: Callable[[dict[str, Any]], Model] = event.__pydantic_validator__.validate_python
    try:
        return validate(fields)  # as `event(**fields)` does, with two calls in Python fewer
    except ValidationError as error:
        invalid = {to_snake(str(each["loc"][0])) for each in error.errors() if each["loc"]}
        log.error("fields_left_out", event_type=error.title, fields=sorted(invalid))
        return validate({name: value for name, value in fields.items() if name not in invalid})


class Work:
    """A record that starts and ends: a plan, a step, a think-act or a tool call.

    The class does not derive from `ABC`, because `isinstance` would be several times slower.
    """

    failed_for: ClassVar[Reason | None] = None
    """The reason that is recorded for a failure without a reason of its own."""
    ids: dict[str, UUID]
    """The ids that each event of this work contains."""

    def __init__(self, connection: Connection, implicit_plan: Work | None = None) -> None:
        """Create the work. Nothing is recorded before it starts.

        Args:
            connection: The connection that records the work.
            implicit_plan: A plan that was created only for this work. The plan ends when the work
                ends.
        """
        self.connection = connection
        self.has_started = False
        self.has_ended = False
        self._implicit_plan = implicit_plan
        self._durable: Future[None] = DONE
        self._frames: list[_ContextFrame] = []

    @property
    def work_id(self) -> UUID:
        """The id of this work's record."""
        raise NotImplementedError

    @property
    def parent_work(self) -> Work | None:
        """The work that contains this work; None for a root plan."""
        raise NotImplementedError

    def stamp(self) -> dict[str, Any]:
        """Return the fields that all events of this work contain: time, recorder and ids."""
        return {**self.connection.stamp(), **self.ids}

    # --- The block -----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._enter()
        try:
            self.wait()
        except BaseException as error:
            self._leave(error)
            raise
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
        try:
            await self.durable()
        except BaseException as error:
            self._leave(error)
            raise
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(error)
        await self.durable()

    @contextmanager
    def as_current(self) -> Iterator[None]:
        """Make the work current inside a `with` block. The block does not start or end the work."""
        frame = _ContextFrame(self)
        try:
            yield
        finally:
            frame.leave()

    def end_with(self, error: BaseException | None) -> None:
        """Record the end of the work.

        The work succeeded if `error` is None. It was cancelled if `error` is a cancellation, such
        as `CancelledError` or `KeyboardInterrupt`. Otherwise it failed.
        """
        if error is None:
            self._end(Status.SUCCEEDED)
        elif isinstance(error, _CANCELLATIONS):
            self._end(Status.CANCELLED)
        else:
            self.fail(error)

    def _enter(self) -> None:
        if not self.has_started:
            self.start()
        self._frames.append(_ContextFrame(self))

    def _leave(self, error: BaseException | None) -> None:
        if self._frames:
            self._frames.pop().leave()
        self.end_with(error)

    # --- Start and end -------------------------------------------------------------------------

    def start(self) -> None:
        """Record the start of the work, without waiting until the event is durable."""
        self.has_started = True
        self._start_implicit_plan()
        self._record(self._starting_events)

    def fail(self, error: BaseException | ErrorInfo | str, reason: str | None = None) -> None:
        """Record that the work failed.

        Args:
            error: The exception, or a message.
            reason: The reason to record, such as `timed_out`.
        """
        if isinstance(error, str):
            error = ErrorInfo(type="Error", message=error)
        elif isinstance(error, BaseException):
            if isinstance(error, (ToolError, LineageError)) and reason is None:
                reason = error.reason
            error = error_info(error)
        self._end(Status.FAILED, reason or self.failed_for, error)

    def cancel(self, reason: str | None = None) -> None:
        """Record that the work was cancelled."""
        self._end(Status.CANCELLED, reason)

    @property
    def is_durable(self) -> bool:
        """Whether all events of this work so far are in the store, or in the spool on disk."""
        return self._durable.done()

    def wait(self) -> None:
        """Wait until the work's events are durable: in the store, or in the spool on disk.

        This method blocks the thread. In the thread of an event loop, await `durable` instead.
        """
        if self._durable is not DONE:
            self._durable.result()

    async def durable(self) -> None:
        """Wait until the work's events are in the store, or in the spool on disk."""
        if not self.is_durable:
            await asyncio.wrap_future(self._durable)

    def _end(
        self, status: EndingStatus, reason: str | None = None, error: ErrorInfo | None = None
    ) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        ending: EndFields = {"status": status, "reason": reason, "error": error}
        self._record(lambda: self._ending_events(ending))
        if self._implicit_plan is not None:
            self._start_implicit_plan()
            self._implicit_plan._end(status, None, error)
            self._durable = self._implicit_plan._durable

    def _start_implicit_plan(self) -> None:
        if self._implicit_plan is not None and not self._implicit_plan.has_started:
            self._implicit_plan.start()

    def _starting_events(self) -> Iterable[Event]:
        raise NotImplementedError

    def _ending_events(self, ending: EndFields) -> Iterable[Event]:
        raise NotImplementedError

    def _record(self, events: Callable[[], Iterable[Event]]) -> None:
        try:
            self._durable = self.connection.record(*events())
        except Exception as error:
            log.error("event_not_made", work=type(self).__name__, error=error_location(error))


# --- Plans, steps, think-acts and tool calls, recorded by hand.
#
# The methods of `tracer.client.tracing.Tracing` create them.


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
        continues: UUID | str | None = None,
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
        self.continues = continues
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
            follows_calls=(self.continues,) if is_root and self.continues else (),
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
