"""The context of a tool call: its position in the lineage, its deadline and the caller's identity.

A tool receives its `ToolContext` if it declares a parameter of this type. `current_tool_context`
returns the context in everything that the tool starts as a task or with `asyncio.to_thread`, and
in threads and executors that run a function of `in_context`.

The application sets the caller's identity: it starts a run or calls a tool inside `with
identity(token_id=…)`. The run copies the identity when it starts, and passes it on to its tool
calls.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from functools import cache, wraps
from inspect import CO_ASYNC_GENERATOR, CO_GENERATOR
from threading import Thread, get_ident
from types import FrameType
from typing import Any, NamedTuple, ParamSpec, TypeVar
from uuid import UUID

from tracer.errors import MissingIdentity

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Identity:
    """The identity of the caller, such as a token. It never appears in logs, records or errors."""

    __slots__ = ("_is_over", "_value")

    def __init__(self, value: object) -> None:
        self._value = value
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether the block or run that created the identity has ended."""
        return self._is_over

    def reveal(self) -> object:
        """Return the secret value, such as a token."""
        return self._value

    def end(self) -> None:
        """Invalidate the identity. Tool calls that still use it are rejected from now on."""
        self._is_over = True

    def __repr__(self) -> str:
        return "Identity(hidden)"

    def __reduce__(self) -> str:
        raise TypeError(
            "An identity cannot be pickled or copied, because it must not leave its process. "
            "Open an `identity` block in the other process."
        )


class PlanOnPath(NamedTuple):
    """A sub-plan on the path from the root plan to the current plan.

    A new sub-plan with the same template and arguments as one on the path would be a cycle.
    """

    template: str
    arguments_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The position of a tool call in the lineage, and values for the work inside the call."""

    tool_call_id: UUID | None
    """Our id of the tool call. None: the code runs outside of a tool call and cannot open a
    sub-plan."""
    root_plan_id: UUID
    plan_id: UUID
    """The plan that makes the call."""
    step_id: UUID
    think_act_id: UUID | None = None
    """The round whose model chose the call."""
    depth: int = 0
    """How many sub-plans are nested around the plan that makes the call."""
    deadline: float | None = None
    """When the call must end, as a time of `time.monotonic()`. None: no deadline."""
    identity: Identity | None = field(default=None, repr=False)
    """The user or program on whose behalf the run is executed."""
    thread_id: str = ""
    """The id of the conversation: the session's id, or the run's id if the run has no session."""
    attempt: int = 1
    """The number of this attempt of the call, from 1."""
    agent: object = field(default=None, repr=False, compare=False)
    """The agent that makes the call; None if no agent makes it."""
    holds_limit: bool = False
    """Whether this call or one of its ancestors counts against a concurrency limit."""
    path: tuple[PlanOnPath, ...] = ()
    """The sub-plans from the root plan down to the plan that makes the call."""
    run: object = field(default=None, repr=False, compare=False)
    """The run that the call belongs to, for tools that open more work in it
    (`tracer.tools.run`)."""
    is_recorded: bool = True
    """Whether the call is recorded. If not, other records must not refer to the call."""

    @property
    def toolcallId(self) -> UUID | None:  # noqa: N802 - the name in the seed documents
        """The same as `tool_call_id`, under the name that the seed documents use."""
        return self.tool_call_id


class _Bound:
    """A `with` block that sets the tool context and the caller's identity."""

    __slots__ = ("before", "context", "generator", "identity", "is_left", "task")

    def __init__(self, context: ToolContext | None, identity: Identity | None) -> None:
        self.context = context
        self.identity = identity
        self.before = _innermost_left_open()
        self.is_left = False
        """Whether the block has ended, but could not be removed from the context variable."""
        self.generator = _generator_frame()
        """The frame of the generator that entered the block; None if other code entered it."""
        self.task = _current_task() if self.generator is not None else None

    def is_of(self, caller: Identity | None) -> bool:
        """Return whether `caller` is the caller that this block sets."""
        if self.identity is None or caller is None:
            return self.identity is caller
        return self.identity.reveal() == caller.reveal()


_current: ContextVar[_Bound | None] = ContextVar("tracer_current", default=None)


def _innermost_left_open() -> _Bound | None:
    bound = _current.get()
    while bound is not None and bound.is_left:
        bound = bound.before
    return bound


def _innermost() -> _Bound | None:
    """Return the block that applies to the running code.

    Return None if no block applies, or if blocks with different callers may apply.

    A context variable that a generator sets stays set while the generator is suspended. The code
    that reads the generator would then see the block, and so would other generators. A generator's
    block therefore applies only to code that the generator itself calls: its frame must be on the
    stack.

    A task has a copy of the context of its creator. The creator may be the generator or the code
    that reads it; the two cannot be distinguished. The block therefore applies in a task only if
    all blocks around the generator have the same caller. Otherwise the task has no caller, and its
    tool calls are rejected.
    """
    bound = _innermost_left_open()
    while bound is not None and bound.generator is not None:
        if bound.task != _current_task():
            return bound if _has_one_caller(bound) else None
        if _is_on_stack(bound.generator):
            return bound
        bound = bound.before
        while bound is not None and bound.is_left:
            bound = bound.before
    return bound


def _has_one_caller(bound: _Bound) -> bool:
    """Return whether all blocks around the generator of `bound` have the same caller as `bound`."""
    outer = bound.before
    while outer is not None:
        if not outer.is_left and outer.generator is not bound.generator:
            if not outer.is_of(bound.identity):
                return False
            if outer.generator is None:
                return True
        outer = outer.before
    return True


