"""Lineage: flat records become the hierarchy, with totals; pure.

A tree is built in one pass from the rows that a store reads. Rows and nodes are plain
dictionaries under the API's own names, so that a tree is written as JSON without another copy:
a tree of 10,000 records is a page that people wait for.

Reading always terminates: what hangs under nothing known, or under itself, is `unplaced`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import chain
from operator import is_not
from typing import Any
from uuid import UUID

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


# Looking a member up in its class takes as long as everything else that is done to a node.
_PLAN, _STEP, _THINK_ACT, _TOOL_CALL = Kind.PLAN, Kind.STEP, Kind.THINK_ACT, Kind.TOOL_CALL

_ALWAYS = ("status", "reason", "started_at", "finished_at", "abandoned_at", "position", "masked")

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

`masked` is null where nothing was. A row has besides: `durationMs` (a float, null while open or
unstarted); `error`, null or `type`, `message` and `stack`; and for each payload field `f` of its
kind `f`, `fBytes` (null where the record has none) and `fTruncated`. Ids are canonical text,
`costUsd` is a float, times are aware. With `Payloads.NONE` the payload fields are null, and so are
an error's message and stack.
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


@dataclass(frozen=True)
class Revision:
    """Which state of a run something was read in."""

    root_plan_id: UUID
    number: int
    """Grows with every write to the run."""
    recorded_at: datetime
    """When the run was first stored: in another database the numbers begin anew."""


UNSTORED = Revision(UUID(int=0), 0, datetime.min)
"""The state of a run that no store has."""


@dataclass
class TreeRows:
    """The rows of a plan and of everything below it, each list ordered by (position, id)."""

    plans: list[Node] = field(default_factory=list)
    steps: list[Node] = field(default_factory=list)
    think_acts: list[Node] = field(default_factory=list)
    tool_calls: list[Node] = field(default_factory=list)
    opener: Node | None = None
    """The tool call that opened the plan that was asked for."""
    revision: Revision = UNSTORED
    """The state of the run that they were read in."""


_WITHIN_PLAN: dict[Kind, tuple[str, ...]] = {
    Kind.PLAN: ("agentExecutions",),
    Kind.STEP: ("thinkActs", "toolCalls"),
    Kind.THINK_ACT: ("toolCalls",),
    Kind.TOOL_CALL: ("toolCalls",),
}
"""Where the nodes of each kind have what lies below them in the same plan."""

_OPENERS = (Kind.STEP, Kind.TOOL_CALL)
"""The kinds that open sub-plans."""

_BELOW = {
    kind: (*within, "subPlans") if kind in _OPENERS else within
    for kind, within in _WITHIN_PLAN.items()
}
"""Where they have all that lies below them."""


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
    top["revision"] = rows.revision.number
    forest.unhang(top)
    placed = _walk([top])
    unplaced = []
    if top["planId"] == top["rootPlanId"]:
        unplaced = top["unplaced"] = forest.cut_loose(placed)
    _add_totals(_walk(unplaced))
    _add_totals(placed)
    if unplaced:
        top["cumulative"] = _sum(top["cumulative"], [node["cumulative"] for node in unplaced])
    if depth is not None:
        _prune(top, depth)
    return top


class _Forest:
    """Every node, hung under its parent where that is known."""

    def __init__(self, rows: TreeRows) -> None:
        self.plans = _by_id(rows.plans, _PLAN, "planId")
        self.steps = _by_id(rows.steps, _STEP, "stepId")
        self.think_acts = _by_id(rows.think_acts, _THINK_ACT, "thinkActId")
        self.tool_calls = _by_id(rows.tool_calls, _TOOL_CALL, "toolCallId")
        self.tops: list[Node] = []
        for node in chain(rows.steps, rows.think_acts, rows.tool_calls, rows.plans):
            parent, children = self._above(node)
            if parent is None:
                self.tops.append(node)
            else:
                parent[children].append(node)
        for plan in rows.plans:
            self._name_opener(plan, rows.opener)

    def _above(self, node: Node) -> tuple[Node | None, str]:
        """Return a node's parent, if that is known, and where the parent has it."""
        kind = node["kind"]
        if kind is _TOOL_CALL:
            return (
                self.tool_calls.get(node["parentToolCallId"])
                or self.think_acts.get(node["thinkActId"])
                or self.steps.get(node["stepId"])
            ), "toolCalls"
        if kind is _THINK_ACT:
            return self.steps.get(node["stepId"]), "thinkActs"
        if kind is _STEP:
            return self.plans.get(node["planId"]), "agentExecutions"
        opener = self.tool_calls.get(node["toolCallId"]) or self.steps.get(node["openedByStepId"])
        return opener, "subPlans"

    def _name_opener(self, plan: Node, opener: Node | None) -> None:
        call = self.tool_calls.get(plan["toolCallId"])
        if call is None and opener is not None and opener["toolCallId"] == plan["toolCallId"]:
            call = opener
        shown = ("toolCallId", "name", "arguments", "status")
        plan["parentActToolCall"] = call and {name: call[name] for name in shown}

    def cut_loose(self, placed: list[Node]) -> list[Node]:
        """Return the tops of all that cannot be reached from the placed nodes."""
        everything = (self.plans, self.steps, self.think_acts, self.tool_calls)
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
            parent, _ = self._above(node)
            assert parent is not None  # what has none is a top, and what is below it was seen
            node = parent
        self.unhang(node)
        return node

    def unhang(self, node: Node) -> None:
        """Take a node from its parent, if it has one: it is a top from now on."""
        parent, children = self._above(node)
        if parent is not None:
            parent[children] = [child for child in parent[children] if child is not node]


