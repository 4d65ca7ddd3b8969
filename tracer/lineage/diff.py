"""Two runs compared: their trees aligned, and what differs between the records that match; pure.

Both are trees of `tracer.lineage.tree` with `Payloads.DIGEST`: texts are equal where their digests
are. The time it takes grows with n log n of the siblings that one parent has, whatever their names.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Any, TypeVar

from tracer.lineage.nodes import Node, PlanNode, StepNode, ThinkActNode, ToolCallNode
from tracer.records.merge import RULES

T = TypeVar("T")

Key = tuple[object, ...]
"""By what siblings match."""

_Place = tuple[int, int]  # a place among the left siblings, and one among the right


def aligned(
    left: Sequence[T], right: Sequence[T], keys: Sequence[Callable[[T], Key | None]]
) -> list[tuple[T | None, T | None]]:
    """Return all siblings in order, those that match in pairs; no match crosses another.

    Args:
        left: The siblings of one side.
        right: Those of the other.
        keys: By what they match: first by the first of these, then between the matches by the next.
            Of several with one key the first matches the first. None matches nothing.
    """
    matches: list[_Place] = []
    for key_of in keys:
        matches = _matched_between(left, right, matches, key_of)
    pairs: list[tuple[T | None, T | None]] = []
    i = j = 0
    for match_i, match_j in [*matches, (len(left), len(right))]:
        pairs += [(sibling, None) for sibling in left[i:match_i]]
        pairs += [(None, sibling) for sibling in right[j:match_j]]
        if match_i < len(left):
            pairs.append((left[match_i], right[match_j]))
        i, j = match_i + 1, match_j + 1
    return pairs


def _matched_between(
    left: Sequence[T],
    right: Sequence[T],
    matches: list[_Place],
    key_of: Callable[[T], Key | None],
) -> list[_Place]:
    """Return the matches with more of them, by one key, between each two."""
    more: list[_Place] = []
    start_i = start_j = 0
    for match_i, match_j in [*matches, (len(left), len(right))]:
        ours = _numbered(left, range(start_i, match_i), key_of)
        theirs = _numbered(right, range(start_j, match_j), key_of)
        more += _longest_chain({key: (ours[key], theirs[key]) for key in ours if key in theirs})
        if match_i < len(left):
            more.append((match_i, match_j))
        start_i, start_j = match_i + 1, match_j + 1
    return more


def _numbered(
    siblings: Sequence[T], places: range, key_of: Callable[[T], Key | None]
) -> dict[Key, int]:
    """Return places by key, each key with how many were before that have it too."""
    seen: Counter[Key] = Counter()
    found: dict[Key, int] = {}
    for place in places:
        key = key_of(siblings[place])
        if key is not None:
            found[*key, seen[key]] = place
            seen[key] += 1
    return found


def _longest_chain(candidates: dict[Key, _Place]) -> list[_Place]:
    """Return the most of the candidates that do not cross each other, in order.

    Which of several longest chains does not depend on which side is the left one.
    """
    ends: list[int] = []  # by length of chain, the least right place that one ends in
    by_length: defaultdict[int, list[tuple[int, str, _Place]]] = defaultdict(list)
    for key, (i, j) in sorted(candidates.items(), key=lambda item: item[1]):
        length = bisect_left(ends, j)
        ends[length : length + 1] = [j]
        by_length[length].append((i + j, repr(key), (i, j)))
    chain: list[_Place] = []
    for length in reversed(range(len(ends))):
        fitting = (
            each
            for each in by_length[length]
            if not chain or (each[2][0] < chain[-1][0] and each[2][1] < chain[-1][1])
        )
        chain.append(min(fitting)[2])
    return chain[::-1]


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


Entry = dict[str, Any]
"""A pair as the comparison shows it; `api.diff.schemas` describes it."""

Pair = tuple[Node | None, Node | None]
"""A record of the left run, and the one of the right run that matches it."""


def diff_trees(left: PlanNode, right: PlanNode) -> Entry:
    """Return two trees as one of pairs; `api.diff.schemas` describes it.

    Args:
        left: A root plan, as `build_tree` returns it.
        right: Another.
    """
    top = _entry((left, right))
    walked = [top]
    waiting: list[tuple[Entry, Pair]] = [(top, (left, right))]
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


def _below(pair: Pair) -> list[Pair]:
    """Return the records below a pair, matched, in an order that both runs agree with."""
    left, right = map(_children, pair)
    pairs: list[Pair] = []
    for ours, theirs in zip_longest(left, right, fillvalue=()):
        matched = aligned(ours, theirs, _KEYS)
        pairs += matched
    return pairs


def _children(node: Node | None) -> tuple[Sequence[Node], ...]:
    """Return the lists of what is below a node, those of one kind of node in one order."""
    if node is None:
        return ()
    if isinstance(node, PlanNode):
        return node.agent_executions, node.unplaced or ()
    if isinstance(node, StepNode):
        return node.think_acts, node.tool_calls, node.sub_plans
    if isinstance(node, ThinkActNode):
        return (node.tool_calls,)
    return node.tool_calls, node.sub_plans


def _input_key(node: Node) -> Key | None:
    if isinstance(node, ThinkActNode):
        return (node.kind, *((call.name, call.arguments) for call in node.tool_calls))
    return (node.kind, _name(node), *_input(node))


def _name_key(node: Node) -> Key | None:
    if isinstance(node, ThinkActNode):
        return (node.kind, *(call.name for call in node.tool_calls))
    if isinstance(node, PlanNode):
        return (node.kind, node.template, node.agent_name)
    return (node.kind, _name(node))


def _kind_key(node: Node) -> Key | None:
    return (node.kind,) if isinstance(node, (PlanNode, ThinkActNode)) else None


_KEYS = (_input_key, _name_key, _kind_key)
"""What siblings match by: what they are called and what went in; what they are called; and for
plans and rounds, whose names are a model's words, what they are."""


