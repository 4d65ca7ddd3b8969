"""Tools, the decorator `tool`, their hooks, and toolkits of related tools."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from threading import Event
from typing import Any, Literal, TypedDict, Unpack, overload
from uuid import UUID

import anyio
from pydantic import TypeAdapter, ValidationError

from tracer.concurrency import call_in_thread, collected, is_async, is_generator
from tracer.context import Identity, ToolContext
from tracer.errors import InvalidResult, RegistrationError
from tracer.tools.parameters import (
    HIDDEN,
    Arguments,
    HiddenParameter,
    JsonSchema,
    forbidden_names,
    is_about_caller,
    parameter_names,
    schema_check,
    visible_schema,
    without_forged,
)
from tracer.tools.signature import RunContext, hidden_by_type, hidden_parameters, signature_of

# --- Hooks: middleware around the calls of one tool, or of all tools of an agent.
#
# A hook is a function, synchronous or asynchronous. Its parameters' names select what it receives:
#
#     async def only_at_night(next, arguments):
#         if is_day():
#             raise Denied("Come back tonight.")
#         return await next(arguments)
#
# The runtime also fills a hook's hidden parameters, such as `user_id: UserId`
# (`tracer.tools.parameters`). `next(arguments)` runs the inner hooks and the tool, and returns the
# result. `function_call(**arguments)`, Agno's form, does the same. A hook may change the arguments,
# continue again, or return a value of its own without continuing. If a hook raises an error, the
# call fails; the tool does not run unless the hook continued before. A synchronous hook runs in a
# thread, where these functions block.

_BY_KEYWORD = ("function", "func", "function_call")
"""Agno's names of a function that continues as `next` does, with the arguments by name."""

HOOK_PARAMETERS = tuple(
    "next function func function_call call name function_name arguments args tool context"
    " run_context agent team".split()
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
    with suppress(RuntimeError):
        return asyncio.get_running_loop() is loop
    return False


# --- Tools: functions and other work that a model may call, and the decorator `tool`.

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
    (`tracer.tools.parameters`), such as a `ToolContext`, and `agent`, `team`,
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


# --- Toolkits: related tools, with their instructions and their session state.
#
# class CustomerTools(Toolkit):
#     def __init__(self) -> None:
#         super().__init__(instructions="Look customers up before you create them.")
#         self.register(self.find_customer)
#
#     def find_customer(self, customer_id: str) -> str:
#         """Find a customer."""
#
# agent = Agent("clerk", "Help customers.", tools=(CustomerTools(),))


class Toolkit:
    """Related tools. Derive a class, and register its methods in `__init__`.

    One instance serves all callers: every run and user of every agent that has the toolkit, in
    parallel and from several threads. Do not store a caller's data in its attributes. Use the
    session state (`tracer.tools.signature`) for data of a conversation, and a
    stateful tool (`tracer.tools.functions`) for an object that a conversation
    needs, such as a connection.
    """

    def __init__(
        self,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        *,
        instructions: str = "",
        tool_hooks: Sequence[HookFunction] = (),
        session_state: Mapping[str, Any] | None = None,
    ) -> None:
        """Register tools; more can be added with `register`.

        Args:
            tools: Tools or functions; see `register`.
            instructions: Added to the instructions of each agent that has the toolkit in its
                `tools`.
            tool_hooks: Hooks around each of its tools, outside of the tool's own.
            session_state: Added to the state that a conversation begins with. The
                application's own `session_state` takes precedence.

        Raises:
            RegistrationError: See `register`.
        """
        self.instructions = instructions
        self.tool_hooks = tool_hooks
        self.session_state: Mapping[str, Any] = dict(session_state or {})
        self._tools: dict[str, Tool] = {}
        for each in tools:
            self.register(each)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, in the order in which they were registered."""
        return tuple(self._tools.values())

    def register(
        self, function: Tool | Callable[..., Any], /, **options: Unpack[ToolOptions]
    ) -> Tool:
        """Add a tool, and return it.

        Args:
            function: A tool, a function, or a method of this toolkit. `self` is not shown to the
                model.
            options: Options of the tool; see `tool`.

        Raises:
            RegistrationError: The toolkit has a tool of this name, the function cannot be a tool,
                or `function` is a tool already and options were given.
        """
        if not isinstance(function, Tool):
            new = tool(**options)(function)
        elif options:
            raise RegistrationError(
                f"The options {', '.join(options)} cannot be set on the existing tool "
                f"{function.name!r}. Set them in its definition."
            )
        else:
            new = function
        if new.name in self._tools:
            raise RegistrationError(
                f"{type(self).__name__} has two tools named {new.name!r}. Rename one."
            )
        if self.tool_hooks:
            new = replace(new, tool_hooks=(*self.tool_hooks, *new.tool_hooks))
        self._tools[new.name] = new
        return new

    def bind(self, **values: Any) -> Toolkit:
        """Return a toolkit with the same instructions and state, whose tools are bound.

        Each tool is bound to the values of the parameters that it has; see `Tool.bind`.

        Raises:
            RegistrationError: No tool has one of the parameters.
        """
        for name in values:
            if not any(each.has_parameter(name) for each in self.tools):
                raise RegistrationError(
                    f"No tool of {type(self).__name__} has a parameter {name!r} to bind."
                )
        bound = (
            each.bind(**{name: value for name, value in values.items() if each.has_parameter(name)})
            for each in self.tools
        )
        return Toolkit(bound, instructions=self.instructions, session_state=self.session_state)


def common_state(toolkits: Iterable[Toolkit]) -> dict[str, Any]:
    """Return the merged initial session state of several toolkits.

    Raises:
        RegistrationError: Two toolkits set a key to different values.
    """
    state: dict[str, Any] = {}
    owners: dict[str, str] = {}
    for toolkit in toolkits:
        name = type(toolkit).__name__
        for key, value in toolkit.session_state.items():
            if key in state and state[key] != value:
                raise RegistrationError(
                    f"The toolkits {owners[key]} and {name} set {key!r} in the session state "
                    "to different values. Rename the key in one of them."
                )
            state[key] = value
            owners[key] = name
    return state
