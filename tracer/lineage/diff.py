"""Compare two runs: align their trees, and list the differences of matching records.

Both trees are read with `Payloads.COMPARED`: long texts are replaced by digests, and texts with
equal digests are equal. Only messages of errors are complete. All functions are pure. A comparison
of n siblings takes O(n log n) time.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from itertools import chain, groupby, zip_longest
from types import MappingProxyType
from typing import Annotated, Any, TypedDict, TypeVar

import orjson
from msgspec import Meta

from tracer.lineage.tree import (
    Id,
    Node,
    PlanNode,
    RecordKind,
    ShownStatus,
    StepNode,
    ThinkActNode,
    Time,
    ToolCallNode,
    TreeTotals,
)
from tracer.records.conversation import ConversationMessage, conversation
from tracer.records.merge import RULES
from tracer.records.pages import PREVIEW_CHARACTERS
from tracer.text import beginning, nests_too_deep

# --- Digests by which the long texts of two runs are compared.
#
# A digest is followed by the beginning of the text. If a text is JSON, its value is compared: white
# space and the order of keys make no difference. If an object repeats a key, the last value counts.
# Numbers are compared as they are written: `1.0` differs from `1`, and integers above 2**53 stay
# exact.

BEGINNING = 200
"""The number of characters at the beginning of a text that follow its digest."""

_HEX = frozenset("0123456789abcdef")
_DIGITS = 64


def value_of(text: str) -> str:
    """Return JSON text with sorted keys and without white space.

    Other text, and JSON that nests deeper than 250 levels, is returned unchanged.
    """
    if not text.lstrip(" \t\n\r").startswith(("{", "[", '"')) or nests_too_deep(text):
        return text
    try:
        value = json.loads(
            text, parse_int=orjson.Fragment, parse_float=orjson.Fragment, parse_constant=_refuse
        )
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    # orjson raises TypeError for a lone surrogate or too many levels.
    except (ValueError, TypeError, RecursionError):
        return text


def _refuse(name: str) -> None:
    raise ValueError(name)  # NaN and Infinity are not JSON


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal, followed by the beginning of the text.

    JSON text is first normalized by `value_of`.
    """
    value = value_of(text)
    return sha256(value.encode()).hexdigest() + value[:BEGINNING]


def is_digest(text: str) -> bool:
    """Return whether a store has replaced a text by its digest.

    Stores do not replace JSON objects, arrays and strings, because JSON must be normalized before
    its digest is computed.
    """
    return text[:1] in _HEX


def beginning_of(digest: str | None) -> str | None:
    """Return the beginning of the text that a digest represents; None if it is absent or blank."""
    return None if digest is None else digest[_DIGITS:].strip() or None


# --- Find the input messages of a model call that the previous model call did not have.
#
# Each request to a model repeats the whole conversation. If whole requests were compared, all
# requests after the first difference would differ.


def new_messages(before: str | None, messages: str) -> str:
    """Return a digest of the messages that `messages` adds to `before`.

    The digest ignores three differences. The model's own answers are left out, because they are
    compared as results of earlier model calls. Call ids are left out, because the provider chooses
    new ones in each run. The results of parallel tool calls may be in any order.

    Args:
        before: The messages of the previous model call, as JSON text; None for the first model
            call.
        messages: The messages of this model call, as JSON text.
    """
    added = conversation(_added(before, messages))
    if added is None:  # not JSON, for example because it was cut
        return sha256(messages.encode()).hexdigest()
    compared = [_compared(message) for message in added if message.role != "assistant"]
    return sha256(orjson.dumps(_in_one_order(compared))).hexdigest()


