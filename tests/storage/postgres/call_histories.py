"""Random histories of tool calls over some days, and a project that they happen to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from tests.otel.made_traces import agent, make_span, spans_from, tool
from tests.otel.sent import traces_of
from tests.projecting import project_in, roll_up
from tests.reaping import expire_leases
from tests.storage.postgres.deletions import rows
from tracer.clock import utc_now
from tracer.errors import RecordNotFound
from tracer.records import Status, new_id
from tracer.records.access import ProjectSettings
from tracer.records.events import (
    ChosenToolCall,
    EndingStatus,
    Event,
    PlanStarted,
    ThoughtRecorded,
    ToolCallFinished,
    ToolCallStarted,
)
from tracer.records.pages import (
    CallFigures,
    OverviewFilter,
    TimeRange,
    ToolHistory,
    ToolStatsPage,
    moment_of,
)
from tracer.storage.postgres import Pool, ProjectPool, WriterOptions, postgres_writer
from tracer.storage.postgres.deletion import PostgresDeletion
from tracer.storage.postgres.projects import ensure_project
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import RunFilter

EVER = TimeRange()
MODEL_CALLS = """
SELECT count(*) FROM think_act_record AS round JOIN run USING (project_id, root_plan_id)
WHERE project_id = %s AND deleted_at IS NULL AND is_agent_work AND step_id IS NOT NULL"""

NOW = utc_now().replace(minute=0, second=0, microsecond=0)
QUARTER = timedelta(minutes=15)
LONG_AGO = datetime(1971, 3, 4, 5, 6, tzinfo=UTC)
NAMES = ("a", "B", "é")

# Quarters of hours before now, some days of them, mostly at a few moments: so things meet there.
quarters = st.sampled_from([0, 3, 95, 97, 104, 105, 120, 120, 124, 200, 200, 300]) | st.integers(
    -4, 400
)
seconds = st.sampled_from([-5.0, 0.0, 0.000001, 0.25, 1.0, 1.0, 3.7, 3.7, 400.0, 90_000.0])
endings: st.SearchStrategy[EndingStatus] = st.sampled_from(
    [Status.CANCELLED, Status.FAILED, Status.SUCCEEDED]
)
runs = st.integers(0, 1)
calls = st.integers(0, 1)


def ago(quarters: int) -> datetime:
    """Return a moment; a number of 400 and more is long ago."""
    return LONG_AGO if quarters >= 400 else NOW - quarters * QUARTER


def _id(kind: int, run: int, number: int = 0) -> UUID:
    return UUID(int=kind << 100 | run << 32 | number + 1)


@dataclass(frozen=True)
class Written:
    """Events that are written, and when they are recorded."""

    events: tuple[Event, ...]
    at: int


@dataclass(frozen=True)
class Sent:
    """Spans that are sent, of one trace."""

    run: int
    spans: tuple[dict[str, Any], ...]
    at: int


@dataclass(frozen=True)
class Deleted:
    run: int


@dataclass(frozen=True)
class Pruned:
    """All runs but the newest are deleted, as the pruner does."""


@dataclass(frozen=True)
class Reaped:
    """A pass of the reaper; at a time when all leases have expired, or now."""

    days: int


@dataclass(frozen=True)
class RolledUp:
    """Batches of the roll-up job, which then stops as if it was killed."""

    batches: int


@dataclass(frozen=True)
class Looked:
    """A whole pass of the roll-up job, then statistics are read for a range of time."""

    since: int | None
    until: int | None


Happening = Written | Sent | Deleted | Pruned | Reaped | RolledUp | Looked


@st.composite
def some_events(draw: st.DrawFn, most: int, run: int | None = None) -> tuple[Event, ...]:
    """Return some events of calls, of one run or of any."""
    return tuple(draw(_event(run)) for _ in range(draw(st.integers(1, most))))


@st.composite
def _event(draw: st.DrawFn, run: int | None) -> Event:
    of = draw(runs) if run is None else run
    number, at = draw(calls), ago(draw(quarters))
    root, call = _id(1, of), _id(4, of, number)
    ids: dict[str, Any] = {
        "root_plan_id": root,
        "plan_id": root,
        "recorder_id": _id(6, draw(st.integers(0, 1))),
    }
    in_step = {**ids, "step_id": _id(2, of)}
    match draw(st.sampled_from(["started", "finished", "chosen", "opened", "opened"])):
        case "started":
            kind = draw(st.sampled_from([None, "FUNCTION", "SUBPLAN"]))
            name = draw(st.sampled_from(NAMES))
            return ToolCallStarted(at=at, **in_step, tool_call_id=call, name=name, tool_type=kind)
        case "finished":
            at += timedelta(seconds=draw(seconds))
            return ToolCallFinished(at=at, **in_step, tool_call_id=call, status=draw(endings))
        case "chosen":
            chosen = ChosenToolCall(
                tool_call_id=call,
                name=draw(st.sampled_from(NAMES)),
                status=draw(st.sampled_from([Status.RUNNING, Status.PENDING])),
            )
            round_ = _id(3, of, number)
            return ThoughtRecorded(
                at=at,
                **in_step,
                think_act_id=round_,
                status=Status.SUCCEEDED,
                tool_calls=(chosen,),
            )
    sub_plan = {**ids, "plan_id": _id(5, of, draw(st.integers(0, 1)))}
    return PlanStarted(at=at, **sub_plan, parent_plan_id=root, tool_call_id=call, depth=1)


@st.composite
def _sent(draw: st.DrawFn) -> Sent:
    """Return spans of a trace: agents, their tools, and agents that tools called."""
    spans = []
    for _ in range(draw(st.integers(1, 6))):
        number = draw(st.integers(1, 5))
        begin = ago(draw(quarters)).timestamp()
        took = draw(st.none() | seconds.filter(lambda took: took >= 0))
        at = (begin - 1, None if took is None else begin - 1 + took)
        parent = draw(st.none() | st.sampled_from([*range(1, number), *range(number + 1, 6)]))
        failed = draw(st.sampled_from([None, None, "it failed"]))
        match draw(st.sampled_from(["agent", "tool", "tool", "other"])):
            case "agent":
                spans.append(agent(number, "nurse", parent=parent, at=at))
            case "tool":
                name = draw(st.sampled_from(NAMES))
                spans.append(tool(number, name, parent=parent, at=at, failed=failed))
            case "other":
                spans.append(make_span(number, "SELECT", parent=parent, at=at))
    return Sent(draw(st.integers(3, 4)), tuple(spans), draw(quarters))


rolled_up = st.builds(RolledUp, st.integers(1, 4))
looked = st.builds(Looked, st.none() | quarters, st.none() | quarters)
written = st.builds(Written, some_events(9), quarters)
one_event = st.builds(Written, some_events(1), quarters)
"""Changes one hour, so that no other change of it hides a mistake."""

beginnings: st.SearchStrategy[list[Happening]] = st.lists(written | _sent(), min_size=3, max_size=6)

happenings = st.lists(
    st.one_of(
        *[one_event] * 5,
        *[_sent()] * 3,
        *[rolled_up] * 2,
        *[looked] * 3,
        st.builds(Deleted, st.integers(0, 4)),
        st.builds(Pruned),
        st.builds(Reaped, st.sampled_from([0, 10])),
    ),
    min_size=6,
    max_size=16,
)


class CallHistory:
    """A project that things happen to."""

    def __init__(self, pool: Pool, project_id: int) -> None:
        self._pool = pool
        self._now = NOW
        self.project = ProjectPool(pool, project_id)
        self.reader = PostgresReader(self.project)
        self.writer = postgres_writer(self.project, WriterOptions(clock=lambda: self._now))

    @classmethod
    async def new(cls, pool: Pool) -> CallHistory:
        """Return the history of a new project."""
        return cls(pool, await ensure_project(pool, f"p-{new_id()}"))

    async def happens(self, what: Happening) -> None:
        """Let something happen to the project."""
        match what:
            case Written():
                self._now = ago(what.at)
                await self.writer.write(what.events)
            case Sent():
                self._now = ago(what.at)
                trace = _id(7, what.run).hex
                spans = spans_from(*({**span, "traceId": trace} for span in what.spans))
                await self.writer.write_spans(traces_of(spans))
                await project_in(self._pool)
            case Deleted():
                with suppress(RecordNotFound):
                    await self.writer.delete_run(
                        _id(1, what.run) if what.run < 3 else _id(7, what.run)
                    )
            case Pruned():
                later = utc_now() + timedelta(days=10)  # when no recorder is alive
                deletion = PostgresDeletion(self.project, clock=lambda: later)
                async for _ in deletion.prune(ProjectSettings(keep_runs=1)):
                    pass
            case Reaped():
                moment = utc_now() + timedelta(days=what.days)
                await expire_leases(self._pool, moment)
            case RolledUp():
                await self._roll_up(batches=what.batches, runs_at_once=1)
            case Looked():
                until = None if what.until is None else ago(what.until)
                since = None if what.since is None else ago(what.since)
                await self.run_once(TimeRange(since, until))

    async def run_once(self, within: TimeRange) -> None:
        """Roll up, and compare the statistics with a fresh count of the calls and the runs."""
        await self._days_are_right()
        await self._roll_up()
        await self._days_are_right()
        sums = ", ".join(f"coalesce(sum({name}), 0)" for name in ("runs", "failed", "calls"))
        of_days, of_parts = [
            await rows(
                self._pool, f"SELECT {sums} FROM {table} WHERE project_id = %s", self.project_id
            )
            for table in ("run_day", "run_part_of_day")
        ]
        assert of_days == of_parts
        found = await self.read(within)
        query = "SELECT summed_at FROM project WHERE project_id = %s"
        [(summed_at,)] = await rows(self._pool, query, self.project.project_id)
        assert summed_at is not None
        await self._set_summed_at(None)
        expected = await self.read(within)
        await self._set_summed_at(summed_at)
        assert found[1].keys() == expected[1].keys()
        same(found[0].items, expected[0].items)
        assert found[0].counts == expected[0].counts
        for name, history in expected[1].items():
            other = found[1][name]
            assert history.bucket_seconds == other.bucket_seconds
            same([other.stats], [history.stats])
            same(other.buckets, history.buckets)
            assert other.slowest == history.slowest
            longest = other.slowest[0].duration_ms if other.slowest else None
            for percentile in (other.stats.p99_ms, other.stats.own_p99_ms):
                assert percentile is None or (longest is not None and percentile <= longest)
            assert other.latest_failed == history.latest_failed
            assert other.latest_abandoned == history.latest_abandoned

    @property
    def project_id(self) -> int:
        return self.project.project_id

    async def _days_are_right(self) -> None:
        """Compare the overview and spend with the runs of the list and their model calls."""
        listed = (await self.reader.list_runs(RunFilter(), 100, None)).items
        overview = await self.reader.read_overview(EVER, OverviewFilter())
        total = overview.total
        shown = Counter(run.shown_status for run in listed)
        assert (total.runs, total.failed, total.abandoned) == (
            *(len(listed), shown["failed"], shown["abandoned"]),
        )
        is_open = [run for run in listed if not run.status.is_ending]
        assert total.running == len(is_open) - shown["abandoned"]
        origins = Counter(
            (run.failure.name, run.failure.error_type) if run.failure else (None, None)
            for run in listed
            if run.shown_status == Status.FAILED
        )
        groups = [each for each in overview.failures if not each.is_abandoned]
        assert {(each.name, each.error_type): each.runs for each in groups} == origins
        by_day = Counter(moment_of(run).astimezone(UTC).date() for run in listed)
        assert {each.day: each.runs for each in overview.days if each.runs} == by_day
        for by in ("model", "agent", "day"):
            spent = await self.reader.read_spend(EVER, by)
            expected = await rows(self._pool, MODEL_CALLS, self.project_id)
            assert [sum(each.calls for each in spent)] == [calls for (calls,) in expected]
            assert sum(each.calls for each in spent) == total.calls

    async def _roll_up(self, **options: int) -> None:
        await roll_up(self._pool, self.project.project_id, **options)

    async def read(self, within: TimeRange) -> tuple[ToolStatsPage, dict[str, ToolHistory]]:
        """Return the statistics of all tools, and the history of each."""
        page = await self.reader.read_tool_stats(within)
        return page, {
            tool.name: await self.reader.read_tool_history(tool.name, within) for tool in page.items
        }

    async def _set_summed_at(self, moment: datetime | None) -> None:
        async with self._pool.connection() as connection:
            await connection.execute(
                "UPDATE project SET summed_at = %s WHERE project_id = %s",
                [moment, self.project.project_id],
            )


def same(found: Sequence[CallFigures], expected: Sequence[CallFigures]) -> None:
    """Assert that figures are the same, and percentiles within 1 %."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for name, value in vars(other).items():
            is_percentile = name.endswith("_ms") and value is not None
            allowed = abs(value) / 100 if is_percentile else 0
            got = getattr(one, name)
            assert got == value or (is_percentile and abs(got - value) <= allowed), (
                name,
                one,
                other,
            )
