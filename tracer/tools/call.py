"""Call tools: one call, a batch of parallel calls, and a tool that calls another one for each item.

Each call is recorded when it starts and when it ends. Errors of the tool and of its hooks become
the ending of the call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, TypedDict, cast
from uuid import UUID

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential_jitter,
)

from tracer.concurrency import (
    GRACE_SECONDS,
    Waited,
    capped_deadline,
    finish_despite_cancellation,
    has_passed,
    joined,
    seconds_left,
    wait_for_end,
    yielded_values,
)
from tracer.context import ToolContext, token_of, tool_context_bound
from tracer.errors import (
    BudgetExhausted,
    LineageError,
    MissingToolCallId,
    ToolError,
    ToolUnavailable,
    UnknownTool,
)
from tracer.logs import get_logger, lineage_bound
from tracer.records import Reason, Status
from tracer.records.events import Event, ToolCallFinished, ToolCallStarted
from tracer.records.results import Ending, cancelled, failed, result_text, succeeded, timed_out
from tracer.records.sessions import changes_json
from tracer.tools.definition import (
    EXCLUSIVE,
    Hook,
    HookChain,
    HookInputs,
    InterceptedCall,
    Tool,
    ToolType,
)
from tracer.tools.parameters import (
    REQUIRED,
    Arguments,
    CallingAgent,
    HiddenParameter,
    Secrets,
    TokenId,
    User,
    UserId,
    provided,
    read_arguments,
    schema_check,
    without_forged,
)
from tracer.tools.run import ActiveRun, run_of
from tracer.tools.signature import RunContext, SessionState

# --- Call a tool. Errors of the tool and of its hooks become the ending of the call.
#
# The layers of a call, from the outside in:
#
# 1. The deadline.
# 2. Forged arguments, which the model supplied for hidden parameters, are removed. The others are
#    checked.
# 3. Hidden parameters are filled. If that is impossible, the call is rejected.
# 4. The hooks.
# 5. Step 2 again, because hooks may change the arguments.
# 6. The attempts, each with a check of its result.
#
# Changes of the session state are stored at the end.

log = get_logger(__name__)

HOOK_SECONDS = 5.0
"""For a tool with `ends_by_itself`: how many seconds after the deadline its hooks may take."""

MAX_RETRY_SECONDS = 60.0
"""The longest wait before a retry that a tool may request."""

_back_off = wait_exponential_jitter(multiplier=0.1, max=5, jitter=0.1)


@dataclass
class CallNotes:
    """Facts about a call that are recorded in addition to its ending. Filled in during the call."""

    attempt: int = 1
    effective_arguments: str | None = None
    """The arguments of the attempt, if hooks changed the model's arguments."""
    forged_arguments: frozenset[str] = frozenset()
    short_circuited_by: str | None = None
    state_changes: str | None = None
    still_running: bool | None = None
    yielded: list[Any] = field(default_factory=list, repr=False)
    """The values that a generator has yielded in the latest attempt."""
    secrets: Secrets = field(default_factory=Secrets, repr=False)


