"""The state that the calls of one run share: its recorder, caller, budgets and cancellation."""

from __future__ import annotations

import asyncio
import hashlib
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, Protocol, TypedDict
from uuid import UUID

from tracer.concurrency import GRACE_SECONDS, capped_deadline, finish_despite_cancellation
from tracer.context import Identity, ToolContext, token_of, tool_context_bound
from tracer.errors import (
    BudgetExhausted,
    IdentityUnavailable,
    LineageError,
    MissingIdentity,
    RegistrationError,
    StoreUnavailable,
    ToolUnavailable,
)
from tracer.logs import get_logger
from tracer.records import IdSource
from tracer.records.events import (
    Event,
    PlanFinished,
    PlannedStep,
    PlanStarted,
    Stamp,
    StepFinished,
    StepStarted,
)
from tracer.records.results import Ending, cancelled, failed, succeeded
from tracer.records.sessions import MemorySessions, SessionStates, State, StateChange
from tracer.resource import service_of_environment
from tracer.tools.functions import ThreadContextManager
from tracer.tools.http_clients import HttpClients
from tracer.tools.parameters import Secrets, TokenResolver, User, token_is_user_id

log = get_logger(__name__)

# --- Budgets: limits on the tool calls, tokens and seconds of a run or of a sub-plan.
#
# Budgets form a tree. The tool calls and tokens of a sub-plan also count against every budget above
# it. They are reserved before the work begins, so that parallel work cannot exceed a limit
# together.


@dataclass(frozen=True, kw_only=True)
class BudgetLimits:
    """Limits; None means unlimited."""

    tool_calls: int | None = None
    """Tool calls, including those of sub-plans."""
    tokens: int | None = None
    """Tokens of the model's prompts and completions."""
    seconds: float | None = None
    """How long the plan may take."""

    def __post_init__(self) -> None:
        for each in (self.tool_calls, self.tokens, self.seconds):
            if each is not None and each < 0:
                raise RegistrationError("A budget must be 0 or more. Leave it out for no limit.")


class Budget:
    """Counts tool calls and tokens, and rejects work that would exceed a limit.

    The limits of the budgets above apply, too.
    """

    def __init__(self, limits: BudgetLimits, parent: Budget | None = None) -> None:
        self._limits = limits
        self._chain: list[Budget] = [self] if parent is None else [self, *parent._chain]
        """This budget and those above it."""
        self._tool_calls = 0
        self._tokens = 0
        self._largest_completion: int | None = None
        """Tokens of the largest completion so far; None before the first."""
        self._requests = 0
        """The number of model requests in progress, which have reserved tokens."""
        self._settled: asyncio.Event = asyncio.Event() if parent is None else parent._settled
        """Set for a moment whenever a request returns its reservation."""

    def reserve_tool_call(self) -> None:
        """Count a call that is about to start.

        Raises:
            BudgetExhausted: No call is left, in this budget or in one above.
        """
        for each in self._chain:
            limit = each._limits.tool_calls
            if limit is not None and each._tool_calls >= limit:
                raise BudgetExhausted(
                    f"The budget of {limit} tool calls is used up. Answer with the information "
                    "that you have."
                )
        for each in self._chain:
            each._tool_calls += 1

    @asynccontextmanager
    async def reserved_tokens(self, prompt: int) -> AsyncIterator[TokenUse]:
        """Reserve tokens for a request to a model; on exit, count the tokens that it really used.

        The reservation is the prompt plus the largest completion so far. Until the first completion
        has ended, only one request runs at a time. Later, a request waits while the other requests
        leave too few tokens.

        Args:
            prompt: The estimated number of tokens of the prompt.

        Raises:
            BudgetExhausted: This budget, or one above it, has too few tokens left.
        """
        limited = [each for each in self._chain if each._limits.tokens is not None]
        while any(each._has_to_wait(prompt) for each in limited):
            await self._settled.wait()
        held = [(each, each._reservation(prompt)) for each in limited]
        for each, tokens in held:
            each._tokens += tokens
            each._requests += 1
        use = TokenUse(prompt)
        try:
            yield use
        finally:
            for each, tokens in held:
                each._tokens += use.tokens - tokens
                each._requests -= 1
                if use.tokens > prompt:
                    completion = use.tokens - prompt
                    each._largest_completion = max(each._largest_completion or 0, completion)
            self._settled.set()
            self._settled.clear()  # the waiting tasks are scheduled by now

    def _has_to_wait(self, prompt: int) -> bool:
        """Return whether a request has to wait until other requests end.

        Raises:
            BudgetExhausted: Too few tokens are left, and no other request is active, so waiting
                would not help.
        """
        limit = self._limits.tokens
        assert limit is not None
        free = limit - self._tokens
        if free > 0 and prompt + (self._largest_completion or 0) <= free:
            return self._largest_completion is None and self._requests > 0
        if not self._requests:
            raise BudgetExhausted(
                f"The budget of {limit} tokens is used up, or too few tokens are left for another "
                "model request."
            )
        return True

    def _reservation(self, prompt: int) -> int:
        assert self._limits.tokens is not None
        if self._largest_completion is None:
            return self._limits.tokens - self._tokens
        return prompt + self._largest_completion


