"""Tools: functions and other work that a model may call, and the decorator `tool`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, Literal, TypedDict, Unpack, overload

from pydantic import TypeAdapter, ValidationError

from tracer.context import Identity, ToolContext
from tracer.errors import InvalidResult, RegistrationError
from tracer.threads import collected
from tracer.tools.definition.arguments import Arguments, JsonSchema, schema_check
from tracer.tools.definition.hidden_parameters import (
    HIDDEN,
    HiddenParameter,
    forbidden_names,
    is_about_caller,
    parameter_names,
    visible_schema,
    without_forged,
)
from tracer.tools.definition.hooks import Hook, hooks_of
from tracer.tools.definition.signature import hidden_parameters, signature_of

Concurrency = Literal["parallel", "exclusive"]
PARALLEL: Concurrency = "parallel"
EXCLUSIVE: Concurrency = "exclusive"

HookFunction = Callable[..., Any] | Hook


class ToolType(StrEnum):
    """The kinds of tools, as they are recorded."""

    STATELESS = "STATELESS"
    """A function."""
    STATEFUL = "STATEFUL"
    """An object that is kept for each conversation."""
    REST = "REST"
    """An HTTP request."""
    MCP = "MCP"
    """A tool of a server of the Model Context Protocol."""
    SUBPLAN = "SUBPLAN"
    """A sub-plan, which other agents execute."""
    BATCH = "BATCH"
    """Calls another tool once for each item of a list."""


class ToolOptions(TypedDict, total=False):
    """The options of any tool; see the fields of `Tool`."""

    timeout: float | None
    max_attempts: int
    tags: Iterable[str]
    tool_hooks: Sequence[HookFunction]
    concurrency: Concurrency
    max_parallel: int | None
    hidden: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Tool:
    """Something that a model may call."""

    name: str
    description: str
    """A description for the model."""
    parameters: JsonSchema
    """The JSON Schema of the tool's arguments, an object, as the model sees it."""
    run: Callable[[Arguments, ToolContext], Awaitable[Any]]
    """Runs one attempt. Any error that it raises fails the attempt. A `ToolError` also sets the
    reason of the failure, and whether a retry may succeed."""
    tool_type: ToolType = ToolType.STATELESS
    """The kind of tool, as it is recorded."""
    timeout: float | None = None
    """The timeout of a call in seconds. None: only the plan's deadline applies."""
    max_attempts: int = 1
    """The largest number of attempts. A call is retried only after a transient error."""
    tags: Iterable[str] = frozenset()
    """Labels by which tools can be selected."""
    tool_hooks: Sequence[HookFunction] = ()
    """The hooks around the tool, the first outermost. An agent's own hooks are outside of these."""
    concurrency: Concurrency = PARALLEL
    """`exclusive`: no other call of the same round (or item of the same batch call) runs at the
    same time."""
    max_parallel: int | None = None
    """How many calls of the tool run at once in this process. Other calls wait as `pending`. A call
    that another call makes is not counted if that call counts against a limit itself."""
    hidden: Mapping[str, Any] = field(default_factory=dict)
    """The parameters that the runtime fills, by name: `{"user_id": UserId}`. They are removed from
    `parameters`, so the model does not see them."""
    ends_by_itself: bool = False
    """Whether `run` always ends after its deadline or a cancellation, as sub-plans do. For other
    tools, the runtime records the ending after a short wait, even if the tool still runs."""
    opens_plans: bool = False
    """Whether the tool opens sub-plans. Agents at the maximum depth of plans cannot use it."""
    check: Callable[[Arguments], Arguments] | None = None
    """Converts the model's arguments to the arguments of `run`, or raises `InvalidArguments`. By
    default, the arguments are only checked against `parameters`."""
    check_result: Callable[[Any], Any] | None = None
    """Converts the return value of `run` to the result, or raises `InvalidResult`."""
    caller: Identity | None = field(default=None, repr=False)
    """The caller of all calls; None: the caller of the run. See `bind`."""
    item_tool: Tool | None = None
    """The tool that a `BATCH` tool calls once for each item of its argument `items`."""

    def __post_init__(self) -> None:
        if not self.name:
            raise RegistrationError("A tool needs a name.")
        if self.max_attempts < 1:
            raise RegistrationError(f"The tool {self.name!r} needs max_attempts of at least 1.")
        if self.max_parallel is not None and self.max_parallel < 1:
            raise RegistrationError(f"The tool {self.name!r} needs max_parallel of at least 1.")
        if self.concurrency not in (PARALLEL, EXCLUSIVE):
            raise RegistrationError(
                f"The tool {self.name!r} has an unknown concurrency, {self.concurrency!r}. Use "
                "'parallel' or 'exclusive'."
            )
        if self.ends_by_itself and (self.concurrency != PARALLEL or self.max_parallel):
            # A limited call that makes limited calls could wait for itself.
            raise RegistrationError(
                f"The tool {self.name!r} starts other tool calls, so it cannot have limits. Set "
                "`concurrency` or `max_parallel` on the tools that it calls."
            )
        object.__setattr__(self, "tags", frozenset(self.tags))
        object.__setattr__(self, "tool_hooks", hooks_of(self.tool_hooks))
        hidden = hidden_parameters(self.name, self.hidden)
        object.__setattr__(self, "hidden", hidden)
        # Here, because every tool is constructed here, however it is defined or registered.
        visible = visible_schema(self.name, self.parameters, hidden)
        object.__setattr__(self, "parameters", visible)
        object.__setattr__(self, "forbidden_names", forbidden_names(hidden))
        if self.check is None:
            try:
                check = schema_check(self.parameters)
            except ValueError as error:
                raise RegistrationError(
                    f"The parameters of the tool {self.name!r} are not a valid JSON Schema: {error}"
                ) from error
            object.__setattr__(self, "check", check)

    forbidden_names: frozenset[str] = field(init=False, repr=False)
    """The normalized names of its hidden parameters, which a model must not supply."""

    @property
    def effective_parameters(self) -> JsonSchema:
        """The JSON Schema of all that `run` receives, including the hidden parameters."""
        properties = dict(self.parameters.get("properties", {}))
        for name, each in self.hidden.items():
            properties[name] = {"description": "Filled by the runtime.", "x-hidden": each.type_name}
        return {**self.parameters, "properties": properties}

    def has_parameter(self, name: str) -> bool:
        """Return whether `bind` accepts this name."""
        return name == "token_id" or name in self.hidden or name in parameter_names(self.parameters)

    def bind(self, **values: Any) -> Tool:
        """Return a copy of the tool in which parameters have fixed values.

        A bound parameter is hidden, and its value is treated as a hidden value. A text for
        `token_id`, or for any parameter of the type `TokenId`, `UserId` or `User`, is the token of
        the caller of all calls, in place of the run's caller.

        Args:
            values: The values by parameter.

        Raises:
            RegistrationError: The tool has no such parameter, or two different callers are given.
        """
        shown = parameter_names(self.parameters)
        fixed = {}
        tokens = set()
        for name, value in values.items():
            parameter = self.hidden.get(name)
            if not self.has_parameter(name):
                raise RegistrationError(
                    f"The tool {self.name!r} has no parameter {name!r} to bind."
                )
            if isinstance(value, str) and is_about_caller(parameter, name):
                tokens.add(value)
            else:
                fixed[name] = HiddenParameter(Any, partial(_same, value))
        if len(tokens) > 1 or "" in tokens:
            raise RegistrationError(
                f"Bind the tool {self.name!r} to one token, which is not empty."
            )
        visible = {name: values[name] for name in fixed.keys() & shown}

        def check(arguments: Arguments) -> Arguments:
            return self.checked({**arguments, **visible})

        return replace(
            self,
            hidden={**self.hidden, **fixed},
            check=check if visible else self.check,
            caller=Identity(tokens.pop()) if tokens else self.caller,
        )

    def without_forged_values(self, text: str) -> str:
        """Return a call's arguments for its record.

        The text `[hidden]` replaces values that the model supplied for hidden parameters.

        Args:
            text: The model's text. Text that is not a JSON object is returned unchanged.
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
        """Return the arguments with `[hidden]` in place of values for hidden parameters."""
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
        """Return the arguments for `run`, converted from the model's arguments.

        Raises:
            InvalidArguments: The arguments do not match the parameters.
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
    """Define a tool from a function, synchronous or asynchronous, which may be a generator.

    The JSON Schema is derived from the function's type hints and docstring. A parameter without a
    type has the type of its default, or else is a string. The runtime fills hidden parameters
    (`tracer.tools.definition.hidden_parameters`), such as a `ToolContext`, and `agent`, `team`,
    `context` and `run_context` without a type. Synchronous functions run in a thread, with the
    caller's context variables.

    Args:
        function: The function, if the decorator is used without parentheses.
        name: The name for the model; by default the function's.
        description: The description for the model; by default the docstring without its sections.
        result: The type of the result. Pydantic validates the function's return value, and converts
            it to this type.
        options: See `Tool`. `hidden` hides more parameters, as in `{"token_id": TokenId}`.

    Raises:
        RegistrationError: A parameter has a type that cannot be read from JSON; or the function is
            a method without its instance.
    """

    def make(function: Callable[..., Any]) -> Tool:
        signature = signature_of(function, options.get("hidden"))
        tool_options: ToolOptions = {**options, "hidden": signature.hidden}
        return Tool(
            name=name or _name_of(function),
            description=description or signature.description,
            parameters=signature.parameters.json_schema,
            check=signature.parameters.check,
            check_result=None if result is None else _result_check(result),
            run=runner_of(function),
            **tool_options,
        )

    return make if function is None else make(function)


def _same(value: Any) -> Any:
    return value


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    if name is None:
        raise RegistrationError(f"{function!r} has no name. Give the tool one: tool(name=…).")
    return str(name)


def runner_of(
    function: Callable[..., Any],
) -> Callable[[Arguments, ToolContext], Awaitable[Any]]:
    """Return a `Tool.run` that calls a function with the arguments by name."""

    async def run(arguments: Arguments, context: ToolContext) -> Any:
        return await collected(function, **arguments)

    return run


def _result_check(kind: Any) -> Callable[[Any], Any]:
    """Return a function that converts a result to a type, or raises `InvalidResult`."""
    adapter = TypeAdapter(kind)

    def check(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            details = error.errors(include_input=False, include_context=False, include_url=False)
            where = "; ".join(
                f"{'.'.join(map(str, each['loc'])) or 'result'}: {each['msg']}" for each in details
            )
            raise InvalidResult(
                f"The tool's result does not have the declared type. {where}."
            ) from None

    return check
