"""Random histories of runs that continue each other, and a project that they happen to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from google.protobuf.json_format import ParseDict
from hypothesis import strategies as st

from tests.otel.made_logs import logs_as_traces, made_log
from tests.otel.made_traces import make_span, pairs, spans_from
from tests.otel.sent import traces_of
from tests.projecting import project_in
from tests.reaping import expire_leases
from tests.storage.postgres.deletions import rows
from tracer.clock import utc_now
from tracer.errors import RecordNotFound
from tracer.lineage.links import Candidate, LinkableCall, LinkableRun, Part, link_runs, whole_status
from tracer.records import ABANDONED, Status, new_id
from tracer.records.events import (
    EndingStatus,
    Event,
    PlanFinished,
    PlanStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from tracer.records.record_classes import RECORDS
from tracer.storage.postgres import Pool, ProjectPool, postgres_writer, sync_connection
from tracer.storage.postgres.linker import Linker
from tracer.storage.postgres.projects import ensure_project
from tracer.storage.postgres.run_tables import shown_status
from tracer.storage.postgres.tables import START, TABLES

ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
EVENT_RUNS, SPAN_RUNS, PROMPT_RUNS = range(5), range(5, 8), range(8, 12)

moments = st.integers(0, 9)
run_numbers = st.sampled_from([*EVENT_RUNS, *SPAN_RUNS, *PROMPT_RUNS])
event_runs = st.sampled_from(EVENT_RUNS)
sessions = st.sampled_from([None, "a", "a", "a", "b"])
keys = st.sampled_from([None, "k", "k", "l"])
endings: st.SearchStrategy[EndingStatus] = st.sampled_from([Status.FAILED, Status.SUCCEEDED])


def run_id(number: int) -> UUID:
    return UUID(int=1 << 100 | number + 1)


def call_id(run: int, number: int) -> UUID:
    return UUID(int=4 << 100 | run << 32 | number + 1)


def at(second: int) -> datetime:
    return ORIGIN + timedelta(seconds=second)


@dataclass(frozen=True)
class Written:
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Sent:
    run: int
    spans: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Deleted:
    run: int


@dataclass(frozen=True)
class Reaped:
    """All leases expire, or the reaper runs before any does."""

    are_expired: bool


@dataclass(frozen=True)
class Visited:
    """A pass of the linker. The number of following changes that happen between its steps."""

    interruptions: int
    is_killed: bool
    """Whether it stops after these, before its next step."""


Change = Written | Sent | Deleted | Reaped | Visited


@st.composite
def _event(draw: st.DrawFn) -> Event:
    run = draw(event_runs)
    root = run_id(run)
    ids: dict[str, Any] = {"at": at(draw(moments)), "root_plan_id": root, "plan_id": root}
    call: dict[str, Any] = {
        "step_id": UUID(int=2 << 100 | run),
        "tool_call_id": call_id(run, draw(st.integers(0, 1))),
    }
    match draw(
        st.sampled_from(["started", "started", "started", "ended", "called", "called", "returned"])
    ):
        case "started":
            other = draw(event_runs)
            claims: dict[str, Any] = {
                "follows_calls": (call_id(other, draw(st.integers(0, 1))),),
                "follows_runs": (run_id(draw(run_numbers)),),
                "follows_keys": (draw(keys) or "k",),
                "work_keys": ("w",),
            }
            chosen = draw(st.lists(st.sampled_from([*claims]), max_size=2, unique=True))
            return PlanStarted(
                **ids, session_id=draw(sessions), **{name: claims[name] for name in chosen}
            )
        case "ended":
            return PlanFinished(**ids, status=draw(endings))
        case "called":
            return ToolCallStarted(**ids, **call, name="n", provider_call_id=draw(keys))
    return ToolCallFinished(**ids, **call, status=draw(endings))


@st.composite
def _sent(draw: st.DrawFn) -> Sent:
    """Return spans of a trace. A later version of a span may be no call, or another one."""
    run = draw(st.sampled_from(SPAN_RUNS))
    spans = []
    for _ in range(draw(st.integers(1, 3))):
        number, begin = draw(st.integers(1, 3)), draw(moments)
        operation = draw(st.sampled_from(["invoke_agent", "chat", "execute_tool", "execute_tool"]))
        attributes = {"gen_ai.operation.name": operation, "gen_ai.tool.name": "n"}
        if (session := draw(sessions)) is not None:
            attributes["gen_ai.conversation.id"] = session
        if operation == "execute_tool" and (key := draw(keys)) is not None:
            attributes["gen_ai.tool.call.id"] = key
        end = draw(st.none() | st.integers(0, 9))
        times = begin, None if end is None else begin + end
        span = make_span(number, operation, attributes, at=_since_origin(*times))
        if draw(st.integers(0, 3)) == 0:
            continued = run_id(draw(st.sampled_from(SPAN_RUNS))).hex
            link = {"traceId": continued, "spanId": f"{draw(st.integers(1, 3)):016x}"}
            span["links"] = [link | {"attributes": pairs({"tracer.continues": True})}]
        spans.append(span)
    return Sent(run, tuple(spans))


def _since_origin(begin: int, end: int | None) -> tuple[float, float | None]:
    origin = ORIGIN.timestamp() - 1_700_000_001
    return origin + begin, None if end is None else origin + end


def prompt_of_claude_code(
    turn: int,
    *,
    sequence: int,
    end_sequence: int,
    session: str = "a",
    begin: int | None = None,
    number: int | None = None,
    text: str = "<REDACTED>",
    key: str = "m",
    agent: str = "agent-1",
    is_async: bool = True,
    left_out: frozenset[int] = frozenset(),
) -> Sent:
    """Return the items of a prompt that sets one agent to work.

    Args:
        turn: Its place in its session, from 0 on.
        sequence: The number of its event.
        end_sequence: The number of the event with which the agent ends.
        session: Its session.
        begin: Its second; None: two seconds for each turn.
        number: Its number in its process; None: that of its turn.
        text: Its text, in its event.
        key: The provider call id of the call.
        agent: The agent's id.
        is_async: Whether the agent works in the background.
        left_out: The indexes of items that do not arrive.
    """
    at = 2 * turn if begin is None else begin
    shared = {"session.id": session}

    def span(span_id: int, name: str, attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
        times = _since_origin(at, 1)
        name = f"claude_code.{name}"
        return make_span(span_id, name, shared | attributes, at=times, scope=CLAUDE_SPANS, **more)

    def log(name: str, span_id: int, attributes: dict[str, Any]) -> dict[str, Any]:
        return {"log": name, "at": at, "span_id": span_id, "attributes": shared | attributes}

    interaction = {"interaction.sequence": number or turn + 1, "user_prompt": "<REDACTED>"}
    opened = {"tool_name": "Agent", "tool_use_id": key}
    ended = {"agent_id": agent, "is_async": is_async, "event.sequence": end_sequence}
    items = [
        span(1, "interaction", interaction),
        log("user_prompt", 1, {"prompt": text, "event.sequence": sequence}),
        span(2, "tool", opened, parent=1),
        span(3, "tool.execution", opened, parent=2),
        span(4, "llm_request", {"agent_id": agent, "output_tokens": 1}, parent=3),
        log("subagent_completed", 3, ended),
    ]
    arriving = tuple(each for index, each in enumerate(items) if index not in left_out)
    return Sent(PROMPT_RUNS[turn], arriving)


@st.composite
def _prompted(draw: st.DrawFn) -> Sent:
    """Return items of a prompt of Claude Code, mostly without content."""
    turn = draw(st.integers(0, len(PROMPT_RUNS) - 1))
    left_out: list[set[int]] = [set()] * 8 + [{0}, {1}, {4}, {5}, {2, 3}, {0, 1, 5}]
    return prompt_of_claude_code(
        turn,
        sequence=2 * turn + draw(st.integers(0, 3)),
        end_sequence=2 * turn + draw(st.integers(1, 4)),
        session=draw(st.sampled_from("a" * 12 + "b")),
        begin=draw(st.sampled_from([None] * 6 + [5])),
        number=draw(st.sampled_from([None] * 8 + [1])),
        text=draw(st.sampled_from(["<REDACTED>"] * 12 + [*PROMPTS])),
        key=draw(keys) or "m",
        agent=draw(st.sampled_from(["agent-1", "agent-2"])),
        is_async=draw(st.sampled_from([True] * 4 + [False])),
        left_out=frozenset(draw(st.sampled_from(left_out))),
    )


CLAUDE_SPANS = "com.anthropic.claude_code.tracing"
CLAUDE_EVENTS = "com.anthropic.claude_code.events"
PROMPTS = (
    "What time is it?",
    "<task-notification><tool-use-id>k</tool-use-id></task-notification>",
    "<task-notification><task-id>agent-1</task-id></task-notification>",
)

written = st.builds(Written, st.lists(_event(), min_size=1, max_size=4).map(tuple))

visited = st.builds(Visited, st.integers(0, 2), st.sampled_from([False, False, True]))
deleted = st.builds(Deleted, run_numbers)
reaped = st.builds(Reaped, st.booleans())


def _often(weights: dict[st.SearchStrategy[Any], int]) -> st.SearchStrategy[Any]:
    # `one_of` ignores a strategy that it has already.
    repeated = [each for each, times in weights.items() for _ in range(times)]
    return st.integers(0, len(repeated) - 1).flatmap(repeated.__getitem__)


histories: st.SearchStrategy[list[Change]] = st.lists(
    _often({written: 4, _sent(): 2, _prompted(): 1, visited: 3, deleted: 1, reaped: 1}),
    min_size=4,
    max_size=16,
)

histories_of_prompts: st.SearchStrategy[list[Change]] = st.lists(
    _often({_prompted(): 12, visited: 5, st.builds(Deleted, st.sampled_from(PROMPT_RUNS)): 1}),
    min_size=8,
    max_size=16,
)
"""Few other changes, so that many prompts follow each other."""


def _log(trace_id: str, log: str, at: int, span_id: int, attributes: dict[str, Any]) -> Any:
    second, _ = _since_origin(at, None)
    made = made_log(f"claude_code.{log}", trace_id=trace_id, span_id=span_id)
    made.time_unix_nano = round((second + 1_700_000_001) * 10**9)
    return ParseDict({"attributes": pairs(attributes)}, made)


class Killed(BaseException):
    """The linker's process ends."""


