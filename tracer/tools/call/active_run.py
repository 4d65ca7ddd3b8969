"""What all parts of one run share: its recorder, its caller, and whether it is cancelled."""

from __future__ import annotations

import asyncio
import hashlib
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import count
from typing import Any, TypedDict
from uuid import UUID

from tracer.context import Identity, ToolContext, token_of
from tracer.errors import (
    IdentityUnavailable,
    LineageError,
    MissingIdentity,
    StoreUnavailable,
    ToolUnavailable,
)
from tracer.logs import get_logger
from tracer.recorder.recorder import Recorder
from tracer.recorder.unrecorded import Unrecorded
from tracer.records.events import Event
from tracer.records.ids import IdSource
from tracer.records.sessions import Change, SessionStates, State
from tracer.storage.memory.sessions import MemorySessions
from tracer.tasks import GRACE_SECONDS, seen_through
from tracer.tools.call.budget import Budget, BudgetLimits
from tracer.tools.definition.hidden_parameters import Secrets, User
from tracer.tools.definition.results import Ending, cancelled
from tracer.tools.executors.rest.http_clients import HttpClients
from tracer.tools.executors.stateful.thread_context import ThreadContextManager

log = get_logger(__name__)

TokenResolver = Callable[[str], Awaitable[User | str | None] | User | str | None]
"""Turns a caller's token into the user that it stands for; None: it stands for nobody."""


def token_is_user_id(token_id: str) -> str:
    """Return the token as the user's id: what a resolver is where there is no other."""
    return token_id


@dataclass(kw_only=True)
class ToolResources:
    """What the tools of all runs of a process stand on."""

    sessions: SessionStates = field(default_factory=MemorySessions)
    initial_state: Mapping[str, Any] = field(default_factory=dict)
    """The state that a conversation begins with."""
    resolve_token: TokenResolver = token_is_user_id
    threads: ThreadContextManager = field(default_factory=ThreadContextManager)
    http: HttpClients = field(default_factory=HttpClients)
    places: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    grace_seconds: float = GRACE_SECONDS
    """How long a cancelled call may take to end. A call that takes longer is recorded as ended and
    still running."""

    async def user_of(self, token_id: str) -> User:
        """Return the user that a token stands for.

        Raises:
            MissingIdentity: It stands for nobody.
            IdentityUnavailable: The token resolver failed.
        """
        try:
            found = self.resolve_token(token_id)
            user = await found if isinstance(found, Awaitable) else found
            if isinstance(user, str):
                user = User(user)
            if user is not None and not isinstance(user.user_id, str):
                raise TypeError("A user's id is text.")
        except MissingIdentity as error:
            secrets = Secrets()
            secrets.add(token_id)
            raise MissingIdentity(secrets.scrub(str(error))) from None
        except Exception as error:
            # Without its message and its variables, which may hold the token.
            frames = traceback.extract_tb(error.__traceback__)
            places = [f"{each.filename}:{each.lineno} in {each.name}" for each in frames]
            log.error("token_resolver_failed", error=type(error).__name__, traceback=places)
            raise IdentityUnavailable(
                f"The caller's token could not be looked up: the token resolver failed with "
                f"{type(error).__name__}. Try again later."
            ) from None
        if user is None or not user.user_id:
            raise MissingIdentity("The caller's token stands for nobody. Sign in again.")
        return user

    async def aclose(self) -> None:
        """Close what the tools have opened."""
        try:
            await self.threads.aclose()
        finally:
            await self.http.aclose()


class RunStamp(TypedDict):
    """What each event of a run carries."""

    at: datetime
    recorder_id: UUID
    root_plan_id: UUID


