"""Project a run: convert its spans to rows of plans, steps, model calls and tool calls.

- An agent becomes a plan with one step.
- A model call becomes a think-act record (a *round*) of the nearest agent above it.
- A tool span becomes a tool call of the round that chose it.
- If a parent has not arrived, a placeholder takes its place. Its id is the one that the parent will
  have.

The rows depend only on the set of spans, not on the order of their arrival.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from tracer.otel.dialects.dialect import WRAPPER, ExecutedCall, Role, SlimSpan, SpanFacts
from tracer.otel.otlp.spans import EPOCH, moment, stored
from tracer.otel.projection.agents import (
    LATEST_ROUND,
    AgentWork,
    Choice,
    Rounds,
    find_agents,
    link_orphan_agents,
    needs_requested,
)
from tracer.otel.projection.chosen_calls import (
    AgentRun,
    Unreached,
    correct_by_call_ids,
    followed_call_ids,
    id_of_chosen,
    link_to_answers,
)
from tracer.otel.projection.forest import (
    Ending,
    RunSpans,
    build_tree,
    ending_of,
    find_usage,
    read_run,
    represented,
)
from tracer.records import Kind, Reason, Status
from tracer.records.masks import masked_paths, within_depth
from tracer.records.merge import RULES, Fields, title_of
from tracer.records.prices import NO_OWN_PRICES, OwnPrices, TokenUsage, cost_of, is_unpriced
from tracer.records.record_classes import FROM_ROOT_PLAN, RECORDS, TEXTS
from tracer.records.span_records import SpanRecords
from tracer.resource import SERVICE_ATTRIBUTES

USAGE_OF_AGENT = "the usage of the agent's own span, because no model call arrived"
"""The evidence for a round that was made from an agent's span."""

EARLIEST = "the earliest of the agents whose parents have not come"
"""The evidence if an agent whose parent is missing is inferred to be the root agent."""

PROJECTION_VERSION = 9
"""Raise this number if the rows of any trace change, so that stored runs are projected again."""

Row = tuple[Any, ...]
"""The values of a record. Ids are 16 bytes, times are microseconds since 1970, lists are tuples."""

# Records that arrive as events have none of these.
_FIELDS_OF_SPANS = "inferred inferred_from clock_shift_us agent_key agent_end_sequence".split()

PROJECTED_FIELDS: dict[Kind, tuple[str, ...]] = {
    kind: tuple(
        field for field in (*RULES[kind].fields, *_FIELDS_OF_SPANS) if field in record.model_fields
    )
    for kind, record in RECORDS.items()
}
"""The fields that a projection writes, in the order in which rows have them."""

TOTALS = tuple("input_tokens output_tokens cost_usd unpriced_calls tool_calls failed_calls".split())
"""The sums over the rounds and tool calls of a run."""

RUN_FIELDS = (
    *"session_id subject tags masked traceparent cancel_requested_at run_metadata".split(),
    *SERVICE_ATTRIBUTES,
    "is_agent_work",
    *FROM_ROOT_PLAN,
    *TOTALS,
    "unread_spans",
    "unread_scopes",
    "is_bare",
    *"follows_calls follows_runs follows_keys work_keys prompt_sequence prompt_number".split(),
)
"""The fields of a run that a projection writes, in the order in which its row has them."""


@dataclass(slots=True)
class ProjectedRun:
    """The rows of one run. Text is in stored form (`tracer.text`)."""

    root_plan_id: bytes
    run: Row
    """The values of `RUN_FIELDS`."""
    rows: dict[Kind, dict[bytes, Row]]
    """The values of `PROJECTED_FIELDS` by kind and record id."""
    spans: int
    """The number of different spans and log records of the run."""
    later: dict[bytes, int]
    """The index of the first message that contains a record's span, by record id. Index 0 is left
    out. If the record has no span, the spans of the work below it count instead."""
    priced: set[bytes]
    """The ids of the think-acts whose cost was computed from prices."""
    sessions: frozenset[bytes] = frozenset()
    """The `session_run_id` of each session that the run's log records name. The log records of
    these runs also belong to this run."""
    is_of_session: bool = False
    """Whether this is a session's own run, which has no records."""
    unread: Counter[str] = field(default_factory=Counter)
    """The number of spans with token counts that no rule could read, by scope."""
    span_records: bytes = b""
    """The record of each span (`SpanRecords`)."""


SpanRecord = tuple[Kind, bytes]
"""The record that a span became, or belongs to."""


def project_run(
    messages: Iterable[bytes],
    of_sessions: Iterable[bytes] = (),
    prices: OwnPrices = NO_OWN_PRICES,
) -> ProjectedRun:
    """Return the rows of one run.

    Args:
        messages: The run's spans and log records as stored messages. They may be in any order and
            divided in any way, and may contain several versions of a span.
        of_sessions: The stored messages of the runs whose ids are in `ProjectedRun.sessions`.
        prices: The project's own prices. They replace costs in spans and prices of the price list.
    """
    run = read_run(messages, of_sessions)
    if run.is_of_session:
        return _without_rows(run)
    projection = _Projection(run, prices)
    projected = projection.result()
    projected.sessions = run.sessions
    projected.span_records = SpanRecords.of(projection.records(run.announced)).packed
    return projected


