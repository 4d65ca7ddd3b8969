"""Lineage: flat records become the hierarchy, with totals; pure.

A tree is built in one pass from the rows that a store reads. Rows and nodes are plain
dictionaries under the API's own names, so that a tree is written as JSON without another copy:
a tree of 10,000 records is a page that people wait for.

Reading always terminates: what hangs under nothing known, or under itself, is `unplaced`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any

from tracer.records import Kind

Node = dict[str, Any]
"""A record as the tree shows it; `api.tree_schemas` describes each kind. Ids are canonical text."""


class Payloads(StrEnum):
    """How much of each long string a tree carries."""

    NONE = "none"
    PREVIEW = "preview"
    """The first 2 kB of each."""
    FULL = "full"
    DIGEST = "digest"
    """The SHA-256 of each, as hex: to compare by."""


_ALWAYS = ("status", "reason", "started_at", "finished_at", "abandoned_at", "position")

NODE_FIELDS: dict[Kind, tuple[str, ...]] = {
    Kind.PLAN: (
        "plan_id",
        "root_plan_id",
        "parent_plan_id",
        "tool_call_id",
        "opened_by_step_id",
        "depth",
        "title",
        "agent_name",
        "template",
        "template_version",
        "inferred",
        "inferred_from",
        *_ALWAYS,
    ),
    Kind.STEP: ("step_id", "plan_id", "agent_name", *_ALWAYS),
    Kind.THINK_ACT: (
        "think_act_id",
        "step_id",
        "requested_model",
        "model",
        "input_tokens",
        "output_tokens",
        "cost_usd",
        *_ALWAYS,
    ),
    Kind.TOOL_CALL: (
        "tool_call_id",
        "step_id",
        "think_act_id",
        "parent_tool_call_id",
        "provider_call_id",
        "name",
        "tool_type",
        "attempt",
        "forged_arguments",
        "short_circuited_by",
        "still_running",
        "late_finished_at",
        "late_status",
        "inferred",
        "inferred_from",
        *_ALWAYS,
    ),
}
"""The record fields that a row carries as they are, in camelCase; `status` as it is shown.

A row has besides: `durationMs` (a float, null while open or unstarted); `error`, null or `type`,
`message` and `stack`; and for each payload field `f` of its kind `f`, `fBytes` (null where the
record has none) and `fTruncated`. Ids are canonical text, `costUsd` is a float, times are aware.
With `Payloads.NONE` the payload fields are null, and so are an error's message and stack.
"""

PAYLOAD_FIELDS: dict[Kind, tuple[str, ...]] = {
    Kind.PLAN: ("user_request", "summary"),
    Kind.STEP: ("request", "result"),
    Kind.THINK_ACT: ("thought",),
    Kind.TOOL_CALL: (
        "arguments",
        "effective_arguments",
        "result",
        "state_changes",
        "late_result",
    ),
}
"""The long strings of each kind; the tree shows their size too, and whether they were cut."""


@dataclass
class TreeRows:
    """The rows of a plan and of everything below it, each list ordered by (position, id)."""

    plans: list[Node] = field(default_factory=list)
    steps: list[Node] = field(default_factory=list)
    think_acts: list[Node] = field(default_factory=list)
    tool_calls: list[Node] = field(default_factory=list)
    opener: Node | None = None
    """The tool call that opened the plan that was asked for."""
    revision: int = 0
    """The run's revision when they were read."""


_WITHIN_PLAN: dict[Kind, tuple[str, ...]] = {
    Kind.PLAN: ("agentExecutions",),
    Kind.STEP: ("thinkActs", "toolCalls"),
    Kind.THINK_ACT: ("toolCalls",),
    Kind.TOOL_CALL: ("toolCalls",),
}
"""Where the nodes of each kind have what lies below them in the same plan."""

_OPENERS = (Kind.STEP, Kind.TOOL_CALL)
"""The kinds that open sub-plans."""


def build_tree(rows: TreeRows, plan_id: str, depth: int | None = None) -> Node:
    """Return the plan's node with everything below it.

    Args:
        rows: What the store read; its nodes are taken over and changed.
        plan_id: The plan at the top, canonical text; must be among `rows.plans`.
        depth: How many plans deep to show, 1 being this plan alone; None shows all. Totals count
            what is not shown too, and `subPlanCount` says how many sub-plans there are.
    """
    forest = _Forest(rows)
    top = forest.plans[plan_id]
    top["revision"] = rows.revision
    forest.unhang(top)
    placed = _walk([top])
    unplaced = []
    if top["planId"] == top["rootPlanId"]:
        unplaced = top["unplaced"] = forest.cut_loose(placed)
    _add_totals(_walk(unplaced))
    _add_totals(placed)
    if unplaced:
        top["cumulative"] = top["cumulative"].copy()
        for node in unplaced:
            _add(top["cumulative"], node["cumulative"])
    if depth is not None:
        _prune(top, depth)
    return top


