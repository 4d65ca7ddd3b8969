"""Complete the sessions of coding agents from spans and log records.

A coding agent sends the parts of a session separately: a span when work ends, a log record when
something happens. Some work has no span, some spans never arrive because the process was killed,
and some arrive after those below them. This module completes a session:

1. The dialect translates each part into signs (`tracer.otel.dialects.session`). Signs that share a
   name are one piece of work. A provider's call id may repeat, so signs that have nothing else are
   matched to the work that was running at their time.
2. Each piece of work gets a span: its own, or one that is made, whose id depends only on the
   emitter's ids.
3. Names link the pieces: a model call to its agent, a tool call to the model call that chose it,
   an agent to the tool call that started it.
4. If no name links an agent or a tool call, and exactly one candidate is open, it is linked to this
   candidate and marked as inferred. Otherwise it stays below its run, unplaced.
5. Ends and failures that no part states follow from the work inside.

All results depend only on the set of parts, not on the order of their arrival.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from typing import Any

from tracer.otel.dialects.dialect import (
    WRAPPER,
    Dialect,
    Role,
    SlimSpan,
    SpanFacts,
    cut_circles,
    synthetic_span,
)
from tracer.otel.dialects.session import Name, Opening, Session, SessionParts, Sign
from tracer.records.spans import SPAN_ID_BYTES, STATUS_ERROR, LogRecord

ONLY_OPENER = "the only call that can have started an agent, which is the only one without a call"
ONLY_AGENT = "the only agent that was working when the call began"

_MOST_CANDIDATES = 100
"""The number of calls with one call id that are compared with a sign, and of agents and calls
between which a link is inferred. Above it, the earliest are compared, or nothing is inferred."""

_SETTLED = 50_000_000
"""The time in nanoseconds after the end of a model's answer within which its tool calls start."""
_MOST_AT_ONCE = 10
"""The number of tool calls of one answer that an agent runs at once. Further calls start late."""


