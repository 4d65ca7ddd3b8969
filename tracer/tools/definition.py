"""Tools: what a model may call, and the decorator that makes one of a function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, overload

from tracer.context import ToolContext
from tracer.tools.arguments import JsonSchema, schema_check
from tracer.tools.signature import signature_of
from tracer.tools.threads import run_in_thread

Arguments = dict[str, Any]
"""What a tool is called with, by parameter."""


@dataclass(frozen=True, eq=False)
class Tool:
    """Something that a model may call."""

    name: str
    description: str
    """What it does, in words for the model."""
    parameters: JsonSchema
    """The JSON Schema of its arguments, an object; what the model sees."""
    run: Callable[[Arguments, ToolContext], Awaitable[Any]]
    """Carries out one call. Raises `ToolError` to refuse it; any other error is a failure too."""
    tool_type: str = "STATELESS"
    """The kind of tool, as the records show it."""
    timeout: float | None = None
    """After how many seconds a call is given up; None: only when the plan's time is over."""
    max_attempts: int = 1
    """How often a call is tried when it raises anything but a `ToolError`."""
    ends_by_itself: bool = False
    """Whether `run` sees to its deadline itself and ends when it is cancelled, as our own
    sub-plans do. Other tools are given up when they go on regardless."""
    opens_plans: bool = False
    """Whether it opens sub-plans: not offered where they are nested as deep as allowed."""
    check: Callable[[Arguments], Arguments] | None = None
    """Turns the model's arguments into those of `run`, or raises `InvalidArguments`. Unless given,
    they are held against `parameters`."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("A tool needs a name.")
        if self.max_attempts < 1:
            raise ValueError(f"The tool {self.name!r} has to be tried at least once.")
        if self.check is None:
            object.__setattr__(self, "check", schema_check(self.parameters))

    def checked(self, arguments: Arguments) -> Arguments:
        """Return the arguments that `run` receives for those of the model.

        Raises:
            InvalidArguments: They do not fit.
        """
        assert self.check is not None
        return self.check(arguments)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    max_attempts: int = 1,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    max_attempts: int = 1,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, synchronous or asynchronous.

    The JSON Schema comes from its type hints and its docstring's `Args:` section. A parameter
    annotated `ToolContext` receives the call's context and is hidden from the model. Synchronous
    functions run in a thread, with the context.

    Args:
        function: The function, where the decorator is used without parentheses.
        name: What the model calls it; the function's name unless given.
        description: What it does, for the model; the docstring without its sections unless given.
        timeout: After how many seconds a call is given up.
        max_attempts: How often a call is tried when it raises anything but a `ToolError`.

    Raises:
        TypeError: A parameter's type cannot be told, or cannot be filled from JSON.
    """

    def make(function: Callable[..., Any]) -> Tool:
        signature = signature_of(function)
        return Tool(
            name=name or function.__name__,
            description=description or signature.description,
            parameters=signature.parameters.json_schema,
            check=signature.parameters.check,
            run=_runner(function, signature.context_parameters),
            timeout=timeout,
            max_attempts=max_attempts,
        )

    return make if function is None else make(function)


def _runner(
    function: Callable[..., Any], context_parameters: tuple[str, ...]
) -> Callable[[Arguments, ToolContext], Awaitable[Any]]:
    is_async = inspect.iscoroutinefunction(inspect.unwrap(function))

    async def run(arguments: Arguments, context: ToolContext) -> Any:
        arguments = {**arguments, **dict.fromkeys(context_parameters, context)}
        if is_async:
            return await function(**arguments)
        result = await run_in_thread(function, **arguments)
        # A function that is not declared async may still hand back something to wait for.
        return await result if inspect.isawaitable(result) else result

    return run
