"""A Postgres store over a pool, for tests of what only Postgres can do wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tracer.storage.engine import Pool, open_pool
from tracer.storage.postgres_reader import PostgresReader
from tracer.storage.postgres_writer import PostgresWriter


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    async with open_pool(database_url) as pool:
        yield pool


@pytest.fixture
def writer(pool: Pool) -> PostgresWriter:
    return PostgresWriter(pool)


@pytest.fixture
def reader(pool: Pool) -> PostgresReader:
    return PostgresReader(pool)
