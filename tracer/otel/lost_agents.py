"""Lost agents: those whose spans lost the link to the tool call that opened them.

The trace may still give exactly one call that can have opened such an agent: then they are joined,
and the link is inferred. Two are not guessed between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import islice
from math import inf

from tracer.otel.agents import Agent, Agents, first_message, interval, name_of
from tracer.otel.dialects.reading import Role
from tracer.otel.forest import Above, Forest
from tracer.otel.spans import Span

BY_TEXT = "the agent's first message equals an argument of the call"
BY_CALLER = "the call with its first message opened an agent that was running all the while"
BY_NODE = "the agent's span names the agent before it that handed over"
BY_TIME = "the only call of the run that was running all the while"

_MOST_PAIRS = 1_000_000
"""Where lost agents times calls are more, time is no evidence: they are not compared."""

_MOST_LEVELS = 100
"""How far up from a lost agent its call is looked for."""

_MOST_CANDIDATES = 100
"""With more calls to choose from, none is chosen."""

_MOST_OF_A_NAME = 1000
"""How much of a call's name is searched for that of an agent."""

_MOST_CUTS = 10
"""How often circles are looked for; where there are still some, all is taken back."""


def join_lost_agents(
    forest: Forest,
    agents: Agents,
    *,
    most_cuts: int = _MOST_CUTS,
    read_request: Callable[[Forest, Agent], str | None] = first_message,
) -> None:
    """Infer what opened the agents that have no link to a tool call; replace earlier inferences.

    Args:
        forest: The spans, grown.
        agents: Their agents; the inferred links are set on them.
        most_cuts: How often circles of inferred links are cut. If some remain, all inferred links
            are removed.
        read_request: Returns what an agent was asked; called at most once for each agent.
    """
    for agent in agents.by_id.values():
        agent.inferred = agent.evidence = None
    lost = [each for each in agents.by_id.values() if agents.call_of(each, forest) is None]
    calls = agents.plain_calls
    first_call = forest.spans[calls[0]].start if calls else inf
    # No call opened what began before the first one.
    late = [agent for agent in lost if agent.start >= first_call]
    nesting = _Nesting(forest)
    if late:
        _join_by_text(forest, agents, late, nesting, _Asked(forest, agents, read_request))
    _join_by_node(forest, agents, lost)
    if late:
        _join_by_time(forest, agents, late, calls, nesting)
    if any(agent.inferred is not None for agent in lost):
        _cut_circles(forest, agents, most_cuts)


def _join_by_text(
    forest: Forest, agents: Agents, lost: list[Agent], nesting: _Nesting, asked: _Asked
) -> None:
    wanted = {asked[agent.span_id] for agent in lost} - {""}
    asking = {said: found for said in wanted if (found := agents.calls_asking(said, forest))}
    if not asking:
        return
    recorded: dict[bytes | None, list[Agent]] = {}
    for agent in agents.by_id.values():
        recorded.setdefault(agents.call_of(agent, forest), []).append(agent)
    numbered = {said: nesting.calls(found) for said, found in asking.items()}
    for agent in lost:
        same = numbered.get(asked[agent.span_id])
        if same is None:
            continue
        candidates = nesting.nearest(agent, same)
        running = _running(forest, candidates, agent)
        if not running and agent.opener[0] is not Above.MISSING:
            # A call that only starts the agent has ended before; it has to name the agent.
            running = [
                call for call in candidates if call not in recorded and _names(forest, call, agent)
            ]
        if len(running) == 1:
            agent.inferred, agent.evidence = running[0], BY_TEXT
            within = _holder(forest, agent, recorded.get(running[0], []), asked)
            if within is not None:
                agent.inferred, agent.evidence = within.span_id, BY_CALLER


class _Asked(dict[bytes, str]):
    """What each agent was asked, looked for once: it may have many rounds that do not say."""

    def __init__(
        self,
        forest: Forest,
        agents: Agents,
        read_request: Callable[[Forest, Agent], str | None],
    ) -> None:
        super().__init__()
        self._forest = forest
        self._agents = agents
        self._read_request = read_request

    def __missing__(self, span_id: bytes) -> str:
        message = self._read_request(self._forest, self._agents.by_id[span_id])
        found = self[span_id] = (message or "").strip()
        return found


