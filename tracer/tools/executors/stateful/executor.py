"""STATEFUL tools: an object of the application that is kept for each conversation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Protocol, Unpack, cast, get_args, get_type_hints, runtime_checkable

from tracer.context import ToolContext
from tracer.errors import LineageError, RegistrationError
from tracer.threads import called, collected, is_generator
from tracer.tools.definition.arguments import Arguments, JsonSchema
from tracer.tools.definition.hidden_parameters import parameter_names
from tracer.tools.definition.signature import hidden_by_type, hidden_parameters, signature_of
from tracer.tools.definition.tool import Tool, ToolOptions, ToolType
from tracer.tools.executors.function.matching import by_name, matching
from tracer.tools.executors.stateful.thread_context import ThreadContextManager


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
            (`tracer.tools.definition.hidden_parameters`), if the class of `execute` is known.

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
