"""Explain the outcome of a run: the path from its root to the record that caused it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from tracer.lineage.tree import Node, PlanNode, StepNode, ThinkActNode, ToolCallNode
from tracer.questions.outline import (
    OPEN,
    WORDS,
    Walk,
    ended,
    id_of,
    name_of,
    text_of,
    whole_of,
)
from tracer.questions.text import (
    block,
    budget_bytes,
    counted,
    duration,
    handle,
    joined,
    name,
    quoted,
    within,
)
from tracer.records import ABANDONED, Kind
from tracer.records.conversation import conversation
from tracer.records.record_classes import Outcome

Because = Literal["failed", "handled", "abandoned", "open", "slow", "record"]

LEAVES = 8
"""How many calls of the path are shown next to its end."""


class Hop(Struct, rename="camel"):
    """A call of the path, the round that chose it, and the agent that made it."""

    id: str
    handle: str
    kind: str
    name: str | None
    status: str
    duration_ms: float | None
    text: str | None
    agent: str | None = None
    round_id: str | None = None
    thought: str | None = None


class Why(Struct, rename="camel"):
    """The explanation of a run's outcome."""

    root_plan_id: str
    handle: str
    title: str | None
    status: str
    reason: str | None
    duration_ms: float | None
    because: Because
    """The kind of cause at the end of the path; `record` if the question named a record."""
    origin: Hop
    levels: int
    """The number of agents above the one in which it began."""
    path: list[Hop]
    """The calls from the root down to the origin, which is the last one."""
    error_type: str | None
    error: str | None
    stack: str | None
    """The last lines of the stack that belong to no library."""
    saw: str | None
    """The end of the messages to the model that chose the origin."""
    others: dict[str, int]
    """The other failures, by name and error, with their numbers."""
    budget: int

    def text(self) -> str:
        """Return the explanation as text."""
        most = budget_bytes(self.budget)
        return within(self._lines(most), most)

    def _lines(self, most: int) -> Iterator[str]:
        origin = self.origin
        words = {
            "failed": "It failed because of",
            "handled": "It did not fail. Most important handled failure:",
            "abandoned": "Its process died during",
            "open": "It waits for",
            "slow": "Nothing failed. Most of its time went to",
            "record": "The path leads to",
        }
        run_is = joined(f"run {self.handle}", ended(self.status, self.reason))
        yield joined(run_is, duration(self.duration_ms), quoted(self.title, 80))
        yield f"{words[self.because]} {_headline(origin)}, {counted(self.levels, 'agent')} down."
        yield f"origin {origin.handle} id {origin.id}"
        if self.error_type or self.error:
            yield f"error {name(self.error_type)}:"
            yield from block(self.error or "", most // 5)
        if self.stack:
            yield "stack:"
            yield from block(self.stack, most // 5)
        yield "path:"
        path = self.path
        if len(path) > LEAVES + 1:
            path = [path[0], *path[-LEAVES:]]
        for position, hop in enumerate(path):
            if position == 1 and len(path) < len(self.path):
                yield f" … {counted(len(self.path) - len(path), 'call')} between"
            yield " " * (position + 1) + self._hop(hop, most // (3 * len(path)))
        if self.saw:
            yield f"before it, the model ({_round(origin)}) saw:"
            yield from block(self.saw, most // 6)
        if self.others:
            yield f"other failures: {sum(self.others.values()):,}"
            for what, count in sorted(self.others.items(), key=lambda item: -item[1])[:5]:
                yield f"  {count:,} × {what}"

    def _hop(self, hop: Hop, most: int) -> str:
        chosen = quoted(hop.thought, min(100, most // 3)) if hop.thought else ""
        return joined(
            f"{name(hop.agent)}:" if hop.agent else "",
            chosen and f"{_round(hop)} {chosen} →",
            _headline(hop),
            quoted(hop.text, max(40, min(300, most - 100))),
        )


def _round(hop: Hop) -> str:
    return f"round {handle(hop.round_id)}" if hop.round_id else "round"


def _headline(hop: Hop) -> str:
    status = "" if hop.status == "succeeded" else hop.status.upper()
    kind = WORDS[Kind(hop.kind)]
    return joined(kind, hop.handle, name(hop.name), status, duration(hop.duration_ms))


@dataclass(frozen=True)
class Target:
    """The record to which an explanation leads."""

    tree: PlanNode
    walk: Walk
    because: Because
    path: list[Node]
    """The records from the root down to it."""

    @property
    def origin(self) -> Node:
        """The record."""
        return self.path[-1]

    @property
    def round_id(self) -> str | None:
        """The id of the round that chose the record, or of the record if it is a round.

        None if no round chose it.
        """
        rounds = (node for node in self.path[::-1] if isinstance(node, ThinkActNode))
        return next((node.think_act_id for node in rounds), None)


def target_of(tree: PlanNode, record_id: str | None = None) -> Target:
    """Return the record that explains a run's outcome.

    Args:
        tree: The run, from `build_tree`.
        record_id: The record that the question is about; None or the run's id: the whole run.
    """
    walk = Walk(tree)
    because, at = _cause(tree, walk)
    if record_id not in (None, tree.plan_id):
        because, at = "record", walk.find(record_id)
    return Target(tree, walk, because, [walk.nodes[each] for each in (at, *walk.above(at))][::-1])


def _cause(tree: PlanNode, walk: Walk) -> tuple[Because, int]:
    """Return the kind of cause of a run's outcome, and the index of the record that caused it."""
    failures = tree.failure_origins or ()
    if failures and not failures[0].is_handled:
        return "failed", walk.find(failures[0].id)
    open_nodes = [index for index, node in enumerate(walk.nodes) if node.status in OPEN]
    if open_nodes and whole_of(walk).status != "succeeded":
        # Records above other open records are open, too: the last one in the tree waits for none.
        deepest = open_nodes[-1]
        return "abandoned" if walk.nodes[deepest].status == ABANDONED else "open", deepest
    if failures:
        return "handled", walk.find(failures[0].id)
    own = [node.duration_ms or 0.0 for node in walk.nodes]
    for index, node in enumerate(walk.nodes[1:], 1):
        own[walk.parents[index]] -= node.duration_ms or 0.0
    return "slow", max(range(len(own)), key=own.__getitem__)


def explain(
    target: Target, budget: int, record: Outcome | None = None, messages: str | None = None
) -> Why:
    """Return the explanation of a run's outcome.

    Args:
        target: See `target_of`.
        budget: The number of tokens of the text.
        record: The complete record of the origin; by default, its node has the error.
        messages: The messages to the model whose round chose the origin.

    Raises:
        BadRequest: The budget is too small.
    """
    budget_bytes(budget)
    tree, nodes, origin, whole = target.tree, target.path, target.origin, whole_of(target.walk)
    path = [*_hops(nodes)]
    error = origin.error or {"type": None, "message": None, "stack": None}
    failures = {each.id for each in tree.failure_origins or ()} - {id_of(origin)}
    others = Counter(_what_failed(node) for node in target.walk.nodes if id_of(node) in failures)
    return Why(
        root_plan_id=tree.root_plan_id,
        handle=handle(tree.root_plan_id),
        title=tree.title or tree.user_request,
        status=whole.status,
        reason=whole.reason,
        duration_ms=whole.duration_ms,
        because=target.because,
        origin=path[-1],
        levels=sum(isinstance(node, PlanNode) for node in nodes) - 1,
        path=path,
        error_type=record.error_type if record else error["type"],
        error=record.error_message if record else error["message"],
        stack=useful_lines(record.error_stack if record else error["stack"]),
        saw=_last_message(messages),
        others=dict(others),
        budget=budget,
    )


def _hops(nodes: Sequence[Node]) -> Iterator[Hop]:
    """Yield the calls of a path of nodes, and its last node."""
    agent: str | None = None
    chosen_by: ThinkActNode | None = None
    for node in nodes:
        if isinstance(node, (PlanNode, StepNode)):
            agent = node.agent_name or agent
        if isinstance(node, ThinkActNode):
            chosen_by = node
        if isinstance(node, ToolCallNode) or node is nodes[-1]:
            yield Hop(
                id=id_of(node),
                handle=handle(id_of(node)),
                kind=str(node.kind),
                name=name_of(node),
                status=node.status,
                duration_ms=node.duration_ms,
                text=text_of(node),
                agent=agent,
                round_id=chosen_by.think_act_id if chosen_by else None,
                thought=chosen_by.thought if chosen_by and chosen_by is not node else None,
            )
            chosen_by = None


def _what_failed(node: Node) -> str:
    error = node.error["type"] if node.error else node.reason
    return joined(WORDS[node.kind], name(name_of(node)), name(error) if error else "")


def _last_message(messages: str | None) -> str | None:
    """Return the last message that is no system message, as text."""
    for message in reversed(conversation(messages) or ()):
        texts = [getattr(part, "text", None) for part in message.parts]
        if message.role != "system" and any(texts):
            return f"{message.role}: " + "\n".join(filter(None, texts))
    return None


_FRAME = re.compile(r"^\s*(File \"|at |#\d+ )")
_LIBRARY = re.compile(r"site-packages|dist-packages|node_modules|node:|/lib/python3|<frozen ")

STACK_LINES = 12


def useful_lines(stack: str | None) -> str | None:
    """Return the lines of a stack trace that show where the program's own code failed.

    Frames of libraries are left out, if other frames remain, and then all but the last lines.
    """
    if not stack:
        return None
    lines = [line for line in stack.splitlines() if line.strip()]
    frames: list[list[str]] = [[]]
    for line in lines:
        if _FRAME.match(line):
            frames.append([])
        frames[-1].append(line)
    own = [frame for frame in frames[1:] if not _LIBRARY.search(frame[0])]
    if own and len(own) < len(frames) - 1:
        last = [line for line in frames[-1] if not line.startswith(" ")]
        lines = [line for frame in own for line in frame]
        lines += [line for line in last if line not in lines]
    return "\n".join(lines[-STACK_LINES:])
