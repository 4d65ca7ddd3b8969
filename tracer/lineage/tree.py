"""Build the tree of a run from rows, and compute its totals. All functions are pure.

Building a tree always terminates. A node is returned in `unplaced` if its parent is unknown, or if
its parents form a cycle.
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
    NO_TOTALS,
    FailureOrigin,
    Node,
    Opener,
    PlanNode,
    StepNode,
    ThinkActNode,
    ToolCallNode,
    TreeTotals,
)
from tracer.records.prices import is_unpriced, known_total
from tracer.records.record_classes import Kind


class Payloads(StrEnum):
    """How much of each long text a tree contains."""

    NONE = "none"
    PREVIEW = "preview"
    """The first 2 kB."""
    FULL = "full"
    DIGEST = "digest"
    """The SHA-256, in hexadecimal."""
    COMPARED = "compared"
    """The result of `tracer.lineage.digests.digest_of`, for the comparison of two runs. Messages of
    errors are complete, and stack traces are omitted."""


@dataclass(frozen=True)
class Revision:
    """The state of a run at the time of reading."""

    root_plan_id: UUID
    number: int
    """The run's revision, which grows with every write to the run."""
    recorded_at: datetime
    """When the run was first stored. It distinguishes copies of the run in different databases,
    because `number` starts from 1 in each."""
    span_bytes: int = field(default=0, compare=False)
    """The size of the run's spans. It also grows with spans that change no record. A tree that is
    read has the default."""
    removed_spans: int = field(default=0, compare=False)
    """The number of spans that were removed, because the project keeps only the spans of agents,
    model calls, tool calls and their ancestors."""


UNSTORED = Revision(UUID(int=0), 0, datetime.min)
"""The state of a run that is not in the store."""


@dataclass
class TreeRows:
    """The nodes of a plan and of everything below it, without links between them.

    Each list is sorted by position and id.
    """

    plans: list[PlanNode] = field(default_factory=list)
    steps: list[StepNode] = field(default_factory=list)
    think_acts: list[ThinkActNode] = field(default_factory=list)
    tool_calls: list[ToolCallNode] = field(default_factory=list)
    opener: ToolCallNode | None = None
    """The tool call that opened the requested plan."""
    revision: Revision = UNSTORED
    """The state of the run that was read."""


def build_tree(rows: TreeRows, plan_id: str, depth: int | None = None) -> PlanNode:
    """Return a plan's node with everything below it.

    Args:
        rows: The nodes that a store has read. They are changed in place.
        plan_id: The id of the plan, as text. The plan must be in `rows.plans`.
        depth: The number of plan levels to return: 1 for only this plan, None for all levels.
            Totals and `sub_plan_count` include omitted levels.
    """
    forest = _Forest(rows)
    top = forest.plans[plan_id]
    top.revision = rows.revision.number
    forest.detach(top)
    placed = _descendants([top])
    unplaced: list[Node] = []
    if top.plan_id == top.root_plan_id:
        unplaced = top.unplaced = forest.unplaced_roots(placed)
    unplaced_nodes = _descendants(unplaced)
    origins = _origins(top, [*placed, *unplaced_nodes])
    origin_keys = {(origin.kind, origin.id) for origin in origins}
    _add_totals(unplaced_nodes, origin_keys)
    _add_totals(placed, origin_keys)
    if unplaced:
        top.cumulative = _sum(top.cumulative, [node.cumulative for node in unplaced])
    top.failure_origins = origins
    if depth is not None:
        _prune(top, depth)
    return top


def _origins(top: PlanNode, nodes: Iterable[Node]) -> list[FailureOrigin]:
    """Return the origins of the failures among nodes."""
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
    """All nodes, each linked to its parent if the parent is known."""

    def __init__(self, rows: TreeRows) -> None:
        self.plans = {node.plan_id: node for node in rows.plans}
        self.steps = {node.step_id: node for node in rows.steps}
        self.think_acts = {node.think_act_id: node for node in rows.think_acts}
        self.tool_calls = {node.tool_call_id: node for node in rows.tool_calls}
        self.roots: list[Node] = []
        all_nodes: Iterable[Node] = chain[Node](
            rows.steps, rows.think_acts, rows.tool_calls, rows.plans
        )
        for node in all_nodes:
            parent = self._parent_of(node)
            if parent is None:
                self.roots.append(node)
            else:
                _siblings(node, parent).append(node)
        for plan in rows.plans:
            self._set_opener(plan, rows.opener)

    def _parent_of(self, node: Node) -> Node | None:
        """Return the parent of a node; None if it is unknown."""
        # `or ""` looks up a missing id, which matches nothing. `type(…) is` takes a third of the
        # time of `isinstance`.
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

    def _set_opener(self, plan: PlanNode, opener: ToolCallNode | None) -> None:
        if plan.tool_call_id is None:
            return
        call = self.tool_calls.get(plan.tool_call_id)
        if call is None and opener is not None and opener.tool_call_id == plan.tool_call_id:
            call = opener
        if call is not None:
            plan.parent_act_tool_call = Opener(
                call.tool_call_id, call.name, call.arguments, call.status
            )

    def unplaced_roots(self, placed: list[Node]) -> list[Node]:
        """Return the roots of all trees that contain none of the placed nodes."""
        node_maps: list[Mapping[str, Node]]
        node_maps = [self.plans, self.steps, self.think_acts, self.tool_calls]
        if len(placed) == sum(map(len, node_maps)):
            return []
        seen = set(map(id, placed))
        unplaced = [node for node in self.roots if id(node) not in seen]
        seen.update(map(id, _descendants(unplaced)))
        for node in chain.from_iterable(each.values() for each in node_maps):
            if id(node) not in seen:
                root = self._break_cycle(node)
                unplaced.append(root)
                seen.update(map(id, _descendants([root])))
        return unplaced

    def _break_cycle(self, node: Node) -> Node:
        """Detach one node of the cycle of parents that `node` leads to, and return it."""
        visited: set[int] = set()
        while id(node) not in visited:
            visited.add(id(node))
            parent = self._parent_of(node)
            assert parent is not None  # otherwise it would descend from a root, and be seen already
            node = parent
        self.detach(node)
        return node

    def detach(self, node: Node) -> None:
        """Remove a node from its parent, if it has one."""
        parent = self._parent_of(node)
        if parent is not None:
            siblings = _siblings(node, parent)
            siblings[:] = [each for each in siblings if each is not node]


