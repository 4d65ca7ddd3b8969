"""What a run's records say of the run itself, and what the stores keep of a projection."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from tracer.merge import RULES
from tracer.otel.projected import Projected
from tracer.otel.projection.rows import PROJECTED_FIELDS
from tracer.otel.work_records import Totals
from tracer.records import FROM_ROOT_PLAN, RECORDS, Kind
from tracer.versions import Fields


def projected_parts(projected: Projected) -> dict[Kind, dict[UUID, Fields]]:
    """Return the records of a projection with every one of `PROJECTED_FIELDS`."""
    return {
        kind: {
            record_id: whole(kind, fields) for record_id, fields in projected.records[kind].items()
        }
        for kind in RECORDS
    }


def whole(kind: Kind, fields: Fields) -> Fields:
    """Return a projected record with every one of `PROJECTED_FIELDS`."""
    row = {field: fields.get(field) for field in PROJECTED_FIELDS[kind]}
    for field in RULES[kind].union:
        row[field] = [*(row[field] or ())]
    return row


def shown_of_run(root_plan_id: UUID, plans: Mapping[UUID, Fields], totals: Totals) -> Fields:
    """Return what a run shows of its records: its root plan's fields, and the totals of all."""
    root = plans.get(root_plan_id, {})
    shown = {column: root[column] for column in FROM_ROOT_PLAN if column in root}
    return shown | totals._asdict()
