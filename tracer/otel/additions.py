"""Additions: spans that come to a grown forest and change little of it.

A trace that comes in many parts would be planted and grown anew for each. But where no span tells
again what another does, and no wrapper may turn out to be an agent, a span changes no more than
its own place, the places of the spans that waited for it, and the work of the agents of those. It
is put there; what comes out is what `set_places` and `find_agents` would find in the whole.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from functools import cached_property

from tracer.otel.agents import Agent, Agents, is_plain_call, opener_at
from tracer.otel.dialects.reading import Reading, Role
from tracer.otel.forest import NODES, Above, Forest, Place, followed
from tracer.otel.growth import FRAMEWORKS
from tracer.otel.spans import Span
from tracer.otel.trace_spans import More

MOST_MOVES = 10
"""How often each span may get another place because of those that come, on average: to plant all
anew is less work than more of that."""


class Additions:
    """A plain forest (`grow` says of which kind it is) and its agents, which take more spans."""

    def __init__(self, forest: Forest, agents: Agents) -> None:
        self.forest = forest
        self.agents = agents
        self.touched: set[bytes | None] = set()
        """The agents whose work is other than it was; None: what belongs to no agent."""
        self._moves = 0

    def take(self, more: Sequence[More]) -> bool:
        """Put spans where they belong.

        Returns:
            False where one may change more than is looked at here: then nothing of this holds,
            and the forest has to be planted anew.
        """
        self._moves = 0
        return all(map(self._take, more))

    def _take(self, more: More) -> bool:
        span, reading, earlier = more
        if reading.role in FRAMEWORKS:
            return False
        return self._add(span, reading) if earlier is None else self._renew(span, reading, earlier)

    def _renew(self, span: Span, reading: Reading, earlier: Span) -> bool:
        """Take a newer version of a span, such as its end."""
        forest, span_id = self.forest, span.span_id
        known = forest.readings[span_id]
        if (span.parent_span_id, span.start) != (earlier.parent_span_id, earlier.start):
            return False
        if (reading.role, reading.tool_type) != (known.role, known.tool_type):
            return False
        if known.tells_whose and not reading.tells_whose:
            return False
        if reading.tells_whose and not known.tells_whose:
            self._insert(forest.telling, span_id)
        forest.readings[span_id] = reading
        if is_plain_call(reading):
            self.agents.asking = None
        if reading.role is Role.AGENT:
            self.touched.add(span_id)
        elif reading.role in NODES:
            self.touched.add(self.agents.of[span_id])
        return True

    def _add(self, span: Span, reading: Reading) -> bool:
        """Take a span of which there was no version."""
        forest, span_id, above = self.forest, span.span_id, span.parent_span_id
        parent = above if above in forest.parents else None
        waited = self._waiting.pop(span_id, [])
        if above == span_id or (waited and self._hangs_below(parent, span_id)):
            return False  # a circle, which has to be cut
        self._moves += len(waited)
        if self._moves > MOST_MOVES * len(forest.order):
            return False
        forest.readings[span_id] = reading
        forest.parents[span_id] = parent
        if parent is not None:
            self._above[span_id] = parent
        self._insert(forest.order, span_id)
        if reading.tells_whose:
            self._insert(forest.telling, span_id)
        place: Place = Above.TOP, span_id
        if parent is not None:
            is_node = forest.role(parent) in NODES
            place = (Above.SPAN, parent) if is_node else forest.places[parent]
        elif above is not None:
            forest.missing[span_id] = above
            place = Above.MISSING, above
        below: Place = (Above.SPAN, span_id) if reading.role in NODES else place
        for each in waited:
            if forest.missing.get(each) == span_id:
                del forest.missing[each]
                forest.parents[each] = self._above[each] = span_id
        if not self._set_place(span_id, place):
            return False
        if not all(self._set_place(each, below) for each in waited):
            return False
        self._put_among_agents(span, reading, place, below)
        return True

    @cached_property
    def _waiting(self) -> dict[bytes, list[bytes]]:
        """The spans whose way up ends in one that has not come, by that."""
        waiting: dict[bytes, list[bytes]] = {}
        for span_id, (above, at) in self.forest.places.items():
            if above is Above.MISSING:
                waiting.setdefault(at, []).append(span_id)
        return waiting

    @cached_property
    def _above(self) -> dict[bytes, bytes]:
        """For each span that has a parent, that, or one further up."""
        parents = self.forest.parents
        return {span_id: above for span_id, above in parents.items() if above is not None}

    def _hangs_below(self, span_id: bytes | None, missing: bytes) -> bool:
        """Return whether the way up from a span ends in one that has not come."""
        if span_id is None:
            return False
        return self.forest.missing.get(followed(self._above, span_id)) == missing

    def _set_place(self, span_id: bytes, place: Place) -> bool:
        """Say where a span is; False where it may tell of the same as the one it is in."""
        above, at = place
        self.forest.places[span_id] = place
        if above is Above.MISSING:
            self._waiting.setdefault(at, []).append(span_id)
        return above is not Above.SPAN or self.forest.role(at) is not self.forest.role(span_id)

    # --- Agents ----------------------------------------------------------------------------------

    def _put_among_agents(self, span: Span, reading: Reading, place: Place, below: Place) -> None:
        """Give a span to its agent, with the work that waited for it; or its work to an agent."""
        agents, span_id = self.agents, span.span_id
        opener = opener_at(below, self.forest)
        for agent in self._unopened.pop(span_id, ()):
            self._set_opener(agent, opener)
        waited = agents.by_id.pop(span_id, None)
        if reading.role is Role.AGENT:
            opener = opener_at(place, self.forest)
            agent = agents.by_id[span_id] = Agent(span_id, True, opener, span.start)
            self._set_opener(agent, opener)
            if waited is not None:
                agent.models, agent.calls = waited.models, waited.calls
            self.touched.add(span_id)
            return
        owner = agents.owner_at(place, self.forest)
        if reading.role in NODES:
            self._give(owner, span_id)
            if is_plain_call(reading):
                self._insert(agents.plain_calls, span_id)
                agents.note_texts(span_id, self.forest)
        if waited is not None:
            for each in (*waited.models, *waited.calls):
                self._give(owner, each)

    @cached_property
    def _unopened(self) -> dict[bytes, list[Agent]]:
        """The agents whose way up ends in a span that has not come, by that."""
        unopened: dict[bytes, list[Agent]] = {}
        for agent in self.agents.by_id.values():
            if agent.is_there and agent.opener[0] is Above.MISSING:
                unopened.setdefault(agent.opener[1], []).append(agent)
        return unopened

    def _set_opener(self, agent: Agent, opener: Place) -> None:
        """Say what opened an agent, or what its way up ends in."""
        agent.opener = opener
        above, at = opener
        if above is Above.MISSING:
            self._unopened.setdefault(at, []).append(agent)

    def _give(self, owner: bytes | None, span_id: bytes) -> None:
        """Give a round or a call to an agent; of none it is loose."""
        forest, agents = self.forest, self.agents
        agents.of[span_id] = owner
        self.touched.add(owner)
        if owner is None:
            self._insert(agents.loose, span_id)
            return
        start = forest.spans[span_id].start
        agent = agents.by_id.get(owner)
        if agent is None:
            agent = agents.by_id[owner] = Agent(owner, False, (Above.MISSING, owner), start)
        elif not agent.is_there:
            agent.start = min(agent.start, start)
        is_round = forest.role(span_id) is Role.MODEL
        self._insert(agent.models if is_round else agent.calls, span_id)

    def _insert(self, into: list[bytes], span_id: bytes) -> None:
        """Insert a span by its time."""
        spans = self.forest.spans
        insort(into, span_id, key=lambda each: (spans[each].start, each))
