"""Lineage: flat records become the hierarchy, with totals; pure.

A tree is built in one pass from the nodes that a store reads, which are hung under each other.

Reading always terminates: what hangs under nothing known, or under itself, is `unplaced`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import cast
from uuid import UUID

from tracer.lineage.failures import FailedRecord, Place, explained_by, failure_origins
from tracer.lineage.nodes import (
    NOTHING,
    FailureOrigin,
    Node,
    Opener,
    PlanNode,
    StepNode,
    ThinkActNode,
    ToolCallNode,
    Totals,
)
from tracer.records.record_classes import Kind


class Payloads(StrEnum):
    """How much of each long string a tree carries."""

    NONE = "none"
    PREVIEW = "preview"
    """The first 2 kB of each."""
    FULL = "full"
    DIGEST = "digest"
    """The SHA-256 of each, as hex: to compare by."""


@dataclass(frozen=True)
class Revision:
    """Which state of a run something was read in."""

    root_plan_id: UUID
    number: int
    """Grows with every write to the run."""
    recorded_at: datetime
    """When the run was first stored: in another database the numbers begin anew."""
    span_bytes: int = field(default=0, compare=False)
    """The bytes of the run's spans. It grows with spans that change no record, too. 0 in trees."""
    removed_spans: int = field(default=0, compare=False)
    """How many spans were removed because the project keeps those of agent work only."""


UNSTORED = Revision(UUID(int=0), 0, datetime.min)
"""The state of a run that no store has."""


@dataclass
class TreeRows:
    """The nodes of a plan and of everything below it, each list ordered by (position, id)."""

    plans: list[PlanNode] = field(default_factory=list)
    steps: list[StepNode] = field(default_factory=list)
    think_acts: list[ThinkActNode] = field(default_factory=list)
    tool_calls: list[ToolCallNode] = field(default_factory=list)
    opener: ToolCallNode | None = None
    """The tool call that opened the plan that was asked for."""
    revision: Revision = UNSTORED
    """The state of the run that they were read in."""


def build_tree(rows: TreeRows, plan_id: str, depth: int | None = None) -> PlanNode:
    """Return the plan's node with everything below it.

    Args:
        rows: What the store read; its nodes are taken over and changed.
        plan_id: The plan at the top, canonical text; must be among `rows.plans`.
        depth: How many plans deep to show, 1 being this plan alone; None shows all. Totals count
            what is not shown too, and `sub_plan_count` says how many sub-plans there are.
    """
    forest = _Forest(rows)
    top = forest.plans[plan_id]
    top.revision = rows.revision.number
    forest.unhang(top)
    placed = _walk([top])
    unplaced: list[Node] = []
    if top.plan_id == top.root_plan_id:
        unplaced = top.unplaced = forest.cut_loose(placed)
    loose = _walk(unplaced)
    origins = _origins(top, [*placed, *loose])
    began = {(origin.kind, origin.id) for origin in origins}
    _add_totals(loose, began)
    _add_totals(placed, began)
    if unplaced:
        top.cumulative = _sum(top.cumulative, [node.cumulative for node in unplaced])
    top.failure_origins = origins
    if depth is not None:
        _prune(top, depth)
    return top


def _origins(top: PlanNode, nodes: Iterable[Node]) -> list[FailureOrigin]:
    """Return where the failures among nodes began."""
    failed = [
        FailedRecord((node.kind, _id_of(node)), _explained_by(node), node.finished_at)
        for node in nodes
        if node.status == "failed"
    ]
    if not failed:
        return []
    return [
        FailureOrigin(origin.place[0].value, str(origin.place[1]), origin.is_handled)
        for origin in failure_origins(failed, (Kind.PLAN, top.plan_id))
    ]


def _id_of(node: Node) -> str:
    if type(node) is ToolCallNode:
        return node.tool_call_id
    if type(node) is ThinkActNode:
        return node.think_act_id
    return node.step_id if type(node) is StepNode else node.plan_id


