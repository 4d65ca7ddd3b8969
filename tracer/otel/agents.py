"""Agents: who they are, what is theirs, and who opened them.

An agent is a span, or is known only by what hangs under a span that has not come. What opened an
agent is the nearest tool call above it, else the nearest agent: a hand-off.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from tracer.otel.dialects.reading import Reading, Role
from tracer.otel.forest import Above, Forest, Place


class Said(NamedTuple):
    """What is said of an agent; text is as it came."""

    name: str | None
    asked: str | None
    answer: str | None


class Opening(NamedTuple):
    """What opened a sub-plan: a tool call, or an agent's step by a hand-off."""

    parent_plan_id: UUID
    tool_call_id: UUID | None
    opened_by_step_id: UUID | None
    position: int
    """The plan's place among those that were opened there."""


@dataclass
class Agent:
    """One agent's work: a plan of one step."""

    span_id: bytes
    """Its span, which may not have come."""
    is_there: bool
    opener: Place
    """The tool call or the agent that opened it, as it stands in the spans, or how the way ends."""
    start: int
    """When it began, as far as is known: nanoseconds since 1970."""
    models: list[bytes] = field(default_factory=list)
    """Its rounds by time, those within its tools included."""
    calls: list[bytes] = field(default_factory=list)
    """Its tool calls by time, those within other calls included."""
    inferred: bytes | None = None
    """The tool call, or else the agent, that can have opened it, where the context was lost."""
    evidence: str | None = None
    said: Said | None = None
    """What was found to be said of it; None where that is to be found out."""
    opening: Opening | None = None
    """As it was in the last projection."""


@dataclass
class Agents:
    """The agents of a trace, and what belongs to none of them."""

    by_id: dict[bytes, Agent]
    of: dict[bytes, bytes | None]
    """The agent of each round and each tool call."""
    loose: list[bytes]
    """Rounds and tool calls by time that have no agent above them."""
    plain_calls: list[bytes]
    """Tool calls by time that may have opened an agent that lost its link."""
    asking: dict[str, list[bytes]] | None = None
    """Those calls by the texts among their arguments; None where nobody asked for that yet."""

    def call_of(self, agent: Agent, forest: Forest) -> bytes | None:
        """Return the tool call that opened an agent, recorded or inferred."""
        span_id = self._opener(agent)
        return span_id if span_id is not None and forest.role(span_id) is Role.TOOL else None

    def agent_above(self, agent: Agent, forest: Forest) -> bytes | None:
        """Return the agent that opened an agent, by a tool call or a hand-off."""
        span_id = self._opener(agent)
        if span_id is None or forest.role(span_id) is not Role.TOOL:
            return span_id
        return self.of[span_id]

    @staticmethod
    def _opener(agent: Agent) -> bytes | None:
        """Return the tool call or the agent that opened an agent, recorded or inferred."""
        if agent.inferred is not None:
            return agent.inferred
        return agent.opener[1] if agent.opener[0] is Above.SPAN else None

    def calls_asking(self, text: str, forest: Forest) -> list[bytes]:
        """Return the plain calls that have a text among their arguments."""
        if self.asking is None:
            self.asking = {}
            for call in self.plain_calls:
                self.note_texts(call, forest)
        return self.asking.get(text, [])

    def note_texts(self, call: bytes, forest: Forest) -> None:
        """Take note of the texts of a plain call, if anybody asked for those of others."""
        if self.asking is not None:
            for text in forest.texts[forest.readings[call].arguments]:
                self.asking.setdefault(text, []).append(call)

    def owner_at(self, place: Place, forest: Forest) -> bytes | None:
        """Return the agent that what is at a place belongs to; at the top, None."""
        above, at = place
        if above is Above.SPAN and forest.role(at) is not Role.AGENT:
            return self.of[at]
        return None if above is Above.TOP else at


