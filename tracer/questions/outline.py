"""The outline of a tree: one line for each record that fits the budget, the rest folded.

Records are shown in the order of their importance: the origin of the failure, open records, and
then, in turns, other failures and the records that took the greatest share of the run's time, cost
or tokens. Each is followed by the records above it. As many of them are shown as fit the budget. If
records above a shown one do not fit, its line has their number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, zip_longest
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from tracer.lineage.links import Part, whole_status
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
from tracer.records import ABANDONED, Kind, Status
from tracer.records.merge import RULES

WORDS = {Kind.PLAN: "plan", Kind.STEP: "step", Kind.THINK_ACT: "round", Kind.TOOL_CALL: "call"}
"""The word for each kind of record."""

OPEN = frozenset({"pending", "running", ABANDONED})

MOST_INDENT = 24
"""The largest indentation of a line in spaces."""

LEAST_LINE = 20
"""The fewest bytes of a line."""


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
            duration(self.duration_ms),
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
        stack: list[tuple[Node, int, int]] = [(top, -1, 0)]
        while stack:
            node, parent, level = stack.pop()
            index = len(self.nodes)
            self.nodes.append(node)
            self.parents.append(parent)
            self.levels.append(level)
            below = [*children(node)]
            stack += [(child, index, level + 1) for child in below[::-1]]

    def above(self, index: int) -> Iterator[int]:
        """Yield the indexes of the nodes above a node, nearest first."""
        while (index := self.parents[index]) >= 0:
            yield index

    def find(self, record_id: str) -> int:
        """Return the index of a record; 0 if the tree lacks it."""
        return next((i for i, node in enumerate(self.nodes) if id_of(node) == record_id), 0)


class Whole(NamedTuple):
    """How a record ended; of the first run of a piece of work, how the whole did."""

    status: str
    reason: str | None
    duration_ms: float | None


def whole_of(walk: Walk) -> Whole:
    """Return how the top of a tree ended, as the list of runs shows it."""
    top = walk.nodes[0]
    later = [node for node in walk.nodes[1:] if isinstance(node, PlanNode) and node.continues]
    if not isinstance(top, PlanNode) or top.plan_id != top.root_plan_id or not later:
        return Whole(top.status, top.reason, top.duration_ms)
    parts = [top, *sorted(later, key=lambda plan: plan.position or 0)]
    status = whole_status([_part_of(each) for each in parts]) or top.status
    if status == ABANDONED or not Status(status).is_ending:
        return Whole(status, None, None)
    last = [each for each in parts if not (each.continues and each.continues.is_inside)][-1]
    ends = [each.finished_at for each in parts if each.finished_at is not None]
    if not ends or top.started_at is None:
        return Whole(status, last.reason, None)
    return Whole(status, last.reason, (max(ends) - top.started_at).total_seconds() * 1000)


def _part_of(plan: PlanNode) -> Part:
    continued = plan.continues or None
    return Part(
        UUID(plan.root_plan_id),
        plan.started_at or datetime.min.replace(tzinfo=UTC),
        plan.status,
        continued and UUID(continued.root_plan_id),
        continued is not None and continued.is_inside,
    )


def outline(tree: PlanNode, budget: int, record_id: str | None = None) -> Outline:
    """Return the outline of a tree, whose text has at most `budget` tokens.

    Args:
        tree: A plan with everything below it, from `build_tree`.
        budget: The number of tokens; see `TOKEN_BYTES`.
        record_id: The record of the tree with which the outline begins; by default, the plan. If
            the tree lacks the record, the outline begins with the plan, too.

    Raises:
        BadRequest: The budget is too small.
    """
    walk = Walk(tree)
    if record_id is not None and (at := walk.find(record_id)):
        walk = Walk(walk.nodes[at])
    top, whole = walk.nodes[0], whole_of(walk)
    shown = Outline(
        id=id_of(top),
        handle=handle(id_of(top)),
        root_plan_id=tree.root_plan_id,
        title=text_of(top),
        status=whole.status,
        reason=whole.reason,
        duration_ms=whole.duration_ms,
        totals=top.cumulative,
        records=len(walk.nodes),
        lines=[],
    )
    order, room = _by_importance(walk, tree), budget_bytes(budget)

    def is_too_long(count: int) -> bool:
        shown.lines = _lines(walk, order[:count])
        return len(shown.text().encode()) > room

    most = min(len(order), room // LEAST_LINE)
    count = bisect_left(range(1, most + 1), True, key=is_too_long)
    shown.lines = _lines(walk, order[: max(1, count)])
    return shown


def _by_importance(walk: Walk, tree: PlanNode) -> list[int]:
    """Return the indexes of the nodes, the most important first, each before those above it."""
    index_of = {id_of(node): index for index, node in enumerate(walk.nodes)}
    failures = [index_of[each.id] for each in tree.failure_origins or () if each.id in index_of]
    still_open = [index for index, node in enumerate(walk.nodes) if node.status in OPEN]
    by_size = sorted(index_of.values(), key=lambda index: _size(walk.nodes[index], walk.nodes[0]))
    in_turns = chain.from_iterable(zip_longest(failures, by_size))  # both may be many
    found = {0: None}
    for index in chain(failures[:1], still_open, in_turns):
        while index is not None and index not in found:
            found[index] = None
            index = walk.parents[index]
    return [*found]


def _size(node: Node, total: Node) -> float:
    """Return the negative share of the whole that a node has, to sort the largest first."""
    own, whole = node.cumulative, total.cumulative
    return -max(
        (node.duration_ms or 0) / (total.duration_ms or 1),
        (own.cost_usd or 0) / (whole.cost_usd or 1),
        (own.input_tokens + own.output_tokens) / (whole.input_tokens + whole.output_tokens or 1),
    )


def _lines(walk: Walk, indexes: Iterable[int]) -> list[OutlineLine]:
    """Return the lines of some nodes, in document order, with the folded records below them."""
    lines = {index: _line(walk, index) for index in sorted(indexes)}
    _fold(walk, lines)
    return [*lines.values()]


def _line(walk: Walk, index: int) -> OutlineLine:
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
        if parent in lines:  # only the topmost hidden records: their figures include those below
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
