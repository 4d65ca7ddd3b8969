"""Infer which tool call started an agent whose span lost the link to it.

A link is inferred only if exactly one tool call of the run can have started the agent. The evidence
is stored with the link.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property
from itertools import islice
from math import inf

from tracer.otel.dialects.run_spans import SlimSpan
from tracer.otel.dialects.span_facts import Role
from tracer.otel.projection.agents import Agents, AgentWork
from tracer.records.arguments import Texts

BY_TEXT = "the agent's first message equals an argument of the call"
BY_CALLER = "the call with its first message opened an agent that was running all the while"
BY_NODE = "the agent's span names the agent before it that handed over"
BY_TARGET = "the call names the agent as the target of its transfer"
BY_CALLER_NAME = "the agent's span names its caller, and one agent of that name was running"
BY_TIME = "the only call of the run that was running all the while"

_MOST_PAIRS = 1_000_000
"""The maximum number of pairs of orphan agents and tool calls. Above it, agents are not linked by
time."""

_MOST_LEVELS = 100
"""The number of levels above an orphan agent that are searched for its tool call."""

_MOST_CANDIDATES = 100
"""If more tool calls than this may have started an agent, no link is inferred."""

_MOST_OF_A_NAME = 1000
"""The number of characters of a tool call's name that are searched for an agent's name."""

_MOST_CUTS = 10
"""The maximum number of attempts to remove all cycles of links. If cycles remain, all inferred
links are removed."""


def link_orphan_agents(spans: list[SlimSpan], agents: Agents) -> None:
    """Infer what started the agents that have no link to a tool call.

    Args:
        spans: All spans of the run, sorted.
        agents: The agents of the run. Inferred links are stored in them.
    """
    lost = [
        agent for agent in agents.by_id.values() if agent.call is None and not _is_placed(agent)
    ]
    calls = agents.plain_calls
    first_call = calls[0].start if calls else inf
    # No call opened an agent that began before the first call.
    late = [agent for agent in lost if agent.start >= first_call]
    nesting = _SubtreeIntervals(spans)
    texts = Texts()
    if late:
        _join_by_target(agents, late)
        late = [agent for agent in late if agent.inferred is None]
        _join_by_text(agents, late, nesting, texts)
    _join_by_caller(agents, lost)
    _join_by_node(agents, lost)
    if late:
        _join_by_time(agents, late, nesting)
    if any(agent.inferred is not None for agent in lost):
        _cut_circles(agents)


def _is_placed(agent: AgentWork) -> bool:
    return agent.span is not None and agent.span.facts.is_placed


def _join_by_target(agents: Agents, late: list[AgentWork]) -> None:
    """Link each agent to a tool call that transfers control to an agent with its name.

    The tool call may end before the agent begins. Each call starts one agent. If several calls
    match, a call is linked only if it was the only one running during the agent's whole work.
    """
    taken = {agent.call for agent in agents.by_id.values()}
    calls_by_target: dict[str, list[SlimSpan]] = {}
    for call in reversed(agents.plain_calls):
        if call.facts.transfer_target and call not in taken:
            calls_by_target.setdefault(call.facts.transfer_target, []).append(call)
    if not calls_by_target:
        return
    begun: dict[str, list[SlimSpan]] = {}
    for agent in sorted(late, key=lambda each: (each.start, each.span_id)):
        calls = calls_by_target.get(agent.name or "")
        if calls is None or agent.name is None or agent.span is None or agent.awaits is not None:
            continue
        unused = begun.setdefault(agent.name, [])
        while calls and calls[-1].start <= agent.start:
            unused.append(calls.pop())
        if len(unused) > _MOST_CANDIDATES:
            continue
        candidates = [call for call in unused if _may_transfer(agents.of[call], agent)]
        if len(candidates) > 1:
            candidates = _running(candidates, agent)
        if len(candidates) == 1:
            agent.inferred, agent.evidence = candidates[0], BY_TARGET
            unused.remove(candidates[0])


def _may_transfer(caller: AgentWork | None, agent: AgentWork) -> bool:
    """Return whether `caller` can have started `agent`, according to the recorded links."""
    if caller is agent:
        return False
    return agent.opener is None or (caller is not None and caller.span is agent.opener)


def _join_by_caller(agents: Agents, lost: list[AgentWork]) -> None:
    """Link agents whose spans name their caller, if one running agent has that name.

    If exactly one tool call of the caller was running during the agent's whole work, the agent is
    linked to this call. Otherwise it is linked to the caller.
    """
    called = [
        agent
        for agent in lost
        if agent.span is not None
        and agent.span.facts.caller
        and agent.opened_by is None
        and agent.awaits is None
    ]
    if not called:
        return
    by_name: dict[str | None, list[AgentWork]] = {}
    for each in agents.by_id.values():
        by_name.setdefault(each.name, []).append(each)
    for agent in called:
        assert agent.span is not None
        named = by_name.get(agent.span.facts.caller, [])
        if len(named) > _MOST_CANDIDATES:
            continue
        start, end = agent.interval
        callers = [
            each
            for each in named
            if each is not agent and each.span is not None and _covers(each.span, start, end)
        ]
        if len(callers) != 1:
            continue
        calls = callers[0].calls
        running = _running(calls, agent) if len(calls) <= _MOST_CANDIDATES else []
        agent.inferred = running[0] if len(running) == 1 else callers[0].span
        agent.evidence = BY_CALLER_NAME


def _join_by_text(
    agents: Agents, late: list[AgentWork], nesting: _SubtreeIntervals, texts: Texts
) -> None:
    requests = _Requests()
    wanted = {requests[agent] for agent in late} - {""}
    calls_by_text: dict[str, list[SlimSpan]] = {}
    if wanted:
        for call in agents.plain_calls:
            for text in texts[call.facts.arguments] & wanted:
                calls_by_text.setdefault(text, []).append(call)
    if not calls_by_text:
        return
    opened: dict[SlimSpan, list[AgentWork]] = {}
    for agent in agents.by_id.values():
        if (call_of_agent := agent.call) is not None:
            opened.setdefault(call_of_agent, []).append(agent)
    numbered = {text: nesting.numbered(calls) for text, calls in calls_by_text.items()}
    for agent in late:
        same = numbered.get(requests[agent])
        if same is None:
            continue
        candidates = nesting.nearest(agent, same)
        running = _running(candidates, agent)
        if not running and agent.awaits is None:
            # A call that only starts the agent has ended before; it has to name the agent.
            running = [
                call
                for call in candidates
                if call not in opened and _mentions_agent(call, agent, texts)
            ]
        if len(running) == 1:
            agent.inferred, agent.evidence = running[0], BY_TEXT
            holder = _enclosing_agent(agent, opened.get(running[0], []), requests)
            if holder is not None:
                agent.inferred, agent.evidence = holder, BY_CALLER


class _Requests(dict[AgentWork, str]):
    """A cache of agents' requests, because finding a request may read many model calls."""

    def __missing__(self, agent: AgentWork) -> str:
        request = self[agent] = (agent.request or "").strip()
        return request


