"""Records of a recording in memory that its trees do not contain, and records without a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tests.otel.projections import project
from tracer.lineage import PAYLOAD_FIELDS, TreeRows, build_tree
from tracer.lineage.diff import digest_of
from tracer.lineage.tree import PlanNode
from tracer.otel.export import spans_of_records
from tracer.otel.projection import totals_of
from tracer.records import Kind, Run, Status
from tracer.records.events import Event
from tracer.records.merge import RULES, Reduced, merge_records, partial_records
from tracer.records.record_classes import FROM_ROOT_PLAN, RECORDS, ThinkActRecord
from tracer.records.spans import Span
from tracer.storage.memory import RecordingInMemory, in_order, node_of
from tracer.store import WholeRun

RECORDED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def run_from(merged: Reduced, run_id: UUID, recorded_at: datetime = RECORDED_AT) -> Run:
    """Return a run with its totals, from the merged records of one or more runs."""
    parts = {
        kind: {key[1]: fields for key, fields in merged[kind].items() if key[0] == run_id}
        for kind in RECORDS
    }
    root = parts[Kind.PLAN].get(run_id, {})
    fields = {name: root[name] for name in FROM_ROOT_PLAN if name in root}
    if fields.get("status", Status.UNKNOWN).is_ending:  # sub-plans may still run, or end later
        plans = parts[Kind.PLAN].values()
        if any(plan.get("status") is Status.RUNNING for plan in plans):
            fields |= {"status": Status.RUNNING, "finished_at": None, "reason": None}
        else:
            ends = [end for plan in plans if (end := plan.get("finished_at")) is not None]
            fields["finished_at"] = max(ends, default=None)
    fields |= totals_of(parts) | merged[Kind.RUN].get((run_id, run_id), {})
    return Run(**fields, root_plan_id=run_id, recorded_at=recorded_at)


def record_from(kind: Kind, key: tuple[UUID, UUID], fields: dict[str, Any]) -> Any:
    """Return a record, given the ids of its run and of itself."""
    ids = {"root_plan_id": key[0], RULES[kind].id_field: key[1]}
    return RECORDS[kind](**{"recorded_at": RECORDED_AT, **fields, **ids})


def runs_of(recording: RecordingInMemory) -> list[Run]:
    """Return the runs, ordered by id."""
    events = list(recording.events)
    merged = merge_records(partial_records(events))
    return [run_from(merged, run_id) for run_id in sorted({e.root_plan_id for e in events})]


def run_of(recording: RecordingInMemory, root_plan_id: UUID) -> Run:
    return next(run for run in runs_of(recording) if run.root_plan_id == root_plan_id)


def round_of(recording: RecordingInMemory, think_act_id: UUID) -> ThinkActRecord:
    """Return the complete record of a round, with the tools that it shares with another round."""
    run_ids = {event.root_plan_id for event in list(recording.events)}
    rounds: dict[UUID, ThinkActRecord] = {
        each.think_act_id: each
        for run_id in run_ids
        for each in recording.records(Kind.THINK_ACT, run_id)
    }
    found = rounds[think_act_id]
    if found.offered_tools is None and found.offered_tools_from is not None:
        found.offered_tools = rounds[found.offered_tools_from].offered_tools
    return found


def messages_of(recording: RecordingInMemory, root_plan_id: UUID) -> dict[UUID, str]:
    """Return the input messages of a run's rounds, by their ids."""
    rounds: list[ThinkActRecord] = recording.records(Kind.THINK_ACT, root_plan_id)
    return {each.think_act_id: each.messages for each in rounds if each.messages is not None}


def whole_run(events: Sequence[Event]) -> WholeRun:
    """Return the stored data of a run, without redaction."""
    merged = merge_records(partial_records(events))
    return WholeRun(
        run=run_from(merged, events[0].root_plan_id),
        source="events",
        records={
            kind: [record_from(kind, key, fields) for key, fields in sorted(merged[kind].items())]
            for kind in RECORDS
        },
    )


def spans_of_events(events: Sequence[Event]) -> list[Span]:
    """Return the spans as which a run of events is exported, without redaction."""
    run = whole_run(events)
    return list(spans_of_records(run.run, run.records))


def rows_of_spans(spans: Iterable[Span]) -> TreeRows:
    """Return the rows that a projection makes of the spans of one trace."""
    found = project(spans)
    rows = {}
    for kind in RECORDS:
        keys = {(found.root_plan_id, id_): fields for id_, fields in found.records[kind].items()}
        records = (record_from(kind, key, fields) for key, fields in keys.items())
        rows[kind] = [node_of(kind, record) for record in in_order(kind, records)]
    return TreeRows(rows[Kind.PLAN], rows[Kind.STEP], rows[Kind.THINK_ACT], rows[Kind.TOOL_CALL])


def compared_tree(rows: TreeRows) -> PlanNode:
    """Return the tree of a run as `Payloads.COMPARED` reads it."""
    nodes: list[Any] = [*rows.plans, *rows.steps, *rows.think_acts, *rows.tool_calls]
    for node in nodes:
        for name in PAYLOAD_FIELDS[node.kind]:
            text = getattr(node, name)
            if text is not None:
                setattr(node, name, digest_of(text))
                setattr(node, f"{name}_truncated", text != "")
        if node.error is not None:
            node.error = {**node.error, "stack": None}
    return build_tree(rows, rows.plans[0].root_plan_id)
