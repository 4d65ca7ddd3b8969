"""The context of a call: its scope, and the values that it hides."""

import asyncio
import copy
import pickle
from typing import Any

import pytest

from tests.tools.contexts import Caller, some_context
from tracer.context import Identity, current_tool_context
from tracer.tools import tool


async def test_tool_context_is_set_in_tasks_and_threads_until_the_call_ends() -> None:
    def in_thread() -> Any:
        context = current_tool_context()
        return context and context.tool_call_id

    async def in_task() -> Any:
        return in_thread()

    @tool
    async def asynchronous() -> list[Any]:
        task = asyncio.create_task(in_task())
        return [in_thread(), await task, await asyncio.to_thread(in_thread)]

    mine = some_context()
    expected = f'"{mine.tool_call_id}"'

    assert (await Caller().call(asynchronous, context=mine)).result == (
        f"[{expected},{expected},{expected}]"
    )
    assert (await Caller().call(tool(in_thread), context=mine)).result == expected
    assert current_tool_context() is None


async def test_parallel_calls_have_separate_tool_contexts() -> None:
    everybody = asyncio.Barrier(8)

    @tool
    async def meet() -> Any:
        await everybody.wait()
        context = current_tool_context()
        return context and context.plan_id

    contexts = [some_context() for _ in range(8)]
    endings = await asyncio.gather(*(Caller().call(meet, context=each) for each in contexts))

    assert [each.result for each in endings] == [f'"{each.plan_id}"' for each in contexts]


def test_identity_is_not_serialized_with_the_tool_context() -> None:
    me = Identity("token-4711")

    assert me.reveal() == "token-4711"
    assert "4711" not in repr(me) + str(me) + f"{me}"
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be pickled"):
            copied(me)