def _enclosing_agent(
    agent: AgentWork, opened: list[AgentWork], requests: _Requests
) -> SlimSpan | None:
    """Return the agent that contains work whose own parent has not arrived.

    If an agent is cancelled, some emitters never send its last spans. The work below such a span
    belongs to the agent around it. Returns None if not exactly one agent matches.

    Args:
        agent: The work below the missing span.
        opened: The agents that the tool call started, according to recorded links.
        requests: The request of each agent.
    """
    if agent.span is not None or len(opened) > _MOST_CANDIDATES:
        return None
    start, end = agent.interval
    holders = [
        each.span
        for each in opened
        if each.span is not None
        and requests[each] == requests[agent]
        and _covers(each.span, start, end)
    ]
    return holders[0] if len(holders) == 1 else None


def _join_by_node(agents: Agents, lost: list[AgentWork]) -> None:
    """Link agents whose spans name the graph node that handed over to them.

    The agent is linked to the latest earlier sibling with this node. If two agents of the node were
    running then, no link is inferred.
    """
    handed = [agent for agent in lost if _may_be_handed(agent)]
    if not handed:
        return
    known: dict[tuple[SlimSpan | None, str | None], list[SlimSpan]] = {}
    latest_end: dict[tuple[SlimSpan | None, str | None], float] = {}
    alone: set[SlimSpan] = set()
    for agent in sorted(agents.by_id.values(), key=lambda each: (each.start, each.span_id)):
        span = agent.span
        if span is not None:
            key = span.parent, span.facts.node
            if latest_end.get(key, 0) <= span.start:
                alone.add(span)
            known.setdefault(key, []).append(span)
            latest_end[key] = max(latest_end.get(key, 0), span.end or inf)
    for agent in handed:
        assert agent.span is not None
        earlier = known.get((agent.span.parent, agent.span.facts.node_above), [])
        at = bisect_left(earlier, agent.start, key=lambda span: span.start) - 1
        if at >= 0 and earlier[at] in alone:
            source_agent = agents.by_id[earlier[at].span_id]
            agent.inferred, agent.evidence = (
                _handing_over(source_agent, earlier[at], agent),
                BY_NODE,
            )


