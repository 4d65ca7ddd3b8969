"""The Postgres writer: concurrent writers, rejected rows, caches, and stored columns."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.citus_databases import on_one_postgres
from tests.contract.moments import Moments
from tests.sample_runs import START, sample_run
from tests.storage.postgres.lock_waits import until_waiting
from tracer.records import Run, Status, new_id
from tracer.records.events import Event, ToolCallFinished
from tracer.storage.postgres import (
    Pool,
    PostgresWriter,
    ProjectPool,
    WriterOptions,
    open_pool,
    postgres_writer,
)
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import RunFilter


async def rows(pool: Pool, query: str, *values: Any) -> list[tuple[Any, ...]]:
    async with pool.connection() as connection:
        return await (await connection.execute(query.encode(), values)).fetchall()


@pytest.mark.parametrize(
    ("writers", "turns"), [(4, 10), pytest.param(8, 30, marks=pytest.mark.thorough)]
)
async def test_overlapping_writers_in_opposite_order_store_every_event(
    pool: Pool, reader: PostgresReader, writers: int, turns: int
) -> None:
    runs = [Moments() for _ in range(12)]
    shuffle = random.Random(4711).shuffle

    async def write(task: int) -> None:
        # Of its own: one writer would put them in one transaction.
        writer = postgres_writer(ProjectPool(pool))
        for number in range(turns):
            events: list[Event] = []
            for run in runs:
                events += [run.call_started(tool_call_id=new_id(), at=number), run.step_started()]
            if (task + number) % 2:
                events.reverse()
            else:
                shuffle(events)
            answer = await writer.write(events)
            assert (answer.stored, answer.refused) == (len(events), [])

    await asyncio.gather(*(write(task) for task in range(writers)))
    listed = (await reader.list_runs(RunFilter(), 100, None)).items
    assert [run.tool_calls for run in listed] == [writers * turns] * len(runs)
    assert {run.revision for run in listed} == {writers * turns}
    [(calls,)] = await rows(pool, "SELECT count(*) FROM act_tool_info")
    assert calls == len(runs) * writers * turns


async def test_counts_are_correct_if_two_processes_send_the_same_run(
    database_url: str, pool: Pool, reader: PostgresReader
) -> None:
    run = sample_run(sub_plans=20)
    async with open_pool(database_url) as other_pool:
        writers = [postgres_writer(ProjectPool(pool)), postgres_writer(ProjectPool(other_pool))]
        orders = [run.events, run.events[::-1]] * 4
        await asyncio.gather(
            *(writers[n % 2].write(events) for n, events in enumerate(orders)),
            *(writers[n % 2].write([event]) for n, event in enumerate(run.events)),
        )
    shown = await reader.read_run(run.root)
    assert (shown.tool_calls, shown.failures, shown.status) == (21, 1, Status.SUCCEEDED)
    assert (shown.input_tokens, shown.output_tokens) == (100, 20)


def unstorable(run: Moments) -> ToolCallFinished:
    """Return an event that no validation let through: its text holds a raw NUL."""
    event = run.call_finished()
    return event.model_copy(update={"result": "a secret\0"})


async def test_unstorable_event_is_rejected_and_others_are_stored(
    writer: PostgresWriter, reader: PostgresReader
) -> None:
    good, bad = Moments(), Moments()
    surrogate = bad.call_finished().model_copy(update={"result": "\ud800"})
    backwards = bad.call_started().model_copy(update={"position": -1})
    answer = await writer.write(
        [
            bad.plan_started(),
            unstorable(bad),
            good.plan_started(),
            surrogate,
            good.call_started(),
            backwards,
        ]
    )
    assert answer.stored == 3
    assert [(r.index, r.code) for r in answer.refused] == [
        (1, "not_storable"),
        (3, "not_storable"),
        (5, "not_storable"),
    ]
    assert not any("secret" in refusal.detail for refusal in answer.refused)
    assert (await reader.read_run(good.root)).tool_calls == 1
    assert (await reader.read_run(bad.root)).status is Status.RUNNING


async def test_events_of_a_run_that_came_as_spans_are_refused(
    pool: Pool, writer: PostgresWriter
) -> None:
    run = Moments()
    await writer.write([run.plan_started()])
    async with pool.connection() as connection:
        await connection.execute("UPDATE run SET source = 'spans'")
    answer = await writer.write([run.plan_finished(), Moments().plan_started()])
    assert [(r.index, r.code) for r in answer.refused] == [(0, "run_of_spans")]
    assert answer.stored == 1


@on_one_postgres
async def test_cached_parents_are_not_written_again(
    writer: PostgresWriter, asked: list[str]
) -> None:
    run = Moments()
    await writer.write([run.plan_started(), run.step_started()])
    asked.clear()
    await writer.write([run.call_started()])
    await writer.write([run.call_finished()])
    # The project's settings are read again after two seconds. Each write is a heartbeat.
    others = ("FROM project ", "INSERT INTO recorder_")
    assert len([each for each in asked if not any(other in each for other in others)]) == 2
    assert not any("agent_execution_record" in statement for statement in asked)


async def test_missing_row_of_a_cached_step_is_written_again(
    pool: Pool, writer: PostgresWriter
) -> None:
    run = Moments()
    await writer.write([run.plan_started(), run.step_started()])
    await rows(pool, "DELETE FROM agent_execution_record RETURNING 1")
    assert (await writer.write([run.call_started()])).stored == 1
    steps = await rows(pool, "SELECT status::text, plan_id FROM agent_execution_record")
    assert steps == [("unknown", run.root)]


async def test_missing_row_of_a_cached_run_is_written_again(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader
) -> None:
    run = Moments()
    await writer.write([run.plan_started(), run.step_started()])
    async with pool.connection() as connection:
        await connection.execute("TRUNCATE run CASCADE")
    assert (await writer.write([run.call_started()])).stored == 1
    assert (await reader.read_run(run.root)).tool_calls == 1


async def test_cached_run_that_another_process_deleted_rejects_events(
    pool: Pool, writer: PostgresWriter
) -> None:
    run, other = Moments(), Moments()
    await writer.write([run.plan_started(), other.plan_started()])
    await postgres_writer(ProjectPool(pool)).delete_run(run.root)
    for _ in range(2):
        answer = await writer.write([run.call_started(), other.call_started()])
        assert [(r.index, r.code) for r in answer.refused] == [(0, "run_deleted")]
        assert answer.stored == 1


async def test_concurrent_writes_share_commits_and_get_their_own_rejections(
    writer: PostgresWriter, reader: PostgresReader
) -> None:
    run, bad = Moments(), Moments()
    good = [writer.write([run.call_started(tool_call_id=new_id())]) for _ in range(64)]
    *answers, refusal = await asyncio.gather(*good, writer.write([unstorable(bad)]))
    assert [(answer.stored, answer.refused) for answer in answers] == [(1, [])] * 64
    assert [(r.index, r.code) for r in refusal.refused] == [(0, "not_storable")]
    shown = await reader.read_run(run.root)
    assert shown.tool_calls == 64
    assert shown.revision < 64


@pytest.mark.parametrize("size", [2_500, pytest.param(20_000, marks=pytest.mark.thorough)])
async def test_huge_batch_is_stored_in_one_transaction(
    writer: PostgresWriter, reader: PostgresReader, size: int
) -> None:
    run = Moments()
    events = [run.call_finished(tool_call_id=new_id(), result="x" * 100) for _ in range(size)]
    answer = await writer.write([run.plan_started(), *events])
    assert (answer.stored, answer.refused) == (size + 1, [])
    shown = await reader.read_run(run.root)
    assert (shown.tool_calls, shown.revision) == (size, 1)
    await writer.delete_run(run.root)


async def test_write_with_more_text_than_one_statement_holds_is_atomic(
    writer: PostgresWriter, reader: PostgresReader
) -> None:
    run = Moments()
    text = "x" * 9_000_000
    events = [run.call_finished(tool_call_id=new_id(), result=text) for _ in range(5)]
    assert (await writer.write(events)).stored == 5
    shown = await reader.read_run(run.root)
    assert (shown.tool_calls, shown.revision) == (5, 1)


CAST_TEXTS = "SELECT arguments_json, result_json FROM trace.tool_calls"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, "é"]}', {"a": [1, "é"]}),
        ("null", None),
        ("{", None),
        ('"\\u0000"', None),
        ('{"\\\\u0000": "\\\\\\u0000"}', None),
        ('"\\\\u0000"', "\\u0000"),
        ("1e400", ...),
        ("[1e131072]", None),
        ("1e-16384", None),
        ("[" * 600 + "]" * 600, ...),
        ("[" * 6_000 + "]" * 6_000, None),
        ('{"a":' * 6_000 + "1" + "}" * 6_000, None),
        ("[" * 2_000_000, None),
        ('"' + "x" * 1_000_001 + '"', "x" * 1_000_001),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_view_casts_text_that_postgres_can_cast(
    pool: Pool, writer: PostgresWriter, text: str, value: object
) -> None:
    run = Moments()
    await writer.write([run.call_started(arguments=text), run.call_finished(result=text)])
    [(arguments, result)] = await rows(pool, CAST_TEXTS)
    assert arguments == result
    assert (arguments is not None) if value is ... else (arguments == value)


@pytest.mark.parametrize("order", [1, -1])
async def test_payload_that_nests_too_deep_keeps_its_beginning_and_size(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader, order: int
) -> None:
    run, deep = Moments(), "[" * 3_000 + "]" * 3_000
    starts: list[Event] = [run.call_started(arguments=text) for text in (deep, "[" * 5)]
    for event in [*starts, run.call_finished(result=deep)][::order]:
        await writer.write([event])
    call = (await reader.read_tool_call(run.call)).call
    assert call.arguments == call.result == "[" * 2_048 + "[masked: rest of 6000 bytes]"
    assert call.masked == ["arguments", "result"]
    assert await rows(pool, CAST_TEXTS) == [(None, None)]


async def test_view_casts_the_text_that_wins_a_merge(pool: Pool, writer: PostgresWriter) -> None:
    run = Moments()
    starts = [run.call_started(arguments=text) for text in ("[1]", "[2]", "[")]
    ends = [run.call_finished(at=at, result=text) for at, text in ((5, "[5]"), (6, "[6]"))]
    for event in (starts[1], starts[0], ends[1], ends[0]):
        await writer.write([event])
    assert await rows(pool, CAST_TEXTS) == [([2], [6])]
    await writer.write([run.call_started(arguments="[3"), run.call_finished(at=7, result="[7")])
    assert await rows(pool, CAST_TEXTS) == [(None, None)]


async def test_tombstone_keeps_no_content_of_the_run(pool: Pool, writer: PostgresWriter) -> None:
    run = sample_run()
    await writer.write(run.events)
    await writer.request_cancel(sample := await one_more(writer))
    await writer.delete_run(run.root)
    await writer.delete_run(sample)
    kept = ", ".join(
        field
        for field in Run.model_fields
        if field not in ("project_id", "root_plan_id", "recorded_at", "revision", "abandoned_at")
    )
    found = await rows(pool, f"SELECT {kept} FROM run")
    assert {value for row in found for value in map(str, row)} == {
        *("None", "unknown", "0", "False"),
    }
    for table in ("plan_execution_record", "agent_execution_record", "act_tool_info"):
        assert await rows(pool, f"SELECT 1 FROM {table}") == []


async def one_more(writer: PostgresWriter) -> Any:
    run = Moments()
    await writer.write([run.plan_started(session_id="s", subject="p", traceparent="t")])
    return run.root


async def test_foreign_key_rejects_a_sub_plan_without_its_tool_call(
    database_url: str, writer: PostgresWriter
) -> None:
    run = sample_run()
    await writer.write(run.events)
    with psycopg.connect(database_url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            connection.execute(
                "UPDATE plan_execution_record SET tool_call_id = %s"
                " WHERE parent_plan_id IS NOT NULL",
                [new_id()],
            )
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute("UPDATE plan_execution_record SET parent_plan_id = NULL")
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            connection.execute("DELETE FROM act_tool_info WHERE name = 'check'")


async def test_runs_are_listed_if_the_server_clock_goes_backwards(
    pool: Pool, reader: PostgresReader
) -> None:
    moments = iter([START, START - timedelta(days=1), START - timedelta(days=2)])
    writer = postgres_writer(ProjectPool(pool), WriterOptions(clock=lambda: next(moments)))
    runs = [Moments() for _ in range(3)]
    for run in runs:
        await writer.write([run.plan_started()])
    listed = (await reader.list_runs(RunFilter(), 9, None)).items
    # All start at the same moment, so their ids decide.
    assert [run.root_plan_id for run in listed] == sorted((run.root for run in runs), reverse=True)


async def test_deadlock_with_another_session_is_retried(
    pool: Pool, writer: PostgresWriter, database_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = sorted([Moments(), Moments()], key=lambda run: run.root)
    await writer.write([first.plan_started(), second.plan_started()])
    lock = "SELECT FROM run WHERE root_plan_id = %s FOR UPDATE"
    async with pool.connection() as stranger, stranger.transaction():
        await stranger.execute("SET LOCAL deadlock_timeout = '1min'")
        await stranger.execute(lock, [second.root])
        writing = asyncio.create_task(writer.write([run.call_started() for run in (first, second)]))
        await until_waiting(database_url, 1)
        # Postgres breaks the circle at the one that looks for it first: the writer.
        await stranger.execute(lock, [first.root])
    answer = await writing

    assert (answer.stored, answer.refused) == (2, [])
    assert capfd.readouterr().out == ""
