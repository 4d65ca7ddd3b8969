"""Who changes calls of an hour that is summed up says so, whatever way the change takes."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.citus_databases import on_one_postgres
from tests.otel.made_traces import agent, made, tool
from tests.storage.deletions import rows
from tests.storage.old_histories import (
    NOW,
    Deleted,
    Reaped,
    Restarted,
    Sent,
    Summed,
    Twins,
    Written,
)
from tests.store_contract.moments import Moments
from tracer.events import Event
from tracer.ids import new_id
from tracer.project_settings import ProjectSettings
from tracer.storage.burial_statements import THE_RUN
from tracer.storage.engine import Pool
from tracer.storage.postgres_deletion import PostgresDeletion
from tracer.tool_stats import TimeRange

pytestmark = on_one_postgres

DAYS = 4 * 24
"""In quarters of hours."""

ALL = Summed(100, 0)


@pytest.fixture
def twins(pool: Pool) -> Twins:
    return Twins(pool)


def ago(event: Event, days: float) -> Event:
    """Return an event as of some days ago."""
    return event.model_copy(update={"at": NOW - timedelta(days=days)})


async def write(twins: Twins, *events: Event, days: float = 0) -> None:
    await twins.happens(Written(events, int(days * DAYS)))


async def marked(twins: Twins) -> list[int]:
    """Return how many days ago the hours began that have marks, in the project that is summed."""
    query = "SELECT DISTINCT hour FROM changed_hour WHERE project_id = %s ORDER BY hour DESC"
    found = await rows(twins.summed.of.pool, query, twins.summed.of.project_id)
    return [(NOW - hour).days for (hour,) in found]


async def look(twins: Twins) -> None:
    """See that statistics are the same, and that most of them were read of summaries."""
    for since in (None, NOW - timedelta(days=15)):
        await twins.look(TimeRange(since, NOW + timedelta(days=1)))


@pytest.mark.thorough
async def test_what_is_young_leaves_no_mark(twins: Twins) -> None:
    run = Moments()
    call, sub_plan = run.call_started(), run.sub_plan_started(new_id(), run.call)
    await write(twins, ago(call, 0), ago(run.call_finished(), 0), ago(sub_plan, 0))
    await write(twins, ago(run.step_started(), 90), ago(run.plan_finished(), 90))
    assert await marked(twins) == []


async def test_calls_that_come_late_are_told_of(twins: Twins) -> None:
    first, second = Moments(), Moments()
    await write(twins, ago(first.call_started(), 10))
    await twins.happens(ALL)
    assert await marked(twins) == []
    await write(twins, ago(first.call_finished(), 9), ago(second.call_started(), 10))
    assert await marked(twins) == [10]
    await look(twins)
    await twins.happens(ALL)
    assert await marked(twins) == []
    await look(twins)


@pytest.mark.thorough
async def test_a_call_that_moves_is_told_of_where_it_was_and_where_it_is(twins: Twins) -> None:
    run = Moments()
    await write(twins, ago(run.call_started(), 3), days=3)
    await twins.happens(ALL)
    await write(twins, ago(run.call_started(), 5))
    assert await marked(twins) == [3, 5]
    await look(twins)
    await write(twins, ago(run.call_started(), 5))  # which says nothing new
    await twins.happens(ALL)
    await write(twins, ago(run.call_started(), 5))
    assert await marked(twins) == []


@pytest.mark.thorough
async def test_a_young_sub_plan_of_an_old_call_is_told_of(twins: Twins) -> None:
    run, sub_plan, other = Moments(), new_id(), new_id()
    await write(twins, ago(run.call_started(), 10), ago(run.call_started(tool_call_id=other), 5))
    await twins.happens(ALL)
    await write(twins, ago(run.sub_plan_started(sub_plan, min(run.call, other)), 0))
    [told] = await marked(twins)
    await look(twins)
    await twins.happens(ALL)
    # Of two openers the greater stays.
    await write(twins, ago(run.sub_plan_started(sub_plan, max(run.call, other)), 0))
    assert await marked(twins) == [5, 10]
    assert told in (5, 10)
    await look(twins)
    await twins.happens(ALL)
    await write(twins, ago(run.sub_plan_started(sub_plan, max(run.call, other)), 12))
    assert await marked(twins) == [15 - told]
    await look(twins)
    await twins.happens(ALL)
    await look(twins)


@pytest.mark.thorough
async def test_a_sub_plan_that_began_before_the_hour_counts_in_a_range_with_both(
    twins: Twins,
) -> None:
    run = Moments()
    hour = NOW - timedelta(days=10)
    call, sub_plan = run.call_started(), run.sub_plan_started(new_id(), run.call)
    # By two clocks.
    earlier = sub_plan.model_copy(update={"at": hour - timedelta(minutes=90)})
    await write(twins, call.model_copy(update={"at": hour}), earlier)
    await twins.happens(ALL)
    for hours, count in ((-2, 1), (-1, 0), (0, 0)):
        within = TimeRange(hour + timedelta(hours=hours))
        await twins.look(within)
        [tool] = await twins.summed.reader.read_tool_stats(within)
        assert tool.sub_plans == count


@pytest.mark.thorough
async def test_what_is_deleted_is_told_of(twins: Twins) -> None:
    run = Moments(UUID(int=1 << 100 | 1))
    await write(twins, ago(run.plan_started(), 10), ago(run.call_started(), 10))
    await write(twins, ago(run.call_started(tool_call_id=new_id()), 5))
    await twins.happens(ALL)
    await twins.happens(Deleted(0))
    assert await marked(twins) == [5, 10]
    await look(twins)
    await twins.happens(ALL)
    await look(twins)


@pytest.mark.thorough
async def test_what_is_buried_counts_no_more_before_it_is_swept(twins: Twins) -> None:
    run = Moments()
    await write(twins, ago(run.plan_started(), 10), ago(run.call_started(), 10))
    await write(twins, ago(Moments().call_started(), 10))
    await twins.happens(ALL)
    for project in (twins.summed, twins.plain):
        deletion = PostgresDeletion(project.of)
        await deletion._bury(THE_RUN, {"run": run.root})
    await look(twins)
    await twins.happens(ALL)
    assert await marked(twins) == []
    await look(twins)
    async with aclosing(PostgresDeletion(twins.summed.of).prune(ProjectSettings())) as pruning:
        assert [swept.runs async for swept in pruning] == [1]
    assert await marked(twins) == []
    await look(twins)


@pytest.mark.thorough
async def test_what_is_found_abandoned_is_told_of(twins: Twins) -> None:
    run, recorder = Moments(), new_id()
    call = ago(run.call_started(), 10).model_copy(update={"recorder_id": recorder})
    await write(twins, call)
    await twins.happens(ALL)
    await twins.happens(Reaped(10))
    assert await marked(twins) == [10]
    await look(twins)


@pytest.mark.thorough
async def test_spans_mark_the_old_hours_of_their_calls(twins: Twins) -> None:
    async def send(*spans: dict[str, Any]) -> None:
        await twins.happens(Sent(0, spans, 0))

    def at(days: float, seconds: float | None = 1) -> Any:
        begin = (NOW - timedelta(days=days)).timestamp() - 1
        return {"at": (begin, None if seconds is None else begin + seconds)}

    await send(agent(1, "nurse", **at(10, None)))
    await twins.happens(ALL)
    await send(tool(2, "measure", parent=1, **at(10, None)))
    assert await marked(twins) == [10]
    await look(twins)
    await twins.happens(ALL)
    # It ends; another version of it began elsewhere; agents begin below it; it was no tool.
    for span in (
        tool(2, "measure", parent=1, **at(10)),
        tool(2, "measure", parent=1, **at(8, 3 * 24 * 3600)),
        agent(3, "doctor", parent=2, **at(0)),
        agent(4, "doctor", parent=2, **at(0)),
        made(2, "SELECT", parent=1, **at(8, 4 * 24 * 3600)),
    ):
        for restarted in ([], [Restarted()]):
            for each in restarted:
                await twins.happens(each)
            await send(span)
            await look(twins)
            await twins.happens(ALL)
    assert await marked(twins) == []
    await look(twins)


@pytest.mark.thorough
async def test_the_days_and_hours_between_are_those_of_nobody(twins: Twins) -> None:
    run = Moments()
    await write(twins, *(ago(run.call_started(tool_call_id=new_id()), day) for day in (3, 4, 9)))
    long_ago = run.call_started(tool_call_id=new_id())
    await write(twins, long_ago.model_copy(update={"at": datetime(1971, 3, 4, tzinfo=UTC)}))
    await twins.happens(ALL)
    query = "SELECT hours, count(*) FROM summed_calls WHERE project_id = %s GROUP BY 1 ORDER BY 1"
    found = await rows(twins.summed.of.pool, query, twins.summed.of.project_id)
    assert found == [(1, 4), (24, 4)]
    for quarter in range(0, DAYS, 5):
        moment = NOW - timedelta(days=9, minutes=15 * quarter)
        await twins.look(TimeRange(moment))
        await twins.look(TimeRange(until=moment))