_CHILD_LISTS: dict[type[Node], str] = {
    PlanNode: "sub_plans",
    StepNode: "agent_executions",
    ThinkActNode: "think_acts",
    ToolCallNode: "tool_calls",
}


def _siblings(node: Node, parent: Node) -> list[Node]:
    """Return the parent's list of children to which `node` belongs."""
    return cast(list[Node], getattr(parent, _CHILD_LISTS[type(node)]))


def _descendants(roots: Iterable[Node]) -> list[Node]:
    """Return nodes and all their descendants, parents before children."""
    walked = list(roots)
    for node in walked:  # the list grows during the loop
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
    """Return the children of a node that belong to the same plan."""
    if type(node) is StepNode:
        return [*node.think_acts, *node.tool_calls]
    return node.agent_executions if type(node) is PlanNode else node.tool_calls


def _add_totals(walked: list[Node], origin_keys: Collection[tuple[str, str]]) -> None:
    """Set `own`, `cumulative` and `sub_plan_count` of nodes.

    `own` excludes sub-plans, `cumulative` includes them. To save memory, nodes share a totals
    object where the totals are equal by definition. Examples are `own` and `cumulative` of a node
    without sub-plans.

    Args:
        walked: The nodes, parents before children.
        origin_keys: The kinds and ids of the origins of failures.
    """
    # By id of a node: the number of sub-plans that it and its descendants in its plan opened.
    opened: dict[int, int] = {}
    for node in reversed(walked):
        below: Sequence[Node]
        sub_plans: Sequence[PlanNode] = ()
        if type(node) is ToolCallNode:
            is_origin = node.status == "failed" and (node.kind, node.tool_call_id) in origin_keys
            itself = _FAILED_CALL if is_origin else _CALL
            below, sub_plans = node.tool_calls, node.sub_plans
            if not below and not sub_plans:  # most nodes
                node.own = node.cumulative = itself
                continue
            node.sub_plan_count = len(sub_plans)
        elif type(node) is ThinkActNode:
            itself, below = _round_totals(node, origin_keys), node.tool_calls
        elif type(node) is StepNode:
            itself = (
                _FAILURE if origin_keys and (node.kind, node.step_id) in origin_keys else NO_TOTALS
            )
            below, sub_plans = _within_plan(node), node.sub_plans
            node.sub_plan_count = len(sub_plans)
        else:
            itself = (
                _FAILURE if origin_keys and (node.kind, node.plan_id) in origin_keys else NO_TOTALS
            )
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


def _round_totals(node: ThinkActNode, origin_keys: Collection[tuple[str, str]]) -> TreeTotals:
    """Return the totals of a model call, without those of its tool calls."""
    used = node.input_tokens, node.output_tokens
    is_cost_unknown = is_unpriced(node.status, used, node.cost_usd)
    return TreeTotals(
        input_tokens=node.input_tokens or 0,
        output_tokens=node.output_tokens or 0,
        cost_usd=None if is_cost_unknown else node.cost_usd or 0,
        unpriced_calls=int(is_cost_unknown),
        failures=1
        if node.status == "failed" and (node.kind, node.think_act_id) in origin_keys
        else 0,
    )


_CALL = TreeTotals(tool_calls=1)
_FAILED_CALL = TreeTotals(tool_calls=1, failures=1)
_FAILURE = TreeTotals(failures=1)


def _sum(itself: TreeTotals, parts: list[TreeTotals]) -> TreeTotals:
    """Return the sum of totals.

    The parts are added in order, because sums of floats depend on the order.
    """
    input_tokens = itself.input_tokens
    output_tokens = itself.output_tokens
    cost_usd = itself.cost_usd or 0
    unpriced_calls = itself.unpriced_calls
    tool_calls = itself.tool_calls
    failures = itself.failures
    for part in parts:
        if part is _CALL:  # most parts
            tool_calls += 1
            continue
        input_tokens += part.input_tokens
        output_tokens += part.output_tokens
        cost_usd += part.cost_usd or 0
        unpriced_calls += part.unpriced_calls
        tool_calls += part.tool_calls
        failures += part.failures
    known_cost = known_total(cost_usd, unpriced_calls)
    return TreeTotals(input_tokens, output_tokens, known_cost, unpriced_calls, tool_calls, failures)


def _prune(top: Node, depth: int) -> None:
    """Remove the sub-plans below the first `depth` levels of plans."""
    stack = [(top, 1)]
    while stack:
        node, level = stack.pop()
        stack += [(child, level) for child in _within_plan(node)]
        if isinstance(node, (ToolCallNode, StepNode)):
            if level >= depth:
                node.sub_plans = []
            stack += [(sub_plan, level + 1) for sub_plan in node.sub_plans]