class WorkHistory:
    """A project that changes happen to."""

    def __init__(self, pool: Pool, project_id: int) -> None:
        self.pool = pool
        self.project = ProjectPool(pool, project_id)
        self.writer = postgres_writer(self.project)

    @classmethod
    async def new(cls, pool: Pool) -> WorkHistory:
        """Return the history of a new project."""
        return cls(pool, await ensure_project(pool, f"p-{new_id()}"))

    async def happens(self, history: list[Change]) -> None:
        """Let changes happen, and then the linker finish."""
        changes = list(history)
        while changes:
            change = changes.pop(0)
            if isinstance(change, Visited):
                following = changes[: change.interruptions]
                inside: list[Change] = [each for each in following if not isinstance(each, Visited)]
                del changes[: change.interruptions]
                await self._visit_between(inside, change.is_killed)
            else:
                await self._change(change)
        await self.link()

    async def _change(self, change: Change) -> None:
        match change:
            case Written():
                await self.writer.write(change.events)
            case Sent():
                trace = run_id(change.run).hex
                spans = [each for each in change.spans if "log" not in each]
                logs = [_log(trace, **each) for each in change.spans if "log" in each]
                sent = traces_of(spans_from(*({**each, "traceId": trace} for each in spans)))
                records = logs_as_traces(*logs, scope=CLAUDE_EVENTS)
                await self.writer.write_spans([*sent, *records])
                await project_in(self.pool)
            case Deleted():
                with suppress(RecordNotFound):
                    await self.writer.delete_run(run_id(change.run))
            case Reaped():
                days = 10 if change.are_expired else -10
                await expire_leases(self.pool, utc_now() + timedelta(days=days))

    async def _visit_between(self, changes: list[Change], is_killed: bool) -> None:
        """Visit runs, let a change happen and another linker run between any two steps."""
        loop = asyncio.get_running_loop()

        def between() -> None:
            if changes:
                change = self._change(changes.pop(0))
                asyncio.run_coroutine_threadsafe(change, loop).result()
                self._visit(lambda: None)
            elif is_killed:
                raise Killed

        with suppress(Killed):
            await asyncio.to_thread(self._visit, between)
        for change in changes:
            await self._change(change)

    async def link(self) -> None:
        """Let the linker visit all runs that are due."""
        for _ in range(100):
            if not await asyncio.to_thread(self._visit, lambda: None):
                return
        raise AssertionError("The visits do not end.")

    def _visit(self, between: Callable[[], None]) -> int:
        options: Any = self.pool.kwargs
        with sync_connection(options) as connection:
            return Linker(connection, between).visit_due()

    async def stored(self) -> dict[UUID, tuple[Any, ...]]:
        """Return the links of each run, as the tables have them."""
        candidates = defaultdict(list)
        for run, *candidate in await rows(self.pool, _CANDIDATES, self.project.project_id):
            candidates[run].append(Candidate(*candidate))
        return {
            run: (tuple(candidates.pop(run, ())), *links)
            for run, *links in await rows(self.pool, _LINKS, self.project.project_id)
        } | {run: (tuple(left),) for run, left in candidates.items()}

    async def expected(self) -> dict[UUID, tuple[Any, ...]]:
        """Return the same, from the rule alone."""
        project_id = self.project.project_id
        calls = defaultdict(list)
        for run, *call in await rows(self.pool, _CALLS, project_id):
            calls[run].append(LinkableCall(*call))
        last = dict(await rows(self.pool, _LAST, project_id))
        runs, statuses = [], {}
        for run, status, began, ended, *fields in await rows(self.pool, _RUNS, project_id):
            end = last.get(run) if status == ABANDONED else ended
            lists = [each or () for each in fields[-6:-2]]
            values: tuple[Any, ...] = (
                run,
                began,
                end,
                *fields[:-6],
                *lists,
                *fields[-2:],
                calls[run],
            )
            runs.append(LinkableRun(*values))
            statuses[run] = status
        links = link_runs(runs)
        parts = defaultdict(list)
        for each in runs:
            link = links[each.root_plan_id]
            part = Part(
                each.root_plan_id,
                each.started_at,
                statuses[each.root_plan_id],
                link.continues_run_id,
                link.is_inside,
            )
            parts[link.head_id or each.root_plan_id].append(part)
        return {
            run: (
                *(link.candidates, link.continues_run_id, link.head_id, link.is_inside),
                whole_status(parts.get(run, [])),
            )
            for run, link in links.items()
        }


_OF = "WHERE project_id = %s"
_CANDIDATES = f"""SELECT root_plan_id, continued_run_id, tool_call_id, is_link, inferred_from
    FROM run_link {_OF} ORDER BY root_plan_id, number"""
_LINKS = f"""SELECT root_plan_id, continues_run_id, head_id, is_inside, whole_status
    FROM run {_OF} AND deleted_at IS NULL"""
_CALLS = f"""SELECT root_plan_id, tool_call_id, provider_call_id, started_at, finished_at,
    agent_key, agent_end_sequence FROM act_tool_info {_OF}"""
_RUNS = f"""SELECT root_plan_id, {shown_status("run")}, {START}, finished_at, session_id,
    is_agent_work AND NOT is_bare, is_bare, follows_calls, follows_runs, follows_keys, work_keys,
    prompt_sequence, prompt_number FROM run {_OF} AND deleted_at IS NULL"""
_LAST = f"""SELECT root_plan_id, max(greatest(started_at, finished_at)) FROM ({
    " UNION ALL ".join(
        f"SELECT project_id, root_plan_id, started_at, finished_at FROM {TABLES[kind]}"
        for kind in RECORDS
    )
}) AS record {_OF} GROUP BY root_plan_id"""
