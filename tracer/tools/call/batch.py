"""Batches of tool calls that run in parallel, each recorded when it starts and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import TypedDict
from uuid import UUID

from tracer.context import ToolContext
from tracer.errors import BudgetExhausted, UnknownTool
from tracer.logs import get_logger, lineage_bound
from tracer.records.events import Event, ToolCallFinished, ToolCallStarted
from tracer.records.status import Reason, Status
from tracer.tasks import seconds_left
from tracer.threads import joined
from tracer.tools.call.active_run import ActiveRun
from tracer.tools.call.invocation import CallNotes, call_tool
from tracer.tools.definition.hidden_parameters import CallingAgent
from tracer.tools.definition.results import Ending, failed, result_text, timed_out
from tracer.tools.definition.tool import EXCLUSIVE, Tool

log = get_logger(__name__)


@dataclass(eq=False, kw_only=True)
class Call:
    """One call of a batch, and its progress."""

    tool_call_id: UUID
    position: int
    tool: Tool | UnknownTool
    """The tool; if the name is unknown, the error for the model."""
    name: str
    arguments: str
    provider_call_id: str | None = None
    has_started: bool = False
    """Whether an event has recorded that the call is running. This can be the event that announced
    the call."""
    notes: CallNotes = field(default_factory=CallNotes)
    ending: Ending | None = None

    @cached_property
    def recorded_arguments(self) -> str:
        """The arguments for the record. `[hidden]` replaces values for hidden parameters."""
        if isinstance(self.tool, Tool):
            return self.tool.without_forged_values(self.arguments)
        return self.arguments

    @property
    def tool_type(self) -> str | None:
        """The kind of tool; None if the tool is unknown."""
        return self.tool.tool_type if isinstance(self.tool, Tool) else None

    @property
    def is_exclusive(self) -> bool:
        """Whether the call must run alone in its batch."""
        return isinstance(self.tool, Tool) and self.tool.concurrency == EXCLUSIVE


def mark_started(calls: Sequence[Call], run: ActiveRun, max_parallel: int) -> None:
    """Mark the calls that start immediately, so that they are recorded as running, not pending."""
    if run.slots is not None:
        return
    first_group = next(_parallel_groups(calls), [])
    for call in first_group[:max_parallel]:
        call.has_started = not isinstance(call.tool, Tool) or call.tool.max_parallel is None


def _parallel_groups(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Yield groups of calls that may run in parallel. An exclusive call is a group of its own."""
    for is_exclusive, group in groupby(calls, key=lambda call: call.is_exclusive):
        if is_exclusive:
            yield from ([call] for call in group)
        else:
            yield list(group)


class _CallLinks(TypedDict):
    plan_id: UUID
    step_id: UUID
    think_act_id: UUID | None
    parent_tool_call_id: UUID | None
    tool_call_id: UUID