def find_agents(forest: Forest) -> Agents:
    """Return the agents of a trace with what is theirs and who opened them."""
    agents = Agents({}, {}, [], [])
    spans, readings, places = forest.spans, forest.readings, forest.places
    openers: dict[bytes, Place] = {}
    owners: dict[bytes, Place] = {}
    for span_id in forest.having(Role.AGENT):
        opener = _first_at(places[span_id], forest, _OPENERS, openers)
        agents.by_id[span_id] = Agent(span_id, True, opener, spans[span_id].start)
    for span_id in forest.order:
        role = readings[span_id].role
        if role is not Role.MODEL and role is not Role.TOOL:
            continue
        if is_plain_call(readings[span_id]):
            agents.plain_calls.append(span_id)
        above, owner = places[span_id]
        if above is Above.SPAN and readings[owner].role is not Role.AGENT:
            above, owner = _first_at(places[span_id], forest, (Role.AGENT,), owners)
        if above is Above.TOP:
            agents.of[span_id] = None
            agents.loose.append(span_id)
            continue
        agents.of[span_id] = owner
        agent = agents.by_id.get(owner)
        if agent is None:  # its span has not come; this one is the first of its work
            opener = Above.MISSING, owner
            agent = agents.by_id[owner] = Agent(owner, False, opener, spans[span_id].start)
        (agent.models if role is Role.MODEL else agent.calls).append(span_id)
    return agents


def is_plain_call(reading: Reading) -> bool:
    """Return whether a span is a tool call of no special type."""
    return reading.role is Role.TOOL and reading.tool_type is None


_OPENERS = (Role.TOOL, Role.AGENT)


def opener_at(place: Place, forest: Forest) -> Place:
    """Return what opened an agent that is at a place: the nearest tool call or agent above."""
    return _first_at(place, forest, _OPENERS, {})


def within_tool(forest: Forest, model: bytes) -> bool:
    """Return whether a tool asked the model for itself: it chooses none of the agent's calls."""
    above, at = forest.places[model]
    return above is Above.SPAN and forest.role(at) is Role.TOOL


def _first_at(
    place: Place, forest: Forest, roles: tuple[Role, ...], known: dict[bytes, Place]
) -> Place:
    """Return the first span from a place on up that has one of the roles; `known` remembers."""
    way = []
    while place[0] is Above.SPAN and forest.readings[place[1]].role not in roles:
        way.append(place[1])
        place = known.get(place[1]) or forest.places[place[1]]
    for each in way:
        known[each] = place
    return place


def first_message(forest: Forest, agent: Agent) -> str | None:
    """Return what an agent was asked: what it says itself, else its first round."""
    if agent.is_there and forest.readings[agent.span_id].request:
        return forest.readings[agent.span_id].request
    requests = (forest.readings[span_id].request for span_id in agent.models)
    return next((request for request in requests if request), None)


def said_of(forest: Forest, agent: Agent) -> Said:
    """Return what is said of an agent."""
    return Said(name_of(forest, agent), first_message(forest, agent), _answer(forest, agent))


def _answer(forest: Forest, agent: Agent) -> str | None:
    """Return what an agent answered: what it says itself, else its last round if it ended there.

    Rounds within a tool are the tool's own.
    """
    if not agent.is_there:
        return None
    said = forest.readings[agent.span_id].answer
    if said or forest.spans[agent.span_id].end == 0:
        return said
    own = (each for each in reversed(agent.models) if not within_tool(forest, each))
    last = next(own, None)
    return None if last is None or forest.readings[last].chosen else forest.readings[last].answer


def name_of(forest: Forest, agent: Agent) -> str | None:
    """Return an agent's name: its own, else the one that all that is its own gives it."""
    if agent.is_there:
        return forest.readings[agent.span_id].name
    names = {forest.readings[each].agent for each in (*agent.models, *agent.calls)}
    return names.pop() if len(names) == 1 else None


def interval(forest: Forest, agent: Agent) -> tuple[int, int]:
    """Return when an agent began and ended, as far as is known; an end of 0 is no end yet."""
    if agent.is_there:
        span = forest.spans[agent.span_id]
        return span.start, span.end
    ends = [forest.spans[span_id].end for span_id in (*agent.models, *agent.calls)]
    return agent.start, max(ends) if all(ends) else 0
