"""What travels with a tool call: its place in the lineage, its deadline, and who the caller is.

A `ToolContext` is passed to each tool that declares a parameter of this type, and is current
(`current_tool_context`) in whatever the tool starts: tasks, `asyncio.to_thread`, and the threads
that the runtime runs synchronous tools in.

Who the caller is comes from outside: `with identity(token_id=…)` around whatever starts a run or
calls a tool. A run takes it over when it starts and hands it down explicitly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar
from uuid import UUID

Anything = TypeVar("Anything")


class Identity:
    """Who the caller is. What it holds is shown nowhere: not in logs, records or errors."""

    __slots__ = ("_is_over", "_value")

    def __init__(self, value: object) -> None:
        self._value = value
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether the scope or the run that it was for has ended."""
        return self._is_over

    def reveal(self) -> object:
        """Return what the identity was made from, such as a token."""
        return self._value

    def end(self) -> None:
        """Make it worthless: whoever still holds it from then on is refused."""
        self._is_over = True

    def __repr__(self) -> str:
        return "Identity(hidden)"

    def __reduce__(self) -> str:
        raise TypeError("An identity stays in its process: it cannot be pickled or copied.")


class PlanOnPath(NamedTuple):
    """A sub-plan on the way from the root plan to here, as the cycle check knows it."""

    template: str
    arguments_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The place of one tool call in the lineage, and what it hands down to the work it starts."""

    toolcallId: UUID | None  # noqa: N815 - the word that tools know it by (DESIGN 2)
    """Our id of the tool call; None outside of any, where a sub-plan cannot be opened."""
    root_plan_id: UUID
    plan_id: UUID
    """The plan that makes the call."""
    step_id: UUID
    think_act_id: UUID | None = None
    """The round whose model chose the call."""
    depth: int = 0
    """How many sub-plans lie above the plan that makes the call."""
    deadline: float | None = None
    """When the call has to be over, as `time.monotonic()` tells it; None: never."""
    identity: Identity | None = field(default=None, repr=False)
    """Who the caller is."""
    thread_id: str = ""
    """The conversation: the session's id, or the run's own where there is no session."""
    attempt: int = 1
    """Which attempt this is, from 1."""
    agent: object = field(default=None, repr=False, compare=False)
    """The agent that calls; None outside of any."""
    holds: frozenset[str] = frozenset()
    """The places (`tracer.tools.places`) that this call and those around it take up."""
    path: tuple[PlanOnPath, ...] = ()
    """The sub-plans from the root plan down to the plan that makes the call."""
    run: object = field(default=None, repr=False, compare=False)
    """The run that the call belongs to, for tools that open more work in it
    (`tracer.tools.run_scope`)."""


class _Bound:
    """A context that was made current, and what was current before."""

    __slots__ = ("before", "context", "is_stranded")

    def __init__(self, context: ToolContext | None, before: _Bound | None) -> None:
        self.context = context
        self.before = before
        self.is_stranded = False
        """Whether it was left from where it could not be taken back."""


_current: ContextVar[_Bound | None] = ContextVar("tracer_tool_context", default=None)
_identity: ContextVar[Identity | None] = ContextVar("tracer_identity", default=None)


def current_tool_context() -> ToolContext | None:
    """Return the context of the tool call that this code runs in; None outside of any."""
    bound = _current.get()
    while bound is not None and bound.is_stranded:
        bound = bound.before
    return None if bound is None else bound.context


@contextmanager
def tool_context_bound(context: ToolContext | None) -> Iterator[None]:
    """Make `context` the current one inside."""
    bound = _Bound(context, _current.get())
    token = _current.set(bound)
    try:
        yield
    finally:
        bound.is_stranded = not _restore(_current, token)


@contextmanager
def identity(*, token_id: str) -> Iterator[Identity]:
    """Say who the caller is, for the runs and tool calls that start inside.

    It reaches the tasks that are started inside, `asyncio.to_thread`, and threads that run in a
    copy of the context. What outlives the scope, such as a worker that took a copy of the context
    along, is refused from then on, instead of going on as somebody who has left; a run that was
    started inside keeps its own copy until it ends.

    Another caller is another matter: a call inside belongs to no run that goes on around it.

    Args:
        token_id: What the caller showed: today a user's id, or a token of a business system.

    Raises:
        ValueError: The token is empty.
    """
    if not token_id:
        raise ValueError("An empty token_id says nothing about the caller: leave the scope out.")
    who = Identity(token_id)
    token = _identity.set(who)
    try:
        with tool_context_bound(None):
            yield who
    finally:
        _restore(_identity, token)
        who.end()


def _restore(variable: ContextVar[Anything], token: Token[Anything]) -> bool:
    """Take back what was set, and return whether that was possible.

    It is not from another context, in which an async generator is closed that nobody read to its
    end: what it has set stays with its reader.
    """
    try:
        variable.reset(token)
    except ValueError:
        return False
    return True


def current_identity() -> Identity | None:
    """Return who the caller is, as the scope around this code says; None outside of any."""
    who = _identity.get()
    return None if who is None or who.is_over else who
