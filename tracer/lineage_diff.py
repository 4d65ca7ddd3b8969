"""Two runs compared: their trees aligned, and what differs between the records that match; pure.

Both are trees of `tracer.lineage` with `Payloads.DIGEST`: texts are equal where their digests are.
The time it takes grows with n log n of the siblings that one parent has, whatever their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from tracer.lineage import Node
from tracer.records import Kind
from tracer.sibling_alignment import Key, aligned

SLOWER = 1.25
"""From this factor on, and from `NOTABLE_MS` on, two durations differ."""

NOTABLE_MS = 100.0


class Change(StrEnum):
    """What became of a record from the left run to the right one."""

    ADDED = "added"
    """The right run alone has it."""
    REMOVED = "removed"
    """The left run alone has it."""
    CHANGED = "changed"
    SAME = "same"


class Difference(StrEnum):
    """In what two records that match differ."""

    NAME = "name"
    ARGUMENTS = "arguments"
    """What went in: a tool call's arguments, a step's request, a plan's user request."""
    OUTCOME = "outcome"
    """Status, reason or error."""
    RESULT = "result"
    """What came out: a tool call's or step's result, a plan's summary, a round's thought."""
    DURATION = "duration"
    """One took at least a quarter longer, and at least a tenth of a second."""
    TOKENS = "tokens"
    COST = "cost"
    MODEL = "model"
    ATTEMPTS = "attempts"


Pair = tuple[Node | None, Node | None]
"""A record of the left run, and the one of the right run that matches it."""


def diff_trees(left: Node, right: Node) -> Node:
    """Return two trees as one of pairs; `api.diff_schemas` describes it.

    Args:
        left: A root plan, as `build_tree` returns it.
        right: Another.
    """
    top = _entry((left, right))
    walked = [top]
    waiting: list[tuple[Node, Pair]] = [(top, (left, right))]
    while waiting:
        entry, pair = waiting.pop()
        for below in _below(pair):
            child = _entry(below)
            entry["children"].append(child)
            walked.append(child)
            waiting.append((child, below))
    _count_changes(walked)
    counts = Counter(entry["change"] for entry in walked)
    return {
        "left": _run(left),
        "right": _run(right),
        "counts": {change.value: counts[change] for change in Change},
        "root": top,
    }


_CHILDREN = ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced")


def _below(pair: Pair) -> list[Pair]:
    """Return the records below a pair, matched, in an order that both runs agree with."""
    left, right = pair
    pairs: list[Pair] = []
    for children in _CHILDREN:
        ours: list[Node] = [] if left is None else left.get(children, [])
        theirs: list[Node] = [] if right is None else right.get(children, [])
        matched = aligned(ours, theirs, _KEYS)
        pairs += matched
    return pairs


def _input_key(node: Node) -> Key | None:
    if node["kind"] is Kind.THINK_ACT:
        return (node["kind"], *((call["name"], call["arguments"]) for call in node["toolCalls"]))
    return (node["kind"], _name(node), *_input(node))


def _name_key(node: Node) -> Key | None:
    if node["kind"] is Kind.THINK_ACT:
        return (node["kind"], *(call["name"] for call in node["toolCalls"]))
    if node["kind"] is Kind.PLAN:
        return (node["kind"], node["template"], node["agentName"])
    return (node["kind"], _name(node))


def _kind_key(node: Node) -> Key | None:
    return (node["kind"],) if node["kind"] in (Kind.PLAN, Kind.THINK_ACT) else None


_KEYS = (_input_key, _name_key, _kind_key)
"""What siblings match by: what they are called and what went in; what they are called; and for
plans and rounds, whose names are a model's words, what they are."""