async def call_tool(
    tool: Tool,
    arguments: str | None,
    context: ToolContext,
    notes: CallNotes,
    *,
    hooks: Sequence[Hook] = (),
    before_attempt: Callable[[], Awaitable[None]],
    on_late: Callable[[asyncio.Task[Ending]], None],
    grace_seconds: float = GRACE_SECONDS,
) -> Ending:
    """Call a tool and return how the call ended.

    Never raises, not even `CancelledError`: a cancellation is an ending, which the caller must
    handle.

    Args:
        tool: The tool.
        arguments: The text that the model wrote.
        context: The call's context. It is current while the tool runs, with the tool's deadline.
        notes: Filled in during the call.
        hooks: The agent's hooks, which are outside the tool's own.
        before_attempt: Awaited before each retry, and before the first attempt if hooks changed
            the arguments. It records `notes` again.
        on_late: Receives the task of a call that did not stop when it was cancelled, for example
            after a timeout. The task may still be running.
        grace_seconds: How many seconds a call may take to end after it was cancelled.
    """
    deadline = capped_deadline(context.deadline, tool.timeout)
    if has_passed(deadline):
        return timed_out("The time limit expired before the tool could start.")
    if tool.caller is not None:
        if context.identity is not None:
            notes.secrets.add(context.identity.reveal())
        context = replace(context, identity=tool.caller)
    context = replace(context, deadline=deadline)
    every_hook = (*hooks, *cast("tuple[Hook, ...]", tool.tool_hooks))  # converted by `Tool`
    invocation = _Invocation(tool, context, notes, every_hook, before_attempt)
    work = asyncio.create_task(invocation.run(arguments))
    if not tool.ends_by_itself:
        waited = await wait_for_end(work, deadline, grace_seconds)
    elif every_hook:
        # The tool handles its deadline and cancellation itself, but its hooks may not.
        hook_deadline = None if deadline is None else deadline + HOOK_SECONDS
        waited = await wait_for_end(work, hook_deadline, HOOK_SECONDS)
    else:
        waited = await wait_for_end(work, deadline=None, grace=None)
    invocation.close_state()
    if waited is Waited.ENDED or not work.cancelling():
        return _ending_of(work)
    if not work.cancelled() and not (tool.ends_by_itself and work.done()):
        notes.still_running = not work.done() or None
        on_late(work)
    if waited is Waited.CANCELLED:
        return cancelled()
    suffix = "" if not notes.still_running else " It continues, and may still take effect."
    if tool.timeout is not None:
        return timed_out(f"The tool did not end within {tool.timeout:g} s.{suffix}")
    return timed_out(f"The time limit expired before the tool ended.{suffix}")


def _ending_of(work: asyncio.Task[Ending]) -> Ending:
    if work.cancelled():
        return cancelled(message="The tool cancelled itself.")
    return work.result()


