"""Projectors derive links and sums between two groups of projections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.storage.postgres.lock_waits import until
from tests.storage.postgres.pending_runs import accept, small_trace
from tracer.clock import utc_now
from tracer.storage.postgres import connection_options, sync_connection
from tracer.storage.postgres.linker import RUNS_AT_ONCE
from tracer.storage.postgres.pool import SyncConnection
from tracer.storage.postgres.processes import BackgroundWork, projectors
from tracer.storage.postgres.projector import Projector


@pytest.fixture
def connection(database_url: str) -> Iterator[SyncConnection]:
    with sync_connection(connection_options(database_url)) as connection:
        yield connection


def count(connection: SyncConnection, condition: str) -> int:
    [(runs,)] = connection.execute(f"SELECT count(*) FROM run WHERE {condition}".encode())
    return int(runs)


async def test_processes_of_a_server_derive_links_and_sums(
    database_url: str, connection: SyncConnection
) -> None:
    async def are_derived() -> bool:
        return count(connection, "is_linked AND is_summed") == 2

    await accept(database_url, small_trace(), small_trace())
    async with projectors(database_url, 1):
        await until(are_derived)


def test_background_work_is_done_after_each_group(
    database_url: str, connection: SyncConnection
) -> None:
    steps: list[tuple[int, int]] = []
    asyncio.run(accept(database_url, *(small_trace() for _ in range(3))))
    # A run with a failed attempt is alone in its group.
    connection.execute("UPDATE pending_run SET attempts = 1")
    background = BackgroundWork(connection)

    def work() -> None:
        background.work()
        steps.append((count(connection, "projected > 0"), count(connection, "NOT is_linked")))

    Projector(connection, on_end=work).project_due(utc_now() + timedelta(hours=1))

    assert steps == [(1, 0), (2, 0), (3, 0)]


def test_queue_with_much_work_does_not_delay_the_others(
    database_url: str, connection: SyncConnection
) -> None:
    runs = 2 * RUNS_AT_ONCE
    asyncio.run(accept(database_url, *(small_trace() for _ in range(runs))))

    assert BackgroundWork(connection).work()

    assert count(connection, "is_linked") == RUNS_AT_ONCE
    assert count(connection, "is_summed") == runs
