"""The SQL that keeps spans and replaces the records that are projected from them.

Each takes the project's id as $1, for a raw cursor. `locking_runs_of_spans` comes first.
"""

from __future__ import annotations

from functools import cache

from tracer.merge import RULES
from tracer.otel.projection.rows import PROJECTED_FIELDS
from tracer.records import FROM_ROOT_PLAN, Kind
from tracer.storage.changed_hours import (
    BEFORE_AND_AFTER,
    horizon,
    marking,
    marking_too,
    moments_of,
)
from tracer.storage.tables import ALWAYS, TABLES
from tracer.storage.upserts import column_type, fit_values


@cache
def locking_runs_of_spans(*, is_spread: bool) -> str:
    """Return what makes or locks runs one by one, by their ids, as `upserts.LOCK_RUNS` does.

    It returns those that were not deleted, where their records come from, their revision from now
    on (1 where this made them), and before which moment what changes in them is to be marked.

    Args:
        is_spread: Whether by Citus, where nothing is summed up, and so nothing to be marked.
    """
    return f"""
INSERT INTO run AS kept (project_id, root_plan_id, status, recorded_at, revision, source, tags,
    input_tokens, output_tokens, cost_usd, tool_calls, failures)
SELECT $1, root_plan_id, 'unknown', $2, 1, 'spans', '{{}}', 0, 0, 0, 0, 0
FROM unnest($3::uuid[]) AS given (root_plan_id)
ORDER BY root_plan_id
ON CONFLICT (project_id, root_plan_id) DO UPDATE SET revision = kept.revision + 1
WHERE kept.deleted_at IS NULL
RETURNING root_plan_id, source, revision, {"NULL::timestamptz" if is_spread else horizon("$1")}"""


KEEP_SPANS = """
INSERT INTO otel_span AS kept (project_id, root_plan_id, span_id, parent_span_id, name, start_time,
    end_time, body, recorded_at)
SELECT $1, root_plan_id, span_id, parent_span_id, name, start_time, end_time, body, $2
FROM unnest($3::uuid[], $4::bytea[], $5::bytea[], $6::text[], $7::bigint[], $8::bigint[],
    $9::bytea[])
    AS given (root_plan_id, span_id, parent_span_id, name, start_time, end_time, body)
ORDER BY root_plan_id, span_id
ON CONFLICT (root_plan_id, span_id, project_id) DO UPDATE
SET parent_span_id = excluded.parent_span_id, name = excluded.name,
    start_time = excluded.start_time, end_time = excluded.end_time, body = excluded.body
WHERE (excluded.end_time, excluded.body) > (kept.end_time, kept.body)
RETURNING root_plan_id"""
"""Keeps the newer version of each span: `tracer.otel.spans.newer`."""

READ_SPANS = """
SELECT root_plan_id, body FROM otel_span WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[])"""


@cache
def removing(kind: Kind, *, is_spread: bool) -> str:
    """Return what removes the records of the runs $2 that are not among $3, and remembers that.

    It marks the hours whose statistics it changes, where they are old; not on Citus.
    """
    id_field = RULES[kind].id_field
    where, marked = "", ""
    if kind in BEFORE_AND_AFTER and not is_spread:
        where = f", {BEFORE_AND_AFTER[kind]}"
        marked = f", marked AS ({marking(moments_of(kind, 'removed'))})"
    return f"""
    WITH removed AS (
        DELETE FROM {TABLES[kind]} AS kept
        WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND {ALWAYS} AND NOT EXISTS (
            SELECT FROM unnest($3::uuid[]) AS given (id) WHERE given.id = kept.{id_field}
        )
        RETURNING old.root_plan_id, old.{id_field}{where}
    ){marked}
    INSERT INTO removed_record (project_id, root_plan_id, record_id, kind, revision)
    SELECT run.project_id, run.root_plan_id, removed.{id_field}, '{kind}', run.revision
    FROM removed JOIN run ON run.project_id = $1 AND run.root_plan_id = removed.root_plan_id
    ON CONFLICT (root_plan_id, record_id, project_id) DO UPDATE
    SET kind = excluded.kind, revision = excluded.revision"""


@cache
def replacing(kind: Kind, *, is_spread: bool) -> str:
    """Return what makes records of the runs $4 what the rows $3 say; new ones are recorded at $2.

    It marks hours as `removing` does.
    """
    return _replace(kind) if is_spread else marking_too(kind, _replace(kind))


def _replace(kind: Kind) -> str:
    table, key, fields = TABLES[kind], RULES[kind].id_field, PROJECTED_FIELDS[kind]
    types = {field: column_type(table, field) for field in (key, *fields)}
    values = {field: f"given.{field}" for field in fields}
    given = {"root_plan_id": "uuid"} | types
    if kind is Kind.TOOL_CALL:
        values |= fit_values()
        given |= dict.fromkeys(fit_values(), "boolean")
    before, after = (", ".join(f"{row}.{field}" for field in fields) for row in _ROWS)
    return f"""
    INSERT INTO {table} AS kept
        (project_id, root_plan_id, {key}, recorded_at, revision, {", ".join(values)})
    SELECT run.project_id, run.root_plan_id, given.{key}, $2, run.revision,
        {", ".join(values.values())}
    FROM json_to_recordset($3) AS given ({_columns(given)})
    JOIN run ON run.project_id = $1 AND run.root_plan_id = given.root_plan_id
        AND run.root_plan_id = ANY($4::uuid[])
    ORDER BY given.root_plan_id, given.{key}
    ON CONFLICT (project_id, root_plan_id, {key}) DO UPDATE
    SET {", ".join(f"{column} = excluded.{column}" for column in ("revision", *values))}
    WHERE ({before}) IS DISTINCT FROM ({after})"""


_ROWS = ("kept", "excluded")


def _columns(types: dict[str, str]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in types.items())


_OF_RUN = (
    "session_id",
    "subject",
    "tags",
    "masked",
    "traceparent",
    "cancel_requested_at",
    "is_agent_work",
    *FROM_ROOT_PLAN,
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "tool_calls",
    "failures",
)

_NEW = {column: f"given.{column}" for column in _OF_RUN} | {
    "tags": "coalesce(given.tags, '{}')",
    "masked": "coalesce(given.masked, '{}')",
    "cancel_requested_at": "least(run.cancel_requested_at, given.cancel_requested_at)",
}

UPDATE_RUNS = f"""
UPDATE run SET {", ".join(f"{column} = {value}" for column, value in _NEW.items())}
FROM json_to_recordset($2) AS given
    (root_plan_id uuid, {_columns({column: column_type("run", column) for column in _OF_RUN})})
WHERE run.project_id = $1 AND run.root_plan_id = given.root_plan_id
    AND run.root_plan_id = ANY($3::uuid[])"""
"""Makes the runs $3 show what the rows $2 say."""