@dataclass(slots=True, eq=False)
class _Work:
    """One piece of work."""

    role: Role
    signs: list[Sign]
    names: set[Name]
    span: SlimSpan
    is_made: bool
    agent: _Work | None = None
    """Of a model call or tool call: the turn or agent that did it."""
    round: _Work | None = None
    openings: list[tuple[int, _Work]] = field(default_factory=list)
    """Of an agent: the tool calls that started and continued it, by when it began to work."""
    followed: _Work | None = None
    """Of a turn: the tool call that it follows."""
    opened: list[_Work] = field(default_factory=list)
    """Of a tool call: the agents that it started or continued."""
    rounds: list[_Work] = field(default_factory=list)
    calls: list[_Work] = field(default_factory=list)
    last: int = 0
    """When the latest work of an agent began."""

    @property
    def is_turn(self) -> bool:
        return any(sign.is_turn for sign in self.signs)

    @property
    def opener(self) -> _Work | None:
        return self.openings[0][1] if self.openings else None

    @property
    def end(self) -> float:
        return self.span.end or inf

    @property
    def error(self) -> str | None:
        return next((sign.error for sign in reversed(self.signs) if sign.error is not None), None)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that signs state. The last sign that states a field wins."""
        return _stated(sign.fields for sign in self.signs)

    @property
    def opens(self) -> dict[str, Any]:
        """The fields of the agent that a tool call starts."""
        return _stated(sign.opened for sign in self.signs)


def complete_sessions(
    spans: list[SlimSpan], logs: list[LogRecord], dialects: Iterable[Dialect]
) -> list[SlimSpan]:
    """Return the spans of a run with those that were made, sorted by start and id.

    Args:
        spans: The spans of the run, sorted by start and id.
        logs: The log records of the run, sorted by time.
        dialects: The dialects whose sessions are completed.
    """
    scopes = {span.scope for span in spans} | {record.scope for record in logs}
    for dialect in dialects:
        if dialect.session is None or not (own := {*filter(dialect.claims, scopes)}):
            continue
        parts = SessionParts(
            [span for span in spans if span.scope in own],
            [record for record in logs if record.scope in own],
            {span.span_id: span for span in spans},
        )
        made = _Completion(dialect.session, dialect.scopes[0].rstrip("*"), parts).made()
        spans = sorted([*spans, *made], key=lambda span: span.order)
    return spans


class _Completion:
    """Completes the session of one run. See the module."""

    def __init__(self, session: Session, scope: str, parts: SessionParts) -> None:
        self._scope = scope
        self._parts = parts
        self._until = session.complete_until(parts)
        signs: list[Sign] = []
        self._name = session.name
        self._openings: dict[Name, Opening] = {}
        for each in session.signs(parts):
            if isinstance(each, Opening):
                self._openings.setdefault(each.agent, each)
            else:
                signs.append(each)
        self._named = {each.call for each in self._openings.values()}
        """The names of the tool calls whose agents have names."""
        self._roots = _Names()
        for sign in signs:
            if len(sign.names) > 1:
                self._roots.join(sign.role, sign.names)
            if len(sign.agent) > 1:
                self._roots.join(Role.AGENT, sign.agent)
        self._made: dict[bytes, SlimSpan] = {}
        self._last_ids: dict[tuple[Role, bytes], bytes] = {}
        """The last id of a made span, by its role and the id that it would have alone."""
        self._by_name: dict[tuple[Role, Name], _Work] = {}
        self._works: dict[Role, list[_Work]] = {role: [] for role in Role}
        self._by_call_id: dict[Name, list[_Work]] = {}
        """The tool calls by their `call_id`."""
        self._mentions: dict[Name, list[int]] = {}
        """The times at which work began whose agent has a name."""
        self._collect(signs)

    def made(self) -> list[SlimSpan]:
        """Link and complete all work. Return the spans that were made."""
        for work in self._all():
            self._find_links(work)
        self._infer_openers()
        self._end_agents()
        self._infer_callers()
        self._interrupt()
        for work in self._all():
            self._place(work)
        for work in self._all():
            self._describe(work)
        self._join_turns()
        for span in (*self._parts.spans, *self._made.values()):
            above = self._made.get(span.missing_parent or b"")
            if above is not None and above is not span:
                span.parent, span.missing_parent = above, None
        cut_circles([*self._made.values(), *self._parts.spans])
        return list(self._made.values())

    def _all(self) -> Iterator[_Work]:
        for role in (Role.AGENT, Role.MODEL, Role.TOOL):
            yield from self._works[role]

    # --- Pieces of work --------------------------------------------------------------------------

    def _collect(self, signs: list[Sign]) -> None:
        """Make one piece of work of all signs that share a name, or match by time."""
        groups: dict[tuple[Role, Name], list[Sign]] = {}
        loose: list[Sign] = []
        for sign in signs:
            if sign.names:
                groups.setdefault(self._roots.of(sign.role, sign.names[0]), []).append(sign)
            else:
                loose.append(sign)
            if sign.agent:
                groups.setdefault(self._roots.of(Role.AGENT, sign.agent[0]), [])
                for name in sign.agent if _begin(sign) else ():
                    self._mentions.setdefault(name, []).append(_begin(sign))
        members = self._roots.members()
        for root, group in groups.items():
            spans = {sign.span for sign in group if sign.span is not None}
            own = sorted(spans, key=lambda span: span.order) if len(spans) > 1 else [*spans]
            for span in own[1:]:  # repeated ids: each span is work of its own
                self._add(root[0], [sign for sign in group if sign.span is span], set())
            if len(own) > 1:
                group = [sign for sign in group if sign.span in (None, own[0])]
            self._add(root[0], group, members.get(root, set()))
        self._match(loose)
        for works in self._works.values():
            works.sort(key=lambda work: work.span.order)
        for work in self._works[Role.TOOL]:
            for name in {sign.call_id for sign in work.signs if sign.call_id is not None}:
                self._by_call_id.setdefault(name, []).append(work)

    def _add(self, role: Role, signs: list[Sign], names: set[Name]) -> _Work:
        own = next((sign.span for sign in signs if sign.span is not None), None)
        span = own or self._make(role, signs, names)
        lasting = next((sign.lasting for sign in signs if sign.lasting is not None), None)
        if lasting is not None and own is not None:
            span.lasting_id = _id(role, lasting)
        work = _Work(role, signs, names, span, own is None)
        for name in names:
            self._by_name[role, name] = work
        self._works[role].append(work)
        return work

    def _make(self, role: Role, signs: list[Sign], names: set[Name]) -> SlimSpan:
        starts = [_begin(sign) for sign in signs if _begin(sign)]
        if role is Role.AGENT and not any(sign.is_turn and sign.start for sign in signs):
            starts += [time for name in names for time in self._mentions.get(name, ())]
        stated = next((sign.span_id for sign in signs if sign.span_id is not None), None)
        if stated is None or stated in self._parts.by_id or stated in self._made:
            # The id of an agent outranks that of a span: it is known from the beginning.
            known = {sign.lasting for sign in signs if sign.lasting is not None}
            known = known or {name for name in names if name[0] == "agent"} or names
            stated = min(_id(role, name) for name in known)
        facts = next((sign.facts for sign in signs if sign.facts is not None), SpanFacts(role))
        end = next((sign.end for sign in signs if sign.end and role is not Role.AGENT), 0)
        span = synthetic_span(
            stated, f"{self._scope}.{role}", self._scope, (min(starts, default=0), end), facts
        )
        # Thousands of signs may have one id, so the search goes on from the last id that was free.
        span.span_id = self._last_ids.get((role, stated), stated)
        while span.span_id in self._parts.by_id or span.span_id in self._made:
            span.span_id = _id(role, ("again", span.span_id))
        self._last_ids[role, stated] = span.span_id
        self._made[span.span_id] = span
        return span

    def _match(self, loose: list[Sign]) -> None:
        """Add each sign without names to the work with its call id that was running then."""
        known: dict[tuple[Role, Name | None], list[_Work]] = {}
        taken: set[tuple[_Work, int]] = set()
        for role in (Role.MODEL, Role.TOOL):
            for work in sorted(self._works[role], key=lambda work: work.span.order):
                for name in {sign.call_id for sign in work.signs if sign.call_id is not None}:
                    same = known.setdefault((role, name), [])
                    is_stated = any(sign.span_id or sign.lasting for sign in work.signs)
                    if role is Role.TOOL and not is_stated:
                        work.span.lasting_id = _id(role, (*name, len(same)))
                    same.append(work)
                taken.update((work, sign.stage) for sign in work.signs)
        for sign in sorted(loose, key=lambda sign: (sign.stage, sign.time or sign.start)):
            works = known.setdefault((sign.role, sign.call_id), [])
            time = sign.time or sign.start
            at = bisect_right(works, time, key=lambda work: work.span.start)
            near = [*reversed(works[max(at - _MOST_CANDIDATES, 0) : at])]
            near += () if sign.is_extra else works[at : at + _MOST_CANDIDATES]
            fitting = (
                each
                for each in near
                if (each, sign.stage) not in taken and self._may_be(sign, each)
            )
            found = next(fitting, None)
            if found is not None:
                found.signs.append(sign)
                if found.is_made:
                    starts = [start for start in (found.span.start, _begin(sign)) if start]
                    found.span.start = min(starts, default=0)
                    found.span.end = found.span.end or sign.end
            elif not sign.is_extra:
                name = *(sign.call_id or ("loose", sign.stage)), len(works)
                found = self._add(sign.role, [sign], {name})
                insort(works, found, key=lambda work: work.span.start)
            if found is not None:
                taken.add((found, sign.stage))

    def _may_be(self, sign: Sign, work: _Work) -> bool:
        """Return whether a sign can be about a piece of work, by the agent and the name."""
        name = work.fields.get("name") or work.span.facts.name
        if name is not None and sign.fields.get("name") not in (None, name):
            return False
        agents = {
            self._roots.of(Role.AGENT, each.agent[0]) for each in (sign, *work.signs) if each.agent
        }
        is_over = sign.is_extra and work.end < sign.time
        return len(agents) < 2 and not is_over

    # --- Links by names --------------------------------------------------------------------------

    def _find_links(self, work: _Work) -> None:
        if work.role is Role.AGENT:
            self._find_openings(work)
            return
        for sign in work.signs:
            if sign.round is not None:
                work.round = work.round or self._by_name.get((Role.MODEL, sign.round))
            if sign.agent and work.agent is None:
                work.agent = self._by_name.get((Role.AGENT, sign.agent[0]))
        if work.agent is None and work.round is not None:
            work.agent = work.round.agent
        if work.agent is not None:
            (work.agent.rounds if work.role is Role.MODEL else work.agent.calls).append(work)
            work.agent.last = max(work.agent.last, work.span.start)

    def _find_openings(self, agent: _Work) -> None:
        for name in agent.names:
            opening = self._openings.get(name)
            call = self._by_name.get((Role.TOOL, opening.call)) if opening is not None else None
            if opening is not None and call is not None and not self._is_by(call, agent):
                agent.openings.append((min(self._mentions.get(name, [0])), call))
                if call.is_made and not any(sign.part for sign in call.signs):
                    agent.span.inferred = opening.evidence
        above = (sign.agent[0] for sign in agent.signs if sign.agent)
        agent.agent = next((self._by_name.get((Role.AGENT, name)) for name in above), None)
        agent.followed = self._only_call(sign.follows for sign in agent.signs)
        call = self._only_call(sign.opener for sign in agent.signs)
        if call is not None and not agent.openings and not self._is_by(call, agent):
            agent.openings.append((agent.span.start, call))
        agent.openings.sort(key=lambda each: (each[0], each[1].span.order))
        for _, call in agent.openings:
            call.opened.append(agent)

    def _only_call(self, call_ids: Iterable[Name | None]) -> _Work | None:
        """Return the tool call with one of the ids; None if several calls or none have them."""
        calls = {call for name in call_ids if name for call in self._by_call_id.get(name, ())}
        return calls.pop() if len(calls) == 1 else None

    def _is_by(self, call: _Work, agent: _Work) -> bool:
        """Return whether an agent made a call itself, so that the call did not start it."""
        return any(not agent.names.isdisjoint(sign.agent) for sign in call.signs)

    # --- Links by exclusion ----------------------------------------------------------------------

    def _infer_openers(self) -> None:
        """Link an agent without a call and a call without an agent if each has no alternative."""
        calls = [work for work in self._works[Role.TOOL] if self._may_open(work)]
        agents = [
            work
            for work in self._works[Role.AGENT]
            if not work.openings and not work.is_turn and work.span.start <= self._until
        ]
        if not 0 < len(calls) <= _MOST_CANDIDATES or len(agents) > _MOST_CANDIDATES:
            return
        pairs = [(agent, call) for agent in agents for call in calls if self._fits(agent, call)]
        for agent, call in pairs:
            if (
                sum(agent is each for each, _ in pairs)
                == 1
                == sum(call is each for _, each in pairs)
            ):
                agent.openings.append((agent.span.start, call))
                agent.span.inferred = ONLY_OPENER
                call.opened.append(agent)

    def _may_open(self, call: _Work) -> bool:
        """Return whether a call starts an agent, and no name leads to this agent."""
        is_named = not call.names.isdisjoint(self._named)
        return not is_named and not call.opened and any(sign.may_open for sign in call.signs)

    def _fits(self, agent: _Work, call: _Work) -> bool:
        if call.span.start > agent.span.start or self._is_by(call, agent):
            return False
        if call.error is not None and call.end < agent.span.start:
            return False
        above = self._above(agent)
        return above is None or call.agent is None or call.agent is above

    def _above(self, agent: _Work) -> _Work | None:
        """Return the agent that made the call which started an agent, if a name identifies it."""
        names = (sign.above for sign in agent.signs if sign.above is not None)
        return next((self._by_name.get((Role.AGENT, name)) for name in names), None)

    def _infer_callers(self) -> None:
        """Link a running call to the agent that made it, if only one agent was working."""
        calls = [work for work in self._works[Role.TOOL] if work.agent is None and work.is_made]
        agents = self._works[Role.AGENT]
        if not calls or len(calls) > _MOST_CANDIDATES or len(agents) > _MOST_CANDIDATES:
            return
        openers = [work for work in self._works[Role.TOOL] if self._may_open(work)]
        for call in calls:
            start = call.span.start
            caller = next((self._above(agent) for agent in call.opened), None)
            # An opener without an agent may have started one of which nothing has arrived.
            is_certain = start <= self._until and not any(
                each is not call and each.span.start <= start < each.end for each in openers
            )
            if caller is None and is_certain:
                working = [each for each in agents if _may_call(each, start)]
                caller = working[0] if len(working) == 1 else None
            if caller is not None:
                call.agent, call.span.inferred = caller, ONLY_AGENT
                caller.calls.append(call)

    # --- Ends ------------------------------------------------------------------------------------

    def _end_agents(self) -> None:
        """Set when agents without a span of their own ended."""
        for agent in self._works[Role.AGENT]:
            agent.rounds.sort(key=lambda work: work.span.order)
            latest = agent.rounds[-1] if agent.rounds else None
            if not agent.is_made:
                continue
            call = agent.openings[-1][1] if agent.openings else None
            ends = [sign.end for sign in agent.signs if sign.end >= agent.last and sign.end]
            if call is not None and call.span.end and not _is_background(agent, call):
                agent.span.end = call.span.end
            elif ends:
                agent.span.end = max(ends)
            elif latest is not None and latest.span.start >= agent.last and _is_last(latest):
                agent.span.end = latest.span.end

    def _interrupt(self) -> None:
        """Mark work as interrupted if the turn above it ended before it did.

        Agents in the background are excluded: they may work on.
        """
        for turn in self._works[Role.AGENT]:
            has_ended = turn.span.end and (turn.is_turn or not turn.is_made)
            if has_ended and (last := self._interrupt_calls(turn, turn.span.end)):
                latest = turn.rounds[-1] if turn.rounds else None
                if latest is None or not (_is_last(latest) or latest.span.start > last):
                    turn.span.facts = turn.span.facts._replace(is_interrupted=True)

    def _interrupt_calls(self, turn: _Work, end: int) -> int:
        """Return when the last of the interrupted calls began; 0 if none was interrupted."""
        last = 0
        waiting = [*turn.calls]
        done: set[_Work] = set()
        while waiting:
            call = waiting.pop()
            if call in done or call.span.end or call.span.start > end:
                continue
            done.add(call)
            last = max(last, call.span.start)
            _interrupt(call.span, end)
            for agent in call.opened:
                if not agent.span.end:
                    _interrupt(agent.span, max(end, agent.last))
                    waiting += agent.calls
        return last

    # --- Places ----------------------------------------------------------------------------------

    def _place(self, work: _Work) -> None:
        """Set the parent of a piece of work, if its agent, round or opener is known."""
        span, above = work.span, work.agent
        for sign in work.signs:
            if sign.part is not None:
                _set_parent(sign.part, span)
                sign.part.facts = WRAPPER
        if work.role is Role.AGENT:
            above = work.opener or work.followed or work.agent
        elif work.role is Role.TOOL:
            awaited = any(sign.round is not None for sign in work.signs)
            if work.round is not None and work.round.agent is above:
                above = work.round
            elif awaited:
                span.facts = span.facts._replace(awaits_round=True)
        if above is not None:
            _set_parent(span, above.span)
        elif work.is_made and not (work.role is Role.AGENT and work.is_turn):
            below = next((sign.below for sign in work.signs if sign.below is not None), None)
            if below is None and work.role is Role.AGENT:
                below = _id(Role.TOOL, ("opener", span.span_id))
            elif below is None and span.facts.conversation is not None:
                # Not with the work of another conversation: all that is unplaced is below the run.
                below = _id(Role.AGENT, ("unknown", span.facts.conversation))
            if below is not None:
                span.parent, span.parent_span_id = self._parts.by_id.get(below), below
                span.missing_parent = below if span.parent is None else None

    def _join_turns(self) -> None:
        """Make one root above the turns of a run, if it has several."""
        turns = [
            work
            for work in self._works[Role.AGENT]
            if work.is_turn and work.followed is None and work.span.parent is None
        ]
        if len(turns) < 2:
            for turn in turns:  # another program may have started the session, and not send spans
                turn.span.missing_parent = None
            return
        first, last = turns[0].span, turns[-1].span
        latest = [work for work in self._works[Role.AGENT] if work.is_turn][-1]
        times = first.start, max(turn.span.end for turn in turns)
        if not all(turn.span.end for turn in turns):
            times = first.start, 0
        answer = latest.rounds[-1].span.facts.answer if latest.rounds else None
        facts = first.facts._replace(
            name=self._name or first.facts.name, answer=answer if times[1] else None
        )
        root = synthetic_span(
            _id(Role.AGENT, ("turns",)), f"{self._scope}.turns", self._scope, times, facts
        )
        root.status_code, root.status_message = last.status_code, last.status_message
        self._made[root.span_id] = root
        for turn in turns:
            _set_parent(turn.span, root)

    # --- Facts -----------------------------------------------------------------------------------

    def _describe(self, work: _Work) -> None:
        """Set the fields and the status of a piece of work."""
        span = work.span
        fields = work.fields
        error = work.error
        if work.role is Role.AGENT:
            opener, latest = work.opener, work.rounds[-1] if work.rounds else None
            if opener is not None and not work.is_turn:
                fields |= opener.opens
            if span.end and not span.facts.is_interrupted and latest is not None:
                error = latest.error if error is None else error
            call = work.openings[-1][1] if opener is not None and not work.is_turn else None
            if call is not None and call.error is not None and not _is_background(work, call):
                error = call.error
            for _, call in work.openings[1:]:
                call.span.facts = call.span.facts._replace(continues=span.span_id)
        elif work.role is Role.TOOL and work.opened:
            agent = work.opened[-1]
            fields |= self._of_agent(work, agent)
            has_ended = span.end and not span.facts.is_interrupted
            if has_ended and error is None and span.facts.result is None:
                fields.setdefault("result", _answer(agent, work))
        span.facts = span.facts._replace(**fields)
        if error is not None and not span.facts.is_interrupted:
            span.status_code, span.status_message = STATUS_ERROR, error or span.status_message

    def _of_agent(self, call: _Work, agent: _Work) -> dict[str, Any]:
        """Return the id of the agent that a call set to work, and the event of this work's end."""
        names = {
            name
            for name in agent.names
            if name in self._openings and self._openings[name].call in call.names
        }
        if len(agent.openings) == 1:
            names = agent.names
        sequences = [
            sign.fields.get("sequence")
            for sign in agent.signs
            if not sign.is_turn and not names.isdisjoint(sign.names)
        ]
        key = next((name[1] for name in sorted(agent.names, key=repr) if name[0] == "agent"), None)
        found = [each for each in sequences if each is not None]
        return {"agent_key": key, "sequence": max(found, default=None)}


