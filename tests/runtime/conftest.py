"""Benches that record in memory or in Postgres."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.runtime.runs import Bench, bench
from tracer.runtime import Application
from tracer.storage.memory import RecordingInMemory, recording_in_memory
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader

OpenBench = Callable[[Application], Awaitable[Bench]]


@pytest.fixture
def store() -> RecordingInMemory:
    return recording_in_memory()


@pytest.fixture
async def open_bench(store: RecordingInMemory, tmp_path: Path) -> AsyncIterator[OpenBench]:
    """Opens a bench on the recording in memory; closed after the test."""
    async with AsyncExitStack() as stack:

        async def open_one(application: Application) -> Bench:
            return await stack.enter_async_context(bench(application, store, store, tmp_path))

        yield open_one


@pytest.fixture
async def open_postgres_bench(database_url: str, tmp_path: Path) -> AsyncIterator[OpenBench]:
    """Opens a bench on a database, for tests of histories and cancel requests."""
    async with open_pool(database_url) as pool, AsyncExitStack() as stack:
        writer, reader = postgres_writer(ProjectPool(pool)), PostgresReader(ProjectPool(pool))

        async def open_one(application: Application) -> Bench:
            return await stack.enter_async_context(bench(application, writer, reader, tmp_path))

        yield open_one
