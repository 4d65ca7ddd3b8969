"""Events that are made from records."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from hypothesis import given, settings

from tests.contract.generated_runs import forests
from tests.profiles import scaled
from tracer.records import Kind, Run
from tracer.records.events import EVENT, Event
from tracer.records.merge import RULES, merge_records, partial_records
from tracer.records.record_classes import FROM_ROOT_PLAN, RECORDS
from tracer.transfer import event_lines


def export_of(events: Iterable[Event], root: UUID) -> list[bytes]:
    """Return the lines of a run that these events record."""
    merged = merge_records(partial_records(events))
    records = {
        kind: [
            record(root_plan_id=root, **{RULES[kind].id_field: record_id}, **fields)
            for (run_id, record_id), fields in sorted(merged[kind].items())
            if run_id == root
        ]
        for kind, record in RECORDS.items()
    }
    plan = merged[Kind.PLAN].get((root, root), {})
    of_plan = {name: plan[name] for name in FROM_ROOT_PLAN if name in plan}
    run = Run(root_plan_id=root, **merged[Kind.RUN].get((root, root), {}), **of_plan)
    return event_lines(run, records)


@settings(max_examples=scaled(60))
@given(events=forests(runs=1))
def test_recording_exported_events_gives_the_same_export(events: list[Event]) -> None:
    sent = [each.model_copy(update={"recorder_id": None}) for each in events]
    for root in {each.root_plan_id for each in sent}:
        lines = export_of(sent, root)

        assert export_of(map(EVENT.validate_json, lines), root) == lines
