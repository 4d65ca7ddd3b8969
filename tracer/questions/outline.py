"""The outline of a tree: one line for each record that fits the budget, the rest folded.

Records are shown in the order of their importance: marked records, failures that made the run fail,
open records, handled failures, and then the records that took the greatest share of the run's time,
cost or tokens. A record is shown below the records above it, or, if these do not fit, below the
nearest shown one, with the number of levels in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from msgspec import Struct

from tracer.lineage.tree import (
    Node,
    PlanNode,
    StepNode,
    ThinkActNode,
    ToolCallNode,
    TreeTotals,
)
from tracer.questions.text import (
    budget_bytes,
    cost,
    counted,
    duration,
    handle,
    joined,
    name,
    quoted,
    tokens,
)
from tracer.records import ABANDONED, Kind
from tracer.records.merge import RULES

WORDS = {Kind.PLAN: "plan", Kind.STEP: "step", Kind.THINK_ACT: "round", Kind.TOOL_CALL: "call"}
"""The word for each kind of record."""

OPEN = frozenset({"pending", "running", ABANDONED})

MOST_INDENT = 24
"""The largest indentation of a line in spaces."""

FOLD_BYTES = 112 + MOST_INDENT
"""The size that is reserved for the line of the records that are folded below a record."""

SKIP_BYTES = 24
"""The size that is reserved for the number of skipped levels."""

MOST_REFUSED = 50


class Folded(Struct, rename="camel"):
    """The records below a shown record that are not shown."""

    records: dict[str, int]
    """Their number by word: `call`, `round`, `step`, `plan`."""
    failures: int = 0
    duration_ms: float = 0
    cost_usd: float = 0


class OutlineLine(Struct, rename="camel"):
    """One record of an outline."""

    kind: str
    id: str
    handle: str
    level: int
    """The number of records above it in the tree."""
    skipped: int
    """How many of the records above it are not shown."""
    name: str | None
    status: str
    reason: str | None
    duration_ms: float | None
    totals: TreeTotals
    text: str | None
    """The beginning of its request, thought or arguments; if it failed, of its error."""
    mark: str | None = None
    folded: Folded | None = None


class Outline(Struct, rename="camel"):
    """A tree, folded to a budget."""

    id: str
    handle: str
    root_plan_id: str
    title: str | None
    status: str
    reason: str | None
    duration_ms: float | None
    totals: TreeTotals
    records: int
    lines: list[OutlineLine]

    def text(self) -> str:
        """Return the outline as text."""
        return "\n".join(chain(self.head(), _written(self.lines))) + "\n"

    def head(self) -> list[str]:
        """Return the lines about the whole."""
        total = self.totals
        figures = (
            joined(f"run {handle(self.root_plan_id)}", ended(self.status, self.reason)),
            joined(duration(self.duration_ms), "long") if self.duration_ms else "open",
            counted(self.records, "record"),
            counted(total.failures, "failure") if total.failures else "",
            tokens(total.input_tokens, total.output_tokens),
            cost(total.cost_usd),
        )
        what = f"id {self.root_plan_id} {quoted(self.title, 80)}".rstrip()
        return [" · ".join(filter(None, figures)), what]


def ended(status: str, reason: str | None) -> str:
    """Return a status with its reason."""
    return f"{status} ({name(reason)})" if reason else status


def id_of(node: Node) -> str:
    """Return the id of a node."""
    record_id: str = getattr(node, RULES[node.kind].id_field)
    return record_id


def children(node: Node) -> Iterator[Node]:
    """Yield the children of a node in order."""
    if isinstance(node, PlanNode):
        yield from node.agent_executions
        yield from node.unplaced or ()
    elif isinstance(node, StepNode):
        yield from node.think_acts
        yield from node.tool_calls
        yield from node.sub_plans
    else:
        yield from node.tool_calls
        if isinstance(node, ToolCallNode):
            yield from node.sub_plans


def name_of(node: Node) -> str | None:
    """Return the name of a node's agent, model or tool."""
    if isinstance(node, ThinkActNode):
        return node.model or node.requested_model
    return node.name if isinstance(node, ToolCallNode) else node.agent_name


def text_of(node: Node) -> str | None:
    """Return what a node is about: a title, request, thought or arguments."""
    if isinstance(node, PlanNode):
        return node.title or node.user_request
    if isinstance(node, StepNode):
        return node.request
    return node.thought if isinstance(node, ThinkActNode) else node.arguments


def error_of(node: Node) -> str | None:
    """Return the type and the message of a node's error; None without an error."""
    if node.error is None:
        return None
    return ": ".join(part for part in (node.error["type"], node.error["message"]) if part) or None


