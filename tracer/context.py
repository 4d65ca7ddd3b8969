"""What travels with a tool call: its place in the lineage, its deadline, and who the caller is.

A `ToolContext` is passed to each tool that declares a parameter of this type, and is current
(`current_tool_context`) in whatever the tool starts: tasks, `asyncio.to_thread`, and the threads
that the runtime runs synchronous tools in.

Who the caller is comes from outside: `with identity(token_id=…)` around whatever starts a run or
calls a tool. A run takes it over when it starts and hands it down explicitly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID


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
    """What was made current: a place, and who the caller is there; and what was so before."""

    __slots__ = ("before", "context", "identity", "is_stranded")

    def __init__(self, context: ToolContext | None, identity: Identity | None) -> None:
        self.context = context
        self.identity = identity
        self.before = _innermost()
        self.is_stranded = False
        """Whether it was left from where it could not be taken back."""


_current: ContextVar[_Bound | None] = ContextVar("tracer_current", default=None)


def _innermost() -> _Bound | None:
    bound = _current.get()
    while bound is not None and bound.is_stranded:
        bound = bound.before
    return bound


@contextmanager
def _binding(context: ToolContext | None, identity: Identity | None) -> Iterator[None]:
    bound = _Bound(context, identity)
    token = _current.set(bound)
    try:
        yield
    finally:
        try:
            _current.reset(token)
        except ValueError:
            # Left in another context, in which an async generator is closed that nobody read to
            # its end: what it has set stays with its reader.
            bound.is_stranded = True


def current_tool_context() -> ToolContext | None:
    """Return the context of the tool call that this code runs in; None outside of any."""
    bound = _innermost()
    return None if bound is None else bound.context


def current_identity() -> Identity | None:
    """Return who the caller is; None where nobody has said it.

    That is the run's caller within a run, and who the scope around this code says elsewhere.
    """
    bound = _innermost()
    who = None if bound is None else bound.identity
    return None if who is None or who.is_over else who


def tool_context_bound(context: ToolContext | None) -> AbstractContextManager[None]:
    """Make `context`, and its caller, the current one inside; None leaves a run, not its caller."""
    return _binding(context, current_identity() if context is None else context.identity)


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
    try:
        with _binding(None, who):
            yield who
    finally:
        who.end()
