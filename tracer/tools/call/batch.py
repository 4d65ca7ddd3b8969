"""A batch of tool calls: run side by side, each recorded as it starts and as it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Protocol, TypedDict, runtime_checkable
from uuid import UUID

from tracer.context import ToolContext
from tracer.errors import BudgetExhausted, UnknownTool
from tracer.logs import get_logger, lineage_bound
from tracer.records.events import Event, LateEndNoted, ToolCallFinished, ToolCallStarted
from tracer.records.status import Reason, Status
from tracer.tasks import earlier, seconds_left
from tracer.tools.call.active_run import RunScope
from tracer.tools.call.invocation import CallNotes, call_tool, late_ending
from tracer.tools.definition.hooks import Hook
from tracer.tools.definition.results import Ending, failed, timed_out
from tracer.tools.definition.tool import EXCLUSIVE, PARALLEL, Tool

log = get_logger(__name__)

NESTED_WAIT_SECONDS = 30.0
"""How long a call within another waits for its places: the two could wait for each other."""

RUN = "run"
"""The place that a call takes up among those that its run may make at once."""


@dataclass(eq=False, kw_only=True)
class Call:
    """One call of a batch, and how far it has come."""

    tool_call_id: UUID
    position: int
    tool: Tool | UnknownTool
    """The tool, or the error that tells the model that there is none."""
    name: str
    arguments: str
    provider_call_id: str | None = None
    has_started: bool = False
    """Whether the record that announces it says that it runs: no other event records its start."""
    notes: CallNotes = field(default_factory=CallNotes)
    ending: Ending | None = None

    @cached_property
    def recorded_arguments(self) -> str:
        """The arguments as they are recorded: without the values that the model forged."""
        if isinstance(self.tool, Tool):
            return self.tool.without_forged_values(self.arguments)
        return self.arguments

    @property
    def tool_type(self) -> str | None:
        """The kind of tool, where there is one."""
        return self.tool.tool_type if isinstance(self.tool, Tool) else None

    @property
    def is_exclusive(self) -> bool:
        """Whether no other call of its batch may run meanwhile."""
        return isinstance(self.tool, Tool) and self.tool.concurrency == EXCLUSIVE


@runtime_checkable
class Caller(Protocol):
    """An agent, as far as its calls need it."""

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """What stands around each tool that it calls, the first outermost."""


def start_at_once(calls: Sequence[Call], scope: RunScope, max_parallel: int) -> None:
    """Mark the calls of a batch that need not wait, so that they are announced as running."""
    if scope.slots is not None:
        return
    first = next(_in_turn(calls), [])
    for call in first[:max_parallel]:
        call.has_started = not isinstance(call.tool, Tool) or not _places_of(call.tool)


def _places_of(tool: Tool) -> dict[str, int]:
    """Return the places that a call of a tool takes up, and how many calls each one is for."""
    places: dict[str, int] = {}
    if tool.concurrency not in (PARALLEL, EXCLUSIVE):
        places[f"group {tool.concurrency}"] = 1
    if tool.max_parallel is not None:
        places[f"tool {tool.name}"] = tool.max_parallel
    return places


def _in_turn(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Yield the calls that may run side by side: an exclusive one is a barrier."""
    for is_exclusive, some in groupby(calls, key=lambda call: call.is_exclusive):
        if is_exclusive:
            yield from ([call] for call in some)
        else:
            yield list(some)


class _Links(TypedDict):
    plan_id: UUID
    step_id: UUID
    think_act_id: UUID | None
    parent_tool_call_id: UUID | None
    tool_call_id: UUID


