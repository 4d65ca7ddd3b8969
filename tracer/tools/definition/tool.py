"""Tools: what a model may call, and the decorator that makes one of a function."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypedDict, Unpack, overload

from pydantic import TypeAdapter, ValidationError

from tracer.context import ToolContext
from tracer.errors import InvalidResult, RegistrationError
from tracer.threads import called, is_generator
from tracer.tools.definition.arguments import Arguments, JsonSchema, schema_check
from tracer.tools.definition.hidden_parameters import (
    HIDDEN,
    forbidden_names,
    visible_schema,
    without_forged,
)
from tracer.tools.definition.hooks import Hook, hooks_of
from tracer.tools.definition.signature import hidden_parameters, signature_of

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
    hidden: Mapping[str, Any]


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
    """The parameters that the runtime fills, by name: `{"user_id": UserId}`. They are removed from
    `parameters`, so the model does not see them."""
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
    item_tool: Tool | None = None
    """The tool that a `BATCH` tool calls once for each of its argument `items`."""

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
        hidden = hidden_parameters(self.name, self.hidden)
        object.__setattr__(self, "hidden", hidden)
        # Here, because every tool passes through here, in whatever way it is made or registered.
        visible = visible_schema(self.name, self.parameters, hidden)
        object.__setattr__(self, "parameters", visible)
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

    def without_forged_values(self, text: str) -> str:
        """Return a call's arguments for the records: `[hidden]` replaces each forged value.

        Args:
            text: The model's text. Text that is no JSON object is returned unchanged.
        """
        if not self.forbidden_names and self.item_tool is None:
            return text
        try:
            arguments = json.loads(text)
        except (ValueError, RecursionError):
            return text
        masked = self._masked(arguments)
        if masked is arguments:
            return text
        return json.dumps(masked, ensure_ascii=False, separators=(",", ":"))

    def _masked(self, arguments: Any) -> Any:
        """Return a copy without forged values; `arguments` itself if it has none."""
        if not isinstance(arguments, dict):
            return arguments
        _, forged = without_forged(arguments, self.forbidden_names)
        masked: dict[str, Any] = dict.fromkeys(forged, HIDDEN)
        if self.item_tool is not None and isinstance(items := arguments.get("items"), list):
            new = [self.item_tool._masked(each) for each in items]
            if any(each is not item for each, item in zip(new, items, strict=True)):
                masked["items"] = new
        return {**arguments, **masked} if masked else arguments

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

    The JSON Schema comes from its type hints and its docstring. The runtime fills hidden parameters
    (`tracer.tools.definition.hidden_parameters`), such as a `ToolContext`. Synchronous functions
    run in a thread, with the caller's context variables.

    Args:
        function: The function, if the decorator is used without parentheses.
        name: The name for the model; by default the function's.
        description: The description for the model; by default the docstring without its sections.
        result: A type that pydantic validates the result against and converts it to.
        options: See `Tool`. `hidden` hides parameters whose types do not: `{"token_id": TokenId}`.

    Raises:
        RegistrationError: A parameter has no type, or one that cannot be filled from JSON; or the
            function is a generator, or a method without its instance.
    """

    def make(function: Callable[..., Any]) -> Tool:
        signature = signature_of(function, options.get("hidden"))
        made: ToolOptions = {**options, "hidden": signature.hidden}
        return Tool(
            name=name or _name_of(function),
            description=description or signature.description,
            parameters=signature.parameters.json_schema,
            check=signature.parameters.check,
            check_result=None if result is None else _result_check(result),
            run=runner_of(function),
            **made,
        )

    return make if function is None else make(function)


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    if name is None:
        raise RegistrationError(f"{function!r} has no name. Give the tool one: tool(name=…).")
    return str(name)


def runner_of(
    function: Callable[..., Any],
) -> Callable[[Arguments, ToolContext], Awaitable[Any]]:
    """Return a `Tool.run` that calls a function with the arguments by name.

    Raises:
        RegistrationError: The function is a generator.
    """
    reject_generator(function)

    async def run(arguments: Arguments, context: ToolContext) -> Any:
        return await called(function, **arguments)

    return run


def reject_generator(function: Callable[..., Any]) -> None:
    """Return if a function is no generator, whose body would never run.

    Raises:
        RegistrationError: It is one.
    """
    if is_generator(function):
        raise RegistrationError(
            f"{getattr(function, '__name__', function)!r} is a generator, and a tool has one "
            "result. Return it, for example as a list, instead of yielding."
        )


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