def _explained_by(node: Node) -> tuple[Place, ...]:
    if type(node) is ToolCallNode:
        return explained_by(node.parent_tool_call_id, node.think_act_id, node.step_id, None)
    if type(node) is ThinkActNode:
        return explained_by(None, None, node.step_id, None)
    if type(node) is StepNode:
        return explained_by(None, None, None, node.plan_id)
    return explained_by(node.tool_call_id, None, node.opened_by_step_id, node.parent_plan_id)


class _Forest:
    """Every node, hung under its parent where that is known."""

    def __init__(self, rows: TreeRows) -> None:
        self.plans = {node.plan_id: node for node in rows.plans}
        self.steps = {node.step_id: node for node in rows.steps}
        self.think_acts = {node.think_act_id: node for node in rows.think_acts}
        self.tool_calls = {node.tool_call_id: node for node in rows.tool_calls}
        self.tops: list[Node] = []
        every: Iterable[Node] = chain[Node](
            rows.steps, rows.think_acts, rows.tool_calls, rows.plans
        )
        for node in every:
            parent = self._above(node)
            if parent is None:
                self.tops.append(node)
            else:
                _siblings(node, parent).append(node)
        for plan in rows.plans:
            self._name_opener(plan, rows.opener)

    def _above(self, node: Node) -> Node | None:
        """Return a node's parent, if that is known."""
        # An id that is None is nobody's. `isinstance` takes three times as long to say no.
        if type(node) is ToolCallNode:
            return (
                self.tool_calls.get(node.parent_tool_call_id or "")
                or self.think_acts.get(node.think_act_id or "")
                or self.steps.get(node.step_id or "")
            )
        if type(node) is ThinkActNode:
            return self.steps.get(node.step_id or "")
        if type(node) is StepNode:
            return self.plans.get(node.plan_id or "")
        opener = self.tool_calls.get(node.tool_call_id or "")
        return opener or self.steps.get(node.opened_by_step_id or "")

    def _name_opener(self, plan: PlanNode, opener: ToolCallNode | None) -> None:
        if plan.tool_call_id is None:
            return
        call = self.tool_calls.get(plan.tool_call_id)
        if call is None and opener is not None and opener.tool_call_id == plan.tool_call_id:
            call = opener
        if call is not None:
            plan.parent_act_tool_call = Opener(
                call.tool_call_id, call.name, call.arguments, call.status
            )

    def cut_loose(self, placed: list[Node]) -> list[Node]:
        """Return the tops of all that cannot be reached from the placed nodes."""
        everything: list[Mapping[str, Node]]
        everything = [self.plans, self.steps, self.think_acts, self.tool_calls]
        if len(placed) == sum(map(len, everything)):
            return []
        seen = set(map(id, placed))
        loose = [node for node in self.tops if id(node) not in seen]
        seen.update(map(id, _walk(loose)))
        for node in chain.from_iterable(each.values() for each in everything):
            if id(node) not in seen:
                top = self._cut_circle(node)
                loose.append(top)
                seen.update(map(id, _walk([top])))
        return loose

    def _cut_circle(self, node: Node) -> Node:
        """Open the circle above `node`, and return the node that is its top from now on."""
        climbed: set[int] = set()
        while id(node) not in climbed:
            climbed.add(id(node))
            parent = self._above(node)
            assert parent is not None  # what has none is a top, and what is below it was seen
            node = parent
        self.unhang(node)
        return node

    def unhang(self, node: Node) -> None:
        """Take a node from its parent, if it has one: it is a top from now on."""
        parent = self._above(node)
        if parent is not None:
            siblings = _siblings(node, parent)
            siblings[:] = [each for each in siblings if each is not node]


_PLACES: dict[type[Node], str] = {
    PlanNode: "sub_plans",
    StepNode: "agent_executions",
    ThinkActNode: "think_acts",
    ToolCallNode: "tool_calls",
}


def _siblings(node: Node, parent: Node) -> list[Node]:
    """Return the list in which `parent` has `node`."""
    return cast(list[Node], getattr(parent, _PLACES[type(node)]))


def _walk(tops: Iterable[Node]) -> list[Node]:
    """Return all nodes, each before what is below it."""
    walked = list(tops)
    for node in walked:  # which grows meanwhile
        if type(node) is ToolCallNode:
            walked += node.tool_calls
            walked += node.sub_plans
        elif type(node) is ThinkActNode:
            walked += node.tool_calls
        elif type(node) is StepNode:
            walked += node.think_acts
            walked += node.tool_calls
            walked += node.sub_plans
        else:
            walked += node.agent_executions
    return walked