def _may_be_handed(agent: AgentWork) -> bool:
    return (
        agent.span is not None
        and agent.opened_by is None
        and agent.awaits is None
        and agent.span.facts.node_above is not None
    )


def _handing_over(source_agent: AgentWork, span: SlimSpan, agent: AgentWork) -> SlimSpan:
    """Return the tool call with which an agent handed over to `agent`.

    If there is no such call, the span of the agent that handed over is returned.
    """
    calls = (
        call
        for call in islice(reversed(source_agent.calls), _MOST_CANDIDATES)
        if call.start <= agent.start
        and call.facts.result == agent.name
        and call.facts.arguments == source_agent.name
    )
    return next(calls, span)


def _join_by_time(agents: Agents, late: list[AgentWork], nesting: _SubtreeIntervals) -> None:
    """Link each remaining agent to the only tool call that was running during its whole work.

    Agents with a missing ancestor are excluded, because the ancestor may have started them.
    """
    unplaced = [agent for agent in late if agent.inferred is None and agent.awaits is None]
    if not unplaced:
        return
    taken = {agent.call for agent in agents.by_id.values()}
    left = [call for call in agents.plain_calls if call not in taken]
    if len(left) * len(unplaced) > _MOST_PAIRS:
        return
    # Once for each caller: the name of one whose span has not arrived depends on all of its work.
    names = {caller: caller.name for call in left if (caller := agents.of[call]) is not None}
    for agent in unplaced:
        name = agent.name
        running = [
            call
            for call in _running(left, agent)
            # A caller with the same name is a parallel run of the same agent.
            if (caller := agents.of[call]) is None or names[caller] is None or names[caller] != name
        ]
        candidates = nesting.nearest(agent, nesting.numbered(running))
        if len(candidates) == 1:
            agent.inferred, agent.evidence = candidates[0], BY_TIME


_Numbered = tuple[list[int], list[SlimSpan]]
"""The numbers of tool calls in ascending order, and the tool calls in the same order."""