_NAMES = {
    Kind.PLAN: "title",
    Kind.STEP: "agentName",
    Kind.THINK_ACT: "model",
    Kind.TOOL_CALL: "name",
}
_IDS = {
    Kind.PLAN: "planId",
    Kind.STEP: "stepId",
    Kind.THINK_ACT: "thinkActId",
    Kind.TOOL_CALL: "toolCallId",
}
_INPUTS: dict[Kind, tuple[str, ...]] = {
    Kind.PLAN: ("userRequest",),
    Kind.STEP: ("request",),
    Kind.THINK_ACT: (),
    Kind.TOOL_CALL: ("arguments", "effectiveArguments"),
}
_RESULTS = {
    Kind.PLAN: "summary",
    Kind.STEP: "result",
    Kind.THINK_ACT: "thought",
    Kind.TOOL_CALL: "result",
}


def _name(node: Node) -> str | None:
    name: str | None = node[_NAMES[node["kind"]]]
    if node["kind"] is Kind.THINK_ACT and name is None:
        name = node["requestedModel"]
    return name


def _input(node: Node) -> list[str | None]:
    return [node[field] for field in _INPUTS[node["kind"]]]


def _entry(pair: Pair) -> Node:
    left, right = pair
    shown = right if left is None else left
    assert shown is not None
    differs = [] if left is None or right is None else _differences(left, right)
    if left is None:
        change = Change.ADDED
    elif right is None:
        change = Change.REMOVED
    else:
        change = Change.CHANGED if differs else Change.SAME
    return {
        "kind": shown["kind"],
        "name": _name(shown),
        "left": None if left is None else _side(left),
        "right": None if right is None else _side(right),
        "change": change,
        "differs": differs,
        "changedBelow": 0,
        "children": [],
    }


def _side(node: Node) -> Node:
    error = node["error"]
    return {
        "id": node[_IDS[node["kind"]]],
        "name": _name(node),
        "status": node["status"],
        "reason": node["reason"],
        "errorType": None if error is None else error["type"],
        "startedAt": node["startedAt"],
        "durationMs": node["durationMs"],
        "attempt": node.get("attempt"),
        "totals": node["cumulative"],
    }


def _differences(left: Node, right: Node) -> list[Difference]:
    """Return in what two records of one kind differ."""
    is_round = left["kind"] is Kind.THINK_ACT
    result = _RESULTS[left["kind"]]
    found = {
        Difference.NAME: not is_round and _name(left) != _name(right),
        Difference.ARGUMENTS: _input(left) != _input(right),
        Difference.OUTCOME: _outcome(left) != _outcome(right),
        Difference.RESULT: left[result] != right[result],
        Difference.DURATION: _took_longer(left["durationMs"], right["durationMs"]),
        Difference.TOKENS: is_round
        and any(left[field] != right[field] for field in ("inputTokens", "outputTokens")),
        Difference.COST: is_round and left["costUsd"] != right["costUsd"],
        Difference.MODEL: is_round and _name(left) != _name(right),
        Difference.ATTEMPTS: left.get("attempt") != right.get("attempt"),
    }
    return [difference for difference, differs in found.items() if differs]


def _outcome(node: Node) -> tuple[str | None, ...]:
    error = node["error"] or {"type": None, "message": None}
    return node["status"], node["reason"], error["type"], error["message"]


def _took_longer(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return False
    least, most = sorted((one, other))
    return most - least >= NOTABLE_MS and most >= least * SLOWER


def _count_changes(walked: Sequence[Node]) -> None:
    """Fill in how many entries below each are not the same on both sides."""
    for entry in reversed(walked):
        entry["changedBelow"] = sum(
            child["changedBelow"] + (child["change"] is not Change.SAME)
            for child in entry["children"]
        )


def _run(top: Node) -> Node:
    return {
        "rootPlanId": top["rootPlanId"],
        "revision": top["revision"],
        "title": top["title"],
        "agentName": top["agentName"],
        "status": top["status"],
        "startedAt": top["startedAt"],
        "durationMs": top["durationMs"],
        "totals": top["cumulative"],
    }
