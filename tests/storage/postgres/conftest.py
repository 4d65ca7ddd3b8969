"""A Postgres store over a pool, for tests of what only Postgres can do wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from tests.searching import IndexedFirst
from tracer.storage.postgres import Pool, PostgresWriter, ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.session import STANDING

FRAME = ("BEGIN", "COMMIT", "ROLLBACK", "SET ", "SELECT set_config", STANDING)
"""What a transaction begins and ends with, and is asked once of a connection."""


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    async with open_pool(database_url) as pool:
        yield pool


@pytest.fixture
def writer(pool: Pool) -> PostgresWriter:
    return postgres_writer(ProjectPool(pool))


@pytest.fixture
def reader(pool: Pool) -> PostgresReader:
    return PostgresReader(ProjectPool(pool), IndexedFirst(pool.kwargs))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, database_url: str) -> list[str]:
    """Every query of the test's database from now on, without those that keep connections open.

    Servers that other tests share work in this process, too, on databases of their own.
    """
    statements: list[str] = []
    database = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]

    def counting(execute: Any) -> Any:
        # An asynchronous one returns an awaitable.
        def counted(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
            is_own = self.connection.info.dbname == database
            if is_own and str(query) and not str(query).startswith(FRAME):
                statements.append(str(query))
            return execute(self, query, *arguments, **options)

        return counted

    for cursor in (psycopg.AsyncCursor, psycopg.Cursor):
        monkeypatch.setattr(cursor, "execute", counting(cursor.execute))
    return statements
