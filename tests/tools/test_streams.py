"""The caller of code in generators, which share the context of the code that reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.tools.callers import A, B, check, resolve, whoami
from tests.tools.service_bench import Service, service
from tracer.context import current_identity, current_tool_context, identity
from tracer.tools import CallOutcome


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Service]:
    async with service(tmp_path, whoami, resolve_token=resolve) as opened:
        yield opened


async def stream(on: Service, who: str, turns: int = 3) -> AsyncGenerator[CallOutcome]:
    """Yield calls as one caller, the last ones from a task and a thread."""
    with identity(token_id=who):
        for turn in range(turns):
            yield await on.tools.call("whoami", {"asked": f"{who}{turn}"})
        yield await asyncio.create_task(on.tools.call("whoami", {"asked": f"{who}task"}))
        yield await asyncio.to_thread(on.tools.call_sync, "whoami", {"asked": f"{who}thread"})


async def stream_of_run(on: Service, who: str) -> AsyncGenerator[CallOutcome]:
    with identity(token_id=who):
        async with on.tools.run(f"Run of {who}"):
            for turn in range(3):
                yield await on.tools.call("whoami", {"asked": f"{who}{turn}"})


async def test_streams_read_alternately_each_keep_their_caller(on: Service) -> None:
    one, other = stream(on, A), stream(on, B)
    async with aclosing(one), aclosing(other):
        for turn in range(3):
            check(await anext(one), A, f"{A}{turn}")
            check(await anext(other), B, f"{B}{turn}")
        # Nobody can tell which of the two the task belongs to, so it may be rejected.
        outcome = await anext(one)
        assert f"of {B}" not in str(outcome.result)


async def test_stream_keeps_its_caller_after_another_stream_ends(on: Service) -> None:
    one, other = stream(on, A), stream(on, B)
    check(await anext(one), A, f"{A}0")
    check(await anext(other), B, f"{B}0")
    await one.aclose()
    check(await anext(other), B, f"{B}1")
    await other.aclose()

    assert current_identity() is None


async def test_tasks_and_threads_started_by_a_stream_have_its_caller(on: Service) -> None:
    outcomes = [each async for each in stream(on, A)]

    for outcome in outcomes:
        check(outcome, A, A)
    assert len(outcomes) == 5


async def test_consumer_of_a_stream_does_not_get_the_identity_of_the_stream(on: Service) -> None:
    async for outcome in stream(on, A, turns=1):
        check(outcome, A, A)
        check(await on.tools.call("whoami", {"asked": "reader"}), None, "reader")
        break


async def test_consumer_of_a_stream_keeps_its_own_identity(on: Service) -> None:
    with identity(token_id=B):
        async for outcome in stream(on, A, turns=2):
            assert f"of {B}" not in str(outcome.result)
            check(await on.tools.call("whoami", {"asked": "reader"}), B, "reader")
            own = await asyncio.create_task(on.tools.call("whoami", {"asked": "task"}))
            assert f"of {A}" not in str(own.result)


async def test_runs_of_streams_read_alternately_each_keep_their_calls(on: Service) -> None:
    one, other = stream_of_run(on, A), stream_of_run(on, B)
    runs: dict[str, set[object]] = {A: set(), B: set()}
    async with aclosing(one), aclosing(other):
        for _ in range(3):
            for who, each in ((A, one), (B, other)):
                outcome = await anext(each)
                check(outcome, who, who)
                runs[who].add(outcome.root_plan_id)
                assert current_tool_context() is None

    assert [len(each) for each in runs.values()] == [1, 1]
    assert runs[A] != runs[B]


def numbers(who: str) -> Generator[str | None]:
    with identity(token_id=who):
        while True:
            current = current_identity()
            yield None if current is None else str(current.reveal())


def test_generators_read_alternately_each_keep_their_caller() -> None:
    one, other = numbers(A), numbers(B)

    assert [next(one), next(other), next(one), next(other)] == [A, B, A, B]
    assert current_identity() is None
    one.close()
    assert next(other) == B
    other.close()


async def test_generator_context_manager_has_its_caller_in_the_block(on: Service) -> None:
    @contextmanager
    def session() -> Iterator[None]:
        with identity(token_id=A):
            yield

    @asynccontextmanager
    async def session_async() -> AsyncIterator[None]:
        with session():
            yield

    async def in_stream() -> AsyncIterator[CallOutcome]:
        async with session_async():
            yield await on.tools.call("whoami", {"asked": "stream"})

    async with session_async():
        check(await on.tools.call("whoami", {"asked": "block"}), A, "block")
    async for outcome in in_stream():
        check(outcome, A, "stream")
        assert current_identity() is None
