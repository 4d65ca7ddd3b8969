"""The tool service calls tools for programs that have no planner.

    async with ToolService([record_blood_pressure]) as tools:
        with identity(token_id="…"):
            outcome = await tools.call("record_blood_pressure", {"systolic": 120, "diastolic": 80})

A call belongs to the run that goes on around it (`ToolService.run`, or a tool that calls another);
a call outside of any is a run of its own. Every call takes the path that the agents' calls take.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack
from uuid import UUID

from tracer.context import ToolContext, current_identity, current_tool_context
from tracer.recorder.recorder import Recorder
from tracer.recorder.unrecorded import Unrecorded
from tracer.records.events import (
    ErrorInfo,
)
from tracer.records.ids import IdSource, new_id
from tracer.records.status import Status
from tracer.tasks import earlier, seen_through
from tracer.tools.call.active_run import (
    RunScope,
    ToolResources,
    conversation_of,
    is_conversation_of,
)
from tracer.tools.call.batch import Call, CallBatch
from tracer.tools.call.standalone_run import OwnRun, OwnRunOptions, recorded
from tracer.tools.definition.hidden_parameters import User
from tracer.tools.definition.results import Ending, result_text
from tracer.tools.definition.tool import Tool
from tracer.tools.definition.toolkit import Toolkit
from tracer.tools.registry import ToolRegistry, unknown_tool

SETTLE_SECONDS = 1.0
"""How long closing waits for tools that were given up."""


@dataclass(frozen=True)
class CallOutcome:
    """How a tool call ended."""

    tool_call_id: UUID
    root_plan_id: UUID
    """The run that it is recorded in."""
    status: Status
    reason: str | None
    result: str | None
    """What the tool returned, as text, usually JSON."""
    error: ErrorInfo | None
    for_model: str
    """What a model is told of it: the result, or what went wrong."""


class CallOptions(TypedDict, total=False):
    """How a tool is called, where it matters."""

    thread_id: str | None
    """The conversation: its stateful tools and its state. Unless given, that of the run around."""
    provider_call_id: str | None
    """The id that a model's provider gave the call."""
    timeout: float | None
    """After how many seconds the call is given up, if before the tool's own time."""


