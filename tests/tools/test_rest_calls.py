"""Calls of REST tools through the tool service: attempts, timeouts and records."""

import asyncio
import json
from collections.abc import AsyncIterator

from tests.tools.contexts import Caller
from tests.tools.http_servers import Answer, head, reply, silence
from tests.tools.rest_calls import api
from tests.tools.short_times import PATIENCE, long_enough, until
from tracer.records import Status


def answering(*answers: bytes) -> Answer:
    """Give each request the next answer."""
    left = iter(answers)
    return lambda _: next(left)


async def test_attempts_carry_the_same_idempotency_key() -> None:
    answers = answering(reply(503, retry_after="0"), reply(429, retry_after="0"), reply(json=[1]))
    async with api(answers) as inner:
        tool = inner.tool({"max_attempts": 3}, method="POST", idempotency_key=True)
        ending = await Caller().call(tool, '{"a": 1}', inner.context)
        assert (ending.status, ending.result) == (Status.SUCCEEDED, "[1]")
        keys = [each.headers["idempotency-key"] for each in inner.server.received]
        assert keys == [str(inner.context.tool_call_id)] * 3
        assert [each.json for each in inner.server.received] == [{"a": 1}] * 3


async def test_response_4xx_is_not_retried() -> None:
    async with api(answering(reply(404))) as inner:
        ending = await Caller().call(inner.tool({"max_attempts": 3}), "{}", inner.context)
        assert (ending.status, ending.reason) == (Status.FAILED, "tool_error")
        assert len(inner.server.received) == 1


async def test_recorded_post_without_a_response_is_sent_once() -> None:
    async with api(lambda _: silence()) as inner:
        tool = inner.tool(method="POST", read_timeout=0.1)
        ending = await Caller().call(tool, "{}", inner.context)
        assert (ending.status, ending.reason) == (Status.FAILED, "tool_error")
        await until(lambda: bool(inner.server.received))
        assert len(inner.server.received) == 1


async def test_slow_response_ends_at_the_tool_timeout() -> None:
    begun = asyncio.Event()

    async def drip() -> AsyncIterator[bytes]:
        begun.set()
        yield head(content_type="text/event-stream")
        while True:
            # Never silent for long enough to be noticed, and never done.
            await asyncio.sleep(0.01)
            yield b": still here\n\n"

    async with api(lambda _: drip()) as inner:
        caller = Caller()
        ending = await long_enough(
            lambda seconds: caller.call(inner.tool({"timeout": seconds}), "{}", inner.context),
            begun.is_set,
        )
        assert (ending.status, ending.reason, caller.late) == (Status.FAILED, "timed_out", [])
        async with asyncio.timeout(PATIENCE):
            await inner.server.left.wait()


async def test_recorded_rest_result_is_the_text_that_the_model_gets() -> None:
    async with api(lambda request: reply(json=request.query)) as inner:
        ending = await Caller().call(inner.tool(), json.dumps({"city": "Zürich"}), inner.context)
        assert ending.result == '[["city","Zürich"]]'
