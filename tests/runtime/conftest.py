"""A store in memory, and benches on it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.runtime.runs import Bench, bench
from tracer.runtime.application import Application
from tracer.storage.memory.store import MemoryStore

OpenBench = Callable[[Application], Awaitable[Bench]]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def open_bench(store: MemoryStore, tmp_path: Path) -> AsyncIterator[OpenBench]:
    """Opens a bench on the store in memory; closed after the test."""
    async with AsyncExitStack() as stack:

        async def open_one(application: Application) -> Bench:
            return await stack.enter_async_context(bench(application, store, store, tmp_path))

        yield open_one