class ToolService:
    """Calls tools by name. Use it as an async context manager, from one event loop."""

    def __init__(
        self,
        tools: ToolRegistry | Iterable[Tool | Toolkit] = (),
        recorder: Recorder | None = None,
        resources: ToolResources | None = None,
        *,
        ids: IdSource = new_id,
    ) -> None:
        """Create a service; enter it before the first call.

        Args:
            tools: The tools and toolkits, or a registry of them. More can be added to `registry`
                later.
            recorder: Records the calls. It must be open as long as the service. None: no call is
                recorded.
            resources: What the tools stand on; closed with the service.
            ids: Mints the ids of runs and calls.

        Raises:
            RegistrationError: A tool cannot be registered; see `ToolRegistry.register`.
        """
        self.registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self.resources = resources or ToolResources()
        own_state = dict(self.resources.initial_state)
        # Live: toolkits may be registered later.
        self.resources.initial_state = ChainMap(own_state, self.registry.session_state)  # type: ignore[arg-type]
        self.left_behind: set[asyncio.Task[None]] = set()
        """What goes on beside runs, such as waiting for tools that were given up."""
        self._recorder = recorder or Unrecorded()
        self._ids = ids
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        try:
            await asyncio.gather(*(each.start() for each in self.registry.servers))
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what the tools have opened; those that were given up have a moment to end.

        It goes on to its end when it is cancelled: all is bounded in time.

        Raises:
            asyncio.CancelledError: The task was cancelled meanwhile.
        """
        self._loop = None
        cancellation = await seen_through(asyncio.ensure_future(self._close()))
        if cancellation is not None:
            raise cancellation

    async def _close(self) -> None:
        if self.left_behind:
            await asyncio.wait(self.left_behind, timeout=SETTLE_SECONDS)
        for task in list(self.left_behind):
            task.cancel()
        # Side by side, and each to its end: a server that hangs keeps nothing else open.
        servers = (each.aclose() for each in self.registry.servers)
        ends = await asyncio.gather(self.resources.aclose(), *servers, return_exceptions=True)
        for each in ends:
            if each is not None:
                raise each

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        **options: Unpack[CallOptions],
    ) -> CallOutcome:
        """Call a tool, and return how the call ended: a tool's failure raises nothing.

        Args:
            name: The tool.
            arguments: By parameter, or the JSON text that a model wrote.
            options: See `CallOptions`.

        Raises:
            asyncio.CancelledError: The caller was cancelled; the call has its ending.
        """
        text = arguments if isinstance(arguments, str) else result_text(dict(arguments or {}))
        place = current_tool_context()
        thread_id = options.get("thread_id")
        if place is not None and _goes_on(place) and thread_id in (None, place.thread_id):
            outcome, _ = await self._call(place, name, text, options)
            return outcome
        tool = self.registry.find(name)
        request = text if tool is None else tool.without_forged_values(text)
        async with self._own_run(name, {"request": request, "session_id": thread_id}) as own:
            outcome, own.ending = await self._call(own.place, name, text, options)
            return outcome

    def call_sync(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        **options: Unpack[CallOptions],
    ) -> CallOutcome:
        """Call a tool from a thread that has no event loop, and wait for the outcome.

        The service runs in another thread: that of an event loop, or of
        `anyio.from_thread.start_blocking_portal` in a program that has none.

        Raises:
            RuntimeError: There is an event loop in this thread, which waiting would stop; or the
                service is not entered.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError("There is an event loop in this thread: await `call` instead.")
        if self._loop is None:
            raise RuntimeError("The tool service is closed: enter it first, as `async with`.")
        # Runs in a copy of this thread's context, identity and place included.
        future = asyncio.run_coroutine_threadsafe(self.call(name, arguments, **options), self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    async def end_thread(self, thread_id: str) -> None:
        """Close what stateful tools keep for a conversation of the caller.

        Raises:
            MissingIdentity: The token belongs to no user.
            IdentityUnavailable: The token resolver failed.
        """
        await self.resources.threads.end_thread(conversation_of(thread_id, await self._user()))

    async def end_tool(self, name: str, thread_id: str | None = None) -> None:
        """Close what one stateful tool keeps for the caller; its next call makes a new instance.

        Running calls of the tool end first; those that take longer than the time for closing lose
        their instance.

        Args:
            name: The tool. One that keeps nothing, or does not exist, is ignored.
            thread_id: The conversation; None for all of the caller's conversations in this process.

        Raises:
            MissingIdentity: The token belongs to no user.
            IdentityUnavailable: The token resolver failed.
            ToolError: The tool itself calls this.
        """
        user, threads = await self._user(), self.resources.threads
        if thread_id is not None:
            keys = [conversation_of(thread_id, user)]
        else:
            keys = [each for each in threads.thread_ids if is_conversation_of(each, user)]
        await threads.end_tool(name, keys)

    async def _user(self) -> User | None:
        """Return the caller; None if no identity is current."""
        who = current_identity()
        return None if who is None else await self.resources.user_of(str(who.reveal()))

    @asynccontextmanager
    async def run(self, title: str, **options: Unpack[OwnRunOptions]) -> AsyncIterator[ToolContext]:
        """Record what happens inside as one run: a plan of one step, whose tool calls follow.

        Gives the place of that step; calls made inside find it by themselves.

        Args:
            title: What the run is called.
            options: See `OwnRunOptions`.
        """
        async with self._own_run(title, options) as own:
            yield own.place

    def _own_run(self, title: str, options: OwnRunOptions) -> AbstractAsyncContextManager[OwnRun]:
        scope = RunScope(
            self._recorder,
            self.resources,
            self._ids(),
            self._ids,
            self.left_behind,
            session_id=options.get("session_id"),
            identity=current_identity(),
            limits=options.get("limits"),
        )
        return recorded(scope, title, options)

    async def _call(
        self, place: ToolContext, name: str, text: str, options: CallOptions
    ) -> tuple[CallOutcome, Ending]:
        scope = place.run
        assert isinstance(scope, RunScope)
        place = _with_timeout(place, options.get("timeout"))
        call = Call(
            tool_call_id=self._ids(),
            position=scope.next_position(place.toolcallId or place.step_id),
            tool=self.registry.find(name) or unknown_tool(name, self.registry.tools()),
            name=name,
            arguments=text,
            provider_call_id=options.get("provider_call_id"),
        )
        batch = CallBatch(scope, place, [call], 1, parent_tool_call_id=place.toolcallId)
        [ending] = await batch.run()
        outcome = CallOutcome(
            tool_call_id=call.tool_call_id,
            root_plan_id=scope.root_plan_id,
            status=ending.status,
            reason=ending.reason,
            result=ending.result,
            error=ending.error,
            for_model=ending.for_model(),
        )
        return outcome, ending


def _goes_on(place: ToolContext) -> bool:
    return isinstance(place.run, RunScope) and not place.run.is_over


def _with_timeout(place: ToolContext, timeout: float | None) -> ToolContext:
    return place if timeout is None else replace(place, deadline=earlier(place.deadline, timeout))
