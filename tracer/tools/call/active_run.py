"""The state that everything in one active run shares: recorder, caller, budgets, cancellation."""

from __future__ import annotations

import asyncio
import hashlib
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any, Protocol
from uuid import UUID

from tracer.context import Identity, ToolContext, token_of
from tracer.errors import (
    LineageError,
    StoreUnavailable,
    ToolUnavailable,
)
from tracer.records.events import Event, Stamp
from tracer.records.ids import IdSource
from tracer.records.sessions import SessionStates, State, StateChange
from tracer.storage.memory.sessions import MemorySessions
from tracer.tasks import finish_despite_cancellation
from tracer.tools.call.budget import Budget, BudgetLimits
from tracer.tools.definition.hidden_parameters import Secrets, User
from tracer.tools.definition.results import Ending, cancelled


class StatefulTools(Protocol):
    """The instances of stateful tools, by conversation."""

    async def end_thread(self, thread_id: str) -> None:
        """Close the instances of one conversation."""


class SharedResources(Protocol):
    """The resources that the tools of all runs of a process share.

    `tracer.tools.resources.ToolResources` has them.
    """

    @property
    def sessions(self) -> SessionStates:
        """The states of conversations."""

    @property
    def initial_state(self) -> Mapping[str, Any]:
        """The session state with which each conversation begins."""

    @property
    def threads(self) -> StatefulTools:
        """The instances of stateful tools."""

    @property
    def http(self) -> object:
        """The connections of REST tools."""

    @property
    def concurrency_limits(self) -> dict[str, asyncio.Semaphore]:
        """Semaphores of tools with `max_parallel`, by the name of the tool."""

    @property
    def grace_seconds(self) -> float:
        """How many seconds a cancelled call may take to end."""

    async def user_of(self, token_id: str) -> User:
        """Return the user that a token belongs to.

        Raises:
            MissingIdentity: The token belongs to no user.
            IdentityUnavailable: The token resolver failed.
        """


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


class ActiveRun:
    """One run while it is in progress."""

    def __init__(
        self,
        recorder: EventRecorder,
        resources: SharedResources,
        root_plan_id: UUID,
        new_id: IdSource,
        background_tasks: set[asyncio.Task[Any]],
        *,
        session_id: str | None = None,
        identity: Identity | None = None,
        session_state: Mapping[str, Any] | None = None,
        limits: BudgetLimits | None = None,
        max_parallel_calls: int | None = None,
        observe: Callable[[Sequence[Event]], None] | None = None,
    ) -> None:
        """Start a run.

        Args:
            recorder: The recorder of the run's events.
            resources: The resources that the run's tools share with other runs.
            root_plan_id: The run's id.
            new_id: Mints the ids of the run's records.
            background_tasks: The set that holds background tasks, which may outlive the run.
            session_id: The session that the run belongs to.
            identity: The caller. The run keeps a copy of its own.
            session_state: Takes precedence over the resources' initial state in a new conversation.
            limits: The budget of the root plan.
            max_parallel_calls: How many tool calls of the run are in progress at once. Calls that
                open sub-plans do not count; the calls within the sub-plans do.
            observe: Receives the run's events once they are recorded.
        """
        self.resources = resources
        self.root_plan_id = root_plan_id
        self.new_id = new_id
        self.session_id = session_id
        own_state = dict(session_state or {})
        self._initial_state = ChainMap(own_state, resources.initial_state)  # type: ignore[arg-type]
        self.thread_id = str(root_plan_id) if session_id is None else session_id
        """The session's id; without a session, the run's own."""
        self.identity = None if identity is None else Identity(identity.reveal())
        if identity is not None and identity.is_over and self.identity is not None:
            self.identity.end()
        self.cancel_reason: str | None = None
        """The reason of a requested cancellation; None if none was requested."""
        self.is_over = False
        self.offered_tools: dict[str, UUID] = {}
        """Maps each list of offered tools, as JSON, to the think-act that recorded the list."""
        self.budgets = {root_plan_id: Budget(limits or BudgetLimits())}
        """The budget of each plan. A sub-plan without limits shares its parent's budget."""
        self.slots = None if max_parallel_calls is None else asyncio.Semaphore(max_parallel_calls)
        self._recorder = recorder
        self._background_tasks = background_tasks
        self._observe = observe
        self._users: dict[str, asyncio.Task[User]] = {}
        self._positions: dict[UUID, count[int]] = {}

    @property
    def is_recorded(self) -> bool:
        """Whether events are recorded; if not, they are discarded."""
        return self._recorder.is_recording

    @property
    def threads(self) -> StatefulTools:
        """The instances of stateful tools."""
        return self.resources.threads

    @property
    def http(self) -> object:
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
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

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