def _name(node: Node) -> str | None:
    if isinstance(node, PlanNode):
        return node.title
    if isinstance(node, StepNode):
        return node.agent_name
    if isinstance(node, ThinkActNode):
        return node.requested_model if node.model is None else node.model
    return node.name


def _input(node: Node) -> tuple[str | None, ...]:
    if isinstance(node, PlanNode):
        return (node.user_request,)
    if isinstance(node, StepNode):
        return (node.request,)
    return (node.arguments, node.effective_arguments) if isinstance(node, ToolCallNode) else ()


def _result(node: Node) -> str | None:
    if isinstance(node, PlanNode):
        return node.summary
    return node.thought if isinstance(node, ThinkActNode) else node.result


def _attempt(node: Node) -> int | None:
    return node.attempt if isinstance(node, ToolCallNode) else None


def _entry(pair: Pair) -> Entry:
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
        "kind": shown.kind,
        "name": _name(shown),
        "left": None if left is None else _side(left),
        "right": None if right is None else _side(right),
        "change": change,
        "differs": differs,
        "changedBelow": 0,
        "children": [],
    }


def _side(node: Node) -> Entry:
    return {
        "id": getattr(node, RULES[node.kind].id_field),
        "name": _name(node),
        "status": node.status,
        "reason": node.reason,
        "errorType": None if node.error is None else node.error["type"],
        "startedAt": node.started_at,
        "durationMs": node.duration_ms,
        "attempt": _attempt(node),
        "totals": node.cumulative,
    }


def _differences(left: Node, right: Node) -> list[Difference]:
    """Return in what two records of one kind differ."""
    found = {
        Difference.ARGUMENTS: _input(left) != _input(right),
        Difference.OUTCOME: _outcome(left) != _outcome(right),
        Difference.RESULT: _result(left) != _result(right),
        Difference.DURATION: _took_longer(left.duration_ms, right.duration_ms),
        Difference.ATTEMPTS: _attempt(left) != _attempt(right),
    }
    if isinstance(left, ThinkActNode) and isinstance(right, ThinkActNode):
        used = [(each.input_tokens, each.output_tokens) for each in (left, right)]
        found[Difference.TOKENS] = used[0] != used[1]
        found[Difference.COST] = left.cost_usd != right.cost_usd
        found[Difference.MODEL] = _name(left) != _name(right)
    else:
        found[Difference.NAME] = _name(left) != _name(right)
    return [difference for difference in Difference if found.get(difference)]


def _outcome(node: Node) -> tuple[str | None, ...]:
    error = node.error or {"type": None, "message": None}
    return node.status, node.reason, error["type"], error["message"]


def _took_longer(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return False
    least, most = sorted((one, other))
    return most - least >= NOTABLE_MS and most >= least * SLOWER


def _count_changes(walked: Sequence[Entry]) -> None:
    """Fill in how many entries below each are not the same on both sides."""
    for entry in reversed(walked):
        entry["changedBelow"] = sum(
            child["changedBelow"] + (child["change"] is not Change.SAME)
            for child in entry["children"]
        )


def _run(top: PlanNode) -> Entry:
    return {
        "rootPlanId": top.root_plan_id,
        "revision": top.revision,
        "title": top.title,
        "agentName": top.agent_name,
        "status": top.status,
        "startedAt": top.started_at,
        "durationMs": top.duration_ms,
        "totals": top.cumulative,
    }
