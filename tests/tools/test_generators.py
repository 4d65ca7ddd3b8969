"""Tools that yield: they run to their end, and their values are the result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.tools.service_bench import service
from tests.tools.short_times import PATIENCE
from tracer.tools import Tool, tool
from tracer.tools.functions import stateful_tool, stateless_tool

SCHEMA = {"type": "object", "properties": {"values": {"type": "array"}}, "required": ["values"]}


def yielding(values: list[Any]) -> Iterator[Any]:
    for each in values:
        if each == "raise":
            raise LookupError("There is no more.")
        yield each


async def yielding_async(values: list[Any]) -> AsyncIterator[Any]:
    for each in yielding(values):
        await asyncio.sleep(0)
        yield each


class Yielding:
    def __call__(self, values: list[Any]) -> Iterator[Any]:
        return yielding(values)

    async def execute(self, values: list[Any]) -> AsyncIterator[Any]:
        for each in yielding(values):
            yield each


KINDS: dict[str, Callable[[], Tool]] = {
    "function": lambda: tool(name="t")(yielding),
    "asynchronous": lambda: tool(name="t")(yielding_async),
    "partial": lambda: tool(name="t")(partial(yielding)),
    "object": lambda: tool(name="t")(Yielding()),
    "schema": lambda: stateless_tool(
        name="t", description="", parameters=SCHEMA, execute=yielding_async
    ),
    "stateful": lambda: stateful_tool(name="t", create=Yielding),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_result_of_a_generator_is_the_list_or_the_joined_text(
    kind: str, tmp_path: Path
) -> None:
    async with service(tmp_path, KINDS[kind]()) as on:
        cases: list[list[Any]] = [
            [1, "two"],
            ["a", "b"],
            [],
            [1, "raise"],
            ["a", "raise"],
            ["raise"],
        ]
        outcomes = [await on.tools.call("t", {"values": each}) for each in cases]
        rows = [await on.row(each) for each in outcomes]

    assert [each.result for each in outcomes] == ['[1,"two"]', "ab", "[]", "[1]", "a", None]
    assert [each["status"] for each in rows] == ["succeeded"] * 3 + ["failed"] * 3
    assert [each["result"] for each in rows] == [each.result for each in outcomes]
    assert {each["error"]["message"] for each in rows[3:]} == {"There is no more."}


async def test_values_before_a_timeout_are_recorded_and_the_generator_ends(tmp_path: Path) -> None:
    ended = {"in_loop": threading.Event(), "in_thread": threading.Event()}
    go_on = threading.Event()

    @tool(timeout=0.2)
    async def in_loop() -> AsyncIterator[str]:
        try:
            yield "begun"
            await asyncio.sleep(PATIENCE)
        finally:
            ended["in_loop"].set()

    @tool(timeout=0.2)
    def in_thread() -> Iterator[str]:
        try:
            yield "begun"
            go_on.wait(PATIENCE)
            while True:
                yield "again"
        finally:
            ended["in_thread"].set()

    async with service(tmp_path, in_loop, in_thread) as on:
        outcomes = [await on.tools.call(each) for each in ended]
        go_on.set()
        await asyncio.to_thread(ended["in_thread"].wait, PATIENCE)

    assert [(each.reason, each.result) for each in outcomes] == [("timed_out", "begun")] * 2
    assert all(each.is_set() for each in ended.values())


async def test_retry_of_a_generator_begins_again_and_hooks_see_its_result(tmp_path: Path) -> None:
    attempts: list[int] = []

    async def shown(next: Any, arguments: Any) -> Any:
        return [await next(arguments)]

    @tool(max_attempts=2, tool_hooks=[shown])
    async def flaky() -> AsyncIterator[int]:
        attempts.append(1)
        yield len(attempts)
        if len(attempts) == 1:
            raise ConnectionError
        yield 10

    async with service(tmp_path, flaky) as on:
        outcome = await on.tools.call("flaky")

    assert outcome.result == "[[2,10]]"