def span_records(
    messages: Iterable[bytes], of_sessions: Iterable[bytes] = ()
) -> dict[bytes, SpanRecord]:
    """Return the record that each span of a run became or belongs to, by span id.

    Args:
        messages: As in `project_run`.
        of_sessions: As in `project_run`.
    """
    run = read_run(messages, of_sessions)
    return _Projection(run).records(run.announced)


# --- Rows ----------------------------------------------------------------------------------------


def fields_of(kind: Kind, row: Row) -> Fields:
    """Convert a row to the fields of a record, with UUIDs, datetimes and lists."""
    return {
        name: _field_value(kind, name, value)
        for name, value in zip(PROJECTED_FIELDS[kind], row, strict=True)
    }


def fields_of_run(row: Row) -> Fields:
    """Convert the row of a run to the fields of the run."""
    return {
        name: _field_value(Kind.PLAN, name, value)
        for name, value in zip(RUN_FIELDS, row, strict=True)
    }


def _field_value(kind: Kind, name: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bytes):
        return UUID(bytes=value)
    if isinstance(value, tuple):
        return [UUID(bytes=each) if isinstance(each, bytes) else each for each in value]
    return EPOCH + timedelta(microseconds=value) if name.endswith("_at") else value


def row_of(values: Iterable[Any]) -> Row:
    """Convert fields of a record, in the order of `PROJECTED_FIELDS`, to a row."""
    return tuple(_row_value(value) for value in values)


def totals_of(records: Mapping[Kind, Mapping[UUID, Fields]]) -> Fields:
    """Return the totals of a run (`TOTALS`) over its rounds and tool calls."""
    rounds, calls = records[Kind.THINK_ACT].values(), records[Kind.TOOL_CALL].values()
    return {
        "input_tokens": sum(each.get("input_tokens") or 0 for each in rounds),
        "output_tokens": sum(each.get("output_tokens") or 0 for each in rounds),
        "cost_usd": sum((each.get("cost_usd") or Decimal(0) for each in rounds), Decimal(0)),
        "unpriced_calls": sum(
            is_unpriced(
                each["status"],
                (each.get("input_tokens"), each.get("output_tokens")),
                each.get("cost_usd"),
            )
            for each in rounds
        ),
        "tool_calls": len(calls),
        "failed_calls": sum(each["status"] is Status.FAILED for each in (*rounds, *calls)),
    }


def _row_value(value: Any) -> Any:
    """Convert one field of a record to the type that rows use."""
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return tuple(value) if isinstance(value, list) else value


def _row_maker(fields: tuple[str, ...], lists: tuple[str, ...]) -> Callable[..., Row]:
    """Return a function that makes a row with `fields` from their values by name.

    Fields that are not given become None, or an empty tuple if they are in `lists`.
    """
    empty = {field: () if field in lists else None for field in fields}

    def row(lifecycle: Mapping[str, Any] = _NOTHING, **values: Any) -> Row:
        return tuple({**empty, **lifecycle, **values}.values())

    return row


_NOTHING: Fields = {}
_PLACEHOLDER: Fields = {"started_at": None, "status": Status.UNKNOWN, "finished_at": None}

_plan_row, _step_row, _think_act_row, _tool_call_row = (
    _row_maker(PROJECTED_FIELDS[kind], RULES[kind].union) for kind in RECORDS
)
_run_row = _row_maker(RUN_FIELDS, RULES[Kind.RUN].union)
_from_root_plan = itemgetter(*map(PROJECTED_FIELDS[Kind.PLAN].index, FROM_ROOT_PLAN))


def _with_masks(kind: Kind, rows: Mapping[bytes, Row]) -> dict[bytes, Row]:
    """Set the field `masked` of rows: the paths of all masks in their texts."""
    names, texts = PROJECTED_FIELDS[kind], TEXTS[kind]
    at = names.index("masked")
    return {
        record_id: (
            *row[:at],
            tuple(masked_paths(dict(zip(names, row, strict=True)), texts)),
            *row[at + 1 :],
        )
        for record_id, row in rows.items()
    }


def _without_rows(run: RunSpans) -> ProjectedRun:
    """Return the projection of a session's own run, which has log records but no rows."""
    empty: dict[Kind, dict[bytes, Row]] = {kind: {} for kind in RECORDS}
    fields: Fields = {name: [] for name in RULES[Kind.RUN].union} | totals_of(
        {kind: {} for kind in RECORDS}
    )
    fields |= {"status": Status.UNKNOWN, "is_agent_work": False, "is_bare": False}
    fields |= {"unread_spans": 0, "unread_scopes": []}
    return ProjectedRun(
        root_plan_id=run.trace_id,
        run=tuple(_row_value(fields.get(name)) for name in RUN_FIELDS),
        rows=empty,
        spans=run.log_records,
        later={},
        priced=set(),
        is_of_session=True,
    )