def _by_id(nodes: list[Node], kind: Kind, id_name: str) -> dict[str, Node]:
    """Return nodes by their id, with their kind and room for what hangs below them."""
    by_id = {}
    below = _BELOW[kind]
    for node in nodes:
        node["kind"] = kind
        for children in below:
            node[children] = []
        by_id[node[id_name]] = node
    return by_id


def _walk(tops: Iterable[Node]) -> list[Node]:
    """Return all nodes, each before what is below it."""
    walked = list(tops)
    for node in walked:  # which grows meanwhile
        for children in _BELOW[node["kind"]]:
            walked += node[children]
    return walked


def _add_totals(walked: list[Node]) -> None:
    """Fill in `own`, `cumulative` and `subPlanCount` of nodes that come before those below them.

    What is equal is one object where that is known without looking: `own` and `cumulative` of what
    has no sub-plans below, and those of all calls that have nothing below. Nobody changes them.
    """
    opened: dict[int, int] = {}  # how many sub-plans a node and those below it in its plan opened
    for node in reversed(walked):
        kind = node["kind"]
        if kind is _TOOL_CALL and not node["toolCalls"] and not node["subPlans"]:
            # As below, in a quarter of the time: most nodes are such calls.
            node["own"] = node["cumulative"] = _of_itself(node)
            node["subPlanCount"] = 0
            continue
        below: list[Node] = []
        for children in _WITHIN_PLAN[kind]:
            below += node[children]
        sub_plans = node["subPlans"] if kind in _OPENERS else []
        itself = _of_itself(node)
        owns = [child["own"] for child in below]
        cumulatives = [child["cumulative"] for child in below]
        node["own"] = node["cumulative"] = _sum(itself, owns) if below else itself
        if sub_plans or any(map(is_not, owns, cumulatives)):
            cumulatives += [plan["cumulative"] for plan in sub_plans]
            node["cumulative"] = _sum(itself, cumulatives)
            opened[id(node)] = len(sub_plans) + sum([opened.get(id(child), 0) for child in below])
        if kind is _PLAN:
            node["subPlanCount"] = opened.pop(id(node), 0)
        elif kind in _OPENERS:
            node["subPlanCount"] = len(sub_plans)


def _of_itself(node: Node) -> Node:
    """Return what one node alone adds to the totals."""
    kind = node["kind"]
    if kind is _TOOL_CALL:
        return _FAILED_CALL if node["status"] == "failed" else _CALL
    if kind is not _THINK_ACT:
        return _NOTHING
    return {
        "inputTokens": node["inputTokens"] or 0,
        "outputTokens": node["outputTokens"] or 0,
        "costUsd": node["costUsd"] or 0,
        "toolCalls": 0,
        "failures": 1 if node["status"] == "failed" else 0,
    }


_NOTHING: Node = {"inputTokens": 0, "outputTokens": 0, "costUsd": 0, "toolCalls": 0, "failures": 0}
_CALL = _NOTHING | {"toolCalls": 1}
_FAILED_CALL = _CALL | {"failures": 1}


def _sum(itself: Node, parts: list[Node]) -> Node:
    """Return totals added up, in their order: sums of floats depend on it."""
    input_tokens = itself["inputTokens"]
    output_tokens = itself["outputTokens"]
    cost_usd = itself["costUsd"]
    tool_calls = itself["toolCalls"]
    failures = itself["failures"]
    for part in parts:
        input_tokens += part["inputTokens"]
        output_tokens += part["outputTokens"]
        cost_usd += part["costUsd"]
        tool_calls += part["toolCalls"]
        failures += part["failures"]
    return {
        "inputTokens": input_tokens,
        "outputTokens": output_tokens,
        "costUsd": cost_usd,
        "toolCalls": tool_calls,
        "failures": failures,
    }


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
