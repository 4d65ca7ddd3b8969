"""Hooks: what may be one, and what it is given."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from tests.tools.service_bench import service
from tests.tools.short_times import PATIENCE
from tracer.context import ToolContext
from tracer.errors import RegistrationError
from tracer.tools.definition import Tool, tool
from tracer.tools.hooks import ToolCall, hook_of
from tracer.tools.threads import MAX_THREADS

Next = Callable[[dict[str, Any]], Any]


def doubling(*hooks: Callable[..., Any], **options: Any) -> Tool:
    """Return a synchronous tool with hooks around it."""

    @tool(hooks=hooks, **options)
    def double(number: int) -> int:
        return 2 * number

    return double


# --- What may be a hook ------------------------------------------------------------------------


async def around(next: Next, arguments: dict[str, Any], by: str = "") -> Any:
    return f"<{await next(arguments)}>"


def around_in_thread(next: Next, arguments: dict[str, Any], by: str = "") -> Any:
    return f"<{next(arguments)}>"


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


def through(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a hook with a plain function, whatever its colour."""

    @wraps(hook)
    def decorated(next: Next, arguments: dict[str, Any]) -> Any:
        return hook(next, arguments)

    return decorated


def async_through(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a plain function that hands on what `next` gives with an asynchronous one."""

    @wraps(hook)
    async def decorated(next: Next, arguments: dict[str, Any]) -> Any:
        return f"<{await hook(next, arguments)}>"

    return decorated


HOOKS: dict[str, Callable[..., Any]] = {
    "coroutine function": around,
    "function": around_in_thread,
    "callable object": Around(),
    "callable object with async call": AsyncAround(),
    "method": Around().method,
    "async method": Around().async_method,
    "static method": Around.static,
    "static method as it stands in its class": staticmethod(around),
    "class method": Around.of_class,
    "partial": partial(around_in_thread, by="me"),
    "partial of a coroutine function": partial(around, by="me"),
    "partial of a partial": partial(partial(around), by="me"),
    "lambda": lambda next, arguments: f"<{next(arguments)}>",
    "lambda that answers a coroutine": lambda next, arguments: around(next, arguments),
    "decorated": through(around_in_thread),
    "decorated coroutine function": through(around),
    "coroutine function around a function": async_through(lambda next, arguments: next(arguments)),
}


@pytest.mark.parametrize("kind", HOOKS)
async def test_whatever_can_be_called_can_be_a_hook(tmp_path: Path, kind: str) -> None:
    async with service(tmp_path, doubling(HOOKS[kind])) as on, asyncio.timeout(PATIENCE):
        outcome = await on.tools.call("double", {"number": 2})

    assert (outcome.error, outcome.result) == (None, "<4>")


@pytest.mark.parametrize(
    "hook",
    [
        lambda next, argument: None,
        lambda next, **more: None,
        lambda *arguments: None,
        lambda **arguments: None,
        lambda next, /, arguments: None,
        5,
        "around",
        None,
        iter,
    ],
)
def test_what_cannot_be_given_what_it_wants_is_refused_where_it_is_registered(hook: Any) -> None:
    with pytest.raises(RegistrationError, match="hook"):
        doubling(hook)


def test_a_parameter_with_a_default_of_its_own_is_the_hooks_business() -> None:
    assert hook_of(partial(around, by="me")).wants == ("next", "arguments")


def test_a_hook_is_named_after_its_function() -> None:
    def answering(arguments: dict[str, Any], words: str = "") -> str:
        return words

    hooks: list[Callable[..., Any]] = [answering, Around(), partial(answering, words="no")]

    assert [hook_of(each).name for each in hooks] == ["answering", "Around", "answering"]


# --- What hooks are given ----------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_hook_gets_what_it_names(tmp_path: Path, is_async: bool) -> None:
    seen: dict[str, Any] = {}

    def look(
        call: Any, name: Any, arguments: Any, tool: Any, context: Any, run_context: Any, agent: Any
    ) -> str:
        seen.update(locals())
        return "seen"

    async def look_async(
        call: Any, name: Any, arguments: Any, tool: Any, context: Any, run_context: Any, agent: Any
    ) -> str:
        seen.update(locals())
        return "seen"

    double = doubling(look_async if is_async else look)
    async with service(tmp_path, double) as on:
        outcome = await on.tools.call("double", {"number": 2}, thread_id="conversation")

    assert isinstance(seen["call"], ToolCall)
    assert isinstance(seen["context"], ToolContext)
    assert seen["call"].tool_call_id == seen["context"].toolcallId == outcome.tool_call_id
    assert (seen["call"].name, seen["call"].arguments) == ("double", {"number": 2})
    assert (seen["name"], seen["arguments"], seen["tool"]) == ("double", {"number": 2}, double)
    assert seen["run_context"].session_id == "conversation"
    assert dict(seen["run_context"].session_state) == {}
    assert seen["agent"] is None


async def test_hooks_stand_around_each_other_the_first_outermost(tmp_path: Path) -> None:
    order: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
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


async def test_what_one_hook_does_to_its_arguments_another_does_not_see(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def keeping(next: Next, arguments: dict[str, Any], call: ToolCall) -> Any:
        value = await next(arguments)
        seen.append((dict(arguments), dict(call.arguments)))
        return value

    async def spoiling(next: Next, arguments: dict[str, Any]) -> Any:
        arguments["numbers"].append(3)
        return await next(arguments)

    @tool(hooks=[keeping, spoiling])
    async def add(numbers: list[int]) -> int:
        return sum(numbers)

    async with service(tmp_path, add) as on:
        outcome = await on.tools.call("add", {"numbers": [1, 2]})
        row = await on.row(outcome)

    assert outcome.result == "6"
    assert seen == [({"numbers": [1, 2]}, {"numbers": [1, 2]})]
    assert row["arguments"] == '{"numbers":[1,2]}'
    assert row["effectiveArguments"] == '{"numbers":[1,2,3]}'


@pytest.mark.parametrize(("given", "effective"), [(True, '{"value":true}'), (1.0, '{"value":1.0}')])
async def test_a_change_that_python_calls_equal_is_recorded_as_one(
    tmp_path: Path, given: Any, effective: str
) -> None:
    @tool(hooks=[lambda next, arguments: next({"value": given})])
    async def show(value: Any) -> Any:
        return value

    async with service(tmp_path, show) as on:
        row = await on.row(await on.tools.call("show", {"value": 1}))

    assert row["effectiveArguments"] == effective


@pytest.mark.parametrize("given", [None, "text", 5, [1]])
@pytest.mark.parametrize("is_async", [False, True])
async def test_next_wants_the_arguments(tmp_path: Path, given: Any, is_async: bool) -> None:
    async def hook_async(next: Next) -> Any:
        return await next(given)

    double = doubling(hook_async if is_async else lambda next: next(given))
    async with service(tmp_path, double) as on:
        outcome = await on.tools.call("double", {"number": 2})

    assert (outcome.status, outcome.reason) == ("failed", "tool_error")
    assert "give it the arguments" in outcome.for_model


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_hook_that_returns_nothing_without_next_answers_with_nothing(
    tmp_path: Path, is_async: bool
) -> None:
    async def silent_async(next: Next) -> None:
        return None

    def silent(next: Next) -> None:
        return None

    async with service(tmp_path, doubling(silent_async if is_async else silent)) as on:
        outcome = await on.tools.call("double", {"number": 2})
        row = await on.row(outcome)

    assert (outcome.status, outcome.result) == ("succeeded", "null")
    assert row["shortCircuitedBy"] == ("silent_async" if is_async else "silent")


color: ContextVar[str] = ContextVar("color", default="none")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("async_tool", [False, True])
async def test_context_variables_reach_hooks_and_through_them_the_tool(
    tmp_path: Path, is_async: bool, async_tool: bool
) -> None:
    seen: list[str] = []

    def hook(next: Next, arguments: dict[str, Any]) -> Any:
        seen.append(color.get())
        color.set("of the hook")
        return next(arguments)

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        seen.append(color.get())
        color.set("of the hook")
        return await next(arguments)

    async def show_async() -> str:
        return color.get()

    def show() -> str:
        return color.get()

    made = tool(name="show", hooks=[hook_async if is_async else hook])
    async with service(tmp_path, made(show_async if async_tool else show)) as on:
        color.set("of the caller")
        outcome = await on.tools.call("show")

    assert seen == ["of the caller"]
    assert outcome.result == "of the hook"
    assert color.get() == "of the caller"


async def test_more_synchronous_hooks_than_there_are_threads_do_not_wait_for_each_other(
    tmp_path: Path,
) -> None:
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


async def test_synchronous_tools_that_call_synchronous_tools_do_not_run_out_of_threads(
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