class Walk:
    """The nodes of a tree in document order, each with its parent and level."""

    def __init__(self, top: Node) -> None:
        self.nodes: list[Node] = []
        self.parents: list[int] = []
        self.levels: list[int] = []
        self.child_counts: list[int] = []
        stack: list[tuple[Node, int, int]] = [(top, -1, 0)]
        while stack:
            node, parent, level = stack.pop()
            index = len(self.nodes)
            self.nodes.append(node)
            self.parents.append(parent)
            self.levels.append(level)
            below = [*children(node)]
            self.child_counts.append(len(below))
            stack += [(child, index, level + 1) for child in below[::-1]]

    def above(self, index: int) -> Iterator[int]:
        """Yield the indexes of the nodes above a node, nearest first."""
        while (index := self.parents[index]) >= 0:
            yield index


def whole_duration(walk: Walk) -> float | None:
    """Return the duration of a node; of the first run of a piece of work, that of all parts."""
    top = walk.nodes[0]
    parts = [node for node in walk.nodes[1:] if isinstance(node, PlanNode) and node.continues]
    ends = [each.finished_at for each in (top, *parts) if each.status != ABANDONED]
    ended = [each for each in ends if each is not None]
    if not parts or not ended or top.started_at is None:
        return top.duration_ms
    is_open = len(ended) < len(ends)
    return None if is_open else (max(ended) - top.started_at).total_seconds() * 1000


def outline(
    tree: Node,
    budget: int,
    marks: Mapping[str, str] = MappingProxyType({}),
    *,
    root: PlanNode | None = None,
) -> Outline:
    """Return the outline of a tree, whose text has at most `budget` tokens.

    Args:
        tree: The root, from `build_tree`, or any node of such a tree.
        budget: The number of tokens; see `TOKEN_BYTES`.
        marks: Notes to records by id. Marked records are shown first.
        root: The root of the tree, if `tree` is a node below it.

    Raises:
        BadRequest: The budget is too small.
    """
    root = root or (tree if isinstance(tree, PlanNode) else None)
    walk = Walk(tree)
    shown = Outline(
        id=id_of(tree),
        handle=handle(id_of(tree)),
        root_plan_id=root.root_plan_id if root else id_of(tree),
        title=text_of(tree),
        status=tree.status,
        reason=tree.reason,
        duration_ms=whole_duration(walk),
        totals=tree.cumulative,
        records=len(walk.nodes),
        lines=[],
    )
    room = budget_bytes(budget) - len(shown.text().encode())
    lines = _fill(walk, room, _by_importance(walk, root, marks), marks)
    _fold(walk, lines)
    shown.lines = [lines[index] for index in sorted(lines)]
    return shown


def outline_below(tree: PlanNode, record_id: str, budget: int) -> Outline:
    """Return the outline of a record of a tree; of the whole tree if the tree lacks the record."""
    walk = Walk(tree)
    below = next((node for node in walk.nodes if id_of(node) == record_id), tree)
    return outline(below, budget, root=tree)


def kind_of(tree: PlanNode, record_id: str) -> Kind:
    """Return the kind of a record of a tree; `run` if the tree lacks the record."""
    return next((node.kind for node in Walk(tree).nodes if id_of(node) == record_id), Kind.RUN)


def _by_importance(walk: Walk, root: PlanNode | None, marks: Mapping[str, str]) -> Iterator[int]:
    """Yield the indexes of the nodes, the most important first. Indexes may repeat."""
    origins = {each.id: each.is_handled for each in (root and root.failure_origins) or ()}
    ranks: list[list[int]] = [[], [], [], []]
    for index, node in enumerate(walk.nodes):
        if marks and id_of(node) in marks:
            ranks[0].append(index)
        elif node.status == "failed" and id_of(node) in origins:
            ranks[3 if origins[id_of(node)] else 1].append(index)
        elif node.status in OPEN:
            ranks[2].append(index)
    total = walk.nodes[0]
    by_size = sorted(range(len(walk.nodes)), key=lambda index: _size(walk.nodes[index], total))
    yield 0
    yield from chain(*ranks[:3])
    for position, index in enumerate(by_size):  # alternately: handled failures may be many
        if position < len(ranks[3]):
            yield ranks[3][position]
        yield index


def _size(node: Node, total: Node) -> float:
    """Return the negative share of the whole that a node has, to sort the largest first."""
    own, whole = node.cumulative, total.cumulative
    return -max(
        (node.duration_ms or 0) / (total.duration_ms or 1),
        (own.cost_usd or 0) / (whole.cost_usd or 1),
        (own.input_tokens + own.output_tokens) / (whole.input_tokens + whole.output_tokens or 1),
    )


