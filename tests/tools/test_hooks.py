"""Hooks: accepted callables, their parameters, and several hooks around one call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from inspect import iscoroutinefunction
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from tests.tools.hooked_tools import Hook, Next, around, around_async, doubling
from tests.tools.service_bench import service
from tests.tools.short_times import PATIENCE
from tracer.concurrency import MAX_THREADS
from tracer.context import ToolContext, identity
from tracer.errors import RegistrationError
from tracer.tools import SessionState, Tool, tool
from tracer.tools.definition import InterceptedCall, hook_of
from tracer.tools.parameters import Hidden, TokenId, User, UserId

# --- Accepted callables ------------------------------------------------------------------------


class Around:
    def __call__(self, next: Next, arguments: dict[str, Any]) -> Any:
        return f"<{next(arguments)}>"

    def method(self, next: Next, arguments: dict[str, Any]) -> Any:
        return f"<{next(arguments)}>"

    async def async_method(self, next: Next, arguments: dict[str, Any]) -> Any:
        return f"<{await next(arguments)}>"

    @staticmethod
    def static(next: Next, arguments: dict[str, Any]) -> Any:
        return f"<{next(arguments)}>"

    @classmethod
    async def of_class(cls, next: Next, arguments: dict[str, Any]) -> Any:
        return f"<{await next(arguments)}>"


class AsyncAround:
    async def __call__(self, next: Next, arguments: dict[str, Any]) -> Any:
        return f"<{await next(arguments)}>"


def through(hook: Hook) -> Hook:
    """Decorate a synchronous or asynchronous hook with a plain function."""

    @wraps(hook)
    def decorated(next: Next, arguments: dict[str, Any]) -> Any:
        return hook(next, arguments)

    return decorated


def async_through(hook: Hook) -> Hook:
    """Decorate a plain function that returns what `next` returns with an asynchronous one."""

    @wraps(hook)
    async def decorated(next: Next, arguments: dict[str, Any]) -> Any:
        return f"<{await hook(next, arguments)}>"

    return decorated


HOOKS: dict[str, Hook] = {
    "coroutine function": around_async,
    "function": around,
    "callable object": Around(),
    "callable object with async call": AsyncAround(),
    "method": Around().method,
    "async method": Around().async_method,
    "static method": Around.static,
    "static method object": staticmethod(around_async),
    "class method": Around.of_class,
    "partial": partial(around, by="me"),
    "partial of a coroutine function": partial(around_async, by="me"),
    "partial of a partial": partial(partial(around_async), by="me"),
    "lambda": lambda next, arguments: f"<{next(arguments)}>",
    "lambda that returns a coroutine": lambda next, arguments: around_async(next, arguments),
    "decorated": through(around),
    "decorated coroutine function": through(around_async),
    "coroutine function around a function": async_through(lambda next, arguments: next(arguments)),
}


async def test_every_kind_of_callable_can_be_a_hook(tmp_path: Path) -> None:
    def double(number: int) -> int:
        return 2 * number

    kinds = dict(zip(map(str, range(len(HOOKS))), HOOKS.items(), strict=True))
    tools = [tool(name=name, tool_hooks=[hook])(double) for name, (_, hook) in kinds.items()]
    failures = []
    async with service(tmp_path, *tools) as on, asyncio.timeout(PATIENCE):
        for name, (kind, _) in kinds.items():
            outcome = await on.tools.call(name, {"number": 2})
            if (outcome.error, outcome.result) != (None, "<4>"):
                failures.append(f"{kind}: expected '<4>', got {outcome.result!r} {outcome.error}")

    assert failures == []


def test_hook_with_unknown_parameters_is_rejected_at_registration() -> None:
    hooks: dict[str, Any] = {
        "unknown parameter": lambda next, argument: None,
        "unknown keywords": lambda next, **more: None,
        "any positional": lambda *arguments: None,
        "any keywords": lambda **arguments: None,
        "positional only": lambda next, /, arguments: None,
        "number": 5,
        "text": "around",
        "None": None,
        "builtin without signature": iter,
    }
    failures = []
    for name, hook in hooks.items():
        try:
            doubling(hook)
        except RegistrationError as error:
            if "hook" not in str(error):
                failures.append(f"{name}: the message does not mention the hook: {error}")
        else:
            failures.append(f"{name}: expected RegistrationError, but it was accepted")

    assert failures == []


def test_unknown_hook_parameter_with_a_default_is_allowed() -> None:
    assert hook_of(partial(around, by="me")).wants == ("next", "arguments")


def test_hook_is_named_after_its_function_or_class() -> None:
    def answering(arguments: dict[str, Any], words: str = "") -> str:
        return words

    hooks: list[Hook] = [answering, Around(), partial(answering, words="no")]

    assert [hook_of(each).name for each in hooks] == ["answering", "Around", "answering"]


# --- What hooks receive ------------------------------------------------------------------------


async def test_hook_receives_the_parameters_that_it_names(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def look(
        call: Any, name: Any, arguments: Any, tool: Any, context: Any, run_context: Any, agent: Any
    ) -> str:
        seen.update(locals())
        return "seen"

    async def look_async(
        call: Any, name: Any, arguments: Any, tool: Any, context: Any, run_context: Any, agent: Any
    ) -> str:
        return look(call, name, arguments, tool, context, run_context, agent)

    for hook in (look, look_async):
        seen.clear()
        double = doubling(hook)
        async with service(tmp_path, double) as on:
            outcome = await on.tools.call("double", {"number": 2}, thread_id="conversation")

        assert isinstance(seen["call"], InterceptedCall)
        assert isinstance(seen["context"], ToolContext)
        assert seen["call"].tool_call_id == seen["context"].tool_call_id == outcome.tool_call_id
        assert (seen["call"].name, seen["call"].arguments) == ("double", {"number": 2})
        assert (seen["name"], seen["arguments"], seen["tool"]) == ("double", {"number": 2}, double)
        assert seen["run_context"].session_id == "conversation"
        assert dict(seen["run_context"].session_state) == {}
        assert seen["agent"] is None


async def test_hook_receives_the_same_values_under_the_names_of_agno(tmp_path: Path) -> None:
    seen: list[Any] = []

    def look(function_name: Any, args: Any, arguments: Any, team: Any, func: Any) -> Any:
        seen.append((function_name, args, arguments is args, team, iscoroutinefunction(func)))
        return func(**args | {"number": 3})

    async def look_async(function_name: Any, args: Any, team: Any, function: Any) -> Any:
        seen.append((function_name, args, team, iscoroutinefunction(function)))
        return await function(**args | {"number": 2 * args["number"]})

    async with service(tmp_path, doubling(look, look_async)) as on:
        outcome = await on.tools.call("double", {"number": 2})

    assert outcome.result == "12"
    assert seen == [
        ("double", {"number": 2}, True, None, False),
        ("double", {"number": 3}, None, True),
    ]


async def test_first_hook_is_outermost(tmp_path: Path) -> None:
    order: list[str] = []

    def noting(name: str) -> Hook:
        def hook(next: Next, arguments: dict[str, Any]) -> Any:
            order.append(f"{name} before")
            value = next({"number": arguments["number"] * 10})
            order.append(f"{name} after {value}")
            return value + 1

        return hook

    async def between(next: Next, arguments: dict[str, Any]) -> Any:
        order.append(f"between before {arguments['number']}")
        value = await next(arguments)
        order.append("between after")
        return value

    double = doubling(noting("outer"), between, noting("inner"))
    async with service(tmp_path, double) as on:
        outcome = await on.tools.call("double", {"number": 1})

    assert outcome.result == "202"
    assert order == [
        "outer before",
        "between before 10",
        "inner before",
        "inner after 200",
        "between after",
        "outer after 201",
    ]


async def test_each_hook_has_its_own_copy_of_the_arguments(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def keeping(next: Next, arguments: dict[str, Any], call: InterceptedCall) -> Any:
        value = await next(arguments)
        seen.append((dict(arguments), dict(call.arguments)))
        return value

    async def spoiling(next: Next, arguments: dict[str, Any]) -> Any:
        arguments["numbers"].append(3)
        return await next(arguments)

    @tool(tool_hooks=[keeping, spoiling])
    async def add(numbers: list[int]) -> int:
        return sum(numbers)

    async with service(tmp_path, add) as on:
        outcome = await on.tools.call("add", {"numbers": [1, 2]})
        row = await on.row(outcome)

    assert outcome.result == "6"
    assert seen == [({"numbers": [1, 2]}, {"numbers": [1, 2]})]
    assert row["arguments"] == '{"numbers":[1,2]}'
    assert row["effectiveArguments"] == '{"numbers":[1,2,3]}'


async def test_hook_change_from_1_to_true_is_recorded(tmp_path: Path) -> None:
    given: list[Any] = [True, 1.0]

    @tool(tool_hooks=[lambda next, arguments: next({"value": given[-1]})])
    async def show(value: Any) -> Any:
        return value

    async with service(tmp_path, show) as on:
        rows = []
        while given:
            rows.append(await on.row(await on.tools.call("show", {"value": 1})))
            given.pop()

    assert [each["effectiveArguments"] for each in rows] == ['{"value":1.0}', '{"value":true}']


color: ContextVar[str] = ContextVar("color", default="none")


async def test_context_variables_reach_hooks_and_the_tool(tmp_path: Path) -> None:
    seen: list[str] = []

    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        seen.append(color.get())
        color.set("of the hook")
        return next(arguments)

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        return await hook(next, arguments)

    async def show_async() -> str:
        return color.get()

    def show() -> str:
        return color.get()

    tools: list[Tool] = []
    functions: list[Callable[[], Any]] = [show, show_async]
    for form, function in product([hook, hook_async], functions):
        name = f"{form.__name__}_around_{function.__name__}"
        tools.append(tool(name=name, tool_hooks=[form])(function))
    async with service(tmp_path, *tools) as on:
        color.set("of the caller")
        results = {each.name: (await on.tools.call(each.name)).result for each in tools}

    assert results == {each.name: "of the hook" for each in tools}
    assert seen == ["of the caller"] * 4
    assert color.get() == "of the caller"


# --- Threads -----------------------------------------------------------------------------------


async def test_synchronous_hooks_run_outside_the_thread_pool_of_tools(tmp_path: Path) -> None:
    """More hooks block at the same time than there are threads for tools."""
    number = MAX_THREADS + 36
    everybody = threading.Barrier(number)

    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        everybody.wait(PATIENCE)
        return next(arguments)

    async with service(tmp_path, doubling(hook, hook)) as on, asyncio.timeout(60):
        outcomes = await asyncio.gather(
            *(on.tools.call("double", {"number": each}) for each in range(number))
        )

    assert [each.result for each in outcomes] == [str(2 * each) for each in range(number)]


async def test_nested_synchronous_tools_do_not_exhaust_the_thread_pool(
    tmp_path: Path,
) -> None:
    everybody = threading.Barrier(MAX_THREADS)

    @tool(timeout=PATIENCE)
    def outer() -> Any:
        everybody.wait(PATIENCE)
        return on.tools.call_sync("double", {"number": 2}).result

    async with service(tmp_path, outer, doubling()) as on:
        outcomes = await asyncio.gather(*(on.tools.call("outer") for _ in range(MAX_THREADS)))

    assert {(each.status.value, each.result) for each in outcomes} == {("succeeded", "4")}


# --- Hidden parameters -------------------------------------------------------------------------


async def test_hook_receives_the_caller_as_a_tool_does(tmp_path: Path) -> None:
    async def in_loop(next: Next, arguments: dict[str, Any], user_id: UserId) -> Any:
        return [user_id, await next(arguments)]

    def in_thread(next: Next, arguments: dict[str, Any], who: User, token: TokenId) -> Any:
        return [who.user_id, token, next(arguments)]

    async def with_provider(
        next: Next, arguments: dict[str, Any], now: Annotated[int, Hidden(lambda: 7)]
    ) -> Any:
        return [now, await next(arguments)]

    @tool(tool_hooks=[in_loop, in_thread, with_provider])
    async def read(text: str) -> str:
        return text

    def resolve(token_id: str) -> str:
        return f"u-{token_id}"

    async with service(tmp_path, read, resolve_token=resolve) as on:
        with identity(token_id="t1"):
            outcome = await on.tools.call("read", {"text": "hi", "user_id": "x"})
            known = await on.tools.call("read", {"text": "hi"})
        anonymous = await on.tools.call("read", {"text": "hi"})

    assert outcome.reason == "invalid_arguments"  # a hook's parameters are no arguments of the tool
    assert known.result == '["u-t1",["u-t1","t1",[7,"hi"]]]'
    assert anonymous.reason == "missing_identity"


async def test_hook_changes_the_session_state_through_its_parameter(tmp_path: Path) -> None:
    async def count(next: Next, arguments: dict[str, Any], state: SessionState) -> Any:
        state.increment("calls")
        return await next(arguments)

    @tool(tool_hooks=[count])
    async def read(state: SessionState) -> Any:
        return state["calls"]

    async with service(tmp_path, read) as on:
        results = [(await on.tools.call("read", thread_id="s")).result for _ in range(2)]

    assert results == ["1", "2"]