@dataclass
class TokenUse:
    """The tokens of a request and its completion.

    Until the model reports its usage, these are the estimated tokens of the prompt.
    """

    tokens: int


# --- The resources that the tools of a service share: sessions, instances, connections, limits.


@dataclass(kw_only=True)
class ToolResources:
    """Resources that the tools of all runs of a process share."""

    sessions: SessionStates = field(default_factory=MemorySessions)
    initial_state: Mapping[str, Any] = field(default_factory=dict)
    """The session state with which each conversation begins."""
    resolve_token: TokenResolver = token_is_user_id
    threads: ThreadContextManager = field(default_factory=ThreadContextManager)
    http: HttpClients = field(default_factory=HttpClients)
    concurrency_limits: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    """Semaphores of tools with `max_parallel`, by the name of the tool."""
    grace_seconds: float = GRACE_SECONDS
    """How many seconds a cancelled call may take to end. A call that takes longer is recorded as
    ended and still running."""
    background_tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """Tasks that may outlive their run, such as waiting for tools that timed out."""

    async def user_of(self, token_id: str) -> User:
        """Return the user that a token belongs to.

        Raises:
            MissingIdentity: The token belongs to no user.
            IdentityUnavailable: The token resolver failed.
        """
        try:
            resolved = self.resolve_token(token_id)
            user = await resolved if isinstance(resolved, Awaitable) else resolved
            if isinstance(user, str):
                user = User(user)
            if user is not None and not isinstance(user.user_id, str):
                raise TypeError("The token resolver returned a user whose id is not a string.")
        except MissingIdentity as error:
            secrets = Secrets()
            secrets.add(token_id)
            raise MissingIdentity(secrets.scrub(str(error))) from None
        except Exception as error:
            # The message and the local variables may contain the token, so they are not logged.
            frames = traceback.extract_tb(error.__traceback__)
            locations = [f"{each.filename}:{each.lineno} in {each.name}" for each in frames]
            log.error("token_resolver_failed", error=type(error).__name__, traceback=locations)
            raise IdentityUnavailable(
                f"The caller's token could not be looked up: the token resolver failed with "
                f"{type(error).__name__}. Try again later."
            ) from None
        if user is None or not user.user_id:
            raise MissingIdentity("The caller's token belongs to no user. Sign in again.")
        return user

    async def aclose(self) -> None:
        """Close thread contexts and HTTP clients."""
        try:
            await self.threads.aclose()
        finally:
            await self.http.aclose()


# --- The state that everything in one active run shares: recorder, caller, budgets, cancellation.


class EventRecorder(Protocol):
    """Records the events of runs, or discards them."""

    @property
    def is_recording(self) -> bool:
        """Whether events are recorded; if not, they are discarded."""

    def stamp(self) -> Stamp:
        """Return the fields that the recorder sets on each event."""

    async def record(self, *events: Event) -> None:
        """Return when the events are durable, or reported as rejected or lost."""


