"""Trees and their rows as a test reads and makes them: dictionaries, under the API's names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from tracer.lineage import Payloads, Revision, Row
from tracer.lineage import tree as lineage
from tracer.lineage.tree import NODES, ROWS, UNSTORED
from tracer.records import Kind
from tracer.storage.memory import RecordingInMemory
from tracer.store import TraceReader

Node = dict[str, Any]


@dataclass
class TreeRows:
    """`tracer.lineage.tree.TreeRows`, of dictionaries."""

    plans: list[Node] = field(default_factory=list)
    steps: list[Node] = field(default_factory=list)
    think_acts: list[Node] = field(default_factory=list)
    tool_calls: list[Node] = field(default_factory=list)
    opener: Node | None = None
    revision: Revision = UNSTORED


async def read_tree(
    reader: TraceReader | RecordingInMemory, plan_id: UUID, payloads: Payloads
) -> TreeRows:
    """Return the rows that a store reads. A recording in memory has complete payloads only."""
    if isinstance(reader, RecordingInMemory):
        assert payloads is Payloads.FULL
        rows = reader.rows(plan_id)
    else:
        rows = await reader.read_tree(plan_id, payloads)
    return plain_rows(rows)


def plain_rows(rows: lineage.TreeRows) -> TreeRows:
    """Return rows as dictionaries."""
    return TreeRows(
        [plain_row(each) for each in rows.plans],
        [plain_row(each) for each in rows.steps],
        [plain_row(each) for each in rows.think_acts],
        [plain_row(each) for each in rows.tool_calls],
        None if rows.opener is None else plain_row(rows.opener),
        rows.revision,
    )


def build_tree(rows: TreeRows, plan_id: str, depth: int | None = None) -> Node:
    """Return the tree that `build_tree` builds. Fields that a row lacks are None."""
    return plain(built(rows, plan_id, depth))


def built(rows: TreeRows, plan_id: str, depth: int | None = None) -> lineage.PlanNode:
    """As `build_tree`, with nodes."""
    opener = [] if rows.opener is None else [rows.opener]
    made = lineage.TreeRows(
        _nodes(Kind.PLAN, rows.plans),
        _nodes(Kind.STEP, rows.steps),
        _nodes(Kind.THINK_ACT, rows.think_acts),
        _nodes(Kind.TOOL_CALL, rows.tool_calls),
        next(iter(_nodes(Kind.TOOL_CALL, opener)), None),
        rows.revision,
    )
    return lineage.build_tree(made, plan_id, depth)


def plain(node: Row) -> Node:
    """Return a row or node as a dictionary, with all below it."""
    return complete(msgspec.to_builtins(node, builtin_types=(datetime,)))


def complete(node: Node) -> Node:
    """Add the fields that JSON leaves out to a record of a tree, and to all records below it."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        for known in msgspec.structs.fields(NODES[Kind(each["kind"])]):
            value = known.default
            if known.default_factory is list:
                value = []
            if value not in (msgspec.UNSET, msgspec.NODEFAULT):
                each.setdefault(known.encode_name, msgspec.to_builtins(value))
        for name in ("agentExecutions", "thinkActs", "toolCalls", "subPlans", "unplaced"):
            waiting += each.get(name, ())
    return node


def plain_row(row: Row) -> Node:
    """Return the fields of a row or node."""
    fields = ROWS[row.kind]
    names = zip(fields.__struct_encode_fields__, fields.__struct_fields__, strict=True)
    return {"kind": row.kind, **{encoded: getattr(row, name) for encoded, name in names}}


def _nodes(kind: Kind, rows: Iterable[Node]) -> list[Any]:
    fields = ROWS[kind]
    names = dict(zip(fields.__struct_encode_fields__, fields.__struct_fields__, strict=True))
    return [
        NODES[kind](**{names[name]: value for name, value in row.items() if name != "kind"})
        for row in rows
    ]
