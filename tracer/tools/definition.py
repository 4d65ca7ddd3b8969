"""Tools: what a model may call, and the decorator that makes one of a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypedDict, Unpack, overload

from pydantic import TypeAdapter, ValidationError

from tracer.context import ToolContext
from tracer.errors import InvalidResult, RegistrationError
from tracer.tools.arguments import Arguments, JsonSchema, schema_check
from tracer.tools.hidden import forbidden_names
from tracer.tools.hooks import Hook, hooks_of
from tracer.tools.session_state import RunContext, SessionState
from tracer.tools.signature import hidden_parameters, signature_of
from tracer.tools.threads import called

PARALLEL = "parallel"
EXCLUSIVE = "exclusive"

HookFunction = Callable[..., Any] | Hook


class ToolType(StrEnum):
    """The kinds of tools, as the records show them."""

    STATELESS = "STATELESS"
    """A function."""
    STATEFUL = "STATEFUL"
    """An object for each conversation."""
    REST = "REST"
    """An HTTP request."""
    MCP = "MCP"
    """A tool of a server that speaks the Model Context Protocol."""
    SUBPLAN = "SUBPLAN"
    """A plan of other agents."""
    BATCH = "BATCH"
    """Another tool, once for each item."""


class ToolOptions(TypedDict, total=False):
    """What may be said of any tool; see the fields of `Tool`."""

    timeout: float | None
    max_attempts: int
    tags: Iterable[str]
    hooks: Sequence[HookFunction]
    concurrency: str
    max_parallel: int | None


@dataclass(frozen=True, eq=False)
class Tool:
    """Something that a model may call."""

    name: str
    description: str
    """What it does, in words for the model."""
    parameters: JsonSchema
    """The JSON Schema of its arguments, an object; what the model sees."""
    run: Callable[[Arguments, ToolContext], Awaitable[Any]]
    """Carries out one attempt. Raises `ToolError` to refuse; any other error is a failure too."""
    tool_type: ToolType = ToolType.STATELESS
    """The kind of tool, as the records show it."""
    timeout: float | None = None
    """After how many seconds a call is given up; None: only when the plan's time is over."""
    max_attempts: int = 1
    """How often a call is tried when it raises an error that may pass."""
    tags: Iterable[str] = frozenset()
    """Labels to find it by."""
    hooks: Sequence[HookFunction] = ()
    """What stands around it, the first outermost; an agent's own hooks stand around those."""
    concurrency: str = PARALLEL
    """`parallel`; `exclusive`: no other call of its batch runs meanwhile; or the name of a group,
    of which one call runs at a time."""
    max_parallel: int | None = None
    """How many calls of it run at once in this process; others wait, and are `pending`."""
    hidden: Mapping[str, Any] = field(default_factory=dict)
    """The parameters that the runtime fills, by name: `{"user_id": UserId}`."""
    ends_by_itself: bool = False
    """Whether `run` sees to its deadline itself and ends when it is cancelled, as our own
    sub-plans do. Other tools are given up when they go on regardless."""
    opens_plans: bool = False
    """Whether it opens sub-plans: not offered where they are nested as deep as allowed."""
    check: Callable[[Arguments], Arguments] | None = None
    """Turns the model's arguments into those of `run`, or raises `InvalidArguments`. Unless given,
    they are held against `parameters`."""
    check_result: Callable[[Any], Any] | None = None
    """Turns what `run` returned into the result, or raises `InvalidResult`."""

    def __post_init__(self) -> None:
        if not self.name:
            raise RegistrationError("A tool needs a name.")
        if self.max_attempts < 1:
            raise RegistrationError(f"The tool {self.name!r} has to be tried at least once.")
        if self.max_parallel is not None and self.max_parallel < 1:
            raise RegistrationError(f"The tool {self.name!r} has to be allowed one call at once.")
        if self.ends_by_itself and (self.concurrency != PARALLEL or self.max_parallel):
            # Calls that wait for places while they hold some could wait for each other.
            raise RegistrationError(
                f"The tool {self.name!r} makes calls of its own, so it can't be limited itself: "
                "limit the tools that it calls."
            )
        object.__setattr__(self, "tags", frozenset(self.tags))
        object.__setattr__(self, "hooks", hooks_of(self.hooks))
        hidden = hidden_parameters(self.name, self.hidden, self.parameters)
        object.__setattr__(self, "hidden", hidden)
        object.__setattr__(self, "forbidden_names", forbidden_names(hidden))
        if self.check is None:
            try:
                check = schema_check(self.parameters)
            except ValueError as error:
                raise RegistrationError(
                    f"The parameters of the tool {self.name!r} can't be used as a schema: {error}"
                ) from error
            object.__setattr__(self, "check", check)

    forbidden_names: frozenset[str] = field(init=False, repr=False)
    """What a model may not give: its hidden parameters' names, as `spelt_alike` has them."""

    @property
    def effective_parameters(self) -> JsonSchema:
        """The JSON Schema of all that `run` receives, the hidden parameters included."""
        properties = dict(self.parameters.get("properties", {}))
        for name, each in self.hidden.items():
            properties[name] = {"description": "Filled by the runtime.", "x-hidden": each.type_name}
        return {**self.parameters, "properties": properties}

    @property
    def wants_state(self) -> bool:
        """Whether it reads or changes the conversation's state."""
        return any(each.kind in (RunContext, SessionState) for each in self.hidden.values())

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
    result: Any = None,
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    result: Any = None,
    **options: Unpack[ToolOptions],
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, synchronous or asynchronous.

    The JSON Schema comes from its type hints and its docstring. Parameters that are hidden
    (`tracer.tools.hidden`), such as a `ToolContext`, are filled by the runtime. Synchronous
    functions run in a thread, with the context.

    Args:
        function: The function, where the decorator is used without parentheses.
        name: What the model calls it; the function's name unless given.
        description: What it does, for the model; the docstring without its sections unless given.
        result: A type that what it returns is held against and turned into, as pydantic does.
        options: See `Tool`.

    Raises:
        RegistrationError: A parameter's type cannot be told, or cannot be filled from JSON.
    """

    def make(function: Callable[..., Any]) -> Tool:
        signature = signature_of(function)
        return Tool(
            name=name or function.__name__,
            description=description or signature.description,
            parameters=signature.parameters.json_schema,
            check=signature.parameters.check,
            check_result=None if result is None else _result_check(result),
            hidden=signature.hidden,
            run=runner_of(function),
            **options,
        )

    return make if function is None else make(function)


def runner_of(
    function: Callable[..., Any],
) -> Callable[[Arguments, ToolContext], Awaitable[Any]]:
    """Return what carries out a call of a tool that is a function; see `Tool.run`."""

    async def run(arguments: Arguments, context: ToolContext) -> Any:
        return await called(function, **arguments)

    return run


def _result_check(kind: Any) -> Callable[[Any], Any]:
    """Return a function that turns a result into a type, or raises `InvalidResult`."""
    adapter = TypeAdapter(kind)

    def check(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            details = error.errors(include_input=False, include_context=False, include_url=False)
            where = "; ".join(
                f"{'.'.join(map(str, each['loc'])) or 'result'}: {each['msg']}" for each in details
            )
            raise InvalidResult(f"The tool's result is not what it should be. {where}.") from None

    return check
