"""The SQL that restores the fields of records that neither events nor spans have.

Each statement takes the project's id as $1, the rows as $2, the source of their runs as $3 and the
runs as $4, for a raw cursor. The caller must lock the runs and write the records before. The
statement for the row of the run itself comes last.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import orjson

from tracer.records.merge import RULES, Reduced
from tracer.records.record_classes import RECORDS, Kind
from tracer.records.record_json import INFERRED, LEAST, dead_recorders
from tracer.storage.postgres.schema.lease_tables import whose
from tracer.storage.postgres.schema.record_tables import TABLES, column_type
from tracer.storage.postgres.write.event_rows import json_batches
from tracer.storage.postgres.write.lease_sql import raising

_OF_RUNS = "root_plan_id = ANY($4::uuid[])"
_OPEN = f"run.{_OF_RUNS} AND run.deleted_at IS NULL AND run.source = $3"


def _incoming(kind: Kind) -> dict[str, str]:
    fields = (*LEAST[kind], *(("inferred", "inferred_from") if kind in INFERRED else ()))
    return {field: column_type(TABLES[kind], field) for field in fields}


_FIELDS = {kind: _incoming(kind) for kind in Kind}


def _restore(kind: Kind) -> str:
    table, key = TABLES[kind], RULES[kind].id_field
    new = {field: f"least(stored.{field}, incoming.{field})" for field in LEAST[kind]}
    if kind in INFERRED:
        new["inferred"] = "stored.inferred OR coalesce(incoming.inferred, false)"
        new["inferred_from"] = 'greatest(stored.inferred_from, incoming.inferred_from COLLATE "C")'
    before = ", ".join(f"stored.{field}" for field in new)
    return f"""
    UPDATE {table} AS stored SET revision = run.revision, {_assigned(new)}
    FROM json_to_recordset($2) AS incoming
        (root_plan_id uuid, {key} uuid, {_columns(kind)})
    JOIN run ON run.project_id = $1 AND run.root_plan_id = incoming.root_plan_id AND {_OPEN}
    WHERE stored.project_id = $1 AND stored.root_plan_id = incoming.root_plan_id
        AND stored.{_OF_RUNS} AND stored.{key} = incoming.{key}
        AND ({before}) IS DISTINCT FROM ({", ".join(new.values())})"""


def _restore_run() -> str:
    new = {field: f"least(run.{field}, incoming.{field})" for field in LEAST[Kind.RUN]}
    return f"""
    UPDATE run SET {_assigned(new)}
    FROM json_to_recordset($2) AS incoming (root_plan_id uuid, {_columns(Kind.RUN)})
    WHERE run.project_id = $1 AND run.root_plan_id = incoming.root_plan_id AND {_OPEN}"""


def _assigned(values: dict[str, str]) -> str:
    return ", ".join(f"{column} = {value}" for column, value in values.items())


def _columns(kind: Kind) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in _FIELDS[kind].items())


# The recorders that are dead in runs, each since the earliest `abandoned_at` of its records.
_DEAD = f"""(
    SELECT run.project_id, {whose("record", "run")} AS recorder_id, run.root_plan_id,
        min(record.abandoned_at) AS abandoned_at
    FROM json_to_recordset($2) AS record
        (root_plan_id uuid, recorder_id uuid, abandoned_at timestamptz)
    JOIN run ON run.project_id = $1 AND run.root_plan_id = record.root_plan_id AND {_OPEN}
    GROUP BY 1, 2, 3 ORDER BY 2, 3
) AS incoming"""

_RESTORE_DEAD = (
    *(
        f"""{raising(kind, _DEAD, "run.revision")} AND stored.{_OF_RUNS} AND run.{_OF_RUNS}
        AND NOT EXISTS (
        SELECT FROM recorder_run AS part
        WHERE part.{_OF_RUNS} AND part.recorder_id = incoming.recorder_id
            AND part.root_plan_id = incoming.root_plan_id
            AND part.project_id = incoming.project_id
            AND part.abandoned_at <= incoming.abandoned_at)"""
        for kind in RECORDS
    ),
    f"""
    INSERT INTO recorder_run AS stored (project_id, recorder_id, root_plan_id, abandoned_at)
    SELECT * FROM {_DEAD}
    ON CONFLICT (recorder_id, root_plan_id, project_id) DO UPDATE
    SET abandoned_at = least(stored.abandoned_at, excluded.abandoned_at)""",
    """
    UPDATE recorder_lease AS lease SET due_at = '-infinity'
    FROM (
        SELECT project_id, recorder_id FROM recorder_lease
        WHERE project_id = $1 AND $3::text IS NOT NULL AND recorder_id IN (
            SELECT unnest(ARRAY[record.recorder_id, record.root_plan_id])
            FROM json_to_recordset($2) AS record (root_plan_id uuid, recorder_id uuid)
            WHERE record.root_plan_id = ANY($4::uuid[]))
        ORDER BY recorder_id FOR UPDATE
    ) AS known
    WHERE lease.recorder_id = known.recorder_id AND lease.project_id = known.project_id""",
)
"""Mark the recorders of abandoned records as dead. If a recorder has a lease in this store, the
reaper checks the lease next."""

_RESTORE = {**{kind: _restore(kind) for kind in RECORDS}, Kind.RUN: _restore_run()}
"""The statement for each kind of record. The statement for runs comes last."""


def restore_rows(reduced: Reduced, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield each statement with the rows that it takes.

    Args:
        reduced: The exported records.
        now: The `recorded_at` of records whose export has none.
    """
    for kind, statement in _RESTORE.items():
        slim = {
            key: {name: version[name] for name in _FIELDS[kind] if version.get(name) is not None}
            for key, version in reduced[kind].items()
        }
        dated = {key: {"recorded_at": now, **version} for key, version in slim.items()}
        for rows in json_batches(kind, dated):
            yield statement, rows
    names = ("root_plan_id", "recorder_id", "abandoned_at")
    if dead := [dict(zip(names, each, strict=True)) for each in dead_recorders(reduced)]:
        rows = orjson.dumps(dead).decode()
        yield from ((statement, rows) for statement in _RESTORE_DEAD)
