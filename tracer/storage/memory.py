"""A recording in memory, for tests and for programs without a database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tracer.clock import utc_now
from tracer.errors import BadRequest, RecordNotFound
from tracer.lineage import PAYLOAD_FIELDS, TreeRows, build_tree
from tracer.lineage.tree import NODES, ROWS, PlanNode
from tracer.records import DEFAULT_TERMS, Kind, Lease, Run
from tracer.records.events import Event
from tracer.records.masks import size_of
from tracer.records.merge import RULES, merge_records, partial_records
from tracer.records.record_classes import RECORDS
from tracer.redaction import standard_redaction
from tracer.redaction.events import redacted_events
from tracer.store import AnyRecord, Erasure, Exchange, WriteAnswer

if TYPE_CHECKING:
    from tracer.records.spans import TraceSpans


def recording_in_memory() -> RecordingInMemory:
    """Return an empty recording. Pass it to a `Recorder` or a `RunLauncher` in place of a store."""
    return RecordingInMemory()


class RecordingInMemory:
    """Keeps events until the process ends, and returns their records and trees.

    It implements the methods of `TraceWriter` and `TraceReader` that a recorder and a launcher call
    while a run works. It has no OpenTelemetry spans, lists, cancel requests or histories.
    """

    def __init__(self) -> None:
        """Create an empty recording."""
        self.events: list[Event] = []
        """The events in the order in which they were written. Secrets in them are masked."""

    def trees(self) -> list[PlanNode]:
        """Return the trees of all runs, ordered by id and therefore by time."""
        return [self.tree(run_id) for run_id in sorted({e.root_plan_id for e in list(self.events)})]

    def tree(self, root_plan_id: UUID) -> PlanNode:
        """Return the root plan of a run with everything below it.

        Raises:
            RecordNotFound: No event of the run was written.
        """
        return build_tree(self.rows(root_plan_id), str(root_plan_id))

    def rows(self, root_plan_id: UUID) -> TreeRows:
        """Return the nodes of a run without links between them; see `tree`."""
        nodes = {
            kind: [node_of(kind, record) for record in self.records(kind, root_plan_id)]
            for kind in RECORDS
        }
        if not nodes[Kind.PLAN]:
            raise RecordNotFound("plan", root_plan_id)
        return TreeRows(
            nodes[Kind.PLAN], nodes[Kind.STEP], nodes[Kind.THINK_ACT], nodes[Kind.TOOL_CALL]
        )

    def records(self, kind: Kind, root_plan_id: UUID) -> list[Any]:
        """Return a run's plans, steps, think-acts or tool calls, by position and then by id."""
        events = [event for event in list(self.events) if event.root_plan_id == root_plan_id]
        id_field = RULES[kind].id_field
        records = [
            RECORDS[kind](**{**fields, "root_plan_id": run_id, id_field: record_id})
            for (run_id, record_id), fields in merge_records(partial_records(events))[kind].items()
        ]
        return in_order(kind, records)

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        """Keep events."""
        self.events += redacted_events(events, standard_redaction().of_write())
        return WriteAnswer(len(events))

    async def renew(self, recorder_id: UUID) -> Lease:
        """Return a lease that nothing checks."""
        return Lease(recorder_id, utc_now(), DEFAULT_TERMS.lease)

    async def find_cancel_requests(self, root_plan_ids: Collection[UUID]) -> set[UUID]:
        """Return no runs."""
        return set()

    async def list_exchanges(self, root_plan_ids: Sequence[UUID]) -> list[Exchange]:
        """Return no exchanges."""
        return []

    async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        """Reject all spans."""
        raise BadRequest(_ONLY_EVENTS)

    async def delete_run(self, root_plan_id: UUID, *, all_parts: bool = True) -> None:
        """Reject the request, as the next two methods do."""
        raise BadRequest(_ONLY_EVENTS)

    async def delete_subject(self, subject: str) -> Erasure:
        """Reject the request."""
        raise BadRequest(_ONLY_EVENTS)

    async def request_cancel(self, root_plan_id: UUID) -> Run:
        """Reject the request."""
        raise BadRequest(_ONLY_EVENTS)


_ONLY_EVENTS = "A recording in memory keeps only events. Use a server for this."


def in_order(kind: Kind, records: Iterable[Any]) -> list[Any]:
    """Sort records of one kind by position, then by id. Records without a position come last."""
    id_field = RULES[kind].id_field
    return sorted(
        records, key=lambda r: (r.position is None, r.position or 0, getattr(r, id_field))
    )


def node_of(kind: Kind, record: AnyRecord) -> Any:
    """Return a record as a node of a tree, with complete payloads."""
    values: dict[str, Any] = dict.fromkeys(("duration_ms", "error"))
    if record.started_at and record.finished_at:
        values["duration_ms"] = (record.finished_at - record.started_at) / timedelta(milliseconds=1)
    error = (record.error_type, record.error_message, record.error_stack)
    if error != (None, None, None):
        values["error"] = dict(zip(("type", "message", "stack"), error, strict=True))
    for field in PAYLOAD_FIELDS[kind]:
        text = getattr(record, field)
        values |= {f"{field}_bytes": None if text is None else size_of(text)}
        values |= {f"{field}_truncated": False}
    values |= {"status": record.shown_status, "masked": record.masked or None}
    for field in ROWS[kind].__struct_fields__:
        if field not in values:
            values[field] = _plain(getattr(record, field))
    return NODES[kind](**values)


def _plain(value: object) -> object:
    """Return an id or an enum as text, a decimal as a float, and other values unchanged."""
    match value:
        case UUID():
            return str(value)
        case Decimal():
            return float(value)
        case Enum():
            return value.value
    return value