class _Invocation:
    """One call of a tool."""

    def __init__(
        self,
        tool: Tool,
        context: ToolContext,
        notes: CallNotes,
        hooks: Sequence[Hook],
        before_attempt: Callable[[], Awaitable[None]],
    ) -> None:
        self._tool = tool
        self._context = context
        self._notes = notes
        self._hooks = hooks
        self._before_attempt = before_attempt
        self._attempts = 0
        self._attempt_lock = asyncio.Lock()
        self._model_arguments: Arguments = {}
        self._hidden: Arguments = {}
        self._state: SessionState | None = None
        self._work: asyncio.Task[Any] | None = None

    async def run(self, text: str | None) -> Ending:
        """Return the call's ending. Raises only `CancelledError`."""
        scrub = self._notes.secrets.scrub
        self._work = asyncio.current_task()
        try:
            with tool_context_bound(self._context):
                value = await self._through_hooks(read_arguments(text))
                await self._store_state()
                return succeeded(scrub(result_text(value)))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # Includes `SystemExit`: a tool that calls `exit()` must not end the agent.
            return failed(error, scrub=scrub)

    async def _through_hooks(self, arguments: Arguments) -> Any:
        tool, context = self._tool, self._context
        self._model_arguments = self._cleaned(arguments)
        tool.checked(self._model_arguments)
        run_context = await self._run_context()
        secrets = self._notes.secrets
        self._hidden = await _filled(tool.hidden, context, run_context, secrets)
        if not self._hooks:
            return await self._execute(self._model_arguments)
        call = InterceptedCall(context.tool_call_id, tool.name, _copied(self._model_arguments))
        # Filled before the first hook runs, so that a call without a caller has no effect.
        hidden = [await _filled(each.hidden, context, run_context, secrets) for each in self._hooks]
        inputs = HookInputs(call, tool, context, run_context, hidden)
        chain = HookChain(self._hooks, inputs, self._execute)
        value = await chain.run(self._model_arguments)
        self._notes.short_circuited_by = chain.answered_by
        return value

    async def _execute(self, arguments: Arguments) -> Any:
        """Run the tool with the arguments from the hooks, and retry as the tool's options allow."""
        if self._is_given_up():
            # A hook ignored the cancellation. The call's ending is recorded already.
            raise asyncio.CancelledError
        tool, notes = self._tool, self._notes
        arguments = self._cleaned(arguments)
        values = tool.checked(arguments)
        changed = None
        if self._hooks:
            # Compared as text, because values that Python considers equal may differ: 1 and True.
            text = _as_text(arguments)
            changed = None if text == _as_text(self._model_arguments) else notes.secrets.scrub(text)
        # Serialised even if a hook calls next() twice in parallel: a failed attempt restores the
        # state from before it, and no other attempt may have changed the state meanwhile.
        async with self._attempt_lock:
            if tool.max_attempts == 1:
                return await self._attempt(values, changed)
            retrying = AsyncRetrying(
                stop=stop_after_attempt(tool.max_attempts),
                wait=_wait,
                retry=retry_if_exception(self._is_transient),
                reraise=True,
            )
            return await retrying(self._attempt, values, changed)

    async def _attempt(self, values: Arguments, changed: str | None) -> Any:
        """Run the tool once and return its checked result. On failure, restore the session state.

        Args:
            values: The arguments, as the tool takes them.
            changed: The arguments as text, if hooks changed them.
        """
        self._attempts += 1
        self._notes.attempt = self._attempts
        self._notes.effective_arguments = changed
        if self._attempts > 1 or changed is not None:
            await self._before_attempt()
        tool, context = self._tool, self._context
        if self._attempts > 1:
            context = replace(context, attempt=self._attempts)
        hidden = {
            name: context if value is self._context else value
            for name, value in self._hidden.items()
        }
        before = None if self._state is None else self._state.changes
        self._notes.yielded = []
        yielded_values.set(self._notes.yielded)
        try:
            with tool_context_bound(context):
                value = await tool.run({**values, **hidden}, context)
            return value if tool.check_result is None else tool.check_result(value)
        except BaseException:
            if self._state is not None and before is not None:
                self._state.restore(before)
            raise

    def _cleaned(self, arguments: Arguments) -> Arguments:
        cleaned, forged = without_forged(arguments, self._tool.forbidden_names)
        self._notes.forged_arguments |= forged
        return cleaned

    async def _run_context(self) -> RunContext | None:
        """Return the run context if the tool or a hook has a parameter for it."""
        hidden = [self._tool.hidden, *(each.hidden for each in self._hooks)]
        kinds = {each.kind for some in hidden for each in some.values()}
        by_name = any("run_context" in each.wants for each in self._hooks)
        if not by_name and kinds.isdisjoint((RunContext, SessionState)):
            return None
        run = run_of(self._context)
        self._state = SessionState(await run.state())
        return RunContext(run.root_plan_id, run.session_id, self._state)

    def close_state(self) -> None:
        """Reject later changes of the session state, because they would not be stored."""
        if self._state is not None:
            self._state.close()

    async def _store_state(self) -> None:
        if self._state is None:
            return
        changes = self._state.changes
        self._state.close()
        # The call is recorded as timed out or cancelled, so its changes are dropped.
        if not changes or self._is_given_up():
            return
        # Completed even if the call times out meanwhile.
        await finish_despite_cancellation(
            asyncio.ensure_future(run_of(self._context).change_state(changes))
        )
        self._notes.state_changes = self._notes.secrets.scrub(changes_json(changes))

    def _is_transient(self, error: BaseException) -> bool:
        """Return whether an error is transient, so that a retry may succeed.

        Errors other than `ToolError` and `LineageError` count as transient. A call that timed out
        or was cancelled is not retried, because its ending is recorded already.
        """
        if self._is_given_up() or isinstance(error, LineageError):
            return False
        return error.may_pass if isinstance(error, ToolError) else isinstance(error, Exception)

    def _is_given_up(self) -> bool:
        return self._work is not None and self._work.cancelling() > 0


def _as_text(arguments: Arguments) -> str:
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), default=result_text)


def _copied(arguments: Arguments) -> Arguments:
    copy: Arguments = json.loads(json.dumps(arguments))
    return copy


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    requested = error.retry_after if isinstance(error, ToolUnavailable) else None
    return _back_off(state) if requested is None else min(max(requested, 0), MAX_RETRY_SECONDS)


async def _filled(
    parameters: Mapping[str, HiddenParameter],
    context: ToolContext,
    run_context: RunContext | None,
    secrets: Secrets,
) -> Arguments:
    """Return the values of the hidden parameters of a tool or a hook, by name.

    Args:
        parameters: The hidden parameters.
        context: The call's context.
        run_context: The call's run; needed if a parameter is a `RunContext` or `SessionState`.
        secrets: Receives the values that must not be shown.

    Raises:
        MissingIdentity: A parameter without a default needs a caller.
        IdentityUnavailable: The token resolver failed.
        ToolError: A provider failed.
    """
    if context.identity is not None:
        # Even if no parameter holds the token: an object from a provider may contain it.
        secrets.add(context.identity.reveal())
    values: Arguments = {}
    for name, each in parameters.items():
        values[name] = await _value(name, each, context, run_context)
        secrets.add(values[name])
    return values