class _Names:
    """Names that mean the same piece of work, joined pair by pair."""

    def __init__(self) -> None:
        self._above: dict[tuple[Role, Name], tuple[Role, Name]] = {}

    def of(self, role: Role, name: Name) -> tuple[Role, Name]:
        """Return the representative of a name."""
        at = role, name
        above = self._above.setdefault(at, at)
        way = []
        while above is not at and above != at:
            way.append(at)
            at, above = above, self._above[above]
        for each in way:
            self._above[each] = at
        return at

    def join(self, role: Role, names: Sequence[Name]) -> None:
        """Store that names mean the same."""
        first = self.of(role, names[0])
        for name in names[1:]:
            self._above[self.of(role, name)] = first

    def members(self) -> dict[tuple[Role, Name], set[Name]]:
        """Return all names by their representative."""
        found: dict[tuple[Role, Name], set[Name]] = {}
        for role, name in list(self._above):
            found.setdefault(self.of(role, name), set()).add(name)
        return found


def _stated(fields: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for each in fields for name, value in each.items() if value is not None}


def _begin(sign: Sign) -> int:
    """Return when the work began, as far as a sign states it; 0 if it does not."""
    if sign.span is not None:
        return sign.span.start
    return sign.start or sign.time


def _id(role: Role, name: Name) -> bytes:
    """Return the id of a span that is made. It depends only on the emitter's ids."""
    return sha256(repr((role.value, name)).encode("utf-8", "surrogatepass")).digest()[
        :SPAN_ID_BYTES
    ]