def _in_one_order(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort each sequence of tool results, because parallel tool calls end in any order."""
    ordered: list[dict[str, Any]] = []
    for are_results, group in groupby(messages, key=_is_result):
        adjacent = list(group)
        ordered += sorted(adjacent, key=orjson.dumps) if are_results else adjacent
    return ordered


def _is_result(message: dict[str, Any]) -> bool:
    """Return whether a message consists only of tool results.

    Some APIs put all results of a round into one message.
    """
    parts = message["parts"]
    return message["role"] == "tool" or {part["type"] for part in parts} == {"toolResult"}


def _added(before: str | None, messages: str) -> str:
    """Return `messages` without the beginning that it shares with `before`, as JSON text."""
    known, sent = _message_list(before), _message_list(messages)
    if not known or sent is None:
        return messages
    same = 0
    while same < min(len(known), len(sent)) and known[same] == sent[same]:
        same += 1
    return orjson.dumps(sent[same:]).decode()


def _message_list(messages: str | None) -> list[Any] | None:
    if messages is None or nests_too_deep(messages):
        return None
    try:
        value = orjson.loads(messages)
    except orjson.JSONDecodeError:
        return None
    return (
        value if isinstance(value, list) and not isinstance(next(iter(value), None), str) else None
    )


def _compared(message: ConversationMessage) -> dict[str, Any]:
    parts = [part.model_dump(exclude={"id"}) for part in message.parts]
    for part in parts:
        for name in ("text", "arguments"):
            if name in part:
                part[name] = value_of(part[name])
    if all(part["type"] == "toolResult" for part in parts):
        parts.sort(key=orjson.dumps)
    return {"role": message.role, "name": message.name, "parts": parts}


T = TypeVar("T")

Key = tuple[object, ...]
"""A key for the matching of siblings: siblings with equal keys match."""

_IndexPair = tuple[int, int]  # an index among the left siblings, and one among the right


def aligned(
    left: Sequence[T], right: Sequence[T], keys: Sequence[Callable[[T], Key | None]]
) -> list[tuple[T | None, T | None]]:
    """Align two lists of siblings. Return them as pairs, in order.

    Matches never cross: if two siblings match, later siblings match only later ones. A sibling
    without a match is paired with None.

    Args:
        left: The siblings of one side.
        right: The siblings of the other side.
        keys: Functions that return the key of a sibling, or None. Siblings with equal keys match;
            None matches nothing. The first function is applied to all siblings, each further
            function only between the matches found so far. Siblings with the same key match in
            order.
    """
    matches: list[_IndexPair] = []
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


def aligned_in_any_order(
    left: Sequence[T], right: Sequence[T], keys: Sequence[Callable[[T], Key | None]]
) -> list[tuple[T | None, T | None]]:
    """Match two lists of siblings, regardless of their order. Return all siblings as pairs.

    The pairs are in the order of the left siblings. A right sibling without a match comes after the
    right sibling that precedes it in its list.

    Args:
        left: The siblings of one side.
        right: The siblings of the other side.
        keys: The matching criteria, as in `aligned`.
    """
    matches: dict[int, int] = {}
    matched_right: set[int] = set()
    for key_of in keys:
        free_left = [i for i in range(len(left)) if i not in matches]
        free_right = [j for j in range(len(right)) if j not in matched_right]
        right_indexes = _numbered(right, free_right, key_of)
        for key, i in _numbered(left, free_left, key_of).items():
            if (j := right_indexes.get(key)) is not None:
                matches[i] = j
                matched_right.add(j)
    pairs: list[tuple[T | None, T | None]] = []

    def add_unmatched(j: int) -> None:
        while j < len(right) and j not in matched_right:
            pairs.append((None, right[j]))
            j += 1

    add_unmatched(0)
    for i, sibling in enumerate(left):
        match_j = matches.get(i)
        if match_j is None:
            pairs.append((sibling, None))
        else:
            pairs.append((sibling, right[match_j]))
            add_unmatched(match_j + 1)
    return pairs


def _matched_between(
    left: Sequence[T],
    right: Sequence[T],
    matches: list[_IndexPair],
    key_of: Callable[[T], Key | None],
) -> list[_IndexPair]:
    """Return the known matches together with matches by a further key.

    The further key is applied only between two neighboring known matches.
    """
    result: list[_IndexPair] = []
    start_i = start_j = 0
    for match_i, match_j in [*matches, (len(left), len(right))]:
        left_indexes = _numbered(left, range(start_i, match_i), key_of)
        right_indexes = _numbered(right, range(start_j, match_j), key_of)
        candidates = {
            key: (left_indexes[key], right_indexes[key])
            for key in left_indexes
            if key in right_indexes
        }
        result += _longest_chain(candidates)
        if match_i < len(left):
            result.append((match_i, match_j))
        start_i, start_j = match_i + 1, match_j + 1
    return result


def _numbered(
    siblings: Sequence[T], indexes: Iterable[int], key_of: Callable[[T], Key | None]
) -> dict[Key, int]:
    """Return the indexes of siblings by key.

    If several siblings have the same key, a running number is added to the key.
    """
    seen: Counter[Key] = Counter()
    by_key: dict[Key, int] = {}
    for index in indexes:
        key = key_of(siblings[index])
        if key is not None:
            by_key[*key, seen[key]] = index
            seen[key] += 1
    return by_key


def _longest_chain(candidates: dict[Key, _IndexPair]) -> list[_IndexPair]:
    """Return the largest set of matches that do not cross each other, in order.

    If several sets are equally large, the choice does not depend on which run is the left one.
    """
    ends: list[int] = []  # by length of chain, the smallest right index that such a chain ends with
    by_length: defaultdict[int, list[tuple[int, str, _IndexPair]]] = defaultdict(list)
    for key, (i, j) in sorted(candidates.items(), key=lambda item: item[1]):
        length = bisect_left(ends, j)
        ends[length : length + 1] = [j]
        by_length[length].append((i + j, repr(key), (i, j)))
    chain: list[_IndexPair] = []
    for length in reversed(range(len(ends))):
        fitting = (
            each
            for each in by_length[length]
            if not chain or (each[2][0] < chain[-1][0] and each[2][1] < chain[-1][1])
        )
        chain.append(min(fitting)[2])
    return chain[::-1]


SLOWER = 1.25
"""Two durations differ if one is longer by this factor and by `NOTABLE_MS`."""

NOTABLE_MS = 100.0


class Change(StrEnum):
    """How a record changed from the left run to the right run."""

    ADDED = "added"
    """Only the right run has it."""
    REMOVED = "removed"
    """Only the left run has it."""
    CHANGED = "changed"
    SAME = "same"


class Difference(StrEnum):
    """An aspect in which two matching records differ."""

    NAME = "name"
    ARGUMENTS = "arguments"
    """The input: a tool call's arguments, a step's request, a plan's user request."""
    MESSAGES = "messages"
    """The new input messages of a round: those that the previous round of its step did not have."""
    OUTCOME = "outcome"
    """Status, reason or error."""
    RESULT = "result"
    """The output: a tool call's or step's result, a plan's summary, a round's thought."""
    DURATION = "duration"
    """One record took longer by at least 25 % and by at least 0.1 seconds."""
    TOKENS = "tokens"
    COST = "cost"
    MODEL = "model"
    ATTEMPTS = "attempts"


class ComparedRun(TypedDict):
    """One of the two compared runs."""

    rootPlanId: Id
    revision: int
    title: str | None
    agentName: str | None
    status: ShownStatus
    startedAt: Time | None
    durationMs: float | None
    totals: TreeTotals


class ChangeCounts(TypedDict):
    """How many pairs of records were added, removed, changed or are the same."""

    added: int
    removed: int
    changed: int
    same: int


class ComparedRecord(TypedDict):
    """A record of one of the compared runs."""

    id: Id
    name: Annotated[
        str | None,
        Meta(
            description="The plan's title, the step's agent, the beginning of the round's answer, "
            "or the tool's name; null if the record has none."
        ),
    ]
    calls: Annotated[
        list[str],
        Meta(description="The names of the tools that a round chose; empty for other records."),
    ]
    model: Annotated[str | None, Meta(description="The model of a round.")]
    status: ShownStatus
    reason: str | None
    errorType: str | None
    errorMessage: Annotated[
        str | None, Meta(description="The first 300 characters of the error's message.")
    ]
    startedAt: Time | None
    durationMs: float | None
    attempt: Annotated[
        int | None,
        Meta(description="The number of attempts of a tool call; null for other records."),
    ]
    totals: Annotated[
        TreeTotals,
        Meta(
            description="The totals of the record and all records below it. Those of a model call "
            "are its own, without the agents that its tool calls opened."
        ),
    ]


class RecordPair(TypedDict):
    """A record of the left run and its match in the right run. One of them may be missing."""

    kind: RecordKind
    name: Annotated[
        str | None,
        Meta(description="The name of the left record; if there is none, of the right record."),
    ]
    left: ComparedRecord | None
    right: ComparedRecord | None
    change: Change
    differs: Annotated[
        list[Difference],
        Meta(
            description="The aspects that differ. Durations differ if one is longer by at least a "
            "quarter and by at least 0.1 s."
        ),
    ]
    inherits: Annotated[
        bool,
        Meta(
            description="Whether the records differ only in their outcome, result or duration, and "
            "a record below differs, too."
        ),
    ]
    changedBelow: Annotated[
        int, Meta(description="The number of pairs below this pair whose `change` is not `same`.")
    ]
    children: list[RecordPair]


class Divergence(TypedDict):
    """The pair of records at which two runs diverge."""

    kind: RecordKind
    name: str | None
    left: ComparedRecord | None
    right: ComparedRecord | None


class ModelChange(TypedDict):
    """A model of the left run, and the model that matching model calls of the right run have."""

    left: str | None
    right: str | None
    calls: int


class DiffSummary(TypedDict):
    """The most important differences of two runs."""

    first: Annotated[
        Divergence | None,
        Meta(
            description="The first pair whose outcome differs and is not inherited. If there is "
            "none: the first that was added, removed, or has another name, input or result. Null "
            "if the runs do the same."
        ),
    ]
    models: Annotated[list[ModelChange], Meta(description="Changed models, in order.")]
    costFactor: Annotated[
        float | None,
        Meta(description="The cost of the right run divided by that of the left; null if unknown."),
    ]
    inherited: Annotated[int, Meta(description="The number of pairs that inherit.")]


class Comparison(TypedDict):
    """The comparison of two runs, as a tree of matching records."""

    left: ComparedRun
    right: ComparedRun
    summary: DiffSummary
    counts: ChangeCounts
    root: RecordPair


class RunDiff(Comparison):
    """The comparison of two runs, as a tree of matching records, as the API returns it."""

    messagesCompared: Annotated[
        bool,
        Meta(
            description="Whether the messages of rounds were compared. False if the two runs "
            "together have more than 64 MB of messages. Then no `differs` contains `messages`."
        ),
    ]


Pair = tuple[Node | None, Node | None]
"""A record of the left run and the matching record of the right run. None replaces a missing
match."""


Messages = Mapping[str, str]
"""The messages of model calls as JSON text, by `think_act_id`."""


def diff_trees(
    left: PlanNode,
    right: PlanNode,
    *,
    left_messages: Messages = MappingProxyType({}),
    right_messages: Messages = MappingProxyType({}),
) -> Comparison:
    """Return the comparison of two trees, as one tree of pairs.

    Args:
        left: The root plan of the left run, from `build_tree`.
        right: The root plan of the right run.
        left_messages: The messages of the left run's model calls.
        right_messages: The messages of the right run's model calls.
    """
    digests = _digest_new_messages(left, left_messages), _digest_new_messages(right, right_messages)
    root = _entry((left, right), digests)
    entries = [root]
    stack: list[tuple[RecordPair, Pair]] = [(root, (left, right))]
    while stack:
        entry, pair = stack.pop()
        for child_pair in _child_pairs(pair):
            child = _entry(child_pair, digests)
            entry["children"].append(child)
            entries.append(child)
            stack.append((child, child_pair))
    _count_changes(entries)
    counts = Counter(entry["change"] for entry in entries)
    return {
        "left": _run(left),
        "right": _run(right),
        "summary": _summary(root, left.cumulative, right.cumulative),
        "counts": {
            "added": counts[Change.ADDED],
            "removed": counts[Change.REMOVED],
            "changed": counts[Change.CHANGED],
            "same": counts[Change.SAME],
        },
        "root": root,
    }


def _digest_new_messages(root: PlanNode, messages: Messages) -> Messages:
    """Return a digest of the new messages of each model call, by `think_act_id`.

    New messages are those that the previous model call of the step did not have.
    """
    digests: dict[str, str] = {}
    if not messages:
        return digests
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        stack += chain.from_iterable(_children(node))
        if isinstance(node, StepNode):
            before: str | None = None
            for round_ in node.think_acts:
                sent = messages.get(round_.think_act_id)
                if sent is not None:
                    digests[round_.think_act_id] = new_messages(before, sent)
                    before = sent
    return digests


def _child_pairs(pair: Pair) -> list[Pair]:
    """Return the children of a pair as pairs of matching records.

    Children are matched in order. The tool calls of one round are matched in any order, because
    they run in parallel, and their order depends on which of them starts first.
    """
    left, right = map(_children, pair)
    is_round = any(isinstance(node, ThinkActNode) for node in pair)
    pairs: list[Pair] = []
    for left_siblings, right_siblings in zip_longest(left, right, fillvalue=()):
        match = aligned_in_any_order if is_round else aligned
        matched = match(left_siblings, right_siblings, _ROUND_KEYS if is_round else _KEYS)
        pairs += matched
    return pairs


def _children(node: Node | None) -> tuple[Sequence[Node], ...]:
    """Return the lists of a node's children, always in the same order."""
    if node is None:
        return ()
    if isinstance(node, PlanNode):
        return node.agent_executions, node.unplaced or ()
    if isinstance(node, StepNode):
        return node.think_acts, node.tool_calls, node.sub_plans
    if isinstance(node, ThinkActNode):
        return (node.tool_calls,)
    return node.tool_calls, node.sub_plans


def _whole_key(node: Node) -> Key | None:
    """Return a key of the input and the outcome of a tool call.

    It distinguishes parallel calls with equal input.
    """
    return (*(_input_key(node) or ()), _outcome(node), _result(node))


def _input_key(node: Node) -> Key | None:
    if isinstance(node, ThinkActNode):
        chosen = ((call.name or "", call.arguments or "") for call in node.tool_calls)
        return (node.kind, *sorted(chosen))
    return (node.kind, _name(node), *_input(node))


def _name_key(node: Node) -> Key | None:
    if isinstance(node, ThinkActNode):
        return (node.kind, *sorted(call.name or "" for call in node.tool_calls))
    if isinstance(node, PlanNode):
        return (node.kind, node.template, node.agent_name)
    return (node.kind, _name(node))


def _kind_key(node: Node) -> Key | None:
    return (node.kind,) if isinstance(node, (PlanNode, ThinkActNode)) else None


_KEYS = (_input_key, _name_key, _kind_key)
"""The keys by which siblings are matched, the strictest first. Plans and rounds are also matched by
their kind alone, because a model may write their names differently in each run."""

_ROUND_KEYS = (_whole_key, *_KEYS)


def _name(node: Node) -> str | None:
    if isinstance(node, PlanNode):
        return node.title
    if isinstance(node, StepNode):
        return node.agent_name
    if isinstance(node, ThinkActNode):
        return beginning_of(node.thought)
    return node.name


def _model(node: Node) -> str | None:
    if isinstance(node, ThinkActNode):
        return node.requested_model if node.model is None else node.model
    return None


def _calls(node: Node) -> list[str]:
    """Return the names of the tools that a model call chose."""
    if isinstance(node, ThinkActNode):
        return [call.name for call in node.tool_calls if call.name is not None]
    return []


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


def _entry(pair: Pair, digests: tuple[Messages, Messages]) -> RecordPair:
    left, right = pair
    node = right if left is None else left
    assert node is not None
    differences = [] if left is None or right is None else _differences(left, right, digests)
    if left is None:
        change = Change.ADDED
    elif right is None:
        change = Change.REMOVED
    else:
        change = Change.CHANGED if differences else Change.SAME
    return {
        "kind": node.kind,
        "name": _name(node),
        "left": None if left is None else _side(left),
        "right": None if right is None else _side(right),
        "change": change,
        "differs": differences,
        "inherits": False,
        "changedBelow": 0,
        "children": [],
    }


def _side(node: Node) -> ComparedRecord:
    error_type, message = _error(node)
    return {
        "id": getattr(node, RULES[node.kind].id_field),
        "name": _name(node),
        "calls": _calls(node),
        "model": _model(node),
        "status": node.status,
        "reason": node.reason,
        "errorType": error_type,
        "errorMessage": None if message is None else beginning(message, PREVIEW_CHARACTERS),
        "startedAt": node.started_at,
        "durationMs": node.duration_ms,
        "attempt": _attempt(node),
        "totals": node.own if isinstance(node, ThinkActNode) else node.cumulative,
    }


def _differences(left: Node, right: Node, digests: tuple[Messages, Messages]) -> list[Difference]:
    """Return the aspects in which two matching records differ."""
    differs = {
        Difference.ARGUMENTS: _input(left) != _input(right),
        Difference.OUTCOME: _outcome(left) != _outcome(right),
        Difference.RESULT: _result(left) != _result(right),
        Difference.DURATION: _took_longer(left.duration_ms, right.duration_ms),
        Difference.ATTEMPTS: _attempt(left) != _attempt(right),
    }
    if isinstance(left, ThinkActNode) and isinstance(right, ThinkActNode):
        tokens = [(each.input_tokens, each.output_tokens) for each in (left, right)]
        differs[Difference.TOKENS] = tokens[0] != tokens[1]
        differs[Difference.COST] = left.cost_usd != right.cost_usd
        differs[Difference.MODEL] = _model(left) != _model(right)
        ours, theirs = digests[0].get(left.think_act_id), digests[1].get(right.think_act_id)
        differs[Difference.MESSAGES] = ours != theirs
    else:
        differs[Difference.NAME] = _name(left) != _name(right)
    return [difference for difference in Difference if differs.get(difference)]


def _outcome(node: Node) -> tuple[str | None, ...]:
    return node.status, node.reason, *_error(node)


def _error(node: Node) -> tuple[str | None, str | None]:
    """Return the type and the message of a record's error."""
    return (None, None) if node.error is None else (node.error["type"], node.error["message"])


def _took_longer(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return False
    shorter, longer = sorted((one, other))
    return longer - shorter >= NOTABLE_MS and longer >= shorter * SLOWER


def _count_changes(entries: Sequence[RecordPair]) -> None:
    """Set, in each entry, the number of entries below it that are not the same in both runs."""
    for entry in reversed(entries):
        entry["changedBelow"] = sum(
            child["changedBelow"] + (child["change"] is not Change.SAME)
            for child in entry["children"]
        )
        differs = {*entry["differs"]}
        entry["inherits"] = bool(differs and entry["changedBelow"] and differs <= _INHERITED)


_INHERITED = {Difference.OUTCOME, Difference.RESULT, Difference.DURATION}
_WORK = {Difference.NAME, Difference.ARGUMENTS, Difference.MESSAGES, Difference.RESULT}


def _summary(root: RecordPair, left: TreeTotals, right: TreeTotals) -> DiffSummary:
    in_order = _in_order(root)
    own = [entry for entry in in_order if not entry["inherits"]]
    first = next((entry for entry in own if Difference.OUTCOME in entry["differs"]), None) or next(
        (entry for entry in own if _is_divergence(entry)), None
    )
    models = Counter(
        (entry["left"]["model"], entry["right"]["model"])
        for entry in in_order
        if entry["left"] and entry["right"] and Difference.MODEL in entry["differs"]
    )
    is_known = left.cost_usd and right.cost_usd and not left.unpriced_calls + right.unpriced_calls
    return {
        "first": first and _divergence(first),
        "models": [{"left": a, "right": b, "calls": calls} for (a, b), calls in models.items()],
        "costFactor": (right.cost_usd or 0) / (left.cost_usd or 1) if is_known else None,
        "inherited": len(in_order) - len(own),
    }


def _divergence(entry: RecordPair) -> Divergence:
    return {
        "kind": entry["kind"],
        "name": entry["name"],
        "left": entry["left"],
        "right": entry["right"],
    }


def _is_divergence(entry: RecordPair) -> bool:
    is_alone = entry["left"] is None or entry["right"] is None
    return is_alone or not _WORK.isdisjoint(entry["differs"])


def _in_order(root: RecordPair) -> list[RecordPair]:
    """Return a pair and all pairs below it, in the order in which the tree shows them."""
    found, stack = [], [root]
    while stack:
        found.append(stack.pop())
        stack += reversed(found[-1]["children"])
    return found


def _run(root: PlanNode) -> ComparedRun:
    return {
        "rootPlanId": root.root_plan_id,
        "revision": root.revision or 0,
        "title": root.title,
        "agentName": root.agent_name,
        "status": root.status,
        "startedAt": root.started_at,
        "durationMs": root.duration_ms,
        "totals": root.cumulative,
    }