class RunScope:
    """One run while it goes on."""

    def __init__(
        self,
        recorder: Recorder | Unrecorded,
        resources: ToolResources,
        root_plan_id: UUID,
        new_id: IdSource,
        left_behind: set[asyncio.Task[None]],
        *,
        session_id: str | None = None,
        identity: Identity | None = None,
        limits: BudgetLimits | None = None,
        max_parallel_calls: int | None = None,
        observe: Callable[[Sequence[Event]], None] | None = None,
    ) -> None:
        """Begin a run.

        Args:
            recorder: Records it.
            resources: What its tools stand on.
            root_plan_id: Its id.
            new_id: Mints the ids of its records.
            left_behind: Holds what goes on beside it, perhaps for longer than the run.
            session_id: The conversation that it belongs to.
            identity: Who the caller is; the run has a copy of its own.
            limits: What it may use up.
            max_parallel_calls: How many of its tool calls run at once, sub-plans' own not counted.
            observe: Receives its events once they are recorded.
        """
        self.resources = resources
        self.root_plan_id = root_plan_id
        self.new_id = new_id
        self.session_id = session_id
        self.thread_id = str(root_plan_id) if session_id is None else session_id
        """The conversation, or the run itself if it belongs to none."""
        self.identity = None if identity is None else Identity(identity.reveal())
        if identity is not None and identity.is_over and self.identity is not None:
            self.identity.end()
        self.cancel_reason: str | None = None
        """Why the run is being cancelled, where somebody asked for it."""
        self.is_over = False
        self.budgets = {root_plan_id: Budget(limits or BudgetLimits())}
        """What each plan of the run may use up; one without limits of its own has its parent's."""
        self.slots = None if max_parallel_calls is None else asyncio.Semaphore(max_parallel_calls)
        self._recorder = recorder
        self._left_behind = left_behind
        self._observe = observe
        self._user: asyncio.Task[User] | None = None
        self._positions: dict[UUID, count[int]] = {}

    @property
    def is_recorded(self) -> bool:
        """Whether its events are recorded, and not discarded."""
        return not isinstance(self._recorder, Unrecorded)

    @property
    def threads(self) -> ThreadContextManager:
        """The instances of stateful tools."""
        return self.resources.threads

    @property
    def http(self) -> HttpClients:
        """The clients of REST tools."""
        return self.resources.http

    @cached_property
    def _sessions(self) -> SessionStates:
        """The states of sessions; a run without a session has a store of its own."""
        return MemorySessions() if self.session_id is None else self.resources.sessions

    def stamp(self) -> RunStamp:
        """Return what the event of this moment carries."""
        return {**self._recorder.stamp(), "root_plan_id": self.root_plan_id}

    async def record(self, *events: Event) -> None:
        """Record events, and return when they are durable, or reported as refused or lost.

        A cancellation waits for this, so that the caller can end each record that it started.

        Raises:
            asyncio.CancelledError: The task was cancelled meanwhile.
        """
        cancellation = await seen_through(asyncio.ensure_future(self._recorder.record(*events)))
        if self._observe is not None:
            self._observe(events)
        if cancellation is not None:
            raise cancellation

    def secrets(self) -> Secrets:
        """Return what is known of the caller by now, and must not be shown."""
        secrets = Secrets()
        if self.identity is not None:
            secrets.add(self.identity.reveal())
        if self._user is not None and self._user.done() and not self._user.cancelled():
            secrets.add(None if self._user.exception() else self._user.result())
        return secrets

    def cancelled(self) -> Ending:
        """Return the ending of what this run's cancellation ends."""
        return cancelled(self.cancel_reason)

    def leave_behind(self, watching: Coroutine[Any, Any, None]) -> None:
        """Let something go on beside the run, such as waiting for a tool that was given up."""
        task = asyncio.create_task(watching)
        self._left_behind.add(task)
        task.add_done_callback(self._left_behind.discard)

    def open_budget(self, plan_id: UUID, parent_plan_id: UUID, limits: BudgetLimits | None) -> None:
        """Give a sub-plan a budget of its own within its parent's, or its parent's."""
        above = self.budgets[parent_plan_id]
        self.budgets[plan_id] = above if limits is None else Budget(limits, above)

    def next_position(self, under: UUID) -> int:
        """Return the place of the next call that no model chose, under a step or a call."""
        return next(self._positions.setdefault(under, count()))

    async def user(self) -> User:
        """Return who the caller is. Asked once a run, whoever asks.

        Raises:
            MissingIdentity: There is no caller, or the token belongs to no user.
            IdentityUnavailable: The token resolver failed.
        """
        token_id = token_of(self.identity)
        if self._user is None:
            self._user = asyncio.create_task(self.resources.user_of(token_id))
        resolving = self._user
        try:
            return await asyncio.shield(resolving)
        except Exception:
            self._user = None
            raise

    async def conversation(self) -> str:
        """Return what the conversation's state and instances are kept under.

        A session's id comes from outside, and anybody may say it: what one caller keeps under it,
        no other finds. Callers are told apart by a digest, as their ids are not to be kept.

        Raises:
            MissingIdentity: The token belongs to no user.
            IdentityUnavailable: The token resolver failed.
        """
        if self.session_id is None:
            return self.thread_id
        user = None if self.identity is None else await self.user()
        return conversation_of(self.session_id, user)

    async def state(self) -> State:
        """Return the conversation's state as it is now.

        Raises:
            ToolError: It cannot be read, or who the caller is cannot be found out.
        """
        try:
            return await self._sessions.read_state(
                await self.conversation(), self.resources.initial_state
            )
        except StoreUnavailable as error:
            raise ToolUnavailable("The conversation's state can't be read now.") from error

    async def change_state(self, changes: Sequence[Change]) -> State:
        """Keep changes of the conversation's state, all or none, and return what it is then.

        Raises:
            StateConflict: It is not what a change takes it for.
            ToolUnavailable: It cannot be kept.
        """
        try:
            return await self._sessions.change_state(
                await self.conversation(), self.resources.initial_state, changes
            )
        except StoreUnavailable as error:
            raise ToolUnavailable("The conversation's state can't be kept now.") from error

    async def join_conversation(self) -> list[UUID]:
        """Add the run to its conversation; return the ids of the runs before it, oldest first.

        Raises:
            ToolError: The session's id is too long, or the caller cannot be identified.
            StoreUnavailable: The store did not answer.
        """
        return await self._sessions.add_run(
            await self.conversation(), self.resources.initial_state, self.root_plan_id
        )

    async def end(self) -> None:
        """End the run: nobody acts for its caller any more, and what it alone had is closed."""
        self.is_over = True
        if self.identity is not None:
            self.identity.end()
        if self._user is not None:
            self._user.cancel()
        if self.session_id is None:
            await self.resources.threads.end_thread(self.thread_id)


def conversation_of(session_id: str, user: User | None) -> str:
    """Return what a conversation of a caller, or of nobody, is kept under."""
    return f"{session_id}{_owner(user)}"


def is_conversation_of(key: str, user: User | None) -> bool:
    """Return whether `key` is of a conversation of `user`; None: of one without a caller."""
    return key.endswith(_owner(user))


def _owner(user: User | None) -> str:
    """Return how the keys of a caller's conversations end, whatever the session's id looks like."""
    if user is None:
        return "@"
    digest = hashlib.sha256(user.user_id.encode(errors="surrogatepass")).hexdigest()
    return f"@{digest[:16]}"


def run_of(context: ToolContext) -> RunScope:
    """Return the run that a call belongs to.

    Raises:
        LineageError: It belongs to none: the tool was not called by the runtime.
    """
    if not isinstance(context.run, RunScope):
        raise LineageError("This tool opens work of its own, so only a running plan can call it.")
    return context.run
