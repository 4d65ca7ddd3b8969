"""Builds the rows of a tree from records in memory. `postgres/read/tree.py` does it with SQL."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from typing import Any, TypeVar
from uuid import UUID

from tracer.lineage.digests import digest_of
from tracer.lineage.nodes import NODES, PAYLOAD_FIELDS, ROWS, Row, ToolCallNode
from tracer.lineage.tree import Payloads, Revision, TreeRows
from tracer.records.merge import RULES
from tracer.records.record_classes import Kind
from tracer.redaction.payloads import size_of
from tracer.store import AnyRecord
from tracer.text import PREVIEW_BYTES, preview

Records = dict[Kind, dict[UUID, Any]]
"""All records of one run (`tracer.store.AnyRecord`), by kind and id, without the run itself."""


def tree_rows(records: Records, plan_id: UUID, payloads: Payloads, revision: Revision) -> TreeRows:
    """Return the rows of a plan and of everything below it.

    For a root plan, these are all rows of the run, including those without a known parent.

    Args:
        records: The records of the plan's run.
        plan_id: The plan.
        payloads: Which form of long strings the rows contain.
        revision: The run's revision.
    """
    top = records[Kind.PLAN][plan_id]
    opener = records[Kind.TOOL_CALL].get(top.tool_call_id)
    if plan_id != top.root_plan_id:
        records = _below(records, plan_id)
    rows = {
        kind: [_row(NODES[kind], record, payloads) for record in in_order(kind, by_id.values())]
        for kind, by_id in records.items()
    }
    return TreeRows(
        rows[Kind.PLAN],
        rows[Kind.STEP],
        rows[Kind.THINK_ACT],
        rows[Kind.TOOL_CALL],
        None if opener is None else _row(ToolCallNode, opener, payloads),
        revision,
    )


def changed_rows(records: Records, after: int) -> list[Row]:
    """Return the rows, with previews, of the records changed after a revision."""
    return [
        _row(ROWS[kind], record, Payloads.PREVIEW)
        for kind, by_id in records.items()
        for record in in_order(kind, by_id.values())
        if record.revision > after
    ]


def in_order(kind: Kind, records: Iterable[Any]) -> list[Any]:
    """Sort records of one kind by position, then by id. Records without a position come last."""
    id_field = RULES[kind].id_field
    return sorted(
        records, key=lambda r: (r.position is None, r.position or 0, getattr(r, id_field))
    )


def _below(records: Records, plan_id: UUID) -> Records:
    plan_ids = {plan_id}
    while True:
        more = {id_ for id_, plan in records[Kind.PLAN].items() if plan.parent_plan_id in plan_ids}
        if more <= plan_ids:
            break
        plan_ids |= more
    plans = {id_: plan for id_, plan in records[Kind.PLAN].items() if id_ in plan_ids}
    steps = _linked(records[Kind.STEP], "plan_id", plans)
    return {
        Kind.PLAN: plans,
        Kind.STEP: steps,
        Kind.THINK_ACT: _linked(records[Kind.THINK_ACT], "step_id", steps),
        Kind.TOOL_CALL: _linked(records[Kind.TOOL_CALL], "step_id", steps),
    }


def _linked(records: dict[UUID, Any], link: str, parents: dict[UUID, Any]) -> dict[UUID, Any]:
    return {id_: record for id_, record in records.items() if getattr(record, link) in parents}


SomeRow = TypeVar("SomeRow", bound=Row)


def _row(made: type[SomeRow], record: AnyRecord, payloads: Payloads) -> SomeRow:
    """Convert a record to a row of the class `made`."""
    values = payload_fields(made.kind, record, payloads)
    values["status"] = record.shown_status
    values["masked"] = record.masked or None
    values["duration_ms"] = None
    if record.started_at and record.finished_at:
        values["duration_ms"] = (record.finished_at - record.started_at) / _MILLISECOND
    values["error"] = None
    if (record.error_type, record.error_message, record.error_stack) != (None, None, None):
        is_compared = payloads is Payloads.COMPARED
        of_messages = Payloads.FULL if is_compared else payloads
        of_stacks = Payloads.NONE if is_compared else payloads
        values["error"] = {
            "type": record.error_type,
            "message": _shown(record.error_message, of_messages),
            "stack": _shown(record.error_stack, of_stacks),
        }
    for field in ROWS[made.kind].__struct_fields__:
        if field not in values:
            values[field] = _plain(getattr(record, field))
    return made(**values)


_MILLISECOND = timedelta(milliseconds=1)


def payload_fields(kind: Kind, record: AnyRecord, payloads: Payloads) -> dict[str, Any]:
    """Return a record's payloads in the form `payloads`, their sizes, and whether each was cut."""
    values: dict[str, Any] = {}
    for field in PAYLOAD_FIELDS[kind]:
        text = getattr(record, field)
        size = None if text is None else len(text.encode())
        values[field] = _shown(text, payloads)
        values[f"{field}_bytes"] = None if text is None else size_of(text)
        values[f"{field}_truncated"] = size is not None and size > _LIMITS[payloads]
    return values


_LIMITS = {
    Payloads.NONE: 0,
    Payloads.PREVIEW: PREVIEW_BYTES,
    Payloads.FULL: float("inf"),
    Payloads.DIGEST: 0,
    Payloads.COMPARED: 0,
}


def _shown(text: str | None, payloads: Payloads) -> str | None:
    if text is None or payloads is Payloads.NONE:
        return None
    if payloads is Payloads.DIGEST:
        return sha256(text.encode()).hexdigest()
    if payloads is Payloads.COMPARED:
        return digest_of(text)
    return text if payloads is Payloads.FULL else preview(text)


def _plain(value: object) -> object:
    """Convert a value to the type that a row has: UUID and enum to text, decimal to float."""
    match value:
        case UUID():
            return str(value)
        case Decimal():
            return float(value)
        case Enum():
            return value.value
    return value
