"""Runs beyond a project's retention limits are pruned, and writers are not blocked."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import psycopg
import pytest

from tests.contract.moments import Moments
from tests.otel.made_logs import logs_as_traces, made_log
from tests.projecting import DatabaseProjection, project_in
from tests.reaping import expire_leases
from tests.stepping import stepping_clock
from tests.storage.postgres.deletions import (
    NOW,
    days_ago,
    left_of,
    record,
    rich_run,
    rows,
    stopped_in_the_middle,
)
from tests.storage.postgres.lock_waits import until, until_waiting, waiting
from tests.storage.postgres.stored_spans import make_pending, store_run
from tests.trees import read_tree
from tracer.lineage import Payloads
from tracer.records import DEFAULT_TERMS, new_id
from tracer.records.access import ProjectSettings, Scope
from tracer.storage.postgres import (
    Pool,
    PostgresWriter,
    ProjectPool,
    WriterOptions,
    postgres_writer,
)
from tracer.storage.postgres.deletion import (
    RUNS_AT_ONCE,
    TOMBSTONE_DAYS,
    PostgresDeletion,
    PurgeResult,
)
from tracer.storage.postgres.jobs import Pruner, Reaper
from tracer.storage.postgres.keys import ApiKeys, Authenticator
from tracer.storage.postgres.projects import SettingsOfProject, ensure_project
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import RunFilter

MONTH = ProjectSettings(keep_days=30)


async def pruned(pool: Pool, settings: ProjectSettings, now: datetime = NOW) -> PurgeResult:
    deletion = PostgresDeletion(ProjectPool(pool), clock=lambda: now)
    done = PurgeResult()
    async with aclosing(deletion.prune(settings)) as pruning:
        async for result in pruning:
            done += result
    return done


async def kept(pool: Pool) -> set[UUID]:
    return {
        run for (run,) in await rows(pool, "SELECT root_plan_id FROM run WHERE deleted_at IS NULL")
    }


async def finished(pool: Pool, stored_at: datetime, ended_at: datetime | None) -> UUID:
    """Record a run that ended at some moment, or has not, and was stored at another."""
    run = Moments()
    events = [run.plan_started()]
    if ended_at is not None:
        ending = run.plan_finished().model_copy(update={"at": ended_at})
        await record(pool, *events, ending, at=stored_at)
    else:
        await record(pool, *events, at=stored_at)
    return run.root


async def test_runs_older_than_the_limit_are_pruned(pool: Pool) -> None:
    old = [
        await finished(pool, days_ago(31), days_ago(31)),
        await finished(pool, days_ago(40), days_ago(700)),
        await finished(pool, days_ago(31), NOW + timedelta(days=9_000)),
    ]
    new = [
        await finished(pool, days_ago(29), days_ago(29)),
        await finished(pool, days_ago(60), days_ago(29)),
        await finished(pool, days_ago(1), days_ago(700)),
    ]
    assert await pruned(pool, ProjectSettings()) == PurgeResult()
    assert await PostgresDeletion(ProjectPool(pool), clock=lambda: NOW).count(MONTH) == len(old)
    assert await pruned(pool, MONTH) == PurgeResult(runs=len(old), records=len(old))
    assert await kept(pool) == set(new)
    assert set((await left_of(pool, old)).values()) == {0}


async def test_abandoned_run_is_pruned_and_live_run_is_not(pool: Pool) -> None:
    left_alone = await finished(pool, days_ago(90), None)
    alive = Moments()
    recorder_id = new_id()
    started = alive.plan_started().model_copy(update={"recorder_id": recorder_id})
    await record(pool, started, at=days_ago(90))
    dead, died = Moments(), new_id()
    await record(
        pool, dead.plan_started().model_copy(update={"recorder_id": died}), at=days_ago(90)
    )
    await judged(pool, died, days_ago(20))
    await renewed(pool, recorder_id, NOW)
    await Reaper(pool, DEFAULT_TERMS, clock=lambda: NOW).run_once()

    assert (await pruned(pool, MONTH)).runs == 1
    assert await kept(pool) == {alive.root, dead.root}
    assert left_alone not in await kept(pool)
    assert (await pruned(pool, MONTH, NOW + timedelta(days=11))).runs == 1
    assert await kept(pool) == {alive.root}
    await judge_all(pool, NOW + timedelta(days=1))
    assert (await pruned(pool, MONTH, NOW + timedelta(days=29))).runs == 0
    assert (await pruned(pool, MONTH, NOW + timedelta(days=31))).runs == 1


async def test_run_with_pending_spans_is_kept_unless_its_projection_failed(pool: Pool) -> None:
    pending, failed, projected = (UUID(int=number) for number in (1, 2, 3))
    for run in (pending, failed, projected):
        await store_run(pool, run, days_ago(90))
    await make_pending(pool, pending, days_ago(80))
    await make_pending(pool, failed, "infinity")

    assert (await pruned(pool, MONTH)).runs == 2

    assert await kept(pool) == {pending}
    assert set((await left_of(pool, [failed, projected])).values()) == {0}


async def test_open_run_is_not_pruned_before_its_lease_expires(pool: Pool) -> None:
    run, recorder_id = Moments(), new_id()
    started = run.plan_started().model_copy(update={"recorder_id": recorder_id})
    await record(pool, started, at=days_ago(90))

    # As after an outage: the lease expired while no heartbeat could arrive.
    assert (await pruned(pool, MONTH)).runs == 0

    await judged(pool, recorder_id, days_ago(80))
    assert (await pruned(pool, MONTH)).runs == 1


async def judge_all(pool: Pool, now: datetime = NOW) -> None:
    """Let a reaper look that was never away."""
    await expire_leases(pool, now)


async def renewed(pool: Pool, recorder_id: UUID, at: datetime) -> None:
    await postgres_writer(ProjectPool(pool), WriterOptions(lease_clock=lambda: at)).renew(
        recorder_id
    )


async def judged(pool: Pool, recorder_id: UUID, at: datetime) -> None:
    """Let a recorder be heard for the last time, and everybody be judged a day later."""
    await renewed(pool, recorder_id, at)
    await expire_leases(pool, at + timedelta(days=1))


async def test_pruning_keeps_the_newest_runs_up_to_the_limit(pool: Pool) -> None:
    runs = [await finished(pool, days_ago(age), days_ago(age)) for age in range(30)]
    assert (await pruned(pool, ProjectSettings(keep_runs=30))).runs == 0
    both = ProjectSettings(keep_days=27, keep_runs=7)
    assert await PostgresDeletion(ProjectPool(pool), clock=lambda: NOW).count(both) == 23
    assert (await pruned(pool, both)).runs == 23
    assert await kept(pool) == set(runs[:7])


@pytest.mark.thorough
async def work(pool: Pool, *ages: float) -> list[UUID]:
    """Record runs that continue each other, stored some days ago, and return their ids."""
    runs: list[UUID] = []
    for age in ages:
        run = Moments()
        started = run.plan_started(follows_runs=runs[-1:]).model_copy(update={"at": days_ago(age)})
        ended = run.plan_finished().model_copy(update={"at": days_ago(age)})
        await record(pool, started, ended, at=days_ago(age))
        runs.append(run.root)
    await DatabaseProjection(pool.kwargs).link()
    return runs


async def test_run_is_kept_while_its_piece_of_work_has_a_younger_one(pool: Pool) -> None:
    old, young = await work(pool, 40, 35), await work(pool, 50, 45, 10)
    long = await work(pool, 70, 65, 35, 10)
    deletion = PostgresDeletion(ProjectPool(pool), clock=lambda: NOW)

    assert await deletion.count(MONTH) == 4
    assert (await pruned(pool, MONTH)).runs == 4

    assert await kept(pool) == {*young, *long[2:]}
    assert set((await left_of(pool, [*old, *long[:2]])).values()) == {0}
    await DatabaseProjection(pool.kwargs).link()
    query = "SELECT root_plan_id FROM run WHERE beginning_deleted"
    assert await rows(pool, query) == [(long[2],)]


async def test_limit_of_runs_counts_and_deletes_whole_pieces_of_work(pool: Pool) -> None:
    gone, kept_work = await work(pool, 9, 2, 1), await work(pool, 8, 3)
    single = await finished(pool, days_ago(5), days_ago(5))
    await DatabaseProjection(pool.kwargs).link()
    limit = ProjectSettings(keep_runs=2)
    deletion = PostgresDeletion(ProjectPool(pool), clock=lambda: NOW)

    assert await deletion.count(limit) == 3
    assert (await pruned(pool, limit)).runs == 3

    assert await kept(pool) == {*kept_work, single}
    assert set((await left_of(pool, gone)).values()) == {0}


async def test_concurrent_pruners_share_the_work(pool: Pool) -> None:
    runs = []
    for _ in range(3 * RUNS_AT_ONCE + 5):
        run, events = rich_run(calls=1)
        runs.append(run.root)
        await record(pool, *events, at=days_ago(90))
    await judge_all(pool)
    done = await asyncio.gather(*(pruned(pool, MONTH) for _ in range(4)))
    assert sum(each.runs for each in done) == len(runs)
    assert sum(each.records for each in done) == len(runs) * 9
    assert await kept(pool) == set()
    assert set((await left_of(pool, runs)).values()) == {0}


@pytest.mark.thorough
async def test_pruning_and_writers_do_not_block_each_other(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader, database_url: str
) -> None:
    (busy, events), (_, others) = rich_run(), rich_run()
    await record(pool, *events, *others, at=days_ago(90))
    await judge_all(pool)
    async with await psycopg.AsyncConnection.connect(database_url) as somebody:
        await somebody.execute("SELECT FROM run WHERE root_plan_id = %s FOR UPDATE", [busy.root])
        assert (await pruned(pool, MONTH)).runs == 1
        assert await kept(pool) == {busy.root}
        await somebody.rollback()

        # Now somebody is in its way, so that it stays in the middle of a batch.
        await somebody.execute(
            "SELECT FROM act_tool_info WHERE root_plan_id = %s AND tool_call_id = %s FOR UPDATE",
            [busy.root, busy.call],
        )
        pruning = asyncio.create_task(pruned(pool, MONTH))
        await until_waiting(database_url, 1)
        for _ in range(20):
            _, more = rich_run(calls=1)
            assert (await writer.write(more)).refused == []
            assert len(await waiting(database_url)) == 1
        held = await somebody.execute(
            "SELECT DISTINCT mode FROM pg_locks JOIN pg_database ON pg_database.oid = database"
            " WHERE datname = current_database() AND locktype = 'relation'"
            # Not those of Postgres's own, such as who looks after statistics.
            " AND pid IN (SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend')"
        )
        assert {mode for (mode,) in await held.fetchall()} <= {
            *("AccessShareLock", "RowShareLock", "RowExclusiveLock"),
        }
        assert len((await reader.list_runs(RunFilter(), 50, None)).items) == 20
        await somebody.rollback()
        assert (await pruning).runs == 1


@pytest.mark.thorough
async def test_run_written_during_pruning_is_stored_or_rejected(
    pool: Pool, reader: PostgresReader
) -> None:
    runs = [rich_run(calls=2) for _ in range(30)]
    for _, events in runs:
        await record(pool, *events[:3], at=days_ago(90))
    writers = [postgres_writer(ProjectPool(pool)) for _ in range(3)]

    async def write(number: int) -> list[tuple[UUID, bool]]:
        notified = []
        for run, events in runs[number::3]:
            answer = await writers[number].write(events[3:])
            assert {each.code for each in answer.refused} <= {"run_deleted"}
            assert answer.stored in (0, len(events) - 3)
            notified.append((run.root, answer.stored > 0))
        return notified

    pruning = asyncio.create_task(pruned(pool, MONTH))
    notified = await asyncio.gather(*(write(number) for number in range(3)))

    stored = {root for part in notified for root, is_stored in part if is_stored}
    # On Citus, a pass may leave a run to the next one.
    removed = (await pruning).runs + (await pruned(pool, MONTH)).runs
    assert removed == len(runs) - len(stored)
    assert await kept(pool) == stored
    gone = {run.root for run, _ in runs} - stored
    assert set((await left_of(pool, gone)).values()) == {0}
    for root in stored:
        assert len((await read_tree(reader, root, Payloads.NONE)).plans) == 3


async def test_pruner_covers_all_projects_and_interrupted_deletions(pool: Pool) -> None:
    ward = await ensure_project(pool, "ward")
    keys = ApiKeys(ProjectPool(pool, ward))
    new = await keys.create("reads", [Scope.READ])
    authenticator = Authenticator(pool)
    await authenticator.sign_in(new.secret)
    past = Authenticator(pool, clock=lambda: days_ago(900))
    await past.sign_in(new.secret)
    run, recorder_id = Moments(), new_id()
    writer = postgres_writer(ProjectPool(pool, ward), WriterOptions(clock=lambda: days_ago(900)))
    started = run.plan_started().model_copy(update={"recorder_id": recorder_id})
    assert (await writer.write([started, run.plan_finished()])).refused == []
    await SettingsOfProject(ProjectPool(pool, ward)).change(keep_runs=1)
    await SettingsOfProject(ProjectPool(pool, ward)).change(keep_days=1)
    unkept = await finished(pool, days_ago(900), days_ago(900))
    notified: list[UUID] = []

    pruner = Pruner(pool, notified.extend, clock=lambda: NOW)
    await pruner.run_once()

    assert (pruner.done.runs, notified) == (1, [run.root])
    assert await kept(pool) == {unkept}
    assert await rows(pool, "SELECT count(*) FROM sign_in") == [(1,)]
    assert await rows(pool, "SELECT count(*) FROM recorder_run WHERE project_id = %s", ward) == [
        (0,)
    ]


@pytest.mark.thorough
async def test_leases_of_recorders_without_runs_are_deleted(pool: Pool) -> None:
    run, recorder_id = Moments(), new_id()
    started = run.plan_started().model_copy(update={"recorder_id": recorder_id})
    await record(pool, started, at=days_ago(90))
    await judged(pool, recorder_id, days_ago(89))
    leases = "SELECT count(*) FROM recorder_lease"
    assert await rows(pool, leases) == [(1,)]
    await SettingsOfProject(ProjectPool(pool)).change(keep_days=30)
    await Pruner(pool, clock=lambda: NOW).run_once()
    await judge_all(pool)
    assert await rows(pool, leases) == [(0,)]


@pytest.mark.thorough
async def test_old_tombstones_are_deleted(pool: Pool, database_url: str) -> None:
    old, new, half = (Moments() for _ in range(3))
    for run in (old, new, half):
        await record(pool, run.plan_started())
    for run, age in ((old, TOMBSTONE_DAYS + 1), (new, TOMBSTONE_DAYS - 1)):
        clock = partial(days_ago, age)
        await PostgresDeletion(ProjectPool(pool), clock=clock).erase_run(run.root)
    long_ago = PostgresDeletion(ProjectPool(pool), clock=lambda: days_ago(999))
    async with stopped_in_the_middle(database_url, half.root, long_ago.erase_run(half.root)):
        pass
    deletion = PostgresDeletion(ProjectPool(pool), clock=lambda: NOW)

    assert [await deletion.forget_tombstones() for _ in range(2)] == [1, 0]

    there = {run for (run,) in await rows(pool, "SELECT root_plan_id FROM run")}
    assert there == {new.root, half.root}


async def test_pruner_runs_in_the_background_until_its_context_ends(pool: Pool) -> None:
    gone = await finished(pool, days_ago(900), days_ago(900))
    await SettingsOfProject(ProjectPool(pool)).change(keep_days=1)

    async def is_gone() -> bool:
        return set((await left_of(pool, [gone])).values()) == {0}

    async with Pruner(pool, look_seconds=0.01):
        await until(is_gone)


async def test_pruning_with_the_largest_limits_prunes_nothing(pool: Pool) -> None:
    run = await finished(pool, days_ago(0), days_ago(0))
    assert await pruned(pool, ProjectSettings(keep_days=36_500, keep_runs=2**62)) == PurgeResult()
    assert await kept(pool) == {run}


async def test_run_of_a_session_is_kept_while_a_newer_run_refers_to_it(pool: Pool) -> None:
    sse = made_log("sse", 1, trace_id="00" * 16, conversation__id="c-1")
    session = logs_as_traces(sse, scope="codex_otel")
    named = logs_as_traces(made_log("asked", 1, conversation__id="c-1"), scope="codex_otel")
    for traces, at in ((session, days_ago(40)), (named, days_ago(1))):
        writer = postgres_writer(ProjectPool(pool), WriterOptions(clock=stepping_clock(at)))
        assert (await writer.write_spans(traces)).refused == []
        await project_in(pool)
    await project_in(pool)  # the run that names a new session is projected once more

    assert await pruned(pool, MONTH) == PurgeResult()
    assert len(await kept(pool)) == 2

    assert (await pruned(pool, MONTH, NOW + timedelta(days=40))).runs == 2
    assert await kept(pool) == set()
