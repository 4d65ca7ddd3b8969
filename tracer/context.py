"""What travels with a tool call: its place in the lineage, its deadline, and who the caller is.

A `ToolContext` is passed to each tool that declares a parameter of this type, and is current
(`current_tool_context`) in whatever the tool starts: tasks, `asyncio.to_thread`, and the threads
that the runtime runs synchronous tools in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID


class Identity:
    """Who the caller is. What it holds is shown nowhere: not in logs, records or errors."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def reveal(self) -> object:
        """Return what the identity was made from, such as a token."""
        return self._value

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
    path: tuple[PlanOnPath, ...] = ()
    """The sub-plans from the root plan down to the plan that makes the call."""
    run: object = field(default=None, repr=False, compare=False)
    """The run that the call belongs to, for tools that open more work in it
    (`tracer.runtime.run_scope`)."""


_current: ContextVar[ToolContext | None] = ContextVar("tracer_tool_context", default=None)


def current_tool_context() -> ToolContext | None:
    """Return the context of the tool call that this code runs in; None outside of any."""
    return _current.get()


@contextmanager
def tool_context_bound(context: ToolContext) -> Iterator[None]:
    """Make `context` the current one inside."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