class RunStamp(Stamp):
    """The fields that all events of a run share."""

    root_plan_id: UUID


@dataclass(frozen=True, kw_only=True)
class RunParameters:
    """What distinguishes one run from the others of its process."""

    session_id: str | None = None
    """The session that the run belongs to."""
    identity: Identity | None = None
    """The caller. The run keeps a copy of its own."""
    session_state: Mapping[str, Any] = field(default_factory=dict)
    """Takes precedence over the resources' initial state in a new conversation."""
    limits: BudgetLimits = BudgetLimits()
    """The budget of the root plan."""
    max_parallel_calls: int | None = None
    """How many tool calls of the run are in progress at once. Calls that open sub-plans do not
    count; the calls within the sub-plans do."""
    observe: Callable[[Sequence[Event]], None] | None = None
    """Receives the run's events once they are recorded."""


class ActiveRun:
    """One run while it is in progress."""

    def __init__(
        self,
        recorder: EventRecorder,
        resources: ToolResources,
        new_id: IdSource,
        parameters: RunParameters,
    ) -> None:
        """Start a run.

        Args:
            recorder: The recorder of the run's events.
            resources: The resources that the run's tools share with other runs.
            new_id: Mints the ids of the run and of its records.
            parameters: The caller, the session and the limits of the run.
        """
        self.resources = resources
        self.root_plan_id = root_plan_id = new_id()
        self.new_id = new_id
        self.session_id = session_id = parameters.session_id
        self._initial_state = {**resources.initial_state, **parameters.session_state}
        self.thread_id = str(root_plan_id) if session_id is None else session_id
        """The session's id; without a session, the run's own."""
        identity = parameters.identity
        self.identity = None if identity is None else Identity(identity.reveal())
        if identity is not None and identity.is_over and self.identity is not None:
            self.identity.end()
        self.cancel_reason: str | None = None
        """The reason of a requested cancellation; None if none was requested."""
        self.is_over = False
        self.offered_tools: dict[str, UUID] = {}
        """Maps each list of offered tools, as JSON, to the think-act that recorded the list."""
        self.budgets = {root_plan_id: Budget(parameters.limits)}
        """The budget of each plan. A sub-plan without limits shares its parent's budget."""
        most = parameters.max_parallel_calls
        self.slots = None if most is None else asyncio.Semaphore(most)
        self._recorder = recorder
        self._observe = parameters.observe
        self._users: dict[str, asyncio.Task[User]] = {}
        self._positions: dict[UUID, count[int]] = {}

    @property
    def is_recorded(self) -> bool:
        """Whether events are recorded; if not, they are discarded."""
        return self._recorder.is_recording

    @property
    def threads(self) -> ThreadContextManager:
        """The instances of stateful tools."""
        return self.resources.threads

    @property
    def http(self) -> HttpClients:
        """The connections of REST tools."""
        return self.resources.http

    @cached_property
    def _sessions(self) -> SessionStates:
        """The store of session states. A run without a session has a separate store in memory."""
        return MemorySessions() if self.session_id is None else self.resources.sessions

    def stamp(self) -> RunStamp:
        """Return the common fields of an event that happens now."""
        return {**self._recorder.stamp(), "root_plan_id": self.root_plan_id}

    async def record(self, *events: Event) -> None:
        """Record events. Return when they are durable, or reported as rejected or lost.

        A cancellation is delayed until then, so that the caller can end each record that it
        started.

        Raises:
            asyncio.CancelledError: The task was cancelled meanwhile.
        """
        cancellation = await finish_despite_cancellation(
            asyncio.ensure_future(self._recorder.record(*events))
        )
        if self._observe is not None:
            self._observe(events)
        if cancellation is not None:
            raise cancellation

    def secrets(self) -> Secrets:
        """Return the values to scrub from texts: the caller's token, and the user if known."""
        secrets = Secrets()
        if self.identity is not None:
            secrets.add(self.identity.reveal())
        for each in self._users.values():
            if each.done() and not each.cancelled():
                secrets.add(None if each.exception() else each.result())
        return secrets

    def cancelled(self) -> Ending:
        """Return the ending for records that are interrupted when this run is cancelled."""
        return cancelled(self.cancel_reason)

    def keep_in_background(self, task: asyncio.Task[Ending]) -> None:
        """Hold a task that may outlive the run, such as a call that continues after its timeout."""
        self.resources.background_tasks.add(task)
        task.add_done_callback(self.resources.background_tasks.discard)

    def open_budget(self, plan_id: UUID, parent_plan_id: UUID, limits: BudgetLimits | None) -> None:
        """Open a budget for a sub-plan within its parent's budget.

        If there are no limits, the sub-plan shares its parent's budget.
        """
        parent = self.budgets[parent_plan_id]
        self.budgets[plan_id] = parent if limits is None else Budget(limits, parent)

    def next_position(self, parent_id: UUID) -> int:
        """Return the position, from 0, of the next call that the program makes below `parent_id`.

        Calls that the model requests are not counted.
        """
        return next(self._positions.setdefault(parent_id, count()))

    async def user(self, identity: Identity | None = None) -> User:
        """Return the user of a caller. A token is resolved once a run; a failure is not cached.

        Args:
            identity: The caller of a call; None for the run's caller.

        Raises:
            MissingIdentity: There is no caller, or the token belongs to no user.
            IdentityUnavailable: The token resolver failed.
        """
        token_id = token_of(identity or self.identity)
        resolving = self._users.get(token_id)
        if resolving is None:
            resolving = asyncio.create_task(self.resources.user_of(token_id))
            self._users[token_id] = resolving
        try:
            return await asyncio.shield(resolving)
        except Exception:
            self._users.pop(token_id, None)
            raise

    async def conversation(self) -> str:
        """Return the key of the conversation's state and of its tool instances.

        Clients choose session ids, so a client could choose the session id of another caller. To
        keep their conversations apart, the key contains a digest of the caller's user id. The user
        id itself must not be stored.

        Raises:
            MissingIdentity: The token belongs to no user.
            IdentityUnavailable: The token resolver failed.
        """
        if self.session_id is None:
            return self.thread_id
        user = None if self.identity is None else await self.user()
        return conversation_of(self.session_id, user)

    async def state(self) -> State:
        """Return the conversation's current state.

        Raises:
            ToolError: The state cannot be read, or the caller cannot be identified.
        """
        try:
            return await self._sessions.read_state(await self.conversation(), self._initial_state)
        except StoreUnavailable as error:
            raise ToolUnavailable(
                "The session state cannot be read, because the store does not answer."
            ) from error

    async def change_state(self, changes: Sequence[StateChange]) -> State:
        """Store changes of the conversation's state, all or none, and return the new state.

        Raises:
            StateConflict: A change does not fit the current state.
            ToolUnavailable: The store does not answer.
        """
        try:
            return await self._sessions.change_state(
                await self.conversation(), self._initial_state, changes
            )
        except StoreUnavailable as error:
            raise ToolUnavailable(
                "The session state cannot be stored, because the store does not answer."
            ) from error

    async def join_conversation(self) -> list[UUID]:
        """Add the run to its conversation. Return the ids of the earlier runs, oldest first.

        Raises:
            ToolError: The session's id is too long, or the caller cannot be identified.
            StoreUnavailable: The store did not answer.
        """
        return await self._sessions.add_run(
            await self.conversation(), self._initial_state, self.root_plan_id
        )

    async def end(self) -> None:
        """End the run: invalidate its identity, and close the resources that only this run uses."""
        self.is_over = True
        if self.identity is not None:
            self.identity.end()
        for each in self._users.values():
            each.cancel()
        if self.session_id is None:
            await self.resources.threads.end_thread(self.thread_id)