# --- Spans of agents -----------------------------------------------------------------------------


def record_ids(trace_id: bytes, kind: Kind) -> Callable[[bytes], bytes]:
    """Return a function that converts a span id to the id of the span's record.

    The ids are UUIDv8 (RFC 9562). They begin with six bytes of the trace id, so that the records of
    a run are adjacent in an index. The rest is a hash of the trace id, the kind and the span id.
    The empty span id gives the id of a record that belongs to the run as a whole.
    """
    beginning = trace_id[:6]
    hashed = sha256(trace_id + kind.value.encode())

    def make(span_id: bytes) -> bytes:
        of_span = hashed.copy()
        of_span.update(span_id)
        record_id = bytearray(beginning + of_span.digest()[:10])
        record_id[6] = record_id[6] & 0x0F | 0x80
        record_id[8] = record_id[8] & 0x3F | 0x80
        return bytes(record_id)

    return make


def _microseconds(nanoseconds: int) -> int | None:
    """Convert nanoseconds to microseconds; None for 0, which means no time."""
    return nanoseconds // 1000 if nanoseconds else None


def _lifecycle(span: SlimSpan, failure: Reason | None = None, has_failed: bool = False) -> Fields:
    """Return the times, status, reason, error and clock shift of a span, as fields of a record.

    Args:
        span: The span. If it has no end, the work is running.
        failure: The reason to store if the work failed.
        has_failed: Whether the work failed even if the span's status is not an error.
    """
    ending = ending_of(span, failure, has_failed) if span.end else _RUNNING
    return {
        "started_at": _microseconds(span.start),
        "status": ending.status,
        "finished_at": _microseconds(span.end),
        "reason": ending.reason,
        "error_type": ending.error_type,
        "error_message": ending.error_message,
        "error_stack": ending.error_stack,
        "clock_shift_us": _microseconds(span.shift),
    }


_RUNNING = Ending(Status.RUNNING)


class _Top(NamedTuple):
    """The facts of a run as a whole. Texts are in stored form."""

    lifecycle: Fields
    name: str | None = None
    agent_name: str | None = None
    request: str | None = None
    answer: str | None = None

    @property
    def is_open(self) -> bool:
        return self.lifecycle["finished_at"] is None


def _with_work(tops: list[SlimSpan], spans: list[SlimSpan]) -> list[SlimSpan]:
    """Return those topmost spans that contain agents, model calls or tool calls; if none, all."""
    top_of: dict[SlimSpan, SlimSpan] = {}
    found: set[SlimSpan] = set()
    for span in spans:
        if span.facts.role not in _KINDS:
            continue
        way = []
        at = span
        while at not in top_of and at.parent is not None:
            way.append(at)
            at = at.parent
        top = top_of.get(at, at)
        top_of |= dict.fromkeys(way, top)
        found.add(top)
    return [span for span in tops if span in found] or tops


