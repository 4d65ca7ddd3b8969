"""Tools that are Python functions: without state, or with a context that a thread keeps."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context, ContextVar
from functools import partial, wraps
from inspect import Parameter
from types import FunctionType, MethodType
from typing import (
    Any,
    NamedTuple,
    Protocol,
    Unpack,
    cast,
    get_args,
    get_type_hints,
    runtime_checkable,
)

import anyio

from tracer.concurrency import (
    call_in_thread,
    called,
    collected,
    finish_despite_cancellation,
    is_async,
    is_generator,
    wait_for_end,
)
from tracer.context import ToolContext
from tracer.errors import LineageError, RegistrationError, ToolError
from tracer.logs import get_logger
from tracer.tools.definition import Tool, ToolOptions, ToolType, runner_of
from tracer.tools.parameters import Arguments, JsonSchema, parameter_names
from tracer.tools.signature import hidden_by_type, hidden_parameters, signature_of

# --- Check before any call that a JSON Schema and a function have the same parameters.

_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Matched(NamedTuple):
    """A function and a JSON Schema that fit each other."""

    execute: Callable[..., Any]
    """Receives the arguments by name."""
    parameters: JsonSchema
    """Accepts only arguments that the function accepts."""


def matching(
    owner: str, execute: Callable[..., Any], parameters: JsonSchema, hidden: Collection[str]
) -> Matched:
    """Return a function and a schema that fit each other.

    The schema is narrowed to what the function accepts: its parameters without a default are
    `required`, and other arguments are not allowed unless it takes `**others`.

    Args:
        owner: The tool's name, for errors.
        execute: The function. If its only required parameter is neither in the schema nor hidden,
            the function receives all arguments as one dict.
        parameters: The JSON Schema of the model's arguments.
        hidden: The names of the parameters that the runtime fills.

    Raises:
        RegistrationError: The schema has an argument that the function does not accept, or the
            function requires an argument that the schema lacks.
    """
    try:
        signature = inspect.signature(execute).parameters.values()
    except (TypeError, ValueError):  # a function of an extension module may have no signature
        return Matched(execute, parameters)
    names = parameter_names(parameters) | set(hidden)
    converted = by_name(execute, names)
    if converted is not execute:
        return Matched(converted, parameters)
    accepted = {each.name for each in signature if each.kind in _BY_NAME}
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in signature)
    if not takes_any and (unknown := sorted(names - accepted)):
        raise RegistrationError(
            f"The schema of the tool {owner!r} has the argument {unknown[0]!r}, which its function "
            f"does not accept: {_names_of(signature)}. Add the parameter, or remove the argument."
        )
    needed = [each.name for each in signature if each.default is each.empty and _is_single(each)]
    if missing := [name for name in needed if name not in names]:
        raise RegistrationError(
            f"The function of the tool {owner!r} needs {missing[0]!r}, which its schema does not "
            f"have: {_names_of(signature)}. Add it to `properties`, give it a default, or hide it."
        )
    narrowed = dict(parameters)
    required = parameters.get("required")
    required = required if isinstance(required, list) else []
    if added := [each for each in needed if each not in required and each not in hidden]:
        narrowed["required"] = [*required, *added]
    if not takes_any and parameter_names(parameters) == set(parameters.get("properties", ())):
        narrowed.setdefault("additionalProperties", False)
    return Matched(execute, narrowed)


def by_name(execute: Callable[..., Any], names: Collection[str]) -> Callable[..., Any]:
    """Return a function that takes arguments by name.

    Args:
        execute: The function to call. If it has exactly one required parameter, and no parameter
            has one of `names`, the function receives all arguments as one dict.
        names: The names of all arguments; empty if the schema allows any argument.
    """
    parameter = _object_parameter(execute, names)
    if parameter is None:
        return execute
    # A schema without properties allows any argument, so also one for that parameter.
    own_name = None if names else parameter.name
    if is_async(execute):

        async def run_async(**arguments: Any) -> Any:
            if own_name in arguments:
                return await execute(**arguments)
            return await execute(arguments)

        return run_async

    @wraps(execute)
    def run(**arguments: Any) -> Any:
        return execute(**arguments) if own_name in arguments else execute(arguments)

    return run


def _object_parameter(execute: Callable[..., Any], names: Collection[str]) -> Parameter | None:
    """Return the parameter that receives all arguments as one dict; None if none does."""
    try:
        signature = inspect.signature(execute).parameters.values()
    except (TypeError, ValueError):  # a function of an extension module may have no signature
        return None
    if any(each.name in names or not _is_single(each) for each in signature):
        return None
    required = [each for each in signature if each.default is each.empty]
    if len(required) != 1 or required[0].kind is Parameter.KEYWORD_ONLY:
        return None
    return required[0]


def _is_single(parameter: Parameter) -> bool:
    return parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def _names_of(signature: Collection[Parameter]) -> str:
    return f"({', '.join(map(str, signature))})"


# --- Define STATELESS tools from a function and a JSON Schema that the application supplies.


def stateless_tool(
    *,
    name: str,
    description: str,
    parameters: JsonSchema,
    execute: Callable[..., Any],
    **options: Unpack[ToolOptions],
) -> Tool:
    """Define a tool from a function and a JSON Schema.

    Args:
        name: The name for the model.
        description: The description for the model.
        parameters: The JSON Schema of its arguments, an object.
        execute: The function, synchronous or not. It receives the arguments by name; or all of them
            as one dict, if it has a single parameter that is not in the schema.
        options: See `Tool`.

    Raises:
        RegistrationError: The schema and the function do not match, or the tool cannot work as it
            is defined.
    """
    hidden = hidden_parameters(name, options.get("hidden", {}))
    matched = matching(name, execute, parameters, hidden)
    return Tool(
        name=name,
        description=description,
        parameters=matched.parameters,
        run=runner_of(matched.execute),
        tool_type=ToolType.STATELESS,
        **options,
    )


# --- The instances of stateful tools, kept for each conversation until it ends.
#
# Here a thread is a conversation (`ToolContext.thread_id`), not a thread of the operating system.
# It has one instance of each stateful tool that it has used.

log = get_logger(__name__)

Create = Callable[[], Any]
"""Creates an instance, synchronous or not."""

MAX_CLEANUPS = 64
"""How many instances are closed at once. While an instance waits, its time limit does not run."""

_held: ContextVar[frozenset[object]] = ContextVar("tracer_uses_held", default=frozenset())
"""The uses of instances within which the current code runs."""


class _Instance:
    """A tool's instance in one conversation, used by one call at a time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.value: Any = None
        self.stack: AsyncExitStack | None = None
        """Closes the instance; None until it is created."""
        self.is_over = False
        self._use: object = None

    async def create(self, create: Create) -> None:
        """Create the value, and determine how to close it.

        The first of these methods that the object has closes it: `aclose()`, `close()`,
        `__aexit__()`. If the object has only `__aexit__()`, it is entered now, and the value of
        `__aenter__` is the instance.

        Raises:
            Exception: `create` or `__aenter__` raised it.
        """
        stack = AsyncExitStack()
        value = await called(create)
        closes = [getattr(value, name, None) for name in ("aclose", "close")]
        if close := next(filter(callable, closes), None):
            stack.push_async_callback(_closed, close)
        elif hasattr(type(value), "__aexit__"):
            value = await stack.enter_async_context(value)
        self.value, self.stack = value, stack

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the other uses of the instance, then use it."""
        async with self.lock:
            self._use = object()
            outer_uses = _held.get()
            _held.set(outer_uses | {self._use})
            try:
                yield
            finally:
                _held.set(outer_uses)
                self._use = None

    def refuse_within_a_use(self, tool_name: str) -> None:
        """Check that the calling code does not use the instance already.

        Raises:
            ToolError: The code uses the instance, and would wait for itself.
        """
        if self._use in _held.get():
            raise ToolError(
                f"A call of the tool {tool_name!r} called or ended the same tool in the same "
                "conversation, and would wait for itself. Use the tool again after the call."
            )


async def _closed(close: Callable[[], Any]) -> None:
    if is_async(close):
        await close()
        return
    # Outside of the tools' thread limit: its time is short, and must not pass in a queue.
    result = await call_in_thread(close, anyio.CapacityLimiter(1))
    if inspect.isawaitable(result):
        await result


async def _failure_to_close(stack: AsyncExitStack) -> BaseException | None:
    """Close an instance. Return the error that closing raised, or None.

    The error is not raised, because a task that raises `SystemExit` would end the event loop.
    """
    try:
        await stack.aclose()
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return error
    return None


class _Conversation:
    """The instances of one conversation, by the names of their tools, the oldest first."""

    def __init__(self) -> None:
        self.instances: dict[str, _Instance] = {}
        self.uses = 0
        """The number of calls that use an instance or wait for one."""
        self.used_at = 0.0
        """When a call last started or stopped using an instance."""


class ThreadContextManager:
    """The conversations of one event loop that have instances. The owner closes it at the end.

    A conversation ends on request, when it has been idle for too long, or when there are too many
    conversations and it is the least recently used one. A conversation in use ends only on request.
    A conversation may continue after its end, with new instances. Instances are closed by a task
    that has no current identity and no current tool call.
    """

    def __init__(
        self,
        *,
        max_threads: int = 1000,
        idle_seconds: float = 900,
        close_seconds: float = 5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a manager without conversations.

        Args:
            max_threads: How many conversations are kept. Conversations in use may exceed it.
            idle_seconds: After how long without use a conversation ends.
            close_seconds: How long closing waits for the uses of an instance, and then for the
                instance.
            clock: Returns seconds.
        """
        self._max_threads = max_threads
        self._idle_seconds = idle_seconds
        self._close_seconds = close_seconds
        self._clock = clock
        self._threads: OrderedDict[str, _Conversation] = OrderedDict()  # latest use last
        self._closings: dict[asyncio.Task[None], str] = {}
        self._cleanups = asyncio.Semaphore(MAX_CLEANUPS)
        self._background_tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def thread_ids(self) -> tuple[str, ...]:
        """The ids of the open conversations, the least recently used first."""
        return tuple(self._threads)

    @asynccontextmanager
    async def instance(self, thread_id: str, tool_name: str, create: Create) -> AsyncIterator[Any]:
        """Use a tool's instance in a conversation, exclusively; other calls that need it wait.

        If `create` raises an error, the error is raised here. It is not cached: each waiting call
        calls `create` again.

        Args:
            thread_id: The conversation's id.
            tool_name: The tool.
            create: Creates the instance, if there is none.

        Raises:
            ToolError: The manager or the conversation is closed, or this code already uses the
                instance.
        """
        if self._closed:
            raise ToolError(
                f"The tool {tool_name!r} cannot be used, because the application is shutting down."
            )
        thread = self._threads.setdefault(thread_id, _Conversation())
        instance = thread.instances.setdefault(tool_name, _Instance())
        instance.refuse_within_a_use(tool_name)
        self._note_use(thread_id, thread, 1)
        try:
            async with instance.turn():
                await self._open(tool_name, instance, create)
                yield instance.value
        finally:
            self._note_use(thread_id, thread, -1)

    async def end_thread(self, thread_id: str) -> None:
        """End a conversation. When this returns, all its instances are closed.

        Instances are closed one after the other, the youngest first. Each waits at most
        `close_seconds` for its uses. Then it is closed even if a call still uses it, and calls that
        still wait for it are rejected. If it fails to close, or takes longer than `close_seconds`,
        this is logged. If `end_thread` is cancelled, the conversation ends nevertheless.
        """
        self._end(thread_id)
        closing = {task for task, each in self._closings.items() if each == thread_id}
        if closing:
            await asyncio.wait(closing)

    async def end_tool(self, tool_name: str, thread_ids: Iterable[str]) -> None:
        """Close a tool's instances in some conversations, as `end_thread` does.

        Their next uses create new ones.

        Raises:
            ToolError: The calling code uses such an instance itself. No instance is closed then.
        """
        threads = {
            each: self._threads[each].instances for each in thread_ids if each in self._threads
        }
        ended = {each: found[tool_name] for each, found in threads.items() if tool_name in found}
        for instance in ended.values():
            instance.refuse_within_a_use(tool_name)
        closing = set()
        for thread_id in ended:
            instances = {tool_name: threads[thread_id].pop(tool_name)}
            closing.add(self._start_closing(thread_id, self._close_all(instances)))
        if closing:
            await asyncio.wait(closing)

    def end_idle(self) -> None:
        """End the conversations that have been idle for `idle_seconds`.

        A timer calls this when the first idle conversation is due. Call it to free instances
        earlier, for example after the clock was changed. It does not wait until they are closed.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock()
        for thread_id, thread in list(self._threads.items()):
            if not thread.uses and thread.used_at + self._idle_seconds <= now:
                self._end(thread_id)
        self._set_timer()

    async def aclose(self) -> None:
        """End all conversations and reject new ones.

        A cancellation is delayed until all are closed, which takes a bounded time.

        Raises:
            asyncio.CancelledError: The task was cancelled meanwhile.
        """
        self._closed = True
        for thread_id in list(self._threads):
            self._end(thread_id)
        if self._timer is not None:
            self._timer.cancel()
        while self._closings:
            closing = asyncio.gather(*self._closings)
            if cancellation := await finish_despite_cancellation(closing):
                raise cancellation

    def _note_use(self, thread_id: str, thread: _Conversation, change: int) -> None:
        thread.uses += change
        thread.used_at = self._clock()
        if self._threads.get(thread_id) is thread:
            self._threads.move_to_end(thread_id)
        surplus = len(self._threads) - self._max_threads
        if surplus > 0:
            idle = [each for each, thread in self._threads.items() if not thread.uses]
            for each in idle[:surplus]:
                self._end(each)
        self._set_timer()

    def _set_timer(self) -> None:
        """Schedule `end_idle` for the time when the first idle conversation is due."""
        oldest = next((each for each in self._threads.values() if not each.uses), None)
        if self._timer is None and not self._closed and oldest is not None:
            left = oldest.used_at + self._idle_seconds - self._clock()
            loop = asyncio.get_running_loop()
            # Without the context of the call that happens to set the timer.
            self._timer = loop.call_later(max(0.0, left), self.end_idle, context=Context())

    async def _open(self, tool_name: str, instance: _Instance, create: Create) -> None:
        await self._refuse_if_over(tool_name, instance)
        if instance.stack is None:
            task = asyncio.current_task()
            cancelled_before = task.cancelling() if task else 0
            await instance.create(create)
            await self._refuse_if_over(tool_name, instance)
            if task and task.cancelling() > cancelled_before:
                raise asyncio.CancelledError  # a thread suppressed the cancellation

    async def _refuse_if_over(self, tool_name: str, instance: _Instance) -> None:
        if instance.is_over:
            # It may have been created since. Not closed in this task, which may be cancelled.
            await asyncio.wait({self._start_closing("", self._close(tool_name, instance))})
            raise ToolError(
                f"The conversation ended before the tool {tool_name!r} could be used in it."
            )

    def _end(self, thread_id: str) -> None:
        """Start to close a conversation. If it is used later, it gets new instances."""
        thread = self._threads.pop(thread_id, None)
        if thread is not None:
            self._start_closing(thread_id, self._close_all(thread.instances))

    def _start_closing(
        self, thread_id: str, closing: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        # In a task, because the caller may be cancelled; without the context of a call.
        task = asyncio.create_task(closing, context=Context())
        self._closings[task] = thread_id
        task.add_done_callback(self._closings.pop)
        return task

    async def _close_all(self, instances: dict[str, _Instance]) -> None:
        for tool_name, instance in reversed(instances.items()):
            # Calls that began earlier have their turns first; later calls get a new instance.
            turn = asyncio.create_task(instance.lock.acquire())
            await wait_for_end(turn, time.monotonic() + self._close_seconds)
            instance.is_over = True
            if turn.cancelled():
                log.warning("stateful_tool_closed_in_use", tool=tool_name)
            await self._close(tool_name, instance)

    async def _close(self, tool_name: str, instance: _Instance) -> None:
        if instance.stack is None:
            return
        async with self._cleanups:
            work = asyncio.create_task(_failure_to_close(instance.stack))
            await wait_for_end(work, time.monotonic() + self._close_seconds)
        if not work.done():
            self._background_tasks.add(work)
            work.add_done_callback(self._background_tasks.discard)
        if not work.done() or work.cancelled():
            log.warning("stateful_tool_close_cut_short", tool=tool_name)
        elif (error := work.result()) is not None:
            log.warning("stateful_tool_close_failed", tool=tool_name, error=type(error).__name__)


# --- STATEFUL tools: an object of the application that is kept for each conversation.


@runtime_checkable
class HasThreads(Protocol):
    """The part of a run that stateful tools need."""

    @property
    def threads(self) -> ThreadContextManager:
        """The instances of all conversations."""
        ...

    async def conversation(self) -> str:
        """Return the key of the caller's conversation."""
        ...


