"""The stores that the contract is tested on.

The thorough profile also writes to each Postgres store over HTTP. In the quick profile, `test_http`
covers that path with one test per method and per refusal code.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.store_contract.stores import (
    NewStore,
    Store,
    http_stores,
    memory_stores,
    postgres_stores,
)
from tracer.storage.engine import open_pool


@pytest.fixture(params=["memory", "postgres", pytest.param("http", marks=pytest.mark.thorough)])
async def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NewStore]:
    if request.param == "memory":
        yield memory_stores()
    else:
        async with open_pool(request.getfixturevalue("database_url")) as pool:
            if request.param == "http":
                yield http_stores(pool, tmp_path)
            else:
                yield postgres_stores(pool)


@pytest.fixture
def store(new_store: NewStore) -> Store:
    return new_store()


@pytest.fixture
async def new_postgres_store(database_url: str) -> AsyncIterator[NewStore]:
    async with open_pool(database_url) as pool:
        yield postgres_stores(pool)
