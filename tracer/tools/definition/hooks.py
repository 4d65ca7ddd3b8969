"""Hooks: middleware around the calls of one tool, or of all tools of an agent.

A hook is a function, synchronous or asynchronous. Its parameters' names select what it receives:

    async def only_at_night(next, arguments):
        if is_day():
            raise Denied("Come back tonight.")
        return await next(arguments)

The runtime also fills a hook's hidden parameters, such as `user_id: UserId`
(`tracer.tools.definition.hidden_parameters`). `next(arguments)` runs the inner hooks and the tool,
and returns the result. `function_call(**arguments)`, Agno's form, does the same. A hook may change
the arguments, continue again, or return a value of its own without continuing. If a hook raises an
error, the call fails; the tool does not run unless the hook continued before. A synchronous hook
runs in a thread, where these functions block.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any
from uuid import UUID

import anyio

from tracer.context import ToolContext
from tracer.errors import RegistrationError
from tracer.threads import call_in_thread, is_async, is_generator
from tracer.tools.definition.arguments import Arguments
from tracer.tools.definition.hidden_parameters import HiddenParameter
from tracer.tools.definition.session_state import RunContext
from tracer.tools.definition.signature import hidden_by_type

_BY_KEYWORD = ("function", "func", "function_call")
"""Agno's names of a function that continues as `next` does, with the arguments by name."""

HOOK_PARAMETERS = (
    *("next", *_BY_KEYWORD, "call", "name", "function_name", "arguments", "args"),
    *("tool", "context", "run_context", "agent", "team"),
)
"""The parameter names by which a hook selects what it receives. Several are Agno's."""

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class InterceptedCall:
    """The call that a hook intercepts, as the model made it."""

    tool_call_id: UUID | None
    name: str
    arguments: Mapping[str, Any]
    """A copy of the model's arguments, without values for hidden parameters."""


@dataclass(frozen=True, eq=False)
class Hook:
    """A function that wraps calls of tools."""

    function: Callable[..., Any]
    name: str
    wants: tuple[str, ...]
    """The names of the function's parameters that are in `HOOK_PARAMETERS`."""
    hidden: Mapping[str, HiddenParameter]
    """The function's other parameters, which the runtime fills as it does for a tool."""
    is_async: bool


