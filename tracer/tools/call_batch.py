"""A batch of tool calls: run side by side, each recorded as it starts and as it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict
from uuid import UUID

from tracer.context import ToolContext
from tracer.errors import UnknownTool
from tracer.events import Event, LateEndNoted, ToolCallFinished, ToolCallStarted
from tracer.logs import get_logger, lineage_bound
from tracer.runtime.run_scope import RunScope
from tracer.status import Reason, Status
from tracer.tools.definition import Tool
from tracer.tools.ending import Ending, failed
from tracer.tools.invocation import call_tool, late_ending

log = get_logger(__name__)


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
    """Whether it is recorded as running."""
    attempt: int = 1
    ending: Ending | None = None

    @property
    def tool_type(self) -> str | None:
        """The kind of tool, where there is one."""
        return self.tool.tool_type if isinstance(self.tool, Tool) else None


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
            if announcement:
                await self._scope.record(*announcement)
            async with asyncio.TaskGroup() as group:
                for call in self._calls:
                    group.create_task(self._run(call))
        finally:
            if left := [call for call in self._calls if call.ending is None]:
                await self._scope.record(*self._cancelled(left))
        return [call.ending for call in self._calls if call.ending is not None]

    async def _run(self, call: Call) -> None:
        async with self._slots:
            if not call.has_started:
                call.has_started = True
                await self._scope.record(self._started(call))
            with lineage_bound(tool_call_id=call.tool_call_id):
                call.ending = await self._end(call)
            await self._scope.record(self._finished(call))

    async def _end(self, call: Call) -> Ending:
        place = replace(self._place, toolcallId=call.tool_call_id)
        if isinstance(call.tool, UnknownTool):
            return failed(call.tool)

        async def before_retry(attempt: int) -> None:
            call.attempt = attempt
            await self._scope.record(self._started(call))

        def on_late(work: asyncio.Task[Ending]) -> None:
            self._scope.leave_behind(self._note_late_end(call, work))

        try:
            ending = await call_tool(
                call.tool, call.arguments, place, before_retry=before_retry, on_late=on_late
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
            if not call.has_started and self._parent_tool_call_id is not None:
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
            arguments=call.arguments,
            provider_call_id=call.provider_call_id,
            tool_type=call.tool_type,
            position=call.position,
            attempt=call.attempt,
        )

    def _finished(self, call: Call) -> ToolCallFinished:
        assert call.ending is not None
        return ToolCallFinished(
            **self._scope.stamp(),
            **self._links(call),
            **call.ending.fields,
            result=call.ending.result,
            attempt=call.attempt,
        )