async def _value(
    name: str, parameter: HiddenParameter, context: ToolContext, run_context: RunContext | None
) -> Any:
    if parameter.provider is not None:
        try:
            return await provided(parameter.provider, context)
        except ToolError:
            raise
        except Exception as error:
            # The message of the error may contain a hidden value.
            log.warning("hidden_parameter_failed", parameter=name, error=type(error).__name__)
            raise ToolError(
                f"The hidden parameter {name!r} has no value, because its provider failed."
            ) from None
    kind = parameter.kind
    if kind in (ToolContext, CallingAgent):
        return context if kind is ToolContext else context.agent
    if kind in (RunContext, SessionState):
        assert run_context is not None
        return run_context if kind is RunContext else run_context.session_state
    if context.identity is None and parameter.default is not REQUIRED:
        return parameter.default
    if kind is TokenId:
        return token_of(context.identity)
    token_of(context.identity)  # raises the same error outside of a run
    user = await run_of(context).user(context.identity)
    assert kind in (UserId, User)
    return user.user_id if kind is UserId else user


# --- Batches of tool calls that run in parallel, each recorded when it starts and when it ends.


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


# --- Batch tools: call another tool once for each item of a list.

MAX_ITEMS = 1000
"""The largest number of items in one call."""


def batch_tool(
    tool: Tool, *, name: str | None = None, description: str | None = None, max_parallel: int = 8
) -> Tool:
    """Return a tool that takes a list of items, each the arguments of one call of `tool`.

    Every item is recorded as a tool call of its own under the batch call, and sub-plans are linked
    to their item. The result lists the outcome of each item, in order. The batch fails only if
    every item fails.

    Args:
        tool: The tool for one item.
        name: The name for the model; by default the tool's name with the suffix `_each`.
        description: The description for the model.
        max_parallel: How many items run at once.
    """
    item_schema = {**tool.parameters}
    # `$ref` is resolved from the root of the document, so definitions move to the new root.
    definitions = item_schema.pop("$defs", None)
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {"items": {"type": "array", "maxItems": MAX_ITEMS, "items": item_schema}},
        "required": ["items"],
        "additionalProperties": False,
    }
    if definitions:
        parameters["$defs"] = definitions

    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        return await _run_batch(tool, arguments["items"], context, max_parallel)

    return Tool(
        name=name or f"{tool.name}_each",
        description=description or f"For each item: {tool.description}",
        parameters=parameters,
        check=_check_items,
        run=run,
        tool_type=ToolType.BATCH,
        ends_by_itself=True,
        opens_plans=tool.opens_plans,
        tags=tool.tags,
        item_tool=tool,
    )


_check_items = schema_check(
    {
        "type": "object",
        # Each item is checked by its own call: an invalid item fails, and the others still run.
        "properties": {"items": {"type": "array", "maxItems": MAX_ITEMS}},
        "required": ["items"],
        "additionalProperties": False,
    }
)


async def _run_batch(tool: Tool, items: list[Any], context: ToolContext, max_parallel: int) -> str:
    if context.tool_call_id is None:
        raise MissingToolCallId(
            "The tool context has no tool_call_id, so items cannot refer to their batch call."
        )
    run = run_of(context)
    calls = [
        Call(
            tool_call_id=run.new_id(),
            position=position,
            tool=tool,
            name=tool.name,
            arguments=json.dumps(item, ensure_ascii=False, separators=(",", ":")),
        )
        for position, item in enumerate(items)
    ]
    batch = CallBatch(run, context, calls, max_parallel, parent_tool_call_id=context.tool_call_id)
    endings = await batch.run()
    result = json.dumps([_item(each) for each in endings], ensure_ascii=False)
    if endings and not any(each.status is Status.SUCCEEDED for each in endings):
        raise ToolError(f"Every item failed: {result}")
    return result


def _item(ending: Ending) -> dict[str, str | None]:
    if ending.status is Status.SUCCEEDED:
        return {"status": ending.status.value, "result": ending.result}
    message = ending.error.message if ending.error else None
    return {"status": ending.status.value, "reason": ending.reason, "error": message}
