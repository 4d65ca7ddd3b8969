"""Call a tool. Errors of the tool and of its hooks become the ending of the call.

The layers of a call, from the outside in:

1. The deadline.
2. Forged arguments, which the model supplied for hidden parameters, are removed. The others are
   checked.
3. Hidden parameters are filled. If that is impossible, the call is rejected.
4. The hooks.
5. Step 2 again, because hooks may change the arguments.
6. The attempts, each with a check of its result.

Changes of the session state are stored at the end.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential_jitter,
)

from tracer.context import ToolContext, token_of, tool_context_bound
from tracer.errors import LineageError, ToolError, ToolUnavailable
from tracer.logs import get_logger
from tracer.records.sessions import changes_json
from tracer.tasks import (
    GRACE_SECONDS,
    Waited,
    capped_deadline,
    finish_despite_cancellation,
    has_passed,
    wait_for_end,
)
from tracer.threads import yielded_values
from tracer.tools.call.active_run import run_of
from tracer.tools.definition.arguments import Arguments, read_arguments
from tracer.tools.definition.hidden_parameters import (
    REQUIRED,
    CallingAgent,
    HiddenParameter,
    Secrets,
    TokenId,
    User,
    UserId,
    provided,
    without_forged,
)
from tracer.tools.definition.hooks import Hook, HookChain, HookInputs, InterceptedCall
from tracer.tools.definition.results import (
    Ending,
    cancelled,
    failed,
    result_text,
    succeeded,
    timed_out,
)
from tracer.tools.definition.session_state import RunContext, SessionState
from tracer.tools.definition.tool import Tool

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