def stateful_tool(
    *,
    name: str,
    create: Callable[..., Any],
    description: str | None = None,
    parameters: JsonSchema | None = None,
    **options: Unpack[ToolOptions],
) -> Tool:
    """Define a tool that keeps an object between the calls of a conversation.

    Each conversation has an instance of its own, which its first call creates. Calls of one
    conversation use it one after the other. When the conversation ends, or has been idle for long,
    the instance is closed, as `_Instance.create` describes. Synchronous code runs in
    threads. An instance may be created, used and closed in different threads.

    Args:
        name: The name for the model.
        create: Creates an instance: a class or a function, synchronous or not. Its only required
            parameter, if any, receives the `ToolContext` of the conversation's first call. The
            instance has a method `execute`, synchronous or not, or is itself callable. If it is an
            asynchronous context manager, such as one made with `contextlib.asynccontextmanager`,
            it is entered, and exited at the end.
        description: The description for the model; by default the docstring of `execute`.
        parameters: The JSON Schema of its arguments. By default it is derived from the signature
            of `execute`, if `create` is a class or its return type is annotated.
        options: See `Tool`. Parameters of `execute` are also hidden by their types
            (`tracer.tools.parameters`), if the class of `execute` is known.

    Raises:
        RegistrationError: `create` has more than one required parameter; the arguments of `execute`
            cannot be derived; or its signature does not match `parameters`.
    """
    wants_context = _wants_context(name, create)
    execute = _execute_of_class(create)
    check = None
    if parameters is not None:
        hidden = hidden_parameters(name, options.get("hidden", {}))
        if execute is not None:
            hidden = {**hidden_by_type(execute), **hidden}
            parameters = matching(name, execute, parameters, hidden).parameters
    elif execute is not None:
        signature = signature_of(execute, options.get("hidden"))
        description = description or signature.description
        hidden, check = signature.hidden, signature.parameters.check
        parameters = signature.parameters.json_schema
    else:
        raise RegistrationError(
            f"The arguments of the tool {name!r} cannot be derived. Give `parameters`, or pass as "
            "`create` a class with a method `execute`, or a function annotated to return one."
        )
    names = parameter_names(parameters) | hidden.keys()

    async def run(arguments: Arguments, context: ToolContext) -> Any:
        run = _run_of(context)
        make = partial(called, create, context) if wants_context else create
        async with run.threads.instance(await run.conversation(), name, make) as instance:
            return await collected(by_name(_execute_of(instance), names), **arguments)

    tool_options: ToolOptions = {**options, "hidden": hidden}
    return Tool(
        name=name,
        description=description or "",
        parameters=parameters,
        check=check,
        run=run,
        tool_type=ToolType.STATEFUL,
        **tool_options,
    )


