"""The stores that the contract is tested on.

Postgres is tested twice: its spans are projected after each write, and only before reads. In the
quick profile only the tests of spans and of changes run on stores of the second kind.

The thorough profile also writes to Postgres over HTTP. In the quick profile, `test_http` covers
that path with one test per method and per refusal code.

`reference.py` computes in Python what lists and statistics contain, and `recording_in_memory()`
computes records and trees. `test_agreement.py` and `test_tool_stats.py` compare Postgres with them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.stores import (
    NewStore,
    Projecting,
    Store,
    http_stores,
    postgres_stores,
)
from tracer.storage.postgres import open_pool

WRITE_SPANS = {"test_changes", "test_spans"}
"""The modules whose quick tests also run on spans that are projected before reads."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses `new_store` on each store, unless its module has its own."""
    if "new_store" not in metafunc.fixturenames or hasattr(metafunc.module, "new_store"):
        return
    writes_spans = metafunc.module.__name__.rpartition(".")[2] in WRITE_SPANS
    late_marks = [] if writes_spans else [pytest.mark.thorough]
    late = Projecting.BEFORE_READS
    kinds = [
        pytest.param(("postgres", Projecting.AFTER_WRITES), id="postgres"),
        pytest.param(("http", Projecting.AFTER_WRITES), id="http", marks=pytest.mark.thorough),
        pytest.param(("postgres", late), id=f"postgres-{late}", marks=late_marks),
    ]
    metafunc.parametrize("new_store", kinds, indirect=True)


@pytest.fixture
async def new_store(request: pytest.FixtureRequest) -> AsyncIterator[NewStore]:
    kind, when = request.param
    async with open_pool(request.getfixturevalue("database_url")) as pool:
        yield http_stores(pool) if kind == "http" else postgres_stores(pool, when)


@pytest.fixture
def store(new_store: NewStore) -> Store:
    return new_store()


@pytest.fixture
async def new_postgres_store(database_url: str) -> AsyncIterator[NewStore]:
    async with open_pool(database_url) as pool:
        yield postgres_stores(pool)