class CallBatch:
    """The tool calls of one round, the items of a batch tool, or one call that a program makes."""

    def __init__(
        self,
        run: ActiveRun,
        context: ToolContext,
        calls: Sequence[Call],
        max_parallel: int,
        parent_tool_call_id: UUID | None = None,
    ) -> None:
        """Prepare a batch.

        Args:
            run: The run.
            context: The context from which each call's context is derived.
            calls: The calls, in the order in which the model requested them.
            max_parallel: How many calls of the batch run at once.
            parent_tool_call_id: The tool call that makes these calls, for example of a batch tool.
        """
        self._run = run
        self._context = context
        self._calls = calls
        self._slots = asyncio.Semaphore(max_parallel)
        self._parent_tool_call_id = parent_tool_call_id
        self._is_announced = False

    async def run(self, *announcement: Event) -> list[Ending]:
        """Run the calls and return their endings, in the order of the calls.

        Every call that was recorded has an ending when this returns or raises, even after a
        cancellation.

        Args:
            announcement: Events that record the calls, written before any of them runs.

        Raises:
            asyncio.CancelledError: The run was cancelled.
        """
        try:
            self._is_announced = bool(announcement)
            if announcement:
                await self._run.record(*announcement)
            for calls in _parallel_groups(self._calls):
                async with asyncio.TaskGroup() as group:
                    for call in calls:
                        group.create_task(self._run_call(call))
        finally:
            if unfinished := [call for call in self._calls if call.ending is None]:
                await self._run.record(*self._cancelled(unfinished))
        return [call.ending for call in self._calls if call.ending is not None]

    async def _run_call(self, call: Call) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._slots)
            try:
                async with asyncio.timeout(seconds_left(self._context.deadline)):
                    holds_limit = await self._acquire_limits(call, stack)
            except TimeoutError:
                call.ending = timed_out("The time limit expired before it was the call's turn.")
            if not call.has_started and not (call.ending and self._is_announced):
                call.has_started = True
                await self._run.record(self._started(call))
            if call.ending is None:
                with lineage_bound(tool_call_id=call.tool_call_id):
                    call.ending = await self._invoke(call, holds_limit)
            await self._run.record(self._finished(call))

    async def _acquire_limits(self, call: Call, stack: AsyncExitStack) -> bool:
        """Wait for the call's concurrency limits. Return whether it or an ancestor holds one."""
        # A nested call takes none: the call around it waits for it, and may hold what it needs.
        # A tool that makes calls of its own takes none: its calls would wait for its limits.
        if self._context.holds_limit or not isinstance(call.tool, Tool) or call.tool.ends_by_itself:
            return self._context.holds_limit
        if self._run.slots is not None:
            await stack.enter_async_context(self._run.slots)
        if call.tool.max_parallel is not None:
            limits = self._run.resources.concurrency_limits
            limit = limits.setdefault(call.tool.name, asyncio.Semaphore(call.tool.max_parallel))
            await stack.enter_async_context(limit)
        return self._run.slots is not None or call.tool.max_parallel is not None

    async def _invoke(self, call: Call, holds_limit: bool) -> Ending:
        context = replace(self._context, tool_call_id=call.tool_call_id, holds_limit=holds_limit)
        if isinstance(call.tool, UnknownTool):
            return failed(call.tool)
        try:
            self._run.budgets[context.plan_id].reserve_tool_call()
        except BudgetExhausted as error:
            return failed(error)

        async def before_attempt() -> None:
            await self._run.record(self._started(call))

        try:
            ending = await call_tool(
                call.tool,
                call.arguments,
                context,
                call.notes,
                hooks=context.agent.tool_hooks if isinstance(context.agent, CallingAgent) else (),
                before_attempt=before_attempt,
                on_late=self._run.keep_in_background,
                grace_seconds=self._run.resources.grace_seconds,
            )
        except Exception as error:
            log.exception("tool_call_broke")
            return failed(error, Reason.INTERNAL_ERROR)
        if ending.status is Status.CANCELLED and ending.error is None:
            return self._run.cancelled()
        if ending.status is Status.FAILED and call.notes.yielded:
            values = result_text(joined(list(call.notes.yielded)))
            return replace(ending, result=call.notes.secrets.scrub(values))
        return ending

    def _cancelled(self, calls: Sequence[Call]) -> list[Event]:
        """Return the events that end the calls that a cancellation interrupted."""
        events: list[Event] = []
        for call in calls:
            if not call.has_started and not self._is_announced:
                # It is not recorded yet, and its record needs the name and the arguments.
                events.append(self._started(call))
            call.ending = self._run.cancelled()
            events.append(self._finished(call))
        return events

    def _links(self, call: Call) -> _CallLinks:
        is_item = self._parent_tool_call_id is not None
        return {
            "plan_id": self._context.plan_id,
            "step_id": self._context.step_id,
            # The model requested the batch, not its items.
            "think_act_id": None if is_item else self._context.think_act_id,
            "parent_tool_call_id": self._parent_tool_call_id,
            "tool_call_id": call.tool_call_id,
        }

    def _started(self, call: Call) -> ToolCallStarted:
        return ToolCallStarted(
            **self._run.stamp(),
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
            **self._run.stamp(),
            **self._links(call),
            **call.ending.fields,
            result=call.ending.result,
            attempt=call.notes.attempt,
            forged_arguments=tuple(sorted(call.notes.forged_arguments)),
            short_circuited_by=call.notes.short_circuited_by,
            state_changes=call.notes.state_changes,
            still_running=call.notes.still_running,
        )