def _run_of(context: ToolContext) -> HasThreads:
    if not isinstance(context.run, HasThreads):
        raise LineageError(
            "This tool keeps an object between calls, so only a run or a tool service can call it."
        )
    return context.run


def _execute_of(instance: object) -> Callable[..., Any]:
    execute = getattr(instance, "execute", instance)
    if callable(execute):
        return cast("Callable[..., Any]", execute)
    raise TypeError(
        f"{type(instance).__name__} has no method `execute`, and is not callable itself."
    )


def _wants_context(name: str, create: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(create)
    except ValueError:  # a class of an extension module may have no signature
        return False
    required = [
        each
        for each in signature.parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if len(required) > 1 or any(each.kind is each.KEYWORD_ONLY for each in required):
        raise RegistrationError(
            f"The function that creates the tool {name!r} requires "
            f"{', '.join(map(str, required))}. It can have one required parameter, which receives "
            "the ToolContext by position."
        )
    return bool(required)


def _execute_of_class(create: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the method `execute` of the class of the instances, without its `self`.

    Return None if the class is not known.

    Raises:
        RegistrationError: `create` is a generator.
    """
    if is_generator(create):
        raise RegistrationError(
            f"{getattr(create, '__name__', create)!r} is a generator: decorate it with "
            "contextlib.asynccontextmanager, or return the instance."
        )
    for kind in (create, *_returned(create)):
        if inspect.isclass(kind) and hasattr(kind, "execute"):
            static = inspect.getattr_static(kind, "execute")
            # Bound to the class, so that its signature has no `self`.
            bound = MethodType(static, kind) if isinstance(static, FunctionType) else kind.execute
            return cast("Callable[..., Any]", bound)
    return None


def _returned(create: Callable[..., Any]) -> tuple[Any, ...]:
    """Return a function's return type and its type arguments, such as `X` of `AsyncIterator[X]`."""
    if inspect.isclass(create):
        return ()
    try:
        returned = get_type_hints(inspect.unwrap(create)).get("return")
    except (NameError, TypeError):
        return ()
    return (returned, *get_args(returned))
