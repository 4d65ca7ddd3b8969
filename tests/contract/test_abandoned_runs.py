"""Exports and imports of a run include whether its recorders are dead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import pytest

from tests.contract.living import Living, memory_living, postgres_living
from tests.contract.test_changes import Watched, read_rows
from tests.contract.test_leases import RUN_OF_SPANS, all_are, by, in_flight, statuses
from tests.contract.transfers import export_of, import_into
from tests.otel.made_traces import agent, spans_from, tool
from tracer.records.ids import new_id
from tracer.storage.postgres.connection.pool import open_pool
from tracer.transfer.restorer import TraceRestorer

NewLiving = Callable[[int], Awaitable[Living]]


@pytest.fixture(params=["memory", "postgres"])
async def new_store(request: pytest.FixtureRequest) -> AsyncIterator[NewLiving]:
    """Return what creates an empty store for a project."""
    if request.param == "memory":
        yield memory_living
        return
    async with open_pool(request.getfixturevalue("database_url")) as pool:
        yield lambda project_id: postgres_living(pool, project_id)


async def import_file(store: Living, file: bytes) -> None:
    imported = await import_into(cast(TraceRestorer, store.writer), file)
    assert imported.reasons == []


@pytest.mark.parametrize("is_named", [True, False], ids=["recorder", "no-recorder"])
async def test_imported_abandoned_run_stays_abandoned(new_store: NewLiving, is_named: bool) -> None:
    here, there = await new_store(1), await new_store(2)
    run = await in_flight(here, new_id() if is_named else None)
    await here.pass_time(900)
    file = await export_of(here.reader, run.root)

    await import_file(there, file)

    for _ in range(3):
        assert await statuses(there, run) == all_are("abandoned")
        assert await export_of(there.reader, run.root) == file
        await there.pass_time(900)


async def test_imported_abandoned_run_of_spans_stays_abandoned(new_store: NewLiving) -> None:
    here, there = await new_store(1), await new_store(2)
    unfinished = agent(1, "planner", at=(0, None)), tool(2, "measure", at=(1, None), parent=1)
    await here.record_spans(spans_from(*unfinished))
    await here.pass_time(900)
    file = await export_of(here.reader, RUN_OF_SPANS)

    await import_file(there, file)

    for _ in range(2):
        rows = await read_rows(there, RUN_OF_SPANS)
        assert {row["status"] for row in rows.values()} == {"abandoned"}
        assert await export_of(there.reader, RUN_OF_SPANS) == file
        await there.pass_time(900)


async def test_imported_abandoned_run_is_running_again_after_a_heartbeat(
    new_store: NewLiving,
) -> None:
    here, there = await new_store(1), await new_store(2)
    recorder_id = new_id()
    run = await in_flight(here, recorder_id)
    await here.pass_time(60)
    await import_file(there, await export_of(here.reader, run.root))

    await there.writer.renew(recorder_id)
    await there.pass_time(1)
    assert await statuses(there, run) == all_are("running")

    await there.pass_time(60)
    assert await statuses(there, run) == all_are("abandoned")


async def test_importing_an_old_export_does_not_expire_a_renewed_lease(
    new_store: NewLiving,
) -> None:
    store = await new_store(1)
    recorder_id = new_id()
    run = await in_flight(store, recorder_id)
    await store.pass_time(60)
    file = await export_of(store.reader, run.root)
    await store.writer.renew(recorder_id)
    await store.pass_time(1)

    await import_file(store, file)
    await store.pass_time(1)

    assert await statuses(store, run) == all_are("running")


async def test_changes_report_records_that_an_import_marks_abandoned(new_store: NewLiving) -> None:
    here, there = await new_store(1), await new_store(2)
    run = await in_flight(here, new_id())
    await import_file(there, await export_of(here.reader, run.root))
    watched = Watched(run.root)
    await watched.catch_up(there)
    await here.pass_time(60)

    await import_file(there, await export_of(here.reader, run.root))

    await watched.catch_up(there)
    assert watched.rows == await read_rows(there, run.root)
    assert {row["status"] for row in watched.rows.values()} == {"abandoned"}


async def test_records_of_a_dead_recorder_can_be_ended_by_another_recorder(
    new_store: NewLiving,
) -> None:
    store = await new_store(1)
    run = await in_flight(store, new_id())
    await store.pass_time(60)

    await store.record(*by(new_id(), run.call_finished(70), run.plan_finished(70)))
    await store.pass_time(60)

    assert await statuses(store, run) == {
        **all_are("abandoned"),
        **dict.fromkeys(("run", "plan", "call"), "succeeded"),
    }
