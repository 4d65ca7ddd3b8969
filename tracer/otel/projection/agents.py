"""Find the agents in a forest of spans, and the calls and model calls that they come from."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from math import inf
from typing import NamedTuple

from tracer.otel.dialects.dialect import RequestedCall, Role, SlimSpan
from tracer.otel.projection.forest import NODES
from tracer.records.arguments import Texts, canonical, strings_in

# --- Find the agents of a run, their model calls and tool calls, and what started each agent.
#
# An agent is a span with the role `AGENT`. If the parents of a model call or tool call lead to a
# span that has not arrived, this span is assumed to be an agent. An agent was started by the
# nearest tool call above it. If no tool call is above it, the nearest agent above it handed over to
# it.


@dataclass(slots=True, eq=False)
class AgentWork:
    """One agent with its model calls and tool calls. It becomes a plan with one step."""

    span_id: bytes
    span: SlimSpan | None
    """The agent's span; None if it has not arrived."""
    start: int
    """When the agent began, as far as known, in nanoseconds since 1970."""
    opener: SlimSpan | None
    """The tool call or agent that started this agent, according to the parent ids of spans."""
    awaits: bytes | None
    """The id of the missing span above the agent, if `opener` is unknown for this reason."""
    rounds: list[SlimSpan] = field(default_factory=list)
    """The agent's model calls, sorted. Model calls inside its tools are included."""
    calls: list[SlimSpan] = field(default_factory=list)
    """The agent's tool calls, sorted. Tool calls inside other tool calls are included."""
    inferred: SlimSpan | None = None
    """The tool call or agent that is inferred to have started this agent, if parent ids lead to no
    tool call. It takes precedence over `opener`."""
    evidence: str | None = None
    """The evidence for `inferred`."""
    plan_id: bytes = b""
    step_id: bytes = b""

    @property
    def opened_by(self) -> SlimSpan | None:
        """The tool call or the agent that started this agent, recorded or inferred."""
        return self.inferred or self.opener

    @property
    def call(self) -> SlimSpan | None:
        """The tool call that started this agent, recorded or inferred."""
        opener = self.opened_by
        return opener if opener is not None and opener.facts.role is Role.TOOL else None

    @property
    def is_unplaced(self) -> bool:
        """Whether nothing is known to have started this agent.

        This is the case if a span above the agent has not arrived, and no link was inferred.
        """
        return self.awaits is not None and self.inferred is None

    @property
    def work(self) -> Iterable[SlimSpan]:
        """The model calls and tool calls of this agent."""
        return (*self.rounds, *self.calls)

    @property
    def name(self) -> str | None:
        """The name of this agent.

        If the agent's span has not arrived, the name comes from the spans of its model calls and
        tool calls. It is None if these spans do not all contain the same name.
        """
        if self.span is not None:
            return self.span.facts.name
        names = {span.facts.agent for span in self.work}
        return names.pop() if len(names) == 1 else None

    @property
    def request(self) -> str | None:
        """The request to this agent; None if there is none.

        It comes from the agent's span, or else from the first model call that has a request.
        """
        if self.span is not None and self.span.facts.request:
            return self.span.facts.request
        requests = (span.facts.request for span in self.rounds)
        return next((request for request in requests if request), None)

    @property
    def answer(self) -> str | None:
        """The answer of this agent; None if the agent's span has not arrived.

        If the span has ended without an answer, the answer of the last model call is used, provided
        that this call chose no tools. Model calls inside a tool belong to the tool and are ignored.
        """
        if self.span is None:
            return None
        answer = self.span.facts.answer
        if answer or self.span.end == 0 or self.span.facts.is_interrupted:
            return answer
        last = next((span for span in reversed(self.rounds) if not is_within_tool(span)), None)
        return None if last is None or last.facts.chosen else last.facts.answer

    @property
    def interval(self) -> tuple[int, int]:
        """The start and the end of this agent, as far as known. An end of 0 means no end yet."""
        if self.span is not None:
            return self.span.start, self.span.end
        ends = [span.end for span in self.work]
        return self.start, max(ends) if all(ends) else 0


@dataclass(slots=True)
class Agents:
    """The agents of a run, and the model calls and tool calls that belong to no agent."""

    by_id: dict[bytes, AgentWork]
    """The agents by the ids of their spans."""
    of: dict[SlimSpan, AgentWork | None]
    """The agent of each round and each tool call."""
    loose: list[SlimSpan]
    """Rounds and tool calls without an agent above them, sorted."""
    plain_calls: list[SlimSpan]
    """Tool calls without a special type, sorted. Only such a call can have started an agent."""

    def above(self, agent: AgentWork) -> AgentWork | None:
        """Return the agent that started `agent` by a tool call or hand-off; None if unknown."""
        opener = agent.opened_by
        if opener is None:
            return None
        if opener.facts.role is Role.TOOL:
            return self.of[opener]
        return self.by_id[opener.span_id]


