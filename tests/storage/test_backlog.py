"""The backlog of spans: its figures, its limits, and its log lines."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from psycopg import AsyncConnection

from tests.projecting import project_in
from tests.storage.pending_runs import accept, living, small_trace
from tracer.clock import utc_now
from tracer.errors import StoreUnavailable, TooBusy
from tracer.records.ids import DEFAULT_PROJECT_ID
from tracer.storage.postgres.connection.pool import Pool, open_pool
from tracer.storage.postgres.jobs.backlog import LATE_SECONDS, Backlog

OTHER_ID = DEFAULT_PROJECT_ID + 1


@pytest.fixture(autouse=True)
def _read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracer.storage.postgres.jobs.backlog.READ_SECONDS", 0.0)


def is_rejected(backlog: Backlog, project_id: int = DEFAULT_PROJECT_ID) -> bool:
    try:
        backlog.check(project_id)
    except TooBusy:
        return True
    return False


async def execute(url: str, statement: bytes) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(statement)


async def test_pending_spans_are_counted_until_they_are_projected(
    database_url: str, pool: Pool
) -> None:
    backlog = Backlog(pool, 2**30)
    traces = [small_trace(), small_trace()]
    await accept(database_url, *traces)

    found = await backlog.read()

    assert found.sizes == {DEFAULT_PROJECT_ID: sum(len(trace.message) for trace in traces)}
    assert found.runs == 2
    await project_in(pool)
    found = await backlog.read()
    assert (found.size, found.runs, found.lag) == (0, 0, 0.0)


async def test_backlog_limit_rejects_only_the_project_above_its_share(
    database_url: str, pool: Pool
) -> None:
    trace = small_trace()
    await accept(database_url, trace)
    backlog = Backlog(pool, 4 * (len(trace.message) - 1))

    await backlog.read()

    assert is_rejected(backlog)
    assert not is_rejected(backlog, OTHER_ID)


async def test_full_backlog_of_all_projects_rejects_every_project(pool: Pool) -> None:
    backlog = Backlog(pool, 100)
    for project_id in range(1, 6):
        backlog.add(project_id, 25)
    assert is_rejected(backlog, 7)
    await backlog.read()
    assert not is_rejected(backlog, 7)


async def test_backlog_counts_accepted_spans_before_it_is_read_from_the_database(
    pool: Pool,
) -> None:
    backlog = Backlog(pool, 400)
    backlog.add(DEFAULT_PROJECT_ID, 100)
    assert not is_rejected(backlog)
    backlog.add(DEFAULT_PROJECT_ID, 1)
    assert is_rejected(backlog)


async def test_backlog_counts_accepted_spans_while_the_database_is_away() -> None:
    async with open_pool("postgresql://nobody@127.0.0.1:1/nothing", answer_seconds=0.1) as away:
        backlog = Backlog(away, 400)
        backlog.add(DEFAULT_PROJECT_ID, 101)
        with pytest.raises(StoreUnavailable):
            await backlog.read()
        assert is_rejected(backlog)


async def test_backlog_excludes_runs_whose_projection_failed(database_url: str, pool: Pool) -> None:
    await accept(database_url, small_trace())
    await execute(database_url, b"UPDATE pending_run SET due_at = 'infinity'")
    backlog = Backlog(pool, 4)
    assert (await backlog.read()).runs == 0
    assert not is_rejected(backlog)


async def test_old_pending_run_is_logged_once_and_new_spans_are_accepted(
    database_url: str, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    backlog = Backlog(pool, 2**30)
    long_ago = utc_now() - timedelta(hours=1)
    await accept(database_url, small_trace(), clock=lambda: long_ago)

    with caplog.at_level("INFO"):
        assert (await backlog.read()).lag > LATE_SECONDS
        await backlog.read()

        assert caplog.text.count("projection_late") == 1
        assert not is_rejected(backlog)
        await execute(database_url, b"DELETE FROM pending_run")
        await backlog.read()
        assert "projection_on_time_again" in caplog.text
        await accept(database_url, small_trace(), clock=lambda: long_ago)
        await backlog.read()
        assert caplog.text.count("projection_late") == 2


async def test_run_that_waits_for_reprojection_is_not_reported_as_late(
    database_url: str, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    long_ago = utc_now() - timedelta(hours=1)
    await accept(database_url, small_trace(), clock=lambda: long_ago)
    await execute(database_url, b"UPDATE pending_run SET spans = 0, size = 0")
    found = await Backlog(pool, 2**30).read()
    assert (found.runs, found.lag) == (1, 0.0)
    assert "projection_late" not in caplog.text


async def test_backlog_is_read_again_only_while_spans_are_pending(
    database_url: str, pool: Pool, asked: list[str]
) -> None:
    backlog = Backlog(pool, 2**30)
    await backlog.run_once()
    looking = asyncio.create_task(backlog.run_once())
    await living(database_url)
    assert not looking.done()
    backlog.add(DEFAULT_PROJECT_ID, 1)
    await looking

    await accept(database_url, small_trace())
    asked.clear()
    backlog.add(DEFAULT_PROJECT_ID, 1)
    for _ in range(3):
        await backlog.run_once()
    assert len([each for each in asked if "pending_run WHERE due_at" in each]) == 3


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