class _Projection:
    """The projection of a run."""

    def __init__(self, run: RunSpans, prices: OwnPrices = NO_OWN_PRICES) -> None:
        self._prices = prices
        self._spans = run.spans
        self._may_hold_masks = run.may_hold_masks
        self._count = len(run.versions) + run.log_records
        self._later = run.later
        self._resources = run.resources
        build_tree(run.spans)
        self._agents = find_agents(run.spans)
        if correct_by_call_ids(self._agents):
            self._agents = find_agents(run.spans)
        usage = find_usage(run.spans)
        self._usage_rounds = {span.span_id: _usage_round(span) for span in usage.agents}
        """The rounds of agents whose spans alone have their usage, by the ids of these spans."""
        self._unread = Counter(span.scope for span in usage.unread)
        for call, model in link_to_answers(self._agents):
            if (index := self._later.get(model.span_id, 0)) > 0:
                self._later = {**self._later, call.span_id: index}
        link_orphan_agents(run.spans, self._agents)
        self._unreached = Unreached(run.spans, self._agents)
        self._root_id = run.trace_id
        self._by_start = sorted(
            self._agents.by_id.values(), key=lambda agent: (agent.start, agent.span_id)
        )
        self._top_agents = [
            agent for agent in self._by_start if agent.opened_by is None and agent.awaits is None
        ]
        self._unplaced = [agent for agent in self._by_start if agent.is_unplaced]
        self._root_agent = self._find_root_agent()
        self._has_workflow = any(span.facts.role is Role.WORKFLOW for span in run.spans)
        self._set_ids()
        self._rows: dict[Kind, dict[bytes, Row]] = {kind: {} for kind in RECORDS}
        self._depths: dict[AgentWork, int | None] = {}
        if self._root_agent is not None:
            self._depths[self._root_agent] = 0
        self._opened: Counter[bytes] = Counter()
        """The number of plans that each tool call or step has started so far, by record id."""
        self._input_tokens = self._output_tokens = self._failures = 0
        self._cost_usd = Decimal(0)
        self._unpriced_calls = self._unread.total()
        self._priced: set[bytes] = set()
        self._later_executed: dict[bytes, int] = {}
        self._holders: dict[str, bytes] = {}
        """The id of the first round with each list of offered tools. Its row contains the list."""

    def _find_root_agent(self) -> AgentWork | None:
        """Return the agent whose plan is the root plan.

        Returns None if no single agent is the root. `_add_root_plan` then creates the root plan.
        """
        if len(self._top_agents) == 1:
            return self._top_agents[0]
        if self._top_agents or self._agents.loose or not self._unplaced:
            return None
        return self._unplaced[0]

    def _set_ids(self) -> None:
        """Set the record ids of all agents, model calls and tool calls."""
        plan_id, step_id, think_act_id, tool_call_id = (
            record_ids(self._root_id, kind)
            for kind in (Kind.PLAN, Kind.STEP, Kind.THINK_ACT, Kind.TOOL_CALL)
        )
        for span in self._usage_rounds.values():
            span.record_id = think_act_id(span.identity)
        for span in self._agents.of:
            is_round = span.facts.role is Role.MODEL
            span.record_id = (think_act_id if is_round else tool_call_id)(span.identity)
        for agent in self._by_start:
            identity = agent.span.identity if agent.span is not None else agent.span_id
            agent.step_id = step_id(identity)
            is_root = agent is self._root_agent
            agent.plan_id = self._root_id if is_root else plan_id(identity)
        self._root_step_id = step_id(b"")

    def result(self) -> ProjectedRun:
        """Return the rows of the run."""
        for agent in self._by_start:
            self._add_agent(agent)
            self._add_work(agent.step_id, agent.rounds, agent.calls, agent)
            if (usage_round := self._usage_rounds.get(agent.span_id)) is not None:
                self._add_round(usage_round, agent.step_id, 0, USAGE_OF_AGENT)
        if self._root_agent is None:
            self._add_root_plan()
        is_alone = self._root_agent is None and self._has_workflow  # its work may be other traces
        if len(self._top_agents) > 1 or self._agents.loose or is_alone:
            self._add_root_step()
        rows = self._rows
        if self._may_hold_masks:
            rows = {kind: _with_masks(kind, of_kind) for kind, of_kind in rows.items()}
        return ProjectedRun(
            root_plan_id=self._root_id,
            run=self._run_row(),
            rows=rows,
            spans=self._count,
            later=self._later_records(),
            priced=self._priced,
            unread=self._unread,
        )

    def _later_records(self) -> dict[bytes, int]:
        later = self._later
        if not later:
            return {}
        indexes = {span.record_id: later.get(span.span_id, 0) for span in self._agents.of}
        for agent in self._by_start:
            spans = [agent.span] if agent.span is not None else agent.work
            first = min((later.get(span.span_id, 0) for span in spans), default=0)
            indexes[agent.step_id] = indexes[agent.plan_id] = first
        indexes |= self._later_executed
        return {record_id: index for record_id, index in indexes.items() if index}

    # --- Plans and steps -------------------------------------------------------------------------

    def _add_agent(self, agent: AgentWork) -> None:
        span = agent.span
        is_root = agent is self._root_agent
        lifecycle = _lifecycle(span) if span is not None else _PLACEHOLDER
        name, request, answer = stored(agent.name), stored(agent.request), stored(agent.answer)
        title = self._title(agent)
        of_step = lifecycle
        if is_root and agent.is_unplaced:
            top = self._top()
            if span is None:
                lifecycle = top.lifecycle
                if not top.is_open:
                    of_step, name = lifecycle, name or top.agent_name
                    request, answer = top.request or request, top.answer or answer
                    title = title if request else top.name
            elif len(self._unplaced) > 1 and not top.is_open:
                lifecycle = top.lifecycle
        elif agent.is_unplaced:
            lifecycle = _PLACEHOLDER
        self._rows[Kind.STEP][agent.step_id] = _step_row(
            of_step,
            plan_id=agent.plan_id,
            position=0,
            agent_name=name,
            request=request,
            result=answer,
        )
        evidence = EARLIEST if is_root and agent.is_unplaced else agent.evidence
        self._rows[Kind.PLAN][agent.plan_id] = _plan_row(
            lifecycle,
            **self._opening(agent),
            depth=self._depth(agent),
            title=title_of(title, request),
            agent_name=name,
            user_request=request,
            summary=answer,
            inferred=evidence is not None,
            inferred_from=evidence,
        )

    def _title(self, agent: AgentWork) -> str | None:
        if agent.span is None:
            return None
        facts = agent.span.facts
        is_opened = agent is not self._root_agent and agent.call is not None
        return None if is_opened and facts.follows_call_id is None else stored(facts.title)

    def _opening(self, agent: AgentWork) -> dict[str, Any]:
        """Return the ids of the plan, tool call and step that started an agent, and the position.

        The position is the index of the agent's plan among the plans that the same tool call or
        step started.
        """
        if agent is self._root_agent or agent.is_unplaced:
            return {}
        above, call = self._agents.above(agent), agent.call
        plan_id = above.plan_id if above is not None else self._root_id
        call_id = call.record_id if call is not None else None
        step_id = None
        if call_id is None:
            step_id = above.step_id if above is not None else self._root_step_id
        opener = call_id or step_id or b""
        position = self._opened[opener]
        self._opened[opener] += 1
        return {
            "parent_plan_id": plan_id,
            "tool_call_id": call_id,
            "opened_by_step_id": step_id,
            "position": position,
        }

    def _depth(self, agent: AgentWork) -> int | None:
        """Return the number of levels from the root plan to an agent's plan; None if unknown."""
        way: list[AgentWork] = []
        at: AgentWork | None = agent
        while at is not None and at not in self._depths:
            if at.is_unplaced:
                self._depths[at] = None
            else:
                way.append(at)
                at = self._agents.above(at)
        depth = 0 if at is None else self._depths[at]
        for each in reversed(way):
            depth = None if depth is None else depth + 1
            self._depths[each] = depth
        return depth

    def _add_root_plan(self) -> None:
        """Add the root plan of a run in which no single agent is the root."""
        top = self._top()
        title = title_of(None, top.request) or (top.name if top.agent_name is None else None)
        self._rows[Kind.PLAN][self._root_id] = _plan_row(
            top.lifecycle,
            depth=0,
            title=title,
            agent_name=top.agent_name,
            user_request=top.request,
            summary=top.answer,
            inferred=False,
        )

    def _add_root_step(self) -> None:
        """Add a step of the root plan for model calls and tool calls that belong to no agent.

        If the run has several top agents, they are recorded as hand-offs of this step.
        """
        top = self._top()
        if self._root_agent is None:
            row = _step_row(
                top.lifecycle,
                plan_id=self._root_id,
                position=0,
                agent_name=top.agent_name,
                request=top.request,
                result=top.answer,
            )
        else:
            times = {name: top.lifecycle[name] for name in _PLACEHOLDER}
            row = _step_row(times, plan_id=self._root_id, position=1)
        self._rows[Kind.STEP][self._root_step_id] = row
        loose = self._agents.loose
        self._add_work(
            self._root_step_id,
            [span for span in loose if span.facts.role is Role.MODEL],
            [span for span in loose if span.facts.role is Role.TOOL],
        )

    def _top(self) -> _Top:
        """Return what the topmost spans of the run state about it as a whole.

        If the run has exactly one topmost span, all comes from this span. Otherwise it is derived
        from all spans. A span whose parent has not arrived is a topmost span, unless its flags
        state that the parent is in the same process: then the parent is awaited, and the run is
        open.
        """
        spans = self._spans
        if not spans:  # only log records have arrived
            return _Top(_PLACEHOLDER)
        tops = [span for span in spans if span.parent_span_id is None]
        is_open = not all(span.end for span in spans)
        if not tops or self._unplaced:
            orphans = [span for span in spans if span.missing_parent is not None]
            is_awaited = any(span.is_parent_local for span in orphans)
            is_open = is_open or is_awaited
            tops = tops or ([] if is_awaited else _with_work(orphans, spans))
        all_facts = [span.facts for span in self._agents.loose]
        request = next((each.request for each in all_facts if each.request), None)
        answer = next((each.answer for each in reversed(all_facts) if each.answer), None)
        if len(tops) == 1 and (tops[0].missing_parent is None or not is_open):
            [span] = tops
            name = stored(span.facts.name or span.name)
            is_named = span.facts.role in (Role.WORKFLOW, Role.CHAIN)
            return _Top(
                _lifecycle(span),
                name=name,
                agent_name=name if is_named else None,
                request=stored(span.facts.request or request),
                answer=stored(span.facts.answer or answer),
            )
        is_open = is_open or not tops
        has_failed = any(span.end and ending_of(span).status is Status.FAILED for span in tops)
        status = Status.RUNNING if is_open else Status.FAILED if has_failed else Status.SUCCEEDED
        end = None if is_open else _microseconds(max(span.end for span in spans))
        start = _microseconds(spans[0].start)
        lifecycle = {"started_at": start, "status": status, "finished_at": end}
        return _Top(
            lifecycle, name=stored(spans[0].name), request=stored(request), answer=stored(answer)
        )

    # --- Rounds and tool calls -------------------------------------------------------------------

    def _add_work(
        self,
        step_id: bytes,
        rounds: list[SlimSpan],
        calls: list[SlimSpan],
        agent: AgentWork | None = None,
    ) -> None:
        for position, span in enumerate(rounds):
            self._add_round(span, step_id, position)
        if not calls and not any(span.facts.executed or span.facts.chosen for span in rounds):
            return
        choices = Rounds(rounds)
        chosen_calls: list[tuple[SlimSpan, Choice | None]] = []
        positions: dict[bytes, int] = {}
        for span in calls:
            outer = span.above
            if outer is not None and outer.facts.role is not Role.TOOL:
                outer = None
            facts = span.facts
            may_be_chosen = (
                outer is None and facts.tool_type in (None, "MCP") and not facts.awaits_round
            )
            choice = choices.choice(span) if may_be_chosen else None
            if outer is None:
                chosen_calls.append((span, choice))
            outer_id = outer.record_id if outer is not None else None
            think_act_id = choice.model.record_id if choice is not None else None
            parent_id = outer_id or think_act_id or step_id
            position = positions.get(parent_id, 0)
            positions[parent_id] = position + 1
            links = {
                "step_id": step_id,
                "think_act_id": think_act_id,
                "parent_tool_call_id": outer_id,
                "position": position,
            }
            self._add_call(span, choice, links)
        for model in rounds:
            first = positions.get(model.record_id, 0)
            for number, executed in enumerate(model.facts.executed):
                self._add_executed(model, number, executed, step_id, first + number)
            if model.facts.executed:
                positions[model.record_id] = first + len(model.facts.executed)
        around = agent.span if agent is not None else self._unreached.top_framework
        if around is not None:
            answer = agent.answer if agent is not None else around.facts.answer
            work = AgentRun(agent, around, answer, rounds, chosen_calls)
            self._add_unreached(work, step_id, positions)

    def _add_unreached(self, work: AgentRun, step_id: bytes, positions: dict[bytes, int]) -> None:
        """Add the rows of the calls that an agent's last round chose and that did not run.

        Both their times are the end of the agent, so that lists in order of time show them there.
        """
        unreached = self._unreached.calls(work)
        if unreached is None:
            return
        model, calls = unreached
        first = positions.get(model.record_id, 0)
        for position, (number, requested, reason) in enumerate(calls, first):
            call_id = record_ids(self._root_id, Kind.TOOL_CALL)(id_of_chosen(model, number))
            if (index := self._later.get(model.span_id, 0)) > 0:
                self._later_executed[call_id] = index
            end, shift = _microseconds(work.span.end), _microseconds(work.span.shift)
            self._rows[Kind.TOOL_CALL][call_id] = _tool_call_row(
                # Both times are the agent's end: it follows the calls that ran, in order of time.
                started_at=end,
                status=Status.CANCELLED,
                finished_at=end,
                reason=reason.value,
                clock_shift_us=shift,
                step_id=step_id,
                think_act_id=model.record_id,
                position=position,
                provider_call_id=stored(requested.call_id),
                name=stored(requested.name),
                arguments=within_depth(stored(requested.arguments)),
                inferred=False,
            )

    def _add_executed(
        self, model: SlimSpan, number: int, executed: ExecutedCall, step_id: bytes, position: int
    ) -> None:
        """Add the row of a tool call that the provider executed while a model answered."""
        lifecycle = _lifecycle(model)
        names = ("started_at", "status", "finished_at", "clock_shift_us")
        call_id = record_ids(self._root_id, Kind.TOOL_CALL)(
            model.identity + b"executed" + number.to_bytes(4, "big")
        )
        if (first := self._later.get(model.span_id, 0)) > 0:
            self._later_executed[call_id] = first
        self._rows[Kind.TOOL_CALL][call_id] = _tool_call_row(
            {name: lifecycle[name] for name in names},
            step_id=step_id,
            think_act_id=model.record_id,
            position=position,
            provider_call_id=stored(executed.call_id),
            name=stored(executed.name),
            arguments=within_depth(stored(executed.arguments)),
            result=within_depth(stored(executed.result)),
            inferred=False,
        )

    def _add_round(
        self, span: SlimSpan, step_id: bytes, position: int, evidence: str | None = None
    ) -> None:
        facts = span.facts
        lifecycle = _lifecycle(span, Reason.MODEL_ERROR, facts.has_failed)
        cost = _own_cost(facts, span, self._prices)
        is_computed = cost is not None
        if cost is None and (cost := facts.cost_usd) is None:
            cost = _listed_cost(facts, span)
            is_computed = cost is not None
        if is_computed:
            self._priced.add(span.record_id)
        model = stored(facts.model)
        requested = stored(facts.requested_model) if facts.requested_model else model
        offered_tools, offered_tools_from = self._offered(facts.offered_tools, span.record_id)
        self._rows[Kind.THINK_ACT][span.record_id] = _think_act_row(
            lifecycle,
            step_id=step_id,
            position=position,
            requested_model=requested,
            model=model,
            messages=stored(facts.messages),
            thought=stored(_thought(facts)),
            input_tokens=facts.input_tokens,
            output_tokens=facts.output_tokens,
            cost_usd=cost,
            provider=stored(facts.provider),
            parameters=stored(facts.parameters),
            offered_tools=offered_tools,
            offered_tools_from=offered_tools_from,
            node=stored(facts.graph_node),
            finish_reasons=_stored_list(facts.finish_reasons),
            cache_read_tokens=facts.cache_read_tokens,
            cache_written_tokens=facts.cache_written_tokens,
            reasoning_tokens=facts.reasoning_tokens,
            first_token_at=_first_token(span),
            inferred=evidence is not None,
            inferred_from=evidence,
        )
        self._input_tokens += facts.input_tokens or 0
        self._output_tokens += facts.output_tokens or 0
        self._cost_usd += cost or 0
        used = facts.input_tokens, facts.output_tokens
        status = lifecycle["status"]
        self._unpriced_calls += is_unpriced(status, used, cost)
        self._failures += status is Status.FAILED

    def _offered(self, tools: str | None, record_id: bytes) -> tuple[str | None, bytes | None]:
        """Return the offered tools of a round, or the id of an earlier round with the same tools.

        Storing a reference avoids storing the same list of tools in each round.
        """
        if tools is None:
            return None, None
        holder = self._holders.setdefault(tools, record_id)
        return (stored(tools), None) if holder == record_id else (None, holder)

    def _add_call(self, span: SlimSpan, choice: Choice | None, links: Mapping[str, Any]) -> None:
        """Add the row of a tool call.

        Args:
            span: The span of the tool call.
            choice: The round that chose the call; None if unknown. Values that the span lacks are
                taken from the model's request for the call.
            links: The ids of the call's step, of its round and of the tool call that contains it,
                and its position there.
        """
        facts = span.facts
        requested = choice.requested if choice is not None else None
        call_id, arguments = facts.call_id, facts.arguments
        if requested is not None:
            call_id = call_id or requested.call_id
            if requested.arguments is not None and needs_requested(arguments):
                arguments = requested.arguments
        failure = Reason.DENIED if facts.is_denied else Reason.TOOL_ERROR
        lifecycle = _lifecycle(span, failure, facts.has_failed or facts.is_denied)
        result = stored(facts.result)
        if lifecycle["status"] is Status.FAILED:
            self._failures += 1
            if lifecycle["error_message"] is None:
                message = result if facts.failure is None else stored(facts.failure)
                lifecycle["error_message"] = message
        evidence = span.inferred
        if evidence is None and choice is not None and choice.inferred:
            evidence = LATEST_ROUND
        continued = self._agents.by_id.get(facts.continues or b"")
        self._rows[Kind.TOOL_CALL][span.record_id] = _tool_call_row(
            lifecycle,
            **links,
            provider_call_id=stored(call_id),
            name=stored(facts.name),
            tool_type=facts.tool_type,
            arguments=within_depth(stored(arguments)),
            result=within_depth(result),
            inferred=evidence is not None,
            inferred_from=evidence,
            continued_plan_id=continued.plan_id if continued else None,
            agent_key=stored(facts.agent_key),
            agent_end_sequence=facts.sequence,
        )

    # --- The run ---------------------------------------------------------------------------------

    def _run_row(self) -> Row:
        spans = self._spans
        if self._root_agent is not None and self._root_agent.span is not None:
            spans = [self._root_agent.span, *spans]  # it comes first
        all_facts = [span.facts for span in spans]
        session_id = stored(next((r.conversation for r in all_facts if r.conversation), None))
        subject = stored(next((r.subject for r in all_facts if r.subject), None))
        root_span = self._root_agent.span if self._root_agent is not None else None
        prompt = root_span.facts if root_span is not None else WRAPPER
        followed = [each for each in (prompt.follows_call_id or prompt.follows_agent,) if each]
        service = self._resources.service(root_span.span_id if root_span is not None else None)
        texts = {
            "session_id": session_id,
            "subject": subject,
            "service_name": stored(service["service_name"]),
            "service_version": stored(service["service_version"]),
            "deployment_environment": stored(service["deployment_environment"]),
        }
        root_plan = _from_root_plan(self._rows[Kind.PLAN][self._root_id])
        has_agent = bool(self._agents.by_id) or self._has_workflow
        scopes = (scope[:_MOST_OF_A_SCOPE] for scope in sorted(self._unread))
        return _run_row(
            **texts,
            masked=tuple(masked_paths(texts, texts)),
            is_agent_work=has_agent or bool(self._agents.loose),
            **self._with_open_plans(dict(zip(FROM_ROOT_PLAN, root_plan, strict=True))),
            input_tokens=self._input_tokens,
            output_tokens=self._output_tokens,
            cost_usd=self._cost_usd,
            unpriced_calls=self._unpriced_calls,
            tool_calls=len(self._rows[Kind.TOOL_CALL]),
            failed_calls=self._failures,
            unread_spans=self._unread.total(),
            unread_scopes=_stored_list(scopes)[:_MOST_SCOPES],
            is_bare=not has_agent and bool(self._agents.loose),
            **self._claims(spans, followed),
            prompt_sequence=prompt.sequence,
            prompt_number=prompt.number,
            work_keys=_stored_list(r.work_key for r in all_facts if r.work_key)[:_MOST_WORK_KEYS],
        )

    def _with_open_plans(self, of_root: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a run from those of its root plan, according to its sub-plans.

        The run is running while a sub-plan is. It ends when the last plan does.
        """
        if of_root["finished_at"] is None:
            return of_root
        names = PROJECTED_FIELDS[Kind.PLAN]
        status, end = names.index("status"), names.index("finished_at")
        plans = self._rows[Kind.PLAN].values()
        if any(row[status] is Status.RUNNING for row in plans):
            return of_root | {"status": Status.RUNNING, "finished_at": None, "reason": None}
        return of_root | {"finished_at": max(row[end] for row in plans if row[end] is not None)}

    def _claims(self, spans: list[SlimSpan], followed: list[str]) -> dict[str, Any]:
        """Return the calls and runs that the run continues (`tracer.lineage.links`).

        A span link with the attribute `tracer.continues` may lead to the span of a call or of
        other work, which the run cannot know. So it is a claim for both. The ids in `followed` are
        claims of a coding agent's prompt.
        """
        links = {link for span in spans for link in span.continues if link[0] != self._root_id}
        return {
            "follows_calls": tuple(
                sorted(record_ids(run, Kind.TOOL_CALL)(span_id) for run, span_id in links)
            ),
            "follows_runs": tuple(sorted({run for run, _ in links})),
            "follows_keys": _stored_list([*followed_call_ids(self._agents), *followed]),
        }

    def records(self, announced: Mapping[bytes, bytes]) -> dict[bytes, SpanRecord]:
        """Return the record that each span became or belongs to, by span id.

        Args:
            announced: The id of the span that each pending span announces.
        """
        agents = self._agents.by_id
        records: dict[bytes, SpanRecord] = {}
        for span in self._spans:
            standing = span if span.merged_into is None else represented(span)
            kind = _KINDS.get(standing.facts.role)
            node = standing if kind is not None else standing.above
            if node is not None:
                kind = kind or _KINDS[node.facts.role]
                record_id = agents[node.span_id].step_id if kind is Kind.STEP else node.record_id
                records[span.span_id] = kind, record_id
            elif standing.awaits is not None and standing.awaits in agents:
                records[span.span_id] = Kind.STEP, agents[standing.awaits].step_id
            else:
                records[span.span_id] = Kind.PLAN, self._root_id
        # Looked up before any is set: a pending span may have the id of one that is announced.
        return records | {pending: records[span_id] for pending, span_id in announced.items()}


_KINDS = {Role.AGENT: Kind.STEP, Role.MODEL: Kind.THINK_ACT, Role.TOOL: Kind.TOOL_CALL}


def _stored_list(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({each for text in texts if (each := stored(text))}))


def _first_token(span: SlimSpan) -> int | None:
    """Return when the first token of a model's answer arrived, in microseconds; None if unknown."""
    seconds = span.facts.first_token_seconds
    if seconds is None or not span.start or not 0 <= seconds < _MOST_SECONDS:
        return None
    return span.start // 1000 + round(seconds * 1e6)


_MOST_SECONDS = 10**6
_MOST_WORK_KEYS = 100
_MOST_SCOPES, _MOST_OF_A_SCOPE = 10, 200
"""How many scopes of unread spans a run names, and how many characters of each."""


def _thought(facts: SpanFacts) -> str | None:
    """Return the text of a model's answer, after its reasoning."""
    if not facts.reasoning or facts.reasoning == facts.answer:
        return facts.answer
    return f"{facts.reasoning}\n\n{facts.answer}" if facts.answer else facts.reasoning


def _usage_round(agent: SlimSpan) -> SlimSpan:
    """Return a round with the usage of an agent, without messages and without an answer."""
    facts = agent.facts._replace(role=Role.MODEL, request=None, answer=None, messages=None)
    return replace(agent, facts=facts)


def _own_cost(facts: SpanFacts, span: SlimSpan, prices: OwnPrices) -> Decimal | None:
    """Return the cost of a finished model call by the project's prices; None without a price."""
    if not prices or (at := moment(span.end)) is None:
        return None
    models = (facts.model, facts.requested_model)
    return prices.cost_of(_usage(facts), models, facts.provider, at)


def _listed_cost(facts: SpanFacts, span: SlimSpan) -> Decimal | None:
    """Return the cost of a model call by the price list; None without a price."""
    model, usage = facts.model or facts.requested_model, _usage(facts)
    if model is None or usage is None:
        return None
    # At the span's own time: the same spans must cost the same tomorrow.
    at = moment(span.start) or EPOCH
    return cost_of(
        usage,
        model,
        provider=facts.provider,
        at=at,
        tier=facts.service_tier,
        is_provider_chosen=facts.is_provider_chosen,
    )


def _usage(facts: SpanFacts) -> TokenUsage | None:
    if facts.input_tokens is None or facts.output_tokens is None:
        return None
    return TokenUsage(
        facts.input_tokens,
        facts.output_tokens,
        facts.cache_read_tokens or 0,
        facts.cache_written_tokens or 0,
        facts.reasoning_tokens or 0,
        facts.cache_written_hour_tokens or 0,
        facts.audio_input_tokens or 0,
        facts.audio_output_tokens or 0,
    )
