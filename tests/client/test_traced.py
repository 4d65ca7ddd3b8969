"""Functions with the `traced` decorator are recorded and behave as they do without it."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.recording import RecordedStore, recording, tree_of, trees_of
from tests.trees import Node
from tracer.client import Tracing
from tracer.client.work import current_work

Recording = tuple[Tracing, RecordedStore]


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recording]:
    with recording(tmp_path) as both:
        yield both


def only_call(tree: Node) -> Node:
    [step] = tree["agentExecutions"]
    [call] = step["toolCalls"]
    assert isinstance(call, dict)
    return call


def test_decorator_rejects_an_unknown_kind(recorded: Recording) -> None:
    tracing, _ = recorded
    unknown: Any = "toolcall"
    unmade: Any = len

    with pytest.raises(ValueError, match="Use one of: plan, step, think_act, tool_call"):
        tracing.traced(unknown)
    with pytest.raises(ValueError, match="without parentheses"):
        tracing.traced(unmade)


async def test_decorated_functions_are_recorded_as_a_tree(recorded: Recording) -> None:
    tracing, store = recorded

    @tracing.traced("plan")
    async def nurse(asked: str) -> dict[str, int]:
        return await visit(asked, ward=7)

    @tracing.traced("step", "ward nurse")
    async def visit(asked: str, ward: int) -> dict[str, int]:
        think([{"role": "user", "content": asked}])
        return await asyncio.to_thread(measure, patient="p-1")

    @tracing.traced("think_act", "gpt-5-mini")
    def think(messages: list[Any]) -> str:
        return "I should measure."

    @tracing.traced()
    def measure(patient: str, arm: str = "left") -> dict[str, int]:
        return {"systolic": 121}

    assert await nurse("How is p-1?") == {"systolic": 121}
    tree = await tree_of(store)

    [step] = tree["agentExecutions"]
    [thought] = step["thinkActs"]
    [call] = step["toolCalls"]
    assert (tree["title"], tree["userRequest"]) == ("nurse", "How is p-1?")
    assert (step["agentName"], json.loads(step["request"])) == (
        "ward nurse",
        {"asked": "How is p-1?", "ward": 7},
    )
    assert (thought["requestedModel"], thought["thought"]) == ("gpt-5-mini", "I should measure.")
    assert (call["name"], json.loads(call["arguments"])) == ("measure", {"patient": "p-1"})
    assert json.loads(call["result"]) == json.loads(tree["summary"]) == {"systolic": 121}


async def test_arguments_of_traced_methods_are_recorded_without_self(recorded: Recording) -> None:
    tracing, store = recorded

    class Cuff:
        @tracing.traced("tool_call", name="measure")
        def inflate(self, *pressures: int, **more: str) -> int:
            """Inflates."""
            return sum(pressures)

    assert Cuff().inflate(1, 2, arm="left") == 3
    assert (Cuff.inflate.__name__, Cuff.inflate.__doc__) == ("inflate", "Inflates.")
    call = only_call(await tree_of(store))

    assert (call["name"], json.loads(call["arguments"]), call["result"]) == (
        "measure",
        {"pressures": [1, 2], "arm": "left"},
        "3",
    )


async def test_exception_of_a_traced_function_is_recorded_and_raised(recorded: Recording) -> None:
    tracing, store = recorded

    @tracing.traced()
    def measure(patient: str) -> str:
        raise LookupError("no such patient")

    with pytest.raises(LookupError, match="no such patient"):
        measure("p-2")
    wrongly: Any = measure
    with pytest.raises(TypeError, match="argument"):
        wrongly("p-2", "p-3")
    failed, wrong = (only_call(tree) for tree in await trees_of(store))

    assert (failed["status"], failed["error"]["message"]) == ("failed", "no such patient")
    assert (wrong["status"], json.loads(wrong["arguments"])) == (
        "failed",
        {"args": ["p-2", "p-3"], "kwargs": {}},
    )


async def test_recording_does_not_consume_streams_in_arguments_and_results(
    recorded: Recording,
) -> None:
    tracing, store = recorded

    @tracing.traced()
    def upper(words: Iterator[str]) -> Iterator[str]:
        return map(str.upper, words)

    assert list(upper(iter(["a", "b"]))) == ["A", "B"]
    call = only_call(await tree_of(store))

    assert "list_iterator" in call["arguments"]
    assert json.loads(call["result"])["type"] == "builtins.map"


async def test_decorated_generator_yields_and_receives_the_same_values(recorded: Recording) -> None:
    tracing, store = recorded

    def converse(first: int) -> Generator[Any, str, str]:
        heard = yield first
        try:
            yield heard.upper()
        except KeyError as error:
            yield repr(error)
        return "end"

    def driven(generator: Generator[Any, str, str]) -> list[Any]:
        heard = [next(generator), generator.send("hello"), generator.throw(KeyError("k"))]
        with pytest.raises(StopIteration) as stopped:
            next(generator)
        return [*heard, stopped.value.value]

    decorated = tracing.traced()(converse)
    assert inspect.isgeneratorfunction(decorated)
    assert driven(decorated(1)) == driven(converse(1))
    call = only_call(await tree_of(store))

    assert (call["status"], json.loads(call["result"])) == (
        "succeeded",
        [1, "HELLO", "KeyError('k')"],
    )


async def test_traced_generator_is_the_current_work_only_while_it_runs(
    recorded: Recording,
) -> None:
    tracing, store = recorded

    @tracing.traced()
    def plain() -> Iterator[str]:
        for word in ("a", "b"):
            with tracing.plan(f"sub {word}"):
                yield_word = word
            yield yield_word

    @tracing.traced()
    async def asynchronous() -> AsyncIterator[str]:
        async with tracing.plan("sub async"):
            await asyncio.sleep(0)
        yield "c"

    async with tracing.plan("root") as root:
        for _ in plain():
            assert current_work() is root
        async for _ in asynchronous():
            assert current_work() is root
    tree = await tree_of(store)

    calls = tree["agentExecutions"][0]["toolCalls"]
    assert [(each["name"], each["result"]) for each in calls] == [
        ("plain", "ab"),
        ("asynchronous", "c"),
    ]
    assert [[sub["title"] for sub in each["subPlans"]] for each in calls] == [
        ["sub a", "sub b"],
        ["sub async"],
    ]


async def test_traced_generator_that_is_closed_early_is_cancelled_with_its_items(
    recorded: Recording,
) -> None:
    tracing, store = recorded
    closed = []

    @tracing.traced()
    def plain() -> Generator[str, None, None]:
        try:
            yield "a"
            yield "b"
        finally:
            closed.append("plain")

    @tracing.traced()
    async def asynchronous() -> AsyncIterator[str]:
        try:
            yield "a"
            yield "b"
        finally:
            await asyncio.sleep(0)
            closed.append("asynchronous")

    with closing(plain()) as generator:
        assert next(generator) == "a"
    reading: Any = asynchronous()
    async with aclosing(reading):
        assert await anext(reading) == "a"
    calls = [only_call(tree) for tree in await trees_of(store)]

    assert closed == ["plain", "asynchronous"]
    assert [(each["status"], each["result"]) for each in calls] == [("cancelled", "a")] * 2


async def test_items_of_an_endless_generator_are_recorded_up_to_the_limit(
    recorded: Recording,
) -> None:
    tracing, store = recorded

    @tracing.traced()
    def endless() -> Iterator[str]:
        for _ in range(100):
            yield "x" * 100_000

    assert sum(map(len, endless())) == 10_000_000
    call = only_call(await tree_of(store))

    assert 1_000_000 <= call["resultBytes"] <= 1_200_000
