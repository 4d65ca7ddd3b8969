"""Unusual definitions of tools and hooks work; wrong ones are rejected before any call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.tools.service_bench import service
from tracer.errors import RegistrationError
from tracer.tools import Tool, tool
from tracer.tools.definition import hook_of
from tracer.tools.functions import stateful_tool, stateless_tool
from tracer.tools.parameters import Hidden

SUM = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}


def yields() -> Iterator[int]:
    yield 1


def yields_as_hook(next: Any) -> Iterator[Any]:
    yield next({})


class Yielding:
    def method(self, number: int) -> int:
        return number


def with_yielding_provider(it: Annotated[int, Hidden(yields)]) -> int:
    return it


def schema_tool(execute: Callable[..., Any], parameters: dict[str, Any] | None = None) -> Tool:
    return stateless_tool(
        name="sum",
        description="Adds.",
        parameters=SUM if parameters is None else parameters,
        execute=execute,
    )


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "create that yields": (
        lambda: stateful_tool(name="x", create=yields, parameters=SUM),
        "asynccontextmanager",
    ),
    "provider that yields": (lambda: tool(with_yielding_provider), "instead of yielding"),
    "hook that yields": (lambda: hook_of(yields_as_hook), r"await next\(arguments\)"),
    "method": (lambda: tool(Yielding.method), r"tool\(instance.method\)"),
    "argument that the function does not take": (
        lambda: schema_tool(lambda a: a),
        "has the argument 'b', which its function",
    ),
    "parameter that the schema does not have": (
        lambda: schema_tool(lambda a, b, c: a),
        "needs 'c', which its schema does not have",
    ),
    "schema of a stateful tool": (
        lambda: stateful_tool(name="x", create=Summing, parameters=SUM),
        "has the argument 'b'",
    ),
    "hidden name that is no parameter": (
        lambda: tool(name="x", hidden={"token_id": "token"})(len_of),
        "has no parameter 'token_id'",
    ),
    "word that hides nothing": (
        lambda: tool(name="x", hidden={"text": "password"})(len_of),
        "'token' or 'user_id'",
    ),
}


class Summing:
    def execute(self, a: float) -> float:
        return a


def len_of(text: str) -> int:
    return len(text)


@pytest.mark.parametrize("case", MISTAKES)
def test_error_for_a_wrong_definition_says_what_to_write_instead(case: str) -> None:
    make, message = MISTAKES[case]
    with pytest.raises(RegistrationError, match=message):
        make()


async def test_function_may_take_all_arguments_as_one_object(tmp_path: Path) -> None:
    class Stateful:
        def execute(self, params: dict[str, float]) -> float:
            return params["a"] + params["b"]

    async def of_seed_002(params: dict[str, float]) -> float:
        return params["a"] + params["b"]

    tools = [
        schema_tool(lambda params: params["a"] + params["b"]),
        stateless_tool(name="async", description="", parameters=SUM, execute=of_seed_002),
        stateful_tool(name="class", create=Stateful, parameters=SUM),
        stateful_tool(name="lambda", create=lambda: Stateful(), parameters=SUM),
    ]
    async with service(tmp_path, *tools) as on:
        results = [(await on.tools.call(each.name, {"a": 1, "b": 2})).result for each in tools]

    assert results == ["3", "3", "3", "3"]


async def test_schema_contains_exactly_the_parameters_of_the_function(tmp_path: Path) -> None:
    def add(a: float, b: float = 0) -> float:
        return a + b

    made = schema_tool(add)
    async with service(tmp_path, made) as on:
        missing = await on.tools.call("sum", {"b": 1})
        unknown = await on.tools.call("sum", {"a": 1, "c": 2})

    assert (made.parameters["required"], made.parameters["additionalProperties"]) == (["a"], False)
    assert (missing.reason, unknown.reason) == ("invalid_arguments", "invalid_arguments")


async def test_bound_method_can_be_a_tool(tmp_path: Path) -> None:
    made = tool(Yielding().method)
    async with service(tmp_path, made) as on:
        outcome = await on.tools.call("method", {"number": 3})

    assert list(made.parameters["properties"]) == ["number"]
    assert outcome.result == "3"