class _SubtreeIntervals:
    """Numbers the spans of a run in depth-first order, so that each subtree is an interval."""

    def __init__(self, spans: list[SlimSpan]) -> None:
        self._spans = spans

    @cached_property
    def _numbers(self) -> tuple[dict[SlimSpan, int], dict[SlimSpan, int]]:
        """Return the position of each span in depth-first order, and the end of its subtree.

        The subtree of a span is the interval from its position up to, not including, this end.
        """
        first: dict[SlimSpan, int] = {}
        ends: dict[SlimSpan, int] = {}
        children: dict[SlimSpan | None, list[SlimSpan]] = {}
        for span in self._spans:
            children.setdefault(span.parent, []).append(span)
        waiting = [(span, False) for span in children.get(None, ())]
        while waiting:
            span, is_left = waiting.pop()
            if is_left:
                ends[span] = len(first)
                continue
            first[span] = len(first)
            waiting.append((span, True))
            waiting += [(child, False) for child in children.get(span, ())]
        return first, ends

    def numbered(self, calls: Iterable[SlimSpan]) -> _Numbered:
        """Return tool calls with their numbers, sorted, as `nearest` expects them."""
        first, _ = self._numbers
        ordered = sorted(calls, key=first.__getitem__)
        return [first[call] for call in ordered], ordered

    def nearest(self, agent: AgentWork, calls: _Numbered) -> list[SlimSpan]:
        """Return the tool calls that are closest to an agent in the tree.

        The search starts at the agent's parent and continues upwards, until there are tool calls
        below the ancestor. The agent's own calls do not count. The search ends at the nearest agent
        above, because only this agent can have started `agent`. Returns an empty list if there are
        too many calls.
        """
        numbers, ordered = calls
        if not ordered:
            return []
        if agent.span is None:
            own_calls = set(agent.calls)
            if len(ordered) - len(own_calls) > _MOST_CANDIDATES:
                return []
            others = [call for call in ordered if call not in own_calls]
            return others if len(others) <= _MOST_CANDIDATES else []
        own = self._below(numbers, agent.span)
        above = agent.span.parent
        for _ in range(_MOST_LEVELS):
            if above is None:
                return _envelope(ordered, (0, len(ordered)), own)
            first, end = self._below(numbers, above)
            is_found = end - first > own[1] - own[0]
            if is_found or above.facts.role is Role.AGENT:
                return _envelope(ordered, (first, end), own)
            above = above.parent
        return []

    def _below(self, numbers: list[int], span: SlimSpan) -> tuple[int, int]:
        first, ends = self._numbers
        return bisect_left(numbers, first[span]), bisect_left(numbers, ends[span])


def _envelope(
    ordered: list[SlimSpan], outer: tuple[int, int], own: tuple[int, int]
) -> list[SlimSpan]:
    """Return the calls in the interval `outer` without those in `own`; empty if too many."""
    if outer[1] - outer[0] - (own[1] - own[0]) > _MOST_CANDIDATES:
        return []
    return [*ordered[outer[0] : own[0]], *ordered[own[1] : outer[1]]]


def _running(calls: Iterable[SlimSpan], agent: AgentWork) -> list[SlimSpan]:
    """Return the tool calls that were running during the agent's whole work."""
    start, end = agent.interval
    return [call for call in calls if _covers(call, start, end)]


def _covers(span: SlimSpan, start: int, end: int) -> bool:
    return span.start <= start and (span.end == 0 or 0 < end <= span.end)


def _mentions_agent(call: SlimSpan, agent: AgentWork, texts: Texts) -> bool:
    """Return whether a tool call began before an agent, and contains the agent's name."""
    name = agent.name
    if not name or call.start > agent.start:
        return False
    facts = call.facts
    return name in (facts.name or "")[:_MOST_OF_A_NAME] or name in texts[facts.arguments]


def _cut_circles(agents: Agents) -> None:
    """Remove inferred links by which an agent would have started itself, directly or indirectly."""
    for _ in range(_MOST_CUTS):
        if not _cut_present_circles(agents):
            return
    for agent in agents.by_id.values():
        agent.inferred = agent.evidence = None


def _cut_present_circles(agents: Agents) -> bool:
    """Remove all inferred links that are part of a cycle. Return whether there were any.

    Afterwards, new cycles are possible: an agent that loses its inferred link is linked again to
    the opener that its span recorded. The caller must repeat this function.
    """
    has_cycle = False
    done: set[AgentWork] = set()
    for _, start in sorted(agents.by_id.items()):
        way: dict[AgentWork, None] = {}
        at: AgentWork | None = start
        while at is not None and at not in done and at not in way:
            way[at] = None
            at = agents.above(at)
        if at is not None and at in way:
            has_cycle = True
            climbed = list(way)
            for agent in climbed[climbed.index(at) :]:
                agent.inferred = agent.evidence = None
        done.update(way)
    return has_cycle