def _fill(
    walk: Walk, room: int, indexes: Iterable[int], marks: Mapping[str, str]
) -> dict[int, OutlineLine]:
    """Return the lines that fit into `room` bytes, by index. The first line always fits."""
    lines: dict[int, OutlineLine] = {}
    shown_children: Counter[int] = Counter()
    refused = 0
    for index in indexes:
        if index in lines:
            continue
        path, needed = _path(walk, index, lines, marks, room)
        if lines and needed > room:
            last, line = path.popitem()
            path, needed = {last: line}, _size_of(line) + FOLD_BYTES + SKIP_BYTES
        if lines and needed > room:
            refused += 1
            if refused > MOST_REFUSED:  # what is less important is hardly smaller
                break
            continue
        room -= needed
        lines |= path
        for each in path:
            shown_children[walk.parents[each]] += 1
        for each in {*path, *(walk.parents[each] for each in path)} & lines.keys():
            if walk.child_counts[each] and shown_children[each] == walk.child_counts[each]:
                room += FOLD_BYTES  # nothing below it is folded
    return lines


def _path(
    walk: Walk, index: int, lines: Mapping[int, OutlineLine], marks: Mapping[str, str], room: int
) -> tuple[dict[int, OutlineLine], int]:
    """Return the lines of a node and of the hidden nodes above it, and their size in bytes.

    The path may be incomplete if it does not fit into `room` bytes. The node itself comes last.
    """
    path: dict[int, OutlineLine] = {}
    needed = 0
    for each in chain([index], walk.above(index)):
        if each in lines or (path and needed > room):
            break
        path[each] = _line(walk, each, marks)
        fold = FOLD_BYTES if walk.child_counts[each] else 0
        needed += _size_of(path[each]) + fold
    return dict([*path.items()][::-1]), needed


def _size_of(line: OutlineLine) -> int:
    return len(_text_of(line).encode()) + 1


def _line(walk: Walk, index: int, marks: Mapping[str, str]) -> OutlineLine:
    node = walk.nodes[index]
    record_id = id_of(node)
    failed = node.status in ("failed", "cancelled")
    return OutlineLine(
        kind=str(node.kind),
        id=record_id,
        handle=handle(record_id),
        level=walk.levels[index],
        skipped=0,
        name=name_of(node),
        status=node.status,
        reason=node.reason,
        duration_ms=node.duration_ms,
        totals=node.cumulative,
        text=(error_of(node) if failed else None) or text_of(node),
        mark=marks.get(record_id),
    )


def _fold(walk: Walk, lines: dict[int, OutlineLine]) -> None:
    """Add up the hidden records in the nearest shown record above them."""
    nearest: list[int] = []
    for index, node in enumerate(walk.nodes):
        parent = walk.parents[index]
        if index in lines:
            nearest.append(index)
            if parent >= 0:
                above = lines[nearest[parent]]
                lines[index].skipped = walk.levels[index] - above.level - 1
            continue
        nearest.append(nearest[parent])
        holder = lines[nearest[parent]]
        folded = holder.folded = holder.folded or Folded({})
        word = WORDS[node.kind]
        folded.records[word] = folded.records.get(word, 0) + 1
        folded.failures += node.status == "failed"
        if parent in lines:  # the largest hidden parts: what is below them is in their figures
            folded.duration_ms += node.duration_ms or 0
            folded.cost_usd += node.cumulative.cost_usd or 0


def _written(lines: Sequence[OutlineLine]) -> Iterator[str]:
    """Yield the lines as text, each fold after the records that are shown below its record."""
    open_folds: list[OutlineLine] = []
    for line in lines:
        while open_folds and open_folds[-1].level >= line.level:
            yield _fold_text(open_folds.pop())
        yield _text_of(line)
        if line.folded is not None:
            open_folds.append(line)
    while open_folds:
        yield _fold_text(open_folds.pop())


def _indent(level: int) -> str:
    return " " * min(level, MOST_INDENT)


def _text_of(line: OutlineLine) -> str:
    kind = WORDS[Kind(line.kind)]
    status = "" if line.status == "succeeded" else ended(line.status, line.reason).upper()
    used = "" if kind == "call" else tokens(line.totals.input_tokens, line.totals.output_tokens)
    return _indent(line.level) + joined(
        f">>> {line.mark} >>>" if line.mark else "",
        f"(…{line.skipped} levels)" if line.skipped else "",
        kind,
        line.handle,
        name(line.name),
        status,
        duration(line.duration_ms),
        used,
        cost(line.totals.cost_usd),
        quoted(line.text, 60 if line.status == "succeeded" else 120),
    )


def _fold_text(line: OutlineLine) -> str:
    folded = line.folded
    assert folded is not None
    counts = ", ".join(counted(count, word) for word, count in sorted(folded.records.items()))
    return _indent(line.level + 1) + joined(
        f"+ folded: {counts}",
        f"({folded.failures:,} failed)" if folded.failures else "",
        duration(folded.duration_ms),
        cost(folded.cost_usd),
    )