def hook_of(function: Callable[..., Any] | Hook) -> Hook:
    """Check a function's parameters, and return the hook made from it.

    Raises:
        RegistrationError: The function has a parameter that cannot be filled, or is a generator.
    """
    if isinstance(function, Hook):
        return function
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    name = getattr(inner, "__name__", None) or type(inner).__name__
    if is_generator(function):
        raise RegistrationError(
            f"The hook {name!r} is a generator, so its body would never run. Call next() instead "
            "of yielding: `result = await next(arguments)`."
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise RegistrationError(
            f"{name!r} cannot be a hook, because its parameters cannot be read ({error})."
        ) from error
    is_by_name = {each.name for each in parameters if each.kind in _BY_NAME}
    others = [each for each in parameters if each.name not in HOOK_PARAMETERS]
    # The hints of `next` or `agent` need not be importable here, so they are read only if needed.
    hidden = hidden_by_type(function) if others else {}
    hidden = {name: each for name, each in hidden.items() if name not in HOOK_PARAMETERS}
    for parameter in parameters:
        if parameter.name in is_by_name and parameter.name in (*HOOK_PARAMETERS, *hidden):
            continue
        if parameter.default is not parameter.empty and parameter.name not in HOOK_PARAMETERS:
            continue
        raise RegistrationError(
            f"The hook {name!r} has the parameter {str(parameter)!r}, which gets no value. A "
            f"hook may have the parameters {', '.join(HOOK_PARAMETERS)}, and hidden parameters, "
            "such as user_id: UserId."
        )
    wants = tuple(each for each in HOOK_PARAMETERS if each in is_by_name)
    return Hook(function, name, wants, hidden, is_async(function))


def hooks_of(functions: Sequence[Callable[..., Any] | Hook]) -> tuple[Hook, ...]:
    """Return the hooks made from functions, in the same order: the first is the outermost."""
    return tuple(hook_of(each) for each in functions)


@dataclass(frozen=True)
class HookInputs:
    """The values that the hooks of one call may receive."""

    call: InterceptedCall
    tool: object
    context: ToolContext
    run_context: RunContext | None
    hidden: Sequence[Arguments]
    """The values of each hook's hidden parameters."""


class HookChain:
    """The hooks around one call."""

    def __init__(
        self,
        hooks: Sequence[Hook],
        inputs: HookInputs,
        execute: Callable[[Arguments], Awaitable[Any]],
    ) -> None:
        """Create a chain.

        Args:
            hooks: The hooks, the first outermost.
            inputs: The values that the hooks may receive.
            execute: Runs the tool.
        """
        self.answered_by: str | None = None
        """The hook that returned a value without calling `next`; set when `run` has returned."""
        self._hooks = hooks
        self._inputs = inputs
        self._execute = execute
        self._has_executed = False
        self._is_over = False

    async def run(self, arguments: Arguments) -> Any:
        """Run the hooks and the tool, and return the result.

        Raises:
            Exception: The tool or a hook raised it.
        """
        try:
            value = await self._next(0, arguments)
        finally:
            self._is_over = True
        if self._has_executed:
            self.answered_by = None
        return value

    async def _next(self, position: int, arguments: Arguments) -> Any:
        if self._is_over:
            # The call's ending is being recorded, so another execution would be unrecorded.
            raise RuntimeError("The call has ended. A hook must call next() before it returns.")
        if not isinstance(arguments, Mapping):
            raise TypeError(
                f"next() got a {type(arguments).__name__}. Pass it the arguments, as one dict."
            )
        # A copy for each hook, so that a hook that changes it does not affect the outer ones.
        arguments = copy.deepcopy(dict(arguments))
        if position == len(self._hooks):
            self._has_executed = True
            return await self._execute(arguments)
        hook = self._hooks[position]
        was_called = False

        async def next_(inner_arguments: Arguments) -> Any:
            nonlocal was_called
            was_called = True
            return await self._next(position + 1, inner_arguments)

        value = await self._call(position, arguments, next_)
        if not was_called:
            self.answered_by = hook.name
        return value

    async def _call(
        self, position: int, arguments: Arguments, next_: Callable[[Arguments], Awaitable[Any]]
    ) -> Any:
        hook, inputs = self._hooks[position], self._inputs
        available = {
            "call": inputs.call,
            "name": inputs.call.name,
            "function_name": inputs.call.name,
            "arguments": arguments,
            "args": arguments,
            "tool": inputs.tool,
            "context": inputs.context,
            "run_context": inputs.run_context,
            "agent": inputs.context.agent,
        }
        # Tracer has no teams.
        wanted = {name: available.get(name) for name in hook.wants}
        wanted |= inputs.hidden[position]
        if not hook.is_async:
            return await _in_thread(hook, wanted, next_)

        async def by_keyword(**arguments: Any) -> Any:
            return await next_(arguments)

        value = hook.function(**wanted | _continuations(hook, next_, by_keyword))
        # In a loop, because a hook may `return next(arguments)` without awaiting it.
        while inspect.isawaitable(value):
            value = await value
        return value


async def _in_thread(
    hook: Hook, wanted: dict[str, Any], next_: Callable[[Arguments], Awaitable[Any]]
) -> Any:
    """Run a synchronous hook in a thread; its `next` runs in this event loop.

    A cancellation cancels the call of `next` that is in progress. The hook then continues when that
    call has ended, like an asynchronous hook.
    """
    loop = asyncio.get_running_loop()
    started: set[asyncio.Task[Any]] = set()
    given_up = Event()

    async def outcome(arguments: Arguments) -> tuple[Any, BaseException | None]:
        try:
            return await next_(arguments), None
        except BaseException as error:
            # Returned, not raised: a task that raises `SystemExit` would end the event loop.
            return None, error

    def start(arguments: Arguments, answer: Future[tuple[Any, BaseException | None]]) -> None:
        def deliver(task: asyncio.Task[tuple[Any, BaseException | None]]) -> None:
            started.discard(task)
            is_cancelled = task.cancelled()
            answer.set_result((None, asyncio.CancelledError()) if is_cancelled else task.result())

        task = loop.create_task(outcome(arguments))
        started.add(task)
        task.add_done_callback(deliver)
        if given_up.is_set():
            task.cancel()

    def blocking_next(arguments: Arguments) -> Any:
        if _is_running(loop):
            # The hook returned a coroutine that is awaited in the event loop, where nothing blocks.
            return next_(arguments)
        answer: Future[tuple[Any, BaseException | None]] = Future()
        loop.call_soon_threadsafe(start, arguments, answer)
        value, error = answer.result()
        if error is not None:
            raise error
        return value

    def give_up() -> None:
        given_up.set()
        for each in list(started):
            each.cancel()

    def by_keyword(**arguments: Any) -> Any:
        return blocking_next(arguments)

    wanted |= _continuations(hook, blocking_next, by_keyword)
    # Outside of the tools' thread limit: a hook that waits for a tool must not take its thread.
    value = await call_in_thread(
        partial(hook.function, **wanted), anyio.CapacityLimiter(1), on_cancel=give_up
    )
    while inspect.isawaitable(value):
        value = await value
    return value


def _continuations(
    hook: Hook, next_: Callable[..., Any], by_keyword: Callable[..., Any]
) -> dict[str, Any]:
    """Return the functions that continue the chain, by the hook's names for them."""
    functions = {"next": next_, **dict.fromkeys(_BY_KEYWORD, by_keyword)}
    return {name: each for name, each in functions.items() if name in hook.wants}


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether this thread runs the event loop."""
    with suppress(RuntimeError):
        return asyncio.get_running_loop() is loop
    return False