def _generator_frame() -> FrameType | None:
    """Return the frame of the generator that enters a `with` block; None for other code.

    Generators with `contextlib.contextmanager` are skipped, because their block belongs to the code
    that uses the context manager.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR):
            runner = frame.f_back
            if runner is None or not _is_contextlib(runner):
                return frame
        elif not _is_contextlib(frame) and frame.f_globals.get("__name__") != __name__:
            return None
        frame = frame.f_back
    return None


def _is_contextlib(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "contextlib"


def _is_on_stack(wanted: FrameType) -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not wanted:
        frame = frame.f_back
    return frame is not None


def _current_task() -> object:
    """Return the running asyncio task; without an event loop, the id of the thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return task if task is not None else get_ident()


@contextmanager
def _binding(context: ToolContext | None, identity: Identity | None) -> Iterator[None]:
    bound = _Bound(context, identity)
    token = _current.set(bound)
    try:
        yield
    finally:
        bound.generator = None
        try:
            if _current.get() is bound:
                _current.reset(token)
            else:  # another generator's block was entered after it, and is still open
                bound.is_left = True
        except ValueError:
            # This is another context: an asynchronous generator is closed that was not read to its
            # end.
            bound.is_left = True


def current_tool_context() -> ToolContext | None:
    """Return the context of the tool call in which this code runs; None outside of tool calls."""
    bound = _innermost()
    return None if bound is None else bound.context


def current_identity() -> Identity | None:
    """Return the caller's identity; None if no caller is set.

    Inside a run, this is the identity of the run's caller. Elsewhere, the innermost `identity`
    block determines it.
    """
    bound = _innermost()
    identity = None if bound is None else bound.identity
    return None if identity is None or identity.is_over else identity


def get_token_id() -> str | None:
    """Return the token of the caller of the tool call in which this code runs.

    Return None outside of tool calls, and if the call has no caller. Never log or return the token.
    """
    context = current_tool_context()
    identity = current_identity()
    if context is None or context.tool_call_id is None or identity is None:
        return None
    return str(identity.reveal())


def token_of(identity: Identity | None) -> str:
    """Return the token of a caller.

    Raises:
        MissingIdentity: No caller is set, or the block or run that set it has ended.
    """
    if identity is None:
        raise MissingIdentity(
            "No caller is set. Start the run, or call the tool, inside `with identity(…)`. A "
            "thread or an executor inherits the caller only if its function comes from "
            "`tracer.in_context(function)`."
        )
    if identity.is_over:
        raise MissingIdentity(
            "The `identity` block in which this work started has ended. Open another `identity` "
            "block for the work, and keep it open until the work ends."
        )
    return str(identity.reveal())


def tool_context_bound(context: ToolContext | None) -> AbstractContextManager[None]:
    """Set the current tool context and the caller's identity for a block.

    If `context` is None, the block runs outside of any run, with the caller that is current now.
    """
    return _binding(context, current_identity() if context is None else context.identity)


@contextmanager
def identity(*, token_id: str) -> Iterator[Identity]:
    """Set the caller's identity for runs and tool calls that start inside the block.

    Tasks that start inside the block, `asyncio.to_thread` and functions of `in_context` inherit the
    identity. When the block ends, tool calls of work that is still running are rejected. A run that
    started inside the block is not affected, because it has a copy of the identity.

    In a generator, the block applies to the generator's code, and not to the code that reads the
    generator. Tool calls inside the block do not belong to a run around the block, because that run
    may have another caller.

    Args:
        token_id: The caller's token, such as a user id or a token of another system.

    Raises:
        ValueError: The token is empty.
    """
    if not token_id:
        raise ValueError(
            "The token_id is empty. Pass the caller's token, or open no `identity` block."
        )
    who = Identity(token_id)
    try:
        with _binding(None, who):
            yield who
    finally:
        who.end()


# --- Threads -----------------------------------------------------------------------------------


def in_context(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a function that runs with the caller, tool call and open blocks of this code.

    Use it for functions that run in a thread or in an executor: `Thread(target=in_context(work))`,
    `pool.map(in_context(work), items)`. Tasks and `asyncio.to_thread` need no such call, because
    they have a copy of the context.

    Args:
        function: A function that is not asynchronous. It may be called any number of times, also
            by several threads at once.
    """
    bound = _innermost()  # the stack, on which a generator's block depends, is not there later
    inherited = copy_context()

    def bind_and_run(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        if bound is None:
            return function(*arguments, **named)
        with _binding(bound.context, bound.identity):
            return function(*arguments, **named)

    @wraps(function)
    def run(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        # A copy for each call, because two threads cannot be in one context.
        return inherited.copy().run(bind_and_run, *arguments, **named)

    return run


@cache  # once for a process
def instrument_threads() -> None:
    """Make all threads and thread pools of this process start their functions `in_context`.

    This replaces `Thread.start` and `ThreadPoolExecutor.submit` until the process ends. Only the
    program may call it; Tracer itself never does.
    """
    start: Any = Thread.start
    submit: Any = ThreadPoolExecutor.submit

    @wraps(start)
    def start_in_context(thread: Thread) -> None:
        run_in_context = in_context(thread.run)

        def run() -> None:
            del vars(thread)["run"]  # no cycle of thread and function stays behind
            run_in_context()

        vars(thread)["run"] = run
        start(thread)

    @wraps(submit)
    def submit_in_context(
        pool: ThreadPoolExecutor, function: Callable[..., Any], /, *arguments: Any, **named: Any
    ) -> Any:
        # The pool may start a worker. It inherits nothing, because it serves other callers later.
        return Context().run(submit, pool, in_context(function), *arguments, **named)

    Thread.start = start_in_context  # type: ignore[assignment, method-assign]
    ThreadPoolExecutor.submit = submit_in_context  # type: ignore[assignment, method-assign]