def _holder(forest: Forest, agent: Agent, opened: list[Agent], asked: _Asked) -> Agent | None:
    """Return the agent that a span which has not come was within; None where that is not clear.

    Strands never sends the span of the cycle in which an agent was cancelled, but what was below.

    Args:
        forest: The spans.
        agent: What hangs under that span: it may be no other agent at all.
        opened: The agents that the call opened by what their spans say.
        asked: What each agent was asked.
    """
    if agent.is_there or len(opened) > _MOST_CANDIDATES:
        return None
    start, end = interval(forest, agent)
    holders = [
        each
        for each in opened
        if each.is_there
        and asked[each.span_id] == asked[agent.span_id]
        and _spans(forest.spans[each.span_id], start, end)
    ]
    return holders[0] if len(holders) == 1 else None


def _join_by_node(forest: Forest, agents: Agents, lost: list[Agent]) -> None:
    """Join agents that were handed over to: the latest one of that place beside them did it.

    Where another one of that place still ran when that one began, either may have done it.
    """
    handed = [agent for agent in lost if _may_be_handed(forest, agent)]
    if not handed:
        return
    known: dict[tuple[bytes | None, str | None], list[Agent]] = {}
    latest_end: dict[tuple[bytes | None, str | None], float] = {}
    alone: set[bytes] = set()
    for agent in sorted(agents.by_id.values(), key=lambda each: (each.start, each.span_id)):
        if agent.is_there:
            key = forest.parents[agent.span_id], forest.readings[agent.span_id].node
            if latest_end.get(key, 0) <= agent.start:
                alone.add(agent.span_id)
            known.setdefault(key, []).append(agent)
            end = forest.spans[agent.span_id].end or inf
            latest_end[key] = max(latest_end.get(key, 0), end)
    for agent in handed:
        node = forest.readings[agent.span_id].node_above
        beside = known.get((forest.parents[agent.span_id], node), [])
        at = bisect_left(beside, agent.start, key=lambda each: each.start) - 1
        if at >= 0 and beside[at].span_id in alone:
            agent.inferred, agent.evidence = _handing_over(forest, beside[at], agent), BY_NODE


def _may_be_handed(forest: Forest, agent: Agent) -> bool:
    is_open = agent.is_there and agent.inferred is None and agent.opener[0] is Above.TOP
    return is_open and forest.readings[agent.span_id].node_above is not None


def _handing_over(forest: Forest, giver: Agent, agent: Agent) -> bytes:
    """Return the call by which an agent handed over, where it has such a span; else the agent."""
    calls = (
        call
        for call in islice(reversed(giver.calls), _MOST_CANDIDATES)
        if forest.spans[call].start <= agent.start
        and forest.readings[call].result == name_of(forest, agent)
        and forest.readings[call].arguments == name_of(forest, giver)
    )
    return next(calls, giver.span_id)


def _join_by_time(
    forest: Forest, agents: Agents, lost: list[Agent], calls: list[bytes], nesting: _Nesting
) -> None:
    """Join what is left. Where a span above an agent has not come, its opener may still come."""
    unplaced = [
        agent for agent in lost if agent.inferred is None and agent.opener[0] is not Above.MISSING
    ]
    if not unplaced:
        return
    taken = {agents.call_of(agent, forest) for agent in agents.by_id.values()}
    left = [call for call in calls if call not in taken]
    if len(left) * len(unplaced) > _MOST_PAIRS:
        return
    callers = {caller for call in left if (caller := agents.of[call]) is not None}
    # Once each: one whose span has not come is asked for by all that it did.
    names = {caller: name_of(forest, agents.by_id[caller]) for caller in callers}
    for agent in unplaced:
        running = [
            call
            for call in _running(forest, left, agent)
            if not _is_own_kind(names.get(agents.of[call] or b""), agent, forest)
        ]
        candidates = nesting.nearest(agent, nesting.calls(running))
        if len(candidates) == 1:
            agent.inferred, agent.evidence = candidates[0], BY_TIME


_Calls = tuple[list[int], list[bytes]]
"""Calls with their numbers, ascending."""


