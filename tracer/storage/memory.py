"""A recording in memory, for tests and for programs without a database.

Its trees are those of a server: events are merged by `tracer.records.merge`, spans are projected by
`tracer.otel.projection`, and `tracer.lineage` builds the trees of both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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
from tracer.records.merge import RULES, Fields, merge_records, partial_records
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
    while a run works. It has no lists, cancel requests, histories or links between runs. Reading
    spans needs the extra `otel`.
    """

    def __init__(self) -> None:
        """Create an empty recording."""
        self.events: list[Event] = []
        """The events in the order in which they were written. Secrets in them are masked."""
        self.spans: list[TraceSpans] = []
        """The spans, likewise."""

    def clear(self) -> None:
        """Remove everything that was recorded."""
        self.events.clear()
        self.spans.clear()

    def trees(self) -> list[PlanNode]:
        """Return the trees of all runs, the earliest first.

        As in the lists of a server, traces without agent, model or tool work are omitted.
        """
        of_events = {event.root_plan_id for event in list(self.events)}
        of_spans = {UUID(bytes=each.trace_id) for each in list(self.spans)} - of_events
        trees = [
            tree
            for run_id in [*sorted(of_events), *sorted(of_spans)]
            if (tree := self.tree(run_id)).agent_executions or tree.unplaced or run_id in of_events
        ]
        return sorted(trees, key=lambda tree: (tree.started_at is None, tree.started_at))

    def tree(self, root_plan_id: UUID) -> PlanNode:
        """Return the root plan of a run with everything below it.

        Raises:
            RecordNotFound: Nothing of the run was written.
        """
        return build_tree(self.rows(root_plan_id), str(root_plan_id))

    def rows(self, root_plan_id: UUID) -> TreeRows:
        """Return the nodes of a run without links between them; see `tree`."""
        fields, unread = self._fields(root_plan_id)
        nodes = {
            kind: [node_of(kind, record) for record in _records(kind, root_plan_id, fields[kind])]
            for kind in RECORDS
        }
        if not nodes[Kind.PLAN]:
            raise RecordNotFound("plan", root_plan_id)
        return TreeRows(
            nodes[Kind.PLAN],
            nodes[Kind.STEP],
            nodes[Kind.THINK_ACT],
            nodes[Kind.TOOL_CALL],
            unread_spans=unread,
        )

    def records(self, kind: Kind, root_plan_id: UUID) -> list[Any]:
        """Return a run's plans, steps, think-acts or tool calls, by position and then by id."""
        return _records(kind, root_plan_id, self._fields(root_plan_id)[0][kind])

    def _fields(self, root_plan_id: UUID) -> tuple[dict[Kind, dict[UUID, Fields]], int]:
        """Return the fields of a run's records, and the number of spans that no rule could read."""
        events = [event for event in list(self.events) if event.root_plan_id == root_plan_id]
        messages = [each.message for each in self.spans if each.trace_id == root_plan_id.bytes]
        if events or not messages:
            merged = merge_records(partial_records(events))
            return {
                kind: {id_: each for (_, id_), each in merged[kind].items()} for kind in RECORDS
            }, 0
        from tracer.otel.projection import fields_of, project_run

        run = project_run(messages)
        return {
            kind: {UUID(bytes=id_): fields_of(kind, row) for id_, row in run.rows[kind].items()}
            for kind in RECORDS
        }, run.unread.total()

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
        """Keep spans."""
        return self.add_spans(traces)

    def add_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        """Keep spans. Unlike `write_spans`, this needs no event loop."""
        from tracer.otel.otlp import redacted_traces

        self.spans += redacted_traces(traces, standard_redaction())
        return WriteAnswer(sum(each.count for each in traces))

    async def delete_run(self, root_plan_id: UUID, *, all_parts: bool = True) -> None:
        """Reject the request, as the next three methods do."""
        raise BadRequest(_NEEDS_SERVER)

    async def delete_subject(self, subject: str) -> Erasure:
        """Reject the request."""
        raise BadRequest(_NEEDS_SERVER)

    async def delete_session(self, session_id: str) -> Erasure:
        """Reject the request."""
        raise BadRequest(_NEEDS_SERVER)

    async def request_cancel(self, root_plan_id: UUID) -> Run:
        """Reject the request."""
        raise BadRequest(_NEEDS_SERVER)


_NEEDS_SERVER = "A recording in memory cannot do this. Use a server."

PATIENCE_SECONDS = 3600.0
"""How many seconds a recorder waits for this store. There is no spool."""

process_memory = RecordingInMemory()
"""Where `tracer.connect()` records if `TRACER_URL` is `memory:`."""


def _records(kind: Kind, root_plan_id: UUID, fields_by_id: Mapping[UUID, Fields]) -> list[Any]:
    id_field = RULES[kind].id_field
    records = [
        RECORDS[kind](**{**fields, "root_plan_id": root_plan_id, id_field: record_id})
        for record_id, fields in fields_by_id.items()
    ]
    return in_order(kind, records)


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
