"""The tool service calls tools for programs that have no planner.

    async with ToolService([record_blood_pressure]) as tools:
        with identity(token_id="…"):
            outcome = await tools.call("record_blood_pressure", {"systolic": 120, "diastolic": 80})

A call belongs to the run that is active around it (`ToolService.run`, or a tool that calls another
one). A call outside of any run is recorded as a run of its own. Every call is checked and recorded
like a call of an agent.
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

from tracer.concurrency import capped_deadline, finish_despite_cancellation
from tracer.context import ToolContext, current_identity, current_tool_context
from tracer.recorder import Recorder, Unrecorded
from tracer.records import IdSource, Status, new_id
from tracer.records.events import (
    ErrorInfo,
)
from tracer.records.results import Ending, result_text
from tracer.tools.call import Call, CallBatch
from tracer.tools.definition import Tool, Toolkit
from tracer.tools.parameters import User
from tracer.tools.registry import ToolRegistry, unknown_tool
from tracer.tools.run import (
    ActiveRun,
    BudgetLimits,
    RunParameters,
    StandaloneRun,
    StandaloneRunOptions,
    ToolResources,
    conversation_of,
    is_conversation_of,
    record_run,
)

SETTLE_SECONDS = 1.0
"""How many seconds `aclose` waits for tools that still run after a timeout or a cancellation."""


@dataclass(frozen=True)
class CallOutcome:
    """How a tool call ended."""

    tool_call_id: UUID
    root_plan_id: UUID
    """The id of the run in which the call is recorded."""
    status: Status
    reason: str | None
    result: str | None
    """The tool's result as text, usually JSON."""
    error: ErrorInfo | None
    for_model: str
    """The text for a model: the result, or the error as JSON."""