def conversation_of(session_id: str, user: User | None) -> str:
    """Return the key of a caller's conversation; `user` is None if there is no caller."""
    return f"{session_id}{_owner(user)}"


def is_conversation_of(key: str, user: User | None) -> bool:
    """Return whether `key` belongs to a conversation of `user`.

    If `user` is None, return whether the conversation has no user.
    """
    return key.endswith(_owner(user))


def _owner(user: User | None) -> str:
    """Return the suffix that identifies a user in the keys of conversations."""
    if user is None:
        return "@"
    digest = hashlib.sha256(user.user_id.encode(errors="surrogatepass")).hexdigest()
    return f"@{digest[:16]}"


def run_of(context: ToolContext) -> ActiveRun:
    """Return the run that a call belongs to.

    Raises:
        LineageError: The call belongs to no run, because the runtime did not make it.
    """
    if not isinstance(context.run, ActiveRun):
        raise LineageError(
            "This tool needs a run, so it can only be called by a running plan or a tool service."
        )
    return context.run


# --- A run without a planner: a plan of one step, recorded around the code that makes the calls.


class StandaloneRunOptions(TypedDict, total=False):
    """Optional fields of a standalone run."""

    request: str | None
    """The user's request."""
    agent_name: str | None
    """The agent that makes the calls."""
    session_id: str | None
    """The session that the run belongs to."""
    limits: BudgetLimits | None
    """The run's budget."""
    tags: Sequence[str]
    """Labels by which runs can be filtered."""


