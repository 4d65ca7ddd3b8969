"""Concurrent callers in tasks, threads and a worker: each call belongs to its own caller."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.tools.callers import ALL, A, B, check, resolve, the_service, whoami
from tests.tools.service_bench import Service, service
from tests.tools.short_times import PATIENCE
from tracer.concurrency import MAX_THREADS
from tracer.context import identity, in_context
from tracer.tools import CallOutcome, Tool, tool


class Worker:
    """Serves a queue, in a task that was started in somebody's scope."""

    def __init__(self, on: Service) -> None:
        self.items: asyncio.Queue[tuple[str | None, Tool, str]] = asyncio.Queue()
        self.done: list[tuple[CallOutcome, str | None, str]] = []
        self._on = on

    async def serve(self) -> None:
        while True:
            who, wanted, asked = await self.items.get()
            if who is None:
                outcome = await self._on.tools.call(wanted.name, {"asked": asked})
            else:
                with identity(token_id=who):
                    outcome = await self._on.tools.call(wanted.name, {"asked": asked})
            self.done.append((outcome, who, asked))
            self.items.task_done()


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(each, marks=pytest.mark.thorough) for each in range(1, 5))]
)
async def test_concurrent_calls_each_see_their_own_caller(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    counts: Counter[str | None] = Counter()

    async with service(tmp_path, *ALL, resolve_token=resolve) as on, asyncio.timeout(PATIENCE):
        the_service.set(on)
        worker = Worker(on)
        with identity(token_id=A):
            serving = asyncio.create_task(worker.serve())

        async def in_task(who: str | None, name: str, asked: str) -> None:
            await asyncio.sleep(0)
            check(await on.tools.call(name, {"asked": asked}), who, asked)
            counts[who] += 1

        def in_thread(who: str | None, name: str, asked: str) -> None:
            outcome = on.tools.call_sync(name, {"asked": asked})
            check(outcome, who, asked)
            counts[who] += 1

        async def somebody(who: str | None, number: int) -> None:
            """Make calls by several ways at once, in this user's scope."""
            for turn in range(3):
                asked = f"{number}.{turn}"
                names = [random.choice(ALL).name for _ in range(3)]
                worker.items.put_nowait((who, random.choice(ALL), f"{asked}.queue"))
                own = contextvars.copy_context()
                async with asyncio.TaskGroup() as group:
                    group.create_task(in_task(who, names[0], f"{asked}.task"))
                    group.create_task(
                        asyncio.to_thread(in_thread, who, names[1], f"{asked}.thread")
                    )
                    # A plain thread, which has a context only because it is given one.
                    thread = threading.Thread(
                        target=own.run, args=(in_thread, who, names[2], f"{asked}.plain")
                    )
                    thread.start()
                await asyncio.to_thread(thread.join)

        async def user(who: str | None, number: int) -> None:
            if who is None:
                await somebody(None, number)
            else:
                with identity(token_id=who):
                    await somebody(who, number)

        await asyncio.gather(*(user([A, B, None][n % 3], n) for n in range(12)))
        await worker.items.join()
        serving.cancel()

    assert counts == {A: 36, B: 36, None: 36}
    assert len(worker.done) == 36
    for outcome, who, asked in worker.done:
        check(outcome, who, asked)


async def test_worker_task_has_the_caller_of_its_identity_block_until_the_block_ends(
    tmp_path: Path,
) -> None:
    async with service(tmp_path, *ALL, resolve_token=resolve) as on, asyncio.timeout(PATIENCE):
        the_service.set(on)
        worker = Worker(on)
        with identity(token_id=A):
            serving = asyncio.create_task(worker.serve())
            for who in (A, B, None):
                worker.items.put_nowait((who, whoami, "during"))
            await worker.items.join()
        for who in (A, B, None):
            for each in ALL:
                worker.items.put_nowait((who, each, "after"))
        await worker.items.join()
        serving.cancel()

    during, after = worker.done[:3], worker.done[3:]
    for (outcome, _, asked), who in zip(during, (A, B, A), strict=True):
        check(outcome, who, asked)
    for outcome, who, asked in after:
        check(outcome, who, asked)


async def test_threads_and_executors_have_the_caller_of_their_identity_block(
    tmp_path: Path,
) -> None:
    outcomes: list[CallOutcome] = []

    async with service(tmp_path, *ALL, resolve_token=resolve) as on:

        def call() -> None:
            outcomes.append(on.tools.call_sync("whoami", {"asked": "thread"}))

        with ThreadPoolExecutor(1) as pool:
            loop = asyncio.get_running_loop()
            with identity(token_id=A):
                thread = threading.Thread(target=in_context(call))
                thread.start()
                await asyncio.to_thread(thread.join)
                await loop.run_in_executor(pool, in_context(call))
            with identity(token_id=B):
                await loop.run_in_executor(pool, in_context(call))
            await loop.run_in_executor(pool, call)

    for outcome, who in zip(outcomes, (A, A, B, None), strict=True):
        check(outcome, who, "thread")
    assert "tracer.in_context" in outcomes[-1].for_model


async def test_plain_threads_of_parallel_tools_do_not_block_each_other(tmp_path: Path) -> None:
    @tool
    def in_thread(asked: str) -> str:
        results: list[str] = []

        def call() -> None:
            outcome = on.tools.call_sync("whoami_in_thread", {"asked": asked})
            results.append(str(outcome.result))

        thread = threading.Thread(target=in_context(call))
        thread.start()
        thread.join()
        return results[0]

    async with (
        service(tmp_path, in_thread, *ALL, resolve_token=resolve) as on,
        asyncio.timeout(PATIENCE),
    ):
        with identity(token_id=A):
            calls = [on.tools.call("in_thread", {"asked": f"{n}"}) for n in range(MAX_THREADS)]
            outcomes = await asyncio.gather(*calls)

    for number, outcome in enumerate(outcomes):
        check(outcome, A, f"{number}")


async def test_unfinished_generator_leaves_no_identity_behind(
    tmp_path: Path,
) -> None:
    closed = asyncio.Event()

    async def items() -> AsyncIterator[int]:
        try:
            with identity(token_id=A):
                yield 1
                yield 2
        finally:
            closed.set()

    async with service(tmp_path, *ALL, resolve_token=resolve) as on:
        async for _ in items():
            break
        await closed.wait()
        outcome = await on.tools.call("whoami", {"asked": "after"})

    check(outcome, None, "after")