class CallOptions(TypedDict, total=False):
    """Optional settings of a call."""

    thread_id: str | None
    """The conversation, which determines the session state and the instances of stateful tools. By
    default, the conversation of the surrounding run."""
    provider_call_id: str | None
    """The id that the model's provider assigned to the call."""
    timeout: float | None
    """The timeout of the call in seconds. If the tool's own timeout is shorter, that applies."""


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
            recorder: Records the calls. It must stay open as long as the service. None: calls are
                not recorded.
            resources: The resources that the tools share. The service closes them.
            ids: Mints the ids of runs and calls.

        Raises:
            RegistrationError: A tool cannot be registered; see `ToolRegistry.register`.
        """
        self.registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
        self.resources = resources or ToolResources()
        own_state = dict(self.resources.initial_state)
        # A live view, because toolkits may be registered later.
        self.resources.initial_state = ChainMap(own_state, self.registry.session_state)  # type: ignore[arg-type]
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
        """Close the resources of the tools, after a short wait for tools that still run.

        A cancellation is delayed until everything is closed, which takes a bounded time.

        Raises:
            asyncio.CancelledError: The task was cancelled meanwhile.
        """
        self._loop = None
        cancellation = await finish_despite_cancellation(asyncio.ensure_future(self._close()))
        if cancellation is not None:
            raise cancellation

    async def _close(self) -> None:
        background_tasks = self.resources.background_tasks
        if background_tasks:
            await asyncio.wait(background_tasks, timeout=SETTLE_SECONDS)
        for task in list(background_tasks):
            task.cancel()
        # In parallel, and all of them: a server that hangs must not leave another one open.
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
        """Call a tool, and return the outcome. A tool's failure is an outcome, not an exception.

        Args:
            name: The tool.
            arguments: The arguments by parameter, or the JSON text that a model wrote.
            options: See `CallOptions`.

        Raises:
            asyncio.CancelledError: The caller was cancelled; the call's ending is recorded.
        """
        text = arguments if isinstance(arguments, str) else result_text(dict(arguments or {}))
        context = current_tool_context()
        thread_id = options.get("thread_id")
        if context is not None and _is_active(context) and thread_id in (None, context.thread_id):
            outcome, _ = await self._call(context, name, text, options)
            return outcome
        tool = self.registry.find(name)
        request = text if tool is None else tool.without_forged_values(text)
        async with self._standalone_run(
            name, {"request": request, "session_id": thread_id}
        ) as standalone:
            outcome, standalone.ending = await self._call(standalone.context, name, text, options)
            return outcome

    def call_sync(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        **options: Unpack[CallOptions],
    ) -> CallOutcome:
        """Call a tool from a thread that has no event loop, and wait for the outcome.

        The service must be open in another thread, which runs an event loop. A program without an
        event loop can start such a thread with `anyio.from_thread.start_blocking_portal`.

        Raises:
            RuntimeError: This thread runs an event loop, which waiting would block; or the service
                is not open.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError(
                "`call_sync` would block the event loop of this thread. Await `call` instead."
            )
        if self._loop is None:
            raise RuntimeError("The tool service is not open. Enter it with `async with`.")
        # Runs in a copy of this thread's context, which includes the identity and the tool context.
        future = asyncio.run_coroutine_threadsafe(self.call(name, arguments, **options), self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    async def end_thread(self, thread_id: str) -> None:
        """Close the instances of stateful tools in one of the caller's conversations.

        Raises:
            MissingIdentity: The token belongs to no user.
            IdentityUnavailable: The token resolver failed.
        """
        await self.resources.threads.end_thread(conversation_of(thread_id, await self._user()))

    async def end_tool(self, name: str, thread_id: str | None = None) -> None:
        """Close the caller's instances of one stateful tool. The next call creates a new instance.

        Waits for running calls of the tool, but at most for the time limit of closing. Then the
        instances are closed, even if calls still use them.

        Args:
            name: The tool. A tool that has no instance, or does not exist, is ignored.
            thread_id: The conversation; None for all of the caller's conversations in this process.

        Raises:
            MissingIdentity: The token belongs to no user.
            IdentityUnavailable: The token resolver failed.
            ToolError: This was called from within a call of the tool.
        """
        user, threads = await self._user(), self.resources.threads
        if thread_id is not None:
            keys = [conversation_of(thread_id, user)]
        else:
            keys = [each for each in threads.thread_ids if is_conversation_of(each, user)]
        await threads.end_tool(name, keys)

    async def _user(self) -> User | None:
        """Return the caller; None if no identity is current."""
        identity = current_identity()
        if identity is None:
            return None
        return await self.resources.user_of(str(identity.reveal()))

    @asynccontextmanager
    async def run(
        self, title: str, **options: Unpack[StandaloneRunOptions]
    ) -> AsyncIterator[ToolContext]:
        """Record the `async with` block as a run: a plan of one step, which makes the tool calls.

        Yields the step's tool context, which is the current one within the block.

        Args:
            title: The plan's title.
            options: See `StandaloneRunOptions`.
        """
        async with self._standalone_run(title, options) as standalone:
            yield standalone.context

    def _standalone_run(
        self, title: str, options: StandaloneRunOptions
    ) -> AbstractAsyncContextManager[StandaloneRun]:
        parameters = RunParameters(
            session_id=options.get("session_id"),
            identity=current_identity(),
            limits=options.get("limits") or BudgetLimits(),
        )
        run = ActiveRun(self._recorder, self.resources, self._ids, parameters)
        return record_run(run, title, options)

    async def _call(
        self, context: ToolContext, name: str, text: str, options: CallOptions
    ) -> tuple[CallOutcome, Ending]:
        run = context.run
        assert isinstance(run, ActiveRun)
        context = _with_timeout(context, options.get("timeout"))
        call = Call(
            tool_call_id=self._ids(),
            position=run.next_position(context.tool_call_id or context.step_id),
            tool=self.registry.find(name) or unknown_tool(name, self.registry.tools()),
            name=name,
            arguments=text,
            provider_call_id=options.get("provider_call_id"),
        )
        batch = CallBatch(run, context, [call], 1, parent_tool_call_id=context.tool_call_id)
        [ending] = await batch.run()
        outcome = CallOutcome(
            tool_call_id=call.tool_call_id,
            root_plan_id=run.root_plan_id,
            status=ending.status,
            reason=ending.reason,
            result=ending.result,
            error=ending.error,
            for_model=ending.for_model(),
        )
        return outcome, ending


def _is_active(context: ToolContext) -> bool:
    return isinstance(context.run, ActiveRun) and not context.run.is_over


def _with_timeout(context: ToolContext, timeout: float | None) -> ToolContext:
    return (
        context
        if timeout is None
        else replace(context, deadline=capped_deadline(context.deadline, timeout))
    )