class StandaloneRun:
    """A standalone run while it is in progress."""

    def __init__(self, run: ActiveRun, limits: BudgetLimits | None) -> None:
        self.ending = succeeded(None)
        """The ending that `record_ending` records."""
        self.context = ToolContext(
            tool_call_id=None,
            root_plan_id=run.root_plan_id,
            plan_id=run.root_plan_id,
            step_id=run.new_id(),
            deadline=capped_deadline(None, limits.seconds if limits else None),
            identity=run.identity,
            thread_id=run.thread_id,
            run=run,
            is_recorded=run.is_recorded,
        )
        self._scope = run

    async def record_start(self, title: str, options: StandaloneRunOptions) -> None:
        """Record the start of the plan and its step."""
        run, context = self._scope, self.context
        agent_name, request = options.get("agent_name"), options.get("request")
        step = PlannedStep(step_id=context.step_id, agent_name=agent_name, request=request)
        await run.record(
            PlanStarted(
                **run.stamp(),
                plan_id=context.plan_id,
                depth=0,
                title=title,
                user_request=request,
                agent_name=agent_name,
                session_id=options.get("session_id"),
                tags=tuple(options.get("tags", ())),
                **service_of_environment(),
                steps=(step,),
            ),
            StepStarted(
                **run.stamp(),
                plan_id=context.plan_id,
                step_id=context.step_id,
                position=0,
                agent_name=agent_name,
                request=request,
            ),
        )

    async def record_ending(self) -> None:
        """Record the end of the step and the plan."""
        run, context, ending = self._scope, self.context, self.ending
        await run.record(
            StepFinished(
                **run.stamp(),
                **ending.fields,
                plan_id=context.plan_id,
                step_id=context.step_id,
                result=ending.result,
            ),
            PlanFinished(
                **run.stamp(), **ending.fields, plan_id=context.plan_id, summary=ending.result
            ),
        )


@asynccontextmanager
async def record_run(
    run: ActiveRun, title: str, options: StandaloneRunOptions
) -> AsyncIterator[StandaloneRun]:
    """Record the `async with` block as one run.

    Within the block, `current_tool_context` returns the run's context.

    Args:
        run: The run.
        title: The plan's title.
        options: Optional fields of the run.
    """
    standalone = StandaloneRun(run, options.get("limits"))
    try:
        await standalone.record_start(title, options)
        with tool_context_bound(standalone.context):
            yield standalone
    except (asyncio.CancelledError, GeneratorExit):
        standalone.ending = run.cancelled()
        raise
    except BaseException as error:
        standalone.ending = failed(error, scrub=run.secrets().scrub)
        raise
    finally:
        try:
            await standalone.record_ending()
        finally:
            # Even if recording was cancelled: the caller's identity must not outlive the run.
            await run.end()