def _is_last(work: _Work) -> bool:
    return any(sign.is_last for sign in work.signs)


def _is_background(agent: _Work, call: _Work) -> bool:
    """Return whether an agent worked on after the call that set it to work had ended."""
    return bool(call.span.end) and (
        agent.last >= call.span.end
        or any(sign.is_background for sign in (*call.signs, *agent.signs))
    )


def _answer(agent: _Work, call: _Work) -> str | None:
    """Return the last answer of an agent, if the call waited for it."""
    if _is_background(agent, call) or not agent.rounds:
        return None
    answer: str | None = agent.rounds[-1].fields.get("answer") or agent.rounds[-1].span.facts.answer
    return answer


def _may_call(agent: _Work, time: int) -> bool:
    """Return whether an agent may have made a call that began at a time.

    If it waits for a call that its latest round chose, it makes no other one, unless the model
    still answers, or so many calls run that others have to wait.
    """
    if not agent.span.start <= time < agent.end:
        return False
    latest = next((each for each in reversed(agent.rounds) if each.span.start <= time), None)
    if latest is None or not latest.span.end or latest.span.end + _SETTLED >= time:
        return True
    calls = [each for each in agent.calls if latest.span.start <= each.span.start < time]
    return len(calls) >= _MOST_AT_ONCE or not any(each.end > time for each in calls)


def _interrupt(span: SlimSpan, end: int) -> None:
    span.end = end
    span.facts = span.facts._replace(is_interrupted=True)


def _set_parent(span: SlimSpan, parent: SlimSpan) -> None:
    span.parent, span.parent_span_id, span.missing_parent = parent, parent.span_id, None
