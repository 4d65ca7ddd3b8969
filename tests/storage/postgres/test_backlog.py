"""The backlog of spans: its figures, its limit, and its log lines."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import AsyncConnection

from tests.projecting import DatabaseProjection, project_in
from tests.storage.postgres.pending_runs import accept, small_trace
from tracer.clock import utc_now
from tracer.errors import StoreUnavailable
from tracer.storage.postgres import Pool, open_pool
from tracer.storage.postgres.jobs import LATE_SECONDS, Backlog, BacklogFigures


def is_rejected(backlog: Backlog) -> bool:
    return backlog.figures.size > backlog.max_bytes


async def execute(url: str, statement: bytes) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(statement)


async def test_spans_above_the_limit_are_rejected_until_they_are_projected(
    database_url: str, pool: Pool
) -> None:
    traces = [small_trace(), small_trace()]
    await accept(database_url, *traces)
    size = sum(len(trace.message) for trace in traces)
    full, fitting = Backlog(pool, size - 1), Backlog(pool, size)
    for backlog in (full, fitting):
        await backlog.run_once()

    assert full.figures.size == size
    assert is_rejected(full)
    assert not is_rejected(fitting)
    await project_in(pool)
    await full.run_once()
    assert full.figures == BacklogFigures(0, 0.0, 2, full.figures.link_lag)
    assert full.figures.link_lag != 0
    assert not is_rejected(full)
    await DatabaseProjection(pool.kwargs).link()
    await full.run_once()
    assert full.figures == BacklogFigures()


async def test_unreachable_database_leaves_the_last_figures() -> None:
    async with open_pool("postgresql://nobody@127.0.0.1:1/nothing", answer_seconds=0.1) as away:
        backlog = Backlog(away, 4)
        backlog.figures = BacklogFigures(5)
        with pytest.raises(StoreUnavailable):
            await backlog.run_once()
        assert is_rejected(backlog)


async def test_backlog_excludes_runs_whose_projection_failed(database_url: str, pool: Pool) -> None:
    await accept(database_url, small_trace())
    await execute(database_url, b"UPDATE pending_run SET due_at = 'infinity'")
    backlog = Backlog(pool, 4)
    await backlog.run_once()
    assert not is_rejected(backlog)


async def test_old_pending_run_is_logged_once_and_new_spans_are_accepted(
    database_url: str, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    backlog = Backlog(pool, 2**30)
    long_ago = utc_now() - timedelta(hours=1)
    await accept(database_url, small_trace(), clock=lambda: long_ago)

    with caplog.at_level("INFO"):
        for _ in range(2):
            await backlog.run_once()
        assert backlog.figures.lag > LATE_SECONDS
        assert caplog.text.count("projection_late") == 1
        assert not is_rejected(backlog)
        await execute(database_url, b"DELETE FROM pending_run")
        await backlog.run_once()
        assert "projection_on_time_again" in caplog.text
        await accept(database_url, small_trace(), clock=lambda: long_ago)
        await backlog.run_once()
        assert caplog.text.count("projection_late") == 2


@pytest.mark.parametrize(
    "change",
    [
        b"UPDATE pending_run SET spans = 0, size = 0",  # it waits for reprojection
        b"UPDATE pending_run SET due_at = to_timestamp(0), since = now()",  # a reader waits for it
    ],
)
async def test_run_that_is_due_but_has_no_old_spans_is_not_reported_as_late(
    database_url: str, pool: Pool, change: bytes
) -> None:
    long_ago = utc_now() - timedelta(hours=1)
    await accept(database_url, small_trace(), clock=lambda: long_ago)
    await execute(database_url, change)
    backlog = Backlog(pool, 2**30)
    await backlog.run_once()
    assert backlog.figures.lag < LATE_SECONDS


async def test_backlog_counts_the_projectors_of_all_servers(database_url: str, pool: Pool) -> None:
    backlog = Backlog(pool, 2**30)
    assert await backlog.count_projectors() == 0
    async with (
        await AsyncConnection.connect(database_url) as first,
        await AsyncConnection.connect(database_url) as second,
    ):
        for each in (first, second):
            await each.execute("SET application_name TO 'tracer projector'")
        assert await backlog.count_projectors() == 2
