"""Find the agents of a run, their model calls and tool calls, and what started each agent.

An agent is a span with the role `AGENT`. If the parents of a model call or tool call lead to a span
that has not arrived, this span is assumed to be an agent. An agent was started by the nearest tool
call above it. If no tool call is above it, the nearest agent above it handed over to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tracer.otel.dialects.run_spans import SlimSpan
from tracer.otel.dialects.span_facts import Role
from tracer.otel.projection.forest import NODES


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