class _Forest:
    """Every node, hung under its parent where that is known."""

    def __init__(self, rows: TreeRows) -> None:
        self.plans = {node["planId"]: node for node in rows.plans}
        self.steps = {node["stepId"]: node for node in rows.steps}
        self.think_acts = {node["thinkActId"]: node for node in rows.think_acts}
        self.tool_calls = {node["toolCallId"]: node for node in rows.tool_calls}
        self.tops: list[Node] = []
        self.parents: dict[int, tuple[Node, str]] = {}
        for plan in rows.plans:
            plan["kind"] = Kind.PLAN
            plan["agentExecutions"] = []
            plan["parentActToolCall"] = None
        for step in rows.steps:
            step["kind"] = Kind.STEP
            step.update(thinkActs=[], toolCalls=[], subPlans=[])
            self._hang(step, self.plans.get(step["planId"]), "agentExecutions")
        for think_act in rows.think_acts:
            think_act["kind"] = Kind.THINK_ACT
            think_act["toolCalls"] = []
            self._hang(think_act, self.steps.get(think_act["stepId"]), "thinkActs")
        for call in rows.tool_calls:
            call["kind"] = Kind.TOOL_CALL
            call.update(toolCalls=[], subPlans=[])
        for call in rows.tool_calls:
            parent = (
                self.tool_calls.get(call["parentToolCallId"])
                or self.think_acts.get(call["thinkActId"])
                or self.steps.get(call["stepId"])
            )
            self._hang(call, parent, "toolCalls")
        for plan in rows.plans:
            self._hang_plan(plan, rows.opener)

    def _hang(self, node: Node, parent: Node | None, children: str) -> None:
        if parent is None:
            self.tops.append(node)
        else:
            parent[children].append(node)
            self.parents[id(node)] = (parent, children)

    def _hang_plan(self, plan: Node, opener: Node | None) -> None:
        call = self.tool_calls.get(plan["toolCallId"])
        self._hang(plan, call or self.steps.get(plan["openedByStepId"]), "subPlans")
        if call is None and opener is not None and opener["toolCallId"] == plan["toolCallId"]:
            call = opener
        if call is not None:
            plan["parentActToolCall"] = {
                name: call[name] for name in ("toolCallId", "name", "arguments", "status")
            }

    def cut_loose(self, placed: list[Node]) -> list[Node]:
        """Return the tops of all that cannot be reached from the placed nodes."""
        seen = set(map(id, placed))
        loose = [node for node in self.tops if id(node) not in seen]
        seen.update(map(id, _walk(loose)))
        everything = chain(
            self.plans.values(),
            self.steps.values(),
            self.think_acts.values(),
            self.tool_calls.values(),
        )
        for node in everything:
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
            node, _ = self.parents[id(node)]
        self.unhang(node)
        return node

    def unhang(self, node: Node) -> None:
        """Take a node from its parent, if it has one: it is a top from now on."""
        if id(node) in self.parents:
            parent, children = self.parents.pop(id(node))
            parent[children] = [child for child in parent[children] if child is not node]


def _walk(tops: Iterable[Node]) -> list[Node]:
    """Return all nodes, each before what is below it."""
    waiting = list(tops)
    walked = []
    while waiting:
        node = waiting.pop()
        walked.append(node)
        kind = node["kind"]
        for children in _WITHIN_PLAN[kind]:
            waiting += node[children]
        if kind in _OPENERS:
            waiting += node["subPlans"]
    return walked


def _add_totals(walked: list[Node]) -> None:
    """Fill in `own`, `cumulative` and `subPlanCount` of nodes that come before those below them.

    Where there are no sub-plans below, `own` and `cumulative` are one object: of a run's many
    leaves each would otherwise cost two.
    """
    opened: dict[int, int] = {}  # how many sub-plans a node and those below it in its plan opened
    for node in reversed(walked):
        kind = node["kind"]
        below = [child for children in _WITHIN_PLAN[kind] for child in node[children]]
        sub_plans = node["subPlans"] if kind in _OPENERS else ()
        node["own"] = node["cumulative"] = own = _of_itself(node)
        for child in below:
            _add(own, child["own"])
        if sub_plans or any(child["cumulative"] is not child["own"] for child in below):
            node["cumulative"] = cumulative = _of_itself(node)
            for child in (*below, *sub_plans):
                _add(cumulative, child["cumulative"])
            opened[id(node)] = len(sub_plans) + sum(opened.get(id(child), 0) for child in below)
        if kind is Kind.PLAN:
            node["subPlanCount"] = opened.pop(id(node), 0)
        elif kind in _OPENERS:
            node["subPlanCount"] = len(sub_plans)


def _of_itself(node: Node) -> Node:
    """Return what one node alone adds to the totals."""
    kind = node["kind"]
    is_call, is_round = kind is Kind.TOOL_CALL, kind is Kind.THINK_ACT
    return {
        "inputTokens": (node["inputTokens"] or 0) if is_round else 0,
        "outputTokens": (node["outputTokens"] or 0) if is_round else 0,
        "costUsd": (node["costUsd"] or 0) if is_round else 0,
        "toolCalls": 1 if is_call else 0,
        "failures": 1 if (is_call or is_round) and node["status"] == "failed" else 0,
    }


def _add(totals: Node, more: Node) -> None:
    totals["inputTokens"] += more["inputTokens"]
    totals["outputTokens"] += more["outputTokens"]
    totals["costUsd"] += more["costUsd"]
    totals["toolCalls"] += more["toolCalls"]
    totals["failures"] += more["failures"]


def _prune(top: Node, depth: int) -> None:
    """Leave out the sub-plans that lie deeper than `depth` plans."""
    waiting = [(top, 1)]
    while waiting:
        node, level = waiting.pop()
        for children in _WITHIN_PLAN[node["kind"]]:
            waiting += [(child, level) for child in node[children]]
        if node["kind"] in _OPENERS:
            if level >= depth:
                node["subPlans"] = []
            waiting += [(sub_plan, level + 1) for sub_plan in node["subPlans"]]
