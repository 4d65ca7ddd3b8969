"""What happens to tool calls over some days, made by Hypothesis, and the projects it happens to.

One of two is summed up now and then, the other never: what is said of both has to be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from tests.otel.made_traces import agent, made, spans_from, tool
from tests.projecting import project_in
from tests.store_contract.transfers import export_of, import_into
from tracer.clock import Clock, utc_now
from tracer.errors import RecordNotFound
from tracer.events import (
    ChosenToolCall,
    EndingStatus,
    Event,
    PlanStarted,
    ThoughtRecorded,
    ToolCallFinished,
    ToolCallStarted,
)
from tracer.otel.blocks import traces_of
from tracer.status import Status
from tracer.storage.engine import Pool
from tracer.storage.postgres_leases import PostgresReaper
from tracer.storage.postgres_reader import PostgresReader
from tracer.storage.postgres_writer import PostgresWriter
from tracer.storage.project_pool import ProjectPool
from tracer.storage.summariser import turns
from tracer.tool_stats import CallFigures, TimeRange

NOW = utc_now().replace(minute=0, second=0, microsecond=0)
QUARTER = timedelta(minutes=15)
LONG_AGO = datetime(1971, 3, 4, 5, 6, tzinfo=UTC)
NAMES = ("a", "B", "é")

_projects = count(1_000)

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
class Restored:
    """Runs of the one project that are brought back as they are exported, and were recorded."""

    run: int
    events: tuple[Event, ...]
    at: int


@dataclass(frozen=True)
class Reaped:
    """A look of the reaper; at a time when all leases ran out, or now."""

    days: int


@dataclass(frozen=True)
class Summed:
    """Some turns of a summariser, whose clock is off by hours."""

    turns: int
    hours: int


@dataclass(frozen=True)
class Restarted:
    """A server that knows nothing of what it wrote."""


@dataclass(frozen=True)
class Looked:
    """Statistics that are read, of a range of time."""

    since: int | None
    until: int | None


Happening = Written | Sent | Deleted | Restored | Reaped | Summed | Restarted | Looked


@st.composite
def some_events(draw: st.DrawFn, most: int, run: int | None = None) -> tuple[Event, ...]:
    """Return some events of calls, of one run or of any."""
    return tuple(draw(_event(run)) for _ in range(draw(st.integers(1, most))))


@st.composite
def _event(draw: st.DrawFn, run: int | None) -> Event:
    of = draw(runs) if run is None else run
    number, at = draw(calls), ago(draw(quarters))
    root, call = _id(1, of), _id(4, of, number)
    place: dict[str, Any] = {
        "root_plan_id": root,
        "plan_id": root,
        "recorder_id": _id(6, draw(st.integers(0, 1))),
    }
    in_step = {**place, "step_id": _id(2, of)}
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
    sub_plan = {**place, "plan_id": _id(5, of, draw(st.integers(0, 1)))}
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
                spans.append(made(number, "SELECT", parent=parent, at=at))
    return Sent(draw(st.integers(3, 4)), tuple(spans), draw(quarters))


@st.composite
def _restored(draw: st.DrawFn) -> Restored:
    run = draw(st.integers(0, 2))  # the last is there by this alone
    return Restored(run, draw(some_events(6, run)), draw(quarters))


summed = st.builds(Summed, st.integers(1, 5), st.sampled_from([0, 0, 0, -30, -60, 20, 48]))
looked = st.builds(Looked, st.none() | quarters, st.none() | quarters)
written = st.builds(Written, some_events(9), quarters)
little = st.builds(Written, some_events(1), quarters)
"""An hour that much happens to is marked by something, whatever else forgets to."""

beginnings: st.SearchStrategy[list[Happening]] = st.lists(written | _sent(), min_size=3, max_size=6)

happenings = st.lists(
    st.one_of(
        *[little] * 5,
        *[_sent()] * 3,
        *[summed] * 3,
        *[looked] * 2,
        st.builds(Deleted, st.integers(0, 4)),
        _restored(),
        st.builds(Reaped, st.sampled_from([0, 10])),
        st.builds(Restarted),
    ),
    min_size=6,
    max_size=16,
)


@dataclass
class _Project:
    """One project, with a server that may be started again."""

    pool: Pool
    clock: Clock
    of: ProjectPool = field(init=False)
    reader: PostgresReader = field(init=False)

    def __post_init__(self) -> None:
        self.of = ProjectPool(self.pool, next(_projects))
        self.reader = PostgresReader(self.of)
        self.start()

    def start(self) -> None:
        self.writer = PostgresWriter(self.of, self.clock)


class Twins:
    """Two projects to which the same happens, but that one of them is summed up."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.now = NOW
        self.summed, self.plain = (_Project(pool, lambda: self.now) for _ in range(2))

    async def happens(self, what: Happening) -> None:
        """Let something happen to both."""
        match what:
            case Summed():
                left = what.turns
                clock = timedelta(hours=what.hours)
                async for _ in turns(self.summed.of, lambda: utc_now() + clock):
                    left -= 1
                    if left == 0:
                        break
            case Looked():
                until = None if what.until is None else ago(what.until)
                since = None if what.since is None else ago(what.since)
                await self.look(TimeRange(since, until))
            case Reaped():
                moment = utc_now() + timedelta(days=what.days)
                reaper = PostgresReaper(self._pool, clock=lambda: moment)
                await reaper.look_after_leases(LONG_AGO)
            case _:
                for project in (self.summed, self.plain):
                    await self._happens(project, what)

    async def _happens(self, project: _Project, what: Happening) -> None:
        match what:
            case Written():
                self.now = ago(what.at)
                await project.writer.write(what.events)
            case Sent():
                self.now = ago(what.at)
                trace = _id(7, what.run).hex
                spans = spans_from(*({**span, "traceId": trace} for span in what.spans))
                await project.writer.write_spans(traces_of(spans))
                await project_in(self._pool)
            case Deleted():
                with suppress(RecordNotFound):
                    await project.writer.delete_run(
                        _id(1, what.run) if what.run < 3 else _id(7, what.run)
                    )
            case Restored():
                self.now = ago(what.at)
                elsewhere = _Project(self._pool, project.clock)
                await elsewhere.writer.write(what.events)
                file = await export_of(elsewhere.reader, _id(1, what.run))
                self.now = NOW
                await import_into(project.writer, file)
            case Restarted():
                project.start()

    async def look(self, within: TimeRange) -> None:
        """Read what is said of both, and see that it is the same."""
        found = await self.summed.reader.read_tool_stats(within)
        expected = await self.plain.reader.read_tool_stats(within)
        assert [tool.name for tool in found] == [tool.name for tool in expected]
        same(found, expected)
        for each in expected:
            same(await self.summed.reader.read_tool_stats(within, each.name), [each])
            history = await self.summed.reader.read_tool_history(each.name, within)
            plain = await self.plain.reader.read_tool_history(each.name, within)
            assert history.bucket_seconds == plain.bucket_seconds
            same([history.stats], [plain.stats])
            same(history.buckets, plain.buckets)
            assert history.slowest == plain.slowest
            assert history.latest_failures == plain.latest_failures


def same(found: Sequence[CallFigures], expected: Sequence[CallFigures]) -> None:
    """See that figures are the same, but percentiles about the same."""
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
