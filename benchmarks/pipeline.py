"""The cost of a tool call over a call of the function: ours, LangChain's and pydantic-ai's.

All call the same function, from the model's JSON to the result for the model, in alternating rounds
of one process.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from langchain_core.messages import ToolCall
from langchain_core.tools import tool as langchain_tool
from pydantic_ai import FunctionToolset, RunContext, RunUsage
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager

from benchmarks.figures import Figure
from benchmarks.surroundings import Bench
from tracer.adapters.langchain import to_langchain
from tracer.context import ToolContext, identity
from tracer.recorder import Recorder, Spool
from tracer.records import new_id
from tracer.storage.memory import recording_in_memory
from tracer.tools import Tool, ToolRegistry, ToolService, tool
from tracer.tools.call import CallNotes, call_tool
from tracer.tools.parameters import UserId

CALLS = 200
"""How many calls a round makes of each way, one after another."""

ARGUMENTS = '{"number": 2, "more": 3}'

CallOnce = Callable[[], Awaitable[Any]]
"""Calls the function, and returns the result for the model."""


@dataclass
class Way:
    """One way of calling the function."""

    name: str
    call: CallOnce
    microseconds: list[float] = field(default_factory=list)
    """The time of one call, by round."""


async def add(number: int, more: int) -> int:
    """Adds.

    Args:
        number: The first number.
        more: The second number.
    """
    return number + more


async def add_for(number: int, more: int, user_id: UserId) -> int:
    """Adds for somebody."""
    return number + more


async def pass_on(next: Callable[[dict[str, Any]], Awaitable[Any]], arguments: Any) -> Any:
    """Call the tool without doing anything else."""
    return await next(arguments)


@asynccontextmanager
async def recorded(*tools: Tool) -> AsyncIterator[ToolService]:
    """Give a service that records to memory, within a run."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = recording_in_memory()
        recorder = await stack.enter_async_context(Recorder(store, Spool(Path(folder) / "spool")))
        service = ToolService(ToolRegistry(tools), recorder)
        await stack.enter_async_context(service)
        stack.enter_context(identity(token_id="somebody"))
        await stack.enter_async_context(service.run("Benchmark"))
        yield service


async def our_call() -> CallOnce:
    """Return a call through our pipeline, without a record."""
    ours = tool(add)
    context = ToolContext(
        tool_call_id=new_id(), root_plan_id=new_id(), plan_id=new_id(), step_id=new_id()
    )

    async def nothing() -> None: ...

    def never(work: object) -> None: ...

    async def call() -> str:
        ending = await call_tool(
            ours, ARGUMENTS, context, CallNotes(), before_attempt=nothing, on_late=never
        )
        return ending.for_model()

    return call


async def pydantic_ai_call() -> CallOnce:
    """Return a call through what pydantic-ai's agents call tools with."""
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    manager = await ToolManager(FunctionToolset([add])).for_run_step(context)

    async def call() -> Any:
        return await manager.handle_call(ToolCallPart("add", ARGUMENTS, "call_0"))

    return call


def langchain_call(theirs: Any) -> CallOnce:
    """Return a call of a LangChain tool, as its agents make it."""

    async def call() -> Any:
        message = await theirs.ainvoke(
            ToolCall(name=theirs.name, args=json.loads(ARGUMENTS), id="call_0", type="tool_call")
        )
        return message.content

    return call


def service_call(service: ToolService, name: str) -> CallOnce:
    """Return a call through a tool service, recorded."""

    async def call() -> str:
        return (await service.call(name, ARGUMENTS)).for_model

    return call


async def measure(ways: list[Way], rounds: int) -> None:
    """Time all ways in turn, round by round."""
    for way in ways:
        assert str(await way.call()) == "5", way.name
    for round_number in range(-2, rounds):  # the first rounds warm up
        for way in ways:
            call = way.call
            gc.freeze()  # exempt the store's records: the others should not pay for traversing them
            started = process_time()
            for _ in range(CALLS):
                await call()
            taken = process_time() - started
            if round_number >= 0:
                way.microseconds.append(taken / CALLS * 1e6)
    gc.unfreeze()


async def measured_ways(rounds: int) -> list[Way]:
    """Return all ways, measured; the first is what the others are compared with."""
    plain = tool(add)
    whole = tool(tool_hooks=[pass_on])(add_for)
    async with recorded(plain, whole) as service:
        ways = [
            Way("the function", lambda: add(2, 3)),
            Way("LangChain", langchain_call(langchain_tool(add))),
            Way("pydantic-ai", await pydantic_ai_call()),
            Way("ours, call_tool", await our_call()),
            Way("ours, ToolService", service_call(service, "add")),
            Way("ours, all of it", service_call(service, "add_for")),
            Way("ours, in LangChain", langchain_call(to_langchain(plain, service))),
        ]
        await measure(ways, rounds)
    return ways


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure a call of each way."""
    ways = asyncio.run(measured_ways(bench.sized(60, 2)))
    function = median(ways[0].microseconds)
    for way in ways:
        taken = median(way.microseconds)
        yield Figure(
            name=way.name,
            value=taken,
            unit="µs/call",
            yardstick=None if way is ways[0] else ways[0].name,
            ratio=None if way is ways[0] else taken / function,
        )
