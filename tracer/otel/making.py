"""Making: the agents of a grown forest and their work become the records of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from tracer.masked_places import with_places
from tracer.otel.agent_records import plan_fields, step_fields
from tracer.otel.agents import Agent, Agents, Opening, said_of
from tracer.otel.dialects.reading import Role
from tracer.otel.forest import Above, Forest, followed
from tracer.otel.lost_agents import join_lost_agents
from tracer.otel.projected import Projected, RecordPlace
from tracer.otel.span_fields import lifecycle, moment, root_plan_id, stored
from tracer.otel.spans import STATUS_ERROR
from tracer.otel.work_records import MadeRecords, Work
from tracer.records import RECORDS, Kind
from tracer.status import Status
from tracer.versions import Fields

EARLIEST = "the earliest of the agents whose parents have not come"


class LastMade(NamedTuple):
    """A projection, and of which agents it was."""

    structure: list[object]
    projected: Projected


class Making:
    """The making of the records of a forest."""

    def __init__(self, forest: Forest, agents: Agents, made: MadeRecords) -> None:
        """Say what records are made of.

        Args:
            forest: The spans, grown.
            agents: Whose they are.
            made: The records of the last time.
        """
        self.forest = forest
        self.made = made
        self.agents = agents
        join_lost_agents(forest, agents)
        self.ids = made.ids(forest.trace_id)
        self.root_id = root_plan_id(forest.trace_id)
        self.records: dict[Kind, dict[UUID, Fields]] = {kind: {} for kind in RECORDS}
        self.work: dict[UUID, Work] = {}
        self.by_start = sorted(
            self.agents.by_id.values(), key=lambda agent: (agent.start, agent.span_id)
        )
        self.root_agents = self._opened_by(Above.TOP)
        self.unplaced = self._opened_by(Above.MISSING)
        self.root_agent = self._root_agent()
        self.structure: list[object] = [
            *((each.span_id, each.opener, each.inferred, each.evidence) for each in self.by_start),
            self.root_agent and self.root_agent.span_id,
        ]
        """Which agents there are and who opened them: what an agent's records say of others. A call
        that opened one leaves its agent only when that goes, or comes: then this is another."""
        self.depths: dict[bytes, int | None] = {}
        """How many plans each agent's plan is below the root plan, as far as it was asked for."""
        if self.root_agent is not None:
            self.depths[self.root_agent.span_id] = 0
        self.opened: Counter[UUID | None] = Counter()
        """How many plans each record opened so far."""
        self.touched: set[bytes | None] | None = None
        """The agents whose work, or whose own span, is other than it was; None: it is not known."""

    def _opened_by(self, above: Above) -> list[Agent]:
        return [
            agent for agent in self.by_start if agent.opener[0] is above and agent.inferred is None
        ]

    def _root_agent(self) -> Agent | None:
        """Return the agent whose plan is the root plan; None where that is a synthetic one."""
        if len(self.root_agents) == 1:
            return self.root_agents[0]
        if self.root_agents or self.agents.loose or not self.unplaced:
            return None
        return self.unplaced[0]

    def result(self, last: LastMade | None, touched: set[bytes | None]) -> Projected:
        """Return the records.

        Args:
            last: What they were; None where they are all to be made.
            touched: The agents whose work, or whose own span, is other than it was then.
        """
        self.touched = None if last is None else touched
        for agent in self._other_agents(last, touched):
            self._add_agent(agent)
            self._add_work(agent.span_id, agent.models, agent.calls)
        if self.root_agent is None:
            root_plan = {**self._whole(), "inferred": False, "inferred_from": None, "depth": 0}
            self._add(Kind.PLAN, self.root_id, dict, root_plan)
        if len(self.root_agents) > 1 or self.agents.loose:
            self._add_root_step()
        self.made.keep_only(self.records)
        return Projected(
            root_plan_id=self.root_id,
            is_agent_work=bool(self.agents.by_id or self.agents.loose),
            run=self._run(),
            records=self.records,
            work=self.work,
        )

    def _other_agents(self, last: LastMade | None, touched: set[bytes | None]) -> list[Agent]:
        """Return the agents that may have other records than they had; take over all others'."""
        if last is None or last.projected.work is None or last.structure != self.structure:
            for agent in self.by_start:
                agent.opening = self._opening(agent)
            return self.by_start
        self.records = {kind: {**made} for kind, made in last.projected.records.items()}
        self.work = {**last.projected.work}
        return [agent for agent in self.by_start if agent.span_id in touched]

    def _add(
        self, kind: Kind, record_id: UUID, make: Callable[..., Fields], *source: object
    ) -> None:
        self.records[kind][record_id] = self.made.once(
            kind, record_id, self.forest.holds_masks, make, *source
        )

    def _plan_id(self, agent: bytes | None) -> UUID:
        """Return the plan of an agent; of none, the root plan."""
        if agent is None or (self.root_agent is not None and agent == self.root_agent.span_id):
            return self.root_id
        return self.ids[Kind.PLAN][agent]

    def _step_id(self, agent: bytes | None) -> UUID:
        """Return the step of an agent; of none, the root plan's own."""
        return self.ids[Kind.STEP][agent or b""]

    # --- Plans and steps -------------------------------------------------------------------------

    def _add_root_step(self) -> None:
        """Add the step that holds what belongs to no agent, and hands over to root agents."""
        whole = self._whole()
        if self.root_agent is not None:
            whole = {name: whole[name] for name in ("status", "started_at", "finished_at")}
        asked, answer = whole.pop("user_request", None), whole.pop("summary", None)
        whole.pop("title", None)
        step = {**whole, "plan_id": self.root_id, "request": asked, "result": answer}
        step["position"] = 0 if self.root_agent is None else 1
        self._add(Kind.STEP, self._step_id(None), dict, step)
        models = [each for each in self.agents.loose if self.forest.role(each) is Role.MODEL]
        calls = [each for each in self.agents.loose if self.forest.role(each) is Role.TOOL]
        self._add_work(None, models, calls)

    def _whole(self) -> Fields:
        """Return what the topmost span says of the trace, else what all spans say together."""
        forest = self.forest
        spans = [forest.spans[each] for each in forest.order]
        tops = [span for span in spans if span.parent_span_id is None]
        readings = [forest.readings[each] for each in self.agents.loose]
        asked = next((each.request for each in readings if each.request), None)
        answer = next((each.answer for each in reversed(readings) if each.answer), None)
        if len(tops) == 1:
            top = forest.readings[tops[0].span_id]
            name = stored(top.name or tops[0].name)
            return {
                **lifecycle(tops[0]),
                "title": name,
                "agent_name": name if top.role in (Role.WORKFLOW, Role.CHAIN) else None,
                "user_request": stored(top.request or asked),
                "summary": stored(top.answer or answer),
            }
        is_open = not tops or bool(self.unplaced) or not all(span.end for span in spans)
        failed = any(span.status_code == STATUS_ERROR for span in tops)
        return {
            "status": Status.RUNNING if is_open else Status.FAILED if failed else Status.SUCCEEDED,
            "started_at": moment(spans[0].start),
            "finished_at": None if is_open else moment(max(span.end for span in spans)),
            "title": stored(spans[0].name),
            "agent_name": None,
            "user_request": stored(asked),
            "summary": stored(answer),
        }

    def _add_agent(self, agent: Agent) -> None:
        forest = self.forest
        span = forest.spans[agent.span_id] if agent.is_there else None
        plan_id = self._plan_id(agent.span_id)
        is_root = agent is self.root_agent
        is_unplaced = _is_unplaced(agent)
        if agent.said is None or self.touched is None or agent.span_id in self.touched:
            agent.said = said_of(forest, agent)
        plan = (
            # Where what opened it has not come, it is a placeholder; but a run is known to go on.
            None if is_unplaced and not is_root else span,
            agent.start if is_root and not agent.is_there else None,
            agent.said,
            agent.opening,
            self._depth(agent),
            EARLIEST if is_root and is_unplaced else agent.evidence,
        )
        self._add(Kind.PLAN, plan_id, plan_fields, *plan)
        self._add(Kind.STEP, self._step_id(agent.span_id), step_fields, span, plan_id, agent.said)

    def _opening(self, agent: Agent) -> Opening | None:
        """Return what opened an agent; None for the root plan, and where it is not known."""
        if agent is self.root_agent or _is_unplaced(agent):
            return None
        above = self.agents.agent_above(agent, self.forest)
        call = self.agents.call_of(agent, self.forest)
        call_id = None if call is None else self.ids[Kind.TOOL_CALL][call]
        step_id = self._step_id(above) if call is None else None
        position = self.opened[call_id or step_id]
        self.opened[call_id or step_id] += 1
        return Opening(self._plan_id(above), call_id, step_id, position)

    def _depth(self, agent: Agent) -> int | None:
        """Return how many plans an agent's plan is below the root plan; None: it is not known."""
        way: list[bytes] = []
        at: bytes | None = agent.span_id
        while at is not None and at not in self.depths:
            if _is_unplaced(self.agents.by_id[at]):
                self.depths[at] = None
            else:
                way.append(at)
                at = self.agents.agent_above(self.agents.by_id[at], self.forest)
        depth = 0 if at is None else self.depths[at]
        for each in reversed(way):
            depth = None if depth is None else depth + 1
            self.depths[each] = depth
        return depth

    def _add_work(self, agent: bytes | None, models: list[bytes], calls: list[bytes]) -> None:
        step_id = self._step_id(agent)
        is_same = None if self.touched is None else agent not in self.touched
        work = self.work[step_id] = self.made.work(self.forest, step_id, models, calls, is_same)
        self.records[Kind.THINK_ACT] |= work.think_acts
        self.records[Kind.TOOL_CALL] |= work.tool_calls

    # --- The whole -------------------------------------------------------------------------------

    def _run(self) -> Fields:
        """Return the run's own fields: what its root agent says, else who says it first."""
        forest = self.forest
        first = [self.root_agent.span_id] if self.root_agent and self.root_agent.is_there else []
        readings = [forest.readings[each] for each in (*first, *forest.telling)]
        run: Fields = {
            "session_id": stored(next((r.conversation for r in readings if r.conversation), None)),
            "subject": stored(next((r.subject for r in readings if r.subject), None)),
        }
        return with_places(Kind.RUN, run)

    def record_of(self) -> dict[bytes, RecordPlace]:
        """Return the record that each span became, or belongs to."""
        kinds = {Role.AGENT: Kind.STEP, Role.MODEL: Kind.THINK_ACT, Role.TOOL: Kind.TOOL_CALL}
        merged = {each: into for into, spans in self.forest.merged.items() for each in spans}
        found: dict[bytes, RecordPlace] = {}
        for span_id in self.forest.order:
            above, at = Above.SPAN, followed(merged, span_id)
            if self.forest.role(at) not in kinds:
                above, at = self.forest.places[at]
            if above is Above.SPAN:
                kind = kinds[self.forest.role(at)]
                found[span_id] = kind, self.ids[kind][at]
            elif above is Above.MISSING and at in self.agents.by_id:
                found[span_id] = Kind.STEP, self._step_id(at)
            else:
                found[span_id] = Kind.PLAN, self.root_id
        # Not one by one: what is announced may have the id of a pending span itself.
        return found | {
            pending: found[announced] for pending, announced in self.forest.announced.items()
        }


def _is_unplaced(agent: Agent) -> bool:
    """Return whether what opened an agent has not come."""
    return agent.opener[0] is Above.MISSING and agent.inferred is None
