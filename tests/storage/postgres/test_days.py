"""Figures of days. `test_rollups` compares them with the runs after random histories."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.contract.moments import START, Moments
from tests.projecting import DatabaseProjection, roll_up
from tests.storage.postgres.deletions import rows
from tracer.errors import BadRequest
from tracer.records import Kind, Status, new_id
from tracer.records.events import ErrorInfo, Event, ThoughtRecorded
from tracer.records.pages import OverviewFilter, RunFigures, TimeRange
from tracer.storage.postgres import Pool, PostgresWriter
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import RunFilter

ALL = OverviewFilter()
DAY = TimeRange(START.replace(hour=0), START.replace(hour=0) + timedelta(days=1))


def events_of(
    run: Moments,
    *,
    model: str | None = None,
    cost: float | None = None,
    fails: bool = False,
    days: int = 0,
    **started: Any,
) -> list[Event]:
    """Return the events of a run with an agent, a model call and a tool call."""
    error = ErrorInfo(type="TimeoutError", message="no answer")
    failed: dict[str, Any] = {"status": Status.FAILED, "error": error} if fails else {}
    answered = ThoughtRecorded(
        at=START + timedelta(seconds=3),
        root_plan_id=run.root,
        plan_id=run.root,
        step_id=run.step,
        think_act_id=run.think_act,
        status=Status.SUCCEEDED,
        model=model,
        input_tokens=100,
        output_tokens=20,
        cost_usd=None if cost is None else Decimal(str(cost)),
    )
    events: list[Event] = [
        run.plan_started(agent_name="nurse", **started),
        run.step_started(agent_name="nurse"),
        run.thought_started(),
        answered,
        run.call_started(think_act_id=run.think_act),
        run.call_finished(**failed),
        run.step_finished(**failed),
        run.plan_finished(**failed),
    ]
    return [each.model_copy(update={"at": each.at + timedelta(days=days)}) for each in events]


async def figures(reader: PostgresReader, **wanted: Any) -> tuple[int, ...]:
    overview = await reader.read_overview(DAY, OverviewFilter(**wanted))
    total: RunFigures = overview.total
    return total.runs, total.failed, total.calls


async def test_overview_compares_a_period_with_the_one_before(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader
) -> None:
    failing = Moments()
    await writer.write(events_of(Moments(), model="gpt-5", cost=0.5, service_name="billing"))
    await writer.write(events_of(failing, model="gpt-5-mini", cost=0.25, fails=True))
    await writer.write(events_of(Moments(), days=-1, cost=1))
    await writer.write(events_of(Moments(), days=-2, cost=2))

    for _ in range(2):  # before and after the roll-up
        found = await reader.read_overview(DAY, ALL)
        assert found.before is not None
        assert (found.since, found.until) == (date(2026, 1, 1), date(2026, 1, 2))
        assert (found.total.runs, found.total.failed, found.total.failure_rate) == (2, 1, 0.5)
        # Not a Decimal, which is a string in JSON.
        assert isinstance(found.total.input_tokens, int)
        assert (found.total.cost_usd, found.before.cost_usd) == (Decimal("0.75"), Decimal(1))
        assert (found.before.runs, found.before.failed) == (1, 0)
        assert found.total.p95_ms == pytest.approx(9_000, rel=0.01)
        assert [(each.day, each.runs) for each in found.days] == [(date(2026, 1, 1), 2)]
        [group] = found.failures
        assert (group.kind, group.name, group.error_type) == (
            *(Kind.TOOL_CALL, "measure", "TimeoutError"),
        )
        assert (group.runs, group.sample_run_id) == (1, failing.root)
        listed = (await reader.list_runs(RunFilter(status="failed"), 10, None)).items
        assert [group.sample_label] == [run.label for run in listed]
        spent = await reader.read_spend(DAY, "model")
        assert [(each.name, each.cost_usd) for each in spent] == [
            ("gpt-5", Decimal("0.5")),
            ("gpt-5-mini", Decimal("0.25")),
        ]
        assert await figures(reader, service="billing") == (1, 0, 1)
        assert await figures(reader, model="gpt-5-mini") == (1, 1, 1)
        assert await figures(reader, agent="nurse") == (2, 1, 2)
        assert await figures(reader, environment="production") == (0, 0, 0)
        await roll_up(pool)

    await writer.delete_run(failing.root)
    assert await figures(reader) == (1, 0, 1)
    assert await rows(pool, "SELECT sum(failed)::int FROM run_day") == [(0,)]


async def test_spend_by_user_is_limited_to_thirty_days(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader
) -> None:
    for user, cost in (("ana", 1), ("ben", 3), ("ana", 1.5)):
        await writer.write(events_of(Moments(), cost=cost, subject=user))

    for _ in range(2):
        spent = await reader.read_spend(DAY, "user")
        assert [(each.name, each.calls, each.cost_usd) for each in spent] == [
            ("ben", 1, 3),
            ("ana", 2, Decimal("2.5")),
        ]
        await roll_up(pool)
    with pytest.raises(BadRequest, match="30 days"):
        await reader.read_spend(TimeRange(START, START + timedelta(days=40)), "user")


async def test_list_filters_by_origin_error_type_and_model_after_the_roll_up(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader
) -> None:
    failing, other = Moments(), Moments()
    await writer.write(events_of(failing, model="gpt-5", fails=True, tags=("a",)))
    await writer.write(events_of(other, model="gpt-5-mini"))
    await roll_up(pool)

    async def found(**wanted: Any) -> set[Any]:
        page = await reader.list_runs(RunFilter(**wanted), 10, None)
        return {run.root_plan_id for run in page.items}

    assert await found(origin="measure") == {failing.root}
    assert await found(error_type="TimeoutError") == {failing.root}
    assert await found(model="gpt-5-mini") == {other.root}
    assert await found(origin="measure", model="gpt-5-mini") == set()
    facets = await reader.read_facets(RunFilter())
    assert {(each.value, each.count) for each in facets.model} == {("gpt-5", 1), ("gpt-5-mini", 1)}
    assert [(each.value, each.count) for each in facets.error_type] == [("TimeoutError", 1)]
    assert [(each.value, each.count) for each in facets.tag] == [("a", 1)]
    counted = await reader.count_runs(RunFilter())
    assert (counted.count, counted.failed, counted.p95_ms) == (2, 1, 9_000)


async def test_each_counted_value_of_a_facet_lists_its_runs(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader
) -> None:
    metadata = (
        {"tenant": None, "deep": {"inner": 1}},
        {"tenant": 2, "'\"$.%s ünï": 1},
        {"\0🧪": 1},
    )
    for keys in metadata:
        run = Moments()
        about = {"service_name": "ward", "service_version": "1", "deployment_environment": "test"}
        started: dict[str, Any] = {**about, "run_metadata": keys, "subject": "ana", "tags": ("a",)}
        await writer.write(events_of(run, model="gpt-5", fails=True, **started))
    await roll_up(pool)

    facets = await reader.read_facets(RunFilter())
    filters = {"user": "subject", "version": "service_version"}
    counted = {
        (filters.get(name, name), each.value): each.count
        for name, values in facets
        if isinstance(values, list)
        for each in values
    }
    listed = {
        (name, value): len((await reader.list_runs(RunFilter(**{name: value}), 10, None)).items)
        for name, value in counted
    }
    assert listed == counted
    assert len({name for name, _ in counted}) == 10
    assert counted["metadata_key", "tenant"] == 2
    assert ("metadata_key", "inner") not in counted
    assert (await reader.list_runs(RunFilter(metadata_key="inner"), 10, None)).items == []


async def test_work_of_several_runs_is_one_run_and_ends_like_its_last_part(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader
) -> None:
    first, second = Moments(), Moments()
    await writer.write(events_of(first, model="gpt-5", cost=1))
    later = events_of(second, cost=2, model="o9", fails=True, follows_runs=(first.root,))
    await writer.write(
        [each.model_copy(update={"at": each.at + timedelta(hours=1)}) for each in later]
    )
    await DatabaseProjection(pool.kwargs).link()

    for _ in range(2):
        found = await reader.read_overview(DAY, ALL)
        assert (found.total.runs, found.total.failed, found.total.calls) == (1, 1, 2)
        assert found.total.p95_ms == pytest.approx(3_609_000, rel=0.01)
        assert await figures(reader, model="o9") == (1, 1, 1)
        await roll_up(pool)


async def test_running_runs_are_stuck_after_ten_minutes_without_a_record(
    pool: Pool, writer: PostgresWriter, reader: PostgresReader
) -> None:
    for run in (Moments(), Moments()):
        await writer.write([run.plan_started()])
    await grow_old(pool, run.root)

    found = await reader.read_overview(TimeRange(until=datetime(1980, 1, 1, tzinfo=UTC)), ALL)

    assert (found.running, found.stuck, found.total.runs) == (2, 1, 0)


async def grow_old(pool: Pool, run_id: Any) -> None:
    async with pool.connection() as connection:
        cursor = await connection.execute("SELECT now() - interval '11 minutes'")
        [moment] = await cursor.fetchone() or ()
        await connection.execute(
            "UPDATE run SET changed_at = %s WHERE root_plan_id = %s", [moment, run_id]
        )


async def test_ids_of_all_kinds_find_their_record_and_name_its_run(
    writer: PostgresWriter, reader: PostgresReader
) -> None:
    runs = [Moments() for _ in range(22)]
    for run in runs:
        events: list[Event] = [
            run.plan_started(title="Weekly review"),
            run.call_started(provider_call_id="call_abc"),
        ]
        await writer.write(events)

    matches = await reader.find_records("call_abc", with_runs=True)

    assert len(matches) == 20
    assert {match.id for match in matches} <= {run.call for run in runs[2:]}
    assert {match.run and match.run.label for match in matches} == {"Weekly review"}
    assert {match.name for match in matches} == {"measure"}
    [step] = await reader.find_records(str(runs[0].step))
    assert (step.kind, step.root_plan_id) == (Kind.STEP, runs[0].root)
    assert await reader.find_records(f"{new_id().hex}:{'0' * 16}") == []