class _Nesting:
    """Which span lies below which: those below a span have the numbers after its own."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest

    @cached_property
    def _numbers(self) -> tuple[dict[bytes, int], dict[bytes, int]]:
        """The number of each span, and the one after those below it. Most traces need none."""
        first: dict[bytes, int] = {}
        ends: dict[bytes, int] = {}
        children: dict[bytes | None, list[bytes]] = {}
        for span_id in self._forest.order:
            children.setdefault(self._forest.parents[span_id], []).append(span_id)
        waiting: list[tuple[bytes, bool]] = [(each, False) for each in children.get(None, ())]
        while waiting:
            span_id, is_left = waiting.pop()
            if is_left:
                ends[span_id] = len(first)
                continue
            first[span_id] = len(first)
            waiting.append((span_id, True))
            waiting += [(each, False) for each in children.get(span_id, ())]
        return first, ends

    def calls(self, calls: Iterable[bytes]) -> _Calls:
        """Return calls as `nearest` takes them."""
        first, _ = self._numbers
        ordered = sorted(calls, key=first.__getitem__)
        return [first[call] for call in ordered], ordered

    def nearest(self, agent: Agent, calls: _Calls) -> list[bytes]:
        """Return those of the calls that share the nearest span with the agent, but for its own.

        The search ends at the agent that the agent hangs under: what opened it is a call of that
        one. Of too many to choose from, none are returned: nobody looks at them.
        """
        numbers, ordered = calls
        if not ordered:
            return []
        if not agent.is_there:
            own_calls = set(agent.calls)
            if len(ordered) - len(own_calls) > _MOST_CANDIDATES:
                return []
            others = [call for call in ordered if call not in own_calls]
            return others if len(others) <= _MOST_CANDIDATES else []
        own = self._below(numbers, agent.span_id)
        levels = [*islice(self._forest.path(agent.span_id), _MOST_LEVELS)]
        for above in levels:
            first, end = self._below(numbers, above)
            is_found = end - first > own[1] - own[0]
            if is_found or self._forest.role(above) is Role.AGENT:
                return _around(ordered, (first, end), own)
        if len(levels) == _MOST_LEVELS:
            return []
        return _around(ordered, (0, len(ordered)), own)

    def _below(self, numbers: list[int], span_id: bytes) -> tuple[int, int]:
        first, ends = self._numbers
        return bisect_left(numbers, first[span_id]), bisect_left(numbers, ends[span_id])


def _around(ordered: list[bytes], within: tuple[int, int], own: tuple[int, int]) -> list[bytes]:
    """Return those between two places that are not an agent's own; none where they are many."""
    if within[1] - within[0] - (own[1] - own[0]) > _MOST_CANDIDATES:
        return []
    return [*ordered[within[0] : own[0]], *ordered[own[1] : within[1]]]


def _running(forest: Forest, calls: Iterable[bytes], agent: Agent) -> list[bytes]:
    """Return those of the calls that were running all the while."""
    start, end = interval(forest, agent)
    return [call for call in calls if _spans(forest.spans[call], start, end)]


def _spans(span: Span, start: int, end: int) -> bool:
    return span.start <= start and (span.end == 0 or 0 < end <= span.end)


def _names(forest: Forest, call: bytes, agent: Agent) -> bool:
    name = name_of(forest, agent)
    if not name or forest.spans[call].start > agent.start:
        return False
    reading = forest.readings[call]
    return name in (reading.name or "")[:_MOST_OF_A_NAME] or name in forest.texts[reading.arguments]


def _is_own_kind(caller: str | None, agent: Agent, forest: Forest) -> bool:
    """Return whether the caller has the agent's name: that is another run beside it."""
    return caller is not None and caller == name_of(forest, agent)


def _cut_circles(forest: Forest, agents: Agents, most_cuts: int) -> None:
    """Remove inferred links by which an agent would have opened itself."""
    for _ in range(most_cuts):
        if not _cut_those_there_are(forest, agents):
            return
    for agent in agents.by_id.values():
        agent.inferred = agent.evidence = None


def _cut_those_there_are(forest: Forest, agents: Agents) -> bool:
    """Return whether there were any: then agents are where their spans say, maybe in another."""
    found = False
    done: set[bytes] = set()
    for start in sorted(agents.by_id):
        way: dict[bytes, None] = {}
        at: bytes | None = start
        while at is not None and at not in done and at not in way:
            way[at] = None
            at = agents.agent_above(agents.by_id[at], forest)
        if at is not None and at in way:
            found = True
            for span_id in list(way)[list(way).index(at) :]:
                agents.by_id[span_id].inferred = agents.by_id[span_id].evidence = None
        done.update(way)
    return found