def is_within_tool(model: SlimSpan) -> bool:
    """Return whether a tool made a model call. Such a call chooses no tools for the agent."""
    return model.above is not None and model.above.facts.role is Role.TOOL


_Climbed = dict[SlimSpan, tuple[SlimSpan | None, bytes | None]]
"""A cache of `_first_above`: the result for each span that earlier searches passed."""


def find_agents(spans: Iterable[SlimSpan]) -> Agents:
    """Return the agents of a run, their work and what started them.

    Args:
        spans: All spans of the run, sorted. `build_tree` must have been applied to them.
    """
    by_id: dict[bytes, AgentWork] = {}
    of: dict[SlimSpan, AgentWork | None] = {}
    loose: list[SlimSpan] = []
    plain_calls: list[SlimSpan] = []
    openers: _Climbed = {}
    owners: _Climbed = {}
    nodes = [span for span in spans if span.facts.role in NODES]
    for span in nodes:
        if span.facts.role is Role.AGENT:
            opener, awaits = _first_above(span, (Role.TOOL, Role.AGENT), openers)
            agent_work = by_id[span.span_id] = AgentWork(
                span.span_id, span, span.start, opener, awaits
            )
            if span.inferred is not None:
                agent_work.inferred, agent_work.evidence = opener, span.inferred
    for span in nodes:
        role = span.facts.role
        if role is Role.AGENT:
            continue
        if role is Role.TOOL and span.facts.tool_type is None:
            plain_calls.append(span)
        owner, awaits = span.above, span.awaits
        if owner is not None and owner.facts.role is not Role.AGENT:
            owner, awaits = _first_above(span, (Role.AGENT,), owners)
        owner_id = owner.span_id if owner is not None else awaits
        if owner_id is None:
            of[span] = None
            loose.append(span)
            continue
        agent = by_id.get(owner_id)
        if agent is None:  # its span has not arrived; this is the first of its work
            agent = by_id[owner_id] = AgentWork(owner_id, None, span.start, None, owner_id)
        of[span] = agent
        (agent.rounds if role is Role.MODEL else agent.calls).append(span)
    return Agents(by_id, of, loose, plain_calls)


def _first_above(
    span: SlimSpan, roles: tuple[Role, ...], climbed: _Climbed
) -> tuple[SlimSpan | None, bytes | None]:
    """Return the nearest span above `span` that has one of the roles.

    Returns:
        That span, or None. If the chain of parents ends at a span that has not arrived, the second
        value is the id of the missing span; otherwise None.
    """
    above, awaits = span.above, span.awaits
    if above is None or above.facts.role in roles:
        return above, awaits
    way = []
    while above is not None and above.facts.role not in roles:
        way.append(above)
        above, awaits = climbed.get(above) or (above.above, above.awaits)
    for each in way:
        climbed[each] = above, awaits
    return above, awaits