def _within_plan(node: Node) -> Sequence[Node]:
    """Return what lies below a node in the same plan."""
    if type(node) is StepNode:
        return [*node.think_acts, *node.tool_calls]
    return node.agent_executions if type(node) is PlanNode else node.tool_calls


def _add_totals(walked: list[Node], began: Collection[tuple[str, str]]) -> None:
    """Fill in `own`, `cumulative` and `sub_plan_count` of nodes.

    What is equal is one object where that is known without looking: `own` and `cumulative` of what
    has no sub-plans below, and those of all calls that have nothing below.

    Args:
        walked: The nodes, parents before those below them.
        began: The kinds and ids of the origins of failures.
    """
    # How many sub-plans a node and those below it in its plan opened, where there are any.
    opened: dict[int, int] = {}
    for node in reversed(walked):
        below: Sequence[Node]
        sub_plans: Sequence[PlanNode] = ()
        if type(node) is ToolCallNode:
            has_begun = node.status == "failed" and (node.kind, node.tool_call_id) in began
            itself = _FAILED_CALL if has_begun else _CALL
            below, sub_plans = node.tool_calls, node.sub_plans
            if not below and not sub_plans:  # most nodes
                node.own = node.cumulative = itself
                continue
            node.sub_plan_count = len(sub_plans)
        elif type(node) is ThinkActNode:
            itself, below = _of_round(node, began), node.tool_calls
        elif type(node) is StepNode:
            itself = _FAILURE if began and (node.kind, node.step_id) in began else NOTHING
            below, sub_plans = _within_plan(node), node.sub_plans
            node.sub_plan_count = len(sub_plans)
        else:
            itself = _FAILURE if began and (node.kind, node.plan_id) in began else NOTHING
            below = node.agent_executions
        node.own = node.cumulative = _sum(itself, [child.own for child in below])
        deeper = [opened[id(child)] for child in below if id(child) in opened]
        if sub_plans or deeper:
            parts = [child.cumulative for child in (*below, *sub_plans)]
            node.cumulative = _sum(itself, parts)
            if type(node) is PlanNode:
                node.sub_plan_count = sum(deeper)
            else:
                opened[id(node)] = len(sub_plans) + sum(deeper)


def _of_round(node: ThinkActNode, began: Collection[tuple[str, str]]) -> Totals:
    """Return what a round alone adds to the totals."""
    return Totals(
        input_tokens=node.input_tokens or 0,
        output_tokens=node.output_tokens or 0,
        cost_usd=node.cost_usd or 0,
        failures=1 if node.status == "failed" and (node.kind, node.think_act_id) in began else 0,
    )


_CALL = Totals(tool_calls=1)
_FAILED_CALL = Totals(tool_calls=1, failures=1)
_FAILURE = Totals(failures=1)


def _sum(itself: Totals, parts: list[Totals]) -> Totals:
    """Return totals added up, in their order: sums of floats depend on it."""
    input_tokens = itself.input_tokens
    output_tokens = itself.output_tokens
    cost_usd = itself.cost_usd
    tool_calls = itself.tool_calls
    failures = itself.failures
    for part in parts:
        if part is _CALL:  # most are
            tool_calls += 1
            continue
        input_tokens += part.input_tokens
        output_tokens += part.output_tokens
        cost_usd += part.cost_usd
        tool_calls += part.tool_calls
        failures += part.failures
    return Totals(input_tokens, output_tokens, cost_usd, tool_calls, failures)


def _prune(top: Node, depth: int) -> None:
    """Leave out the sub-plans that lie deeper than `depth` plans."""
    waiting = [(top, 1)]
    while waiting:
        node, level = waiting.pop()
        waiting += [(child, level) for child in _within_plan(node)]
        if isinstance(node, (ToolCallNode, StepNode)):
            if level >= depth:
                node.sub_plans = []
            waiting += [(sub_plan, level + 1) for sub_plan in node.sub_plans]