class CallBatch:
    """Calls that one round of a model chose, or the items of one batch call."""

    def __init__(
        self,
        scope: RunScope,
        place: ToolContext,
        calls: Sequence[Call],
        max_parallel: int,
        parent_tool_call_id: UUID | None = None,
    ) -> None:
        """Gather the calls.

        Args:
            scope: The run.
            place: The context that each call's own is made from.
            calls: The calls in their order.
            max_parallel: How many run at once; the others wait for their turn.
            parent_tool_call_id: The batch call that they are items of.
        """
        self._scope = scope
        self._place = place
        self._calls = calls
        self._slots = asyncio.Semaphore(max_parallel)
        self._parent_tool_call_id = parent_tool_call_id
        self._is_announced = False

    async def run(self, *announcement: Event) -> list[Ending]:
        """Run the calls and return how each ended, in their order.

        Whatever happens, cancellation included, every call that was recorded has an ending when
        this returns or raises.

        Args:
            announcement: Events that record the calls, written before any of them runs.

        Raises:
            asyncio.CancelledError: The run was cancelled.
        """
        try:
            self._is_announced = bool(announcement)
            if announcement:
                await self._scope.record(*announcement)
            for calls in _in_turn(self._calls):
                async with asyncio.TaskGroup() as group:
                    for call in calls:
                        group.create_task(self._run(call))
        finally:
            if left := [call for call in self._calls if call.ending is None]:
                await self._scope.record(*self._cancelled(left))
        return [call.ending for call in self._calls if call.ending is not None]

    async def _run(self, call: Call) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._slots)
            deadline = self._place.deadline
            if self._place.holds:
                # Another may hold what it waits for and wait for what is held here.
                deadline = earlier(deadline, NESTED_WAIT_SECONDS)
            try:
                async with asyncio.timeout(seconds_left(deadline)):
                    holds = await self._take_places(call, stack)
            except TimeoutError:
                call.ending = timed_out("The time was over before it was the call's turn.")
            if not call.has_started and not (call.ending and self._is_announced):
                call.has_started = True
                await self._scope.record(self._started(call))
            if call.ending is None:
                with lineage_bound(tool_call_id=call.tool_call_id):
                    call.ending = await self._carry_out(call, holds)
            await self._scope.record(self._finished(call))

    async def _take_places(self, call: Call, stack: AsyncExitStack) -> frozenset[str]:
        """Wait until the call may start, and return the places that it then holds."""
        holds = self._place.holds
        # What opens calls of its own waits for those to have their places, and takes none.
        if isinstance(call.tool, Tool) and not call.tool.ends_by_itself:
            # The run's place first: a call that has one may make another that needs only the rest.
            if self._scope.slots is not None and RUN not in holds:
                await stack.enter_async_context(self._scope.slots)
                holds |= {RUN}
            for place, limit in _places_of(call.tool).items():
                # A call around it may hold the place already: it would wait for this one.
                if place not in holds:
                    places = self._scope.resources.places
                    slots = places.setdefault(place, asyncio.Semaphore(limit))
                    await stack.enter_async_context(slots)
                    holds |= {place}
        return holds

    async def _carry_out(self, call: Call, holds: frozenset[str]) -> Ending:
        place = replace(self._place, toolcallId=call.tool_call_id, holds=holds)
        if isinstance(call.tool, UnknownTool):
            return failed(call.tool)
        try:
            self._scope.budgets[place.plan_id].reserve_tool_call()
        except BudgetExhausted as error:
            return failed(error)

        async def before_attempt() -> None:
            await self._scope.record(self._started(call))

        def on_late(work: asyncio.Task[Ending]) -> None:
            self._scope.leave_behind(self._note_late_end(call, work))

        try:
            ending = await call_tool(
                call.tool,
                call.arguments,
                place,
                call.notes,
                hooks=place.agent.hooks if isinstance(place.agent, Caller) else (),
                before_attempt=before_attempt,
                on_late=on_late,
                grace_seconds=self._scope.resources.grace_seconds,
            )
        except Exception as error:
            log.exception("tool_call_broke")
            return failed(error, Reason.INTERNAL_ERROR)
        if ending.status is Status.CANCELLED and ending.error is None:
            return self._scope.cancelled()
        return ending

    async def _note_late_end(self, call: Call, work: asyncio.Task[Ending]) -> None:
        ending = await late_ending(work)
        if ending is not None:
            result = ending.error.message if ending.error else ending.result
            await self._scope.record(
                LateEndNoted(
                    **self._scope.stamp(), **self._links(call), status=ending.status, result=result
                )
            )

    def _cancelled(self, calls: Sequence[Call]) -> list[Event]:
        """Return the events that end calls which a cancellation kept from ending by themselves."""
        events: list[Event] = []
        for call in calls:
            if not call.has_started and not self._is_announced:
                # Nobody has announced it, and its row has to say what it was.
                events.append(self._started(call))
            call.ending = self._scope.cancelled()
            events.append(self._finished(call))
        return events

    def _links(self, call: Call) -> _Links:
        is_item = self._parent_tool_call_id is not None
        return {
            "plan_id": self._place.plan_id,
            "step_id": self._place.step_id,
            # The model chose the batch, not its items.
            "think_act_id": None if is_item else self._place.think_act_id,
            "parent_tool_call_id": self._parent_tool_call_id,
            "tool_call_id": call.tool_call_id,
        }

    def _started(self, call: Call) -> ToolCallStarted:
        return ToolCallStarted(
            **self._scope.stamp(),
            **self._links(call),
            name=call.name,
            arguments=call.recorded_arguments,
            provider_call_id=call.provider_call_id,
            tool_type=call.tool_type,
            position=call.position,
            attempt=call.notes.attempt,
            effective_arguments=call.notes.effective_arguments,
            forged_arguments=tuple(sorted(call.notes.forged_arguments)),
        )

    def _finished(self, call: Call) -> ToolCallFinished:
        assert call.ending is not None
        return ToolCallFinished(
            **self._scope.stamp(),
            **self._links(call),
            **call.ending.fields,
            result=call.ending.result,
            attempt=call.notes.attempt,
            forged_arguments=tuple(sorted(call.notes.forged_arguments)),
            short_circuited_by=call.notes.short_circuited_by,
            state_changes=call.notes.state_changes,
            still_running=call.notes.still_running,
        )