# --- Infer which tool call started an agent whose span lost the link to it.
#
# A link is inferred only if exactly one tool call of the run can have started the agent. The
# evidence is stored with the link.

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
    if any(agent.inferred is not None for agent in agents.by_id.values()):
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
        if len(running) != 1 and len(same[1]) <= _MOST_CANDIDATES:
            # Text outranks the parent: the agent's span may be below the wrong agent.
            running = [
                call
                for call in _running(same[1], agent)
                if call not in opened and agents.of[call] is not agent
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
        if agent.opener is not None:  # a parent outranks time
            running = [call for call in running if _may_transfer(agents.of[call], agent)]
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


# --- Find the model call that chose a tool call: by call id, by name and arguments, or by time.
#
# A *round* is one model call and the tool calls that it chose.

LARGE_CHARACTERS = 2000
MOST_COPIES = 10
"""The maximum number of tool calls that receive a copy of the same large arguments, if all of them
are attributed to one request in a model's answer."""


LATEST_ROUND = "the agent's latest round before the call"
"""The evidence if a tool call is attributed to a round whose answer may not contain the call."""


class Choice(NamedTuple):
    """The round that a tool call belongs to."""

    model: SlimSpan
    requested: RequestedCall | None = None
    """The request for the call in the model's answer; None if it is uncertain."""
    inferred: bool = False


def needs_requested(arguments: str | None) -> bool:
    """Return whether the arguments of a tool call's span are missing or no JSON object.

    If so, the arguments in the model's answer are used.
    """
    return arguments is None or arguments[:1] != "{"


class Rounds:
    """The rounds of one agent, with the tool calls that the model requested in each."""

    def __init__(self, models: Iterable[SlimSpan]) -> None:
        """Index the requested calls.

        Args:
            models: The spans of the agent's model calls, sorted.
        """
        self._models = [span for span in models if not is_within_tool(span)]
        self._starts = [span.start for span in self._models]
        self._copies = Counter[Choice]()
        self._by_id: dict[tuple[str, str | None], list[Choice]] = {}
        for model in self._models:
            for chosen in model.facts.chosen:
                if chosen.call_id:
                    choice = Choice(model, chosen)
                    self._by_id.setdefault((chosen.call_id, chosen.name), []).append(choice)

    def choice(self, call: SlimSpan) -> Choice | None:
        """Return the round that chose a tool call; None if no round began before the call.

        Call this method once for each tool call, in order. It counts the calls that receive a copy
        of the same large arguments, and limits their number.
        """
        choice = self._choice(call)
        if choice is None or choice.requested is None:
            return choice
        arguments = choice.requested.arguments
        is_large = arguments is not None and len(arguments) > LARGE_CHARACTERS
        if not is_large or not needs_requested(call.facts.arguments):
            return choice
        self._copies[choice] += 1
        if self._copies[choice] <= MOST_COPIES:
            return choice
        return choice._replace(requested=choice.requested._replace(arguments=None))

    def _choice(self, call: SlimSpan) -> Choice | None:
        """Find the round that chose a tool call.

        Providers reuse call ids in later rounds, and sometimes within one round. A round that
        requested the same id with the same arguments is therefore preferred. If several rounds
        match, the latest round that began before the call is returned.
        """
        facts = call.facts
        requests = self._requested_by_id(facts.call_id, facts.name, facts.arguments)
        if not requests and facts.arguments is not None:
            by_arguments, arguments = self._by_arguments, canonical(facts.arguments)
            # A bare value: some emitters leave out the name of a tool's only parameter.
            requests = by_arguments.get(("all", facts.name, arguments)) or by_arguments.get(
                ("bare", facts.name, facts.arguments.strip())
            )
        if requests:
            return _latest(requests, call.start)
        if call.above is not None and call.above.facts.role is Role.MODEL:
            return Choice(call.above)
        latest = bisect_right(self._starts, call.start) - 1
        return Choice(self._models[latest], inferred=True) if latest >= 0 else None

    def _requested_by_id(
        self, call_id: str | None, name: str | None, arguments: str | None
    ) -> Sequence[Choice] | None:
        if not call_id:
            return None
        requests = self._by_id.get((call_id, name))
        if requests is None:
            return self._by_id.get((call_id, None))
        if len(requests) == 1:
            return requests
        return self._by_id_and_arguments.get((call_id, name, canonical(arguments)), requests)

    @cached_property
    def _by_id_and_arguments(self) -> Mapping[Hashable, list[Choice]]:
        """The requested calls whose id occurs more than once, by id, name and arguments."""
        choices_by_key: dict[Hashable, list[Choice]] = {}
        for (call_id, name), choices in self._by_id.items():
            for choice in choices if len(choices) > 1 else ():
                arguments = choice.requested.arguments if choice.requested is not None else None
                key = call_id, name, canonical(arguments)
                choices_by_key.setdefault(key, []).append(choice)
        return choices_by_key

    @cached_property
    def _by_arguments(self) -> Mapping[Hashable, list[Choice]]:
        """The requested calls by name and arguments, for tool calls whose id is unknown."""
        choices_by_key: dict[Hashable, list[Choice]] = {}
        for model in self._models:
            for chosen in model.facts.chosen:
                _, name, arguments = chosen
                if arguments is None:
                    continue
                keys: list[Hashable] = [("all", name, canonical(arguments))]
                strings = strings_in(arguments)
                if len(strings) == 1:
                    keys.append(("bare", name, next(iter(strings))))
                for key in keys:
                    choices_by_key.setdefault(key, []).append(Choice(model, chosen))
        return choices_by_key


def _latest(choices: Sequence[Choice], start: int) -> Choice:
    """Return the latest round that began by `start`; if none did, the first round.

    Some tool calls seem to begin before their round. The requested call is included only if the
    round has exactly one of the candidates.
    """
    if len(choices) == 1:
        return choices[0]
    at = max(bisect_right(choices, start, key=lambda each: each.model.start) - 1, 0)
    model = choices[at].model
    is_one = all(
        choices[near].model is not model for near in (at - 1, at + 1) if 0 <= near < len(choices)
    )
    return choices[at] if is_one else Choice(model)
