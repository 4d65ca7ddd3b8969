"""The SQL for projecting spans, for raw cursors.

Each statement takes the project's id as $1. docs/explanation/projection.md explains the order of
the statements, and the conditions that each relies on.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from tracer.otel.projection.project import PROJECTED_FIELDS, RUN_FIELDS
from tracer.records.merge import RULES
from tracer.records.record_classes import RECORDS, Kind
from tracer.storage.postgres.schema.record_tables import ALWAYS, TABLES, column_type
from tracer.storage.postgres.spans.accept_sql import MOST_ATTEMPTS, later
from tracer.storage.postgres.spans.blocks import RUN_LOCK_KEY
from tracer.storage.postgres.spans.projector_session import IS_PROJECTOR

PAUSE_FACTOR = 10
"""After a projection, a run is not due for this many times as long as the projection took. So a
growing run uses at most a tenth of a core."""

IN_PROGRESS = "interval '200 milliseconds'"
"""A run is not due for this long after an attempt to project it began, because the attempt is
probably still in progress."""

HEAVY_SPANS = 5_000
"""A run with more pending spans is *heavy*. So is a run with a failed attempt."""

_IS_LIGHT = f"(attempts = 0 AND spans <= {HEAVY_SPANS})"

TAKES_HEAVY = f"""
SELECT NOT EXISTS (
    SELECT FROM pg_stat_activity AS own, pg_stat_activity AS other
    WHERE own.pid = pg_backend_pid() AND other.pid IN (
            SELECT pid FROM pg_stat_activity WHERE {IS_PROJECTOR})
        AND (other.backend_start, other.pid) < (own.backend_start, own.pid))"""
"""Return whether this projector projects heavy runs: only the one that is connected for the longest
time does, so that the others stay free."""


_COMPARED = {"record_status": "{}::text", "TEXT[]": "coalesce({}, '{{}}')"}
"""The SQL that converts columns of these types for a comparison: psycopg returns a binary
enumeration as bytes, and an empty list is stored as null."""


def _compared(table: str, columns: Iterable[str]) -> str:
    """Return the SQL of columns, converted where necessary to compare them with new rows."""
    return ", ".join(_COMPARED.get(column_type(table, each), "{}").format(each) for each in columns)


# --- Claim ---------------------------------------------------------------------------------------

DUE = f"""
SELECT project_id, root_plan_id, attempts, has_failed, pending.size + run.span_bytes
FROM (
    SELECT project_id, root_plan_id, attempts, failure IS NOT NULL AS has_failed, size, due_at,
        row_number() OVER (PARTITION BY project_id ORDER BY due_at) AS turn
    FROM pending_run WHERE due_at <= coalesce($1::timestamptz, statement_timestamp())
        AND (attempts > 0 AND attempted_at
            > coalesce($1::timestamptz, statement_timestamp()) - {IN_PROGRESS}) IS NOT TRUE
        AND ({_IS_LIGHT} OR $4)
    ORDER BY turn, project_id LIMIT $2
) AS pending
JOIN run USING (project_id, root_plan_id)
WHERE run.projection_version <= $3 AND run.deleted_at IS NULL
ORDER BY turn, project_id"""
"""Find at most $2 due runs of all projects, in turns of one run per project.

Heavy runs are omitted unless $4 is true. The project's id is not a parameter.
"""

NEXT_DUE = f"""
SELECT extract(epoch FROM min(due_at) - coalesce($1::timestamptz, statement_timestamp()))::float8
FROM pending_run WHERE due_at < 'infinity' AND ({_IS_LIGHT} OR $2)"""
"""Return the seconds until the next run is due; null if no run is pending. Heavy runs are omitted
unless $2 is true."""

MOMENT = "SELECT coalesce($1::timestamptz, statement_timestamp())"
"""Return the time for `ATTEMPT`, `UPDATE_RUNS` and `NOTE_FAILURES`, in which Citus rejects clock
functions. The project's id is not a parameter."""

CLAIM = f"""
SELECT root_plan_id FROM unnest($2::uuid[]) AS incoming (root_plan_id),
    (SELECT $1::integer) AS project (project_id) WHERE pg_try_advisory_lock({RUN_LOCK_KEY})"""
"""Claim the runs $2 until `RELEASE`, and return the claimed ones. Runs that another projector has
claimed are skipped."""

RELEASE = f"""
SELECT pg_advisory_unlock({RUN_LOCK_KEY}) FROM unnest($2::uuid[]) AS incoming (root_plan_id),
    (SELECT $1::integer) AS project (project_id)"""

# If the machine crashes, the count of one attempt may be lost: no reason to wait for the disk.
ATTEMPT = """
UPDATE pending_run AS stored SET attempts = stored.attempts + 1, attempted_at = $3::timestamptz
FROM set_config('synchronous_commit', 'off', true), (
        SELECT root_plan_id FROM pending_run
        WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[])
            AND (due_at <= $3::timestamptz OR $4)
        ORDER BY root_plan_id FOR UPDATE
    ) AS due
WHERE stored.project_id = $1 AND stored.root_plan_id = due.root_plan_id
    AND stored.root_plan_id = ANY($2::uuid[])
RETURNING stored.root_plan_id, arrived, attempts, spans, size, seen_at, with_prices"""
"""Count an attempt to project the claimed runs $2, which begins at the time $3. Runs that are not
due are skipped unless $4 is true."""

# --- Read ----------------------------------------------------------------------------------------

READ_RUNS = """
SELECT root_plan_id, projected, projection_version FROM run
WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND deleted_at IS NULL
    AND source = 'spans'"""

READ_BLOCKS = """
SELECT root_plan_id, recorded_at, spans, size, body FROM otel_block
WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[])
ORDER BY root_plan_id, recorded_at, key"""

READ_SESSIONS = """
SELECT root_plan_id, session_run_id FROM otel_session
WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[])
ORDER BY root_plan_id, session_run_id"""
"""Return the sessions that the runs $2 name, each as the id of the run that stores its log
records."""

FIND_RUNS_OF_SESSIONS = """
SELECT DISTINCT root_plan_id FROM otel_session
WHERE project_id = $1 AND session_run_id = ANY($2::uuid[])"""
"""Return the runs that name sessions. $2 are the runs that store the log records of these
sessions."""

READ_DIGESTS = {
    kind: f"""
SELECT root_plan_id, {RULES[kind].id_field}, digest FROM {TABLES[kind]}
WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND {ALWAYS}"""
    for kind in RECORDS
}

READ_COSTS = f"""
SELECT root_plan_id, think_act_id, cost_usd, requested_model, model, input_tokens, output_tokens
FROM {TABLES[Kind.THINK_ACT]}
WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND think_act_id = ANY($3::uuid[])"""

# --- Write ---------------------------------------------------------------------------------------


LOCK_PROJECTED_RUNS = f"""
SELECT root_plan_id, projected, revision, recorded_at, projection_error,
    {_compared("run", RUN_FIELDS)}
FROM run WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND deleted_at IS NULL
ORDER BY root_plan_id FOR NO KEY UPDATE"""
"""Lock the runs $2, and return their projected fields."""

_RUN_COLUMNS = {
    "revision": "bigint",
    "projected": "bigint",
    "projection_version": "integer",
    "seconds": "float8",
    "span_bytes": "bigint",
    "settle_seconds": "float8",
}

_RUN_VALUES = {column: f"incoming.{column}" for column in RUN_FIELDS} | {
    "cancel_requested_at": "least(run.cancel_requested_at, incoming.cancel_requested_at)",
    "revision": "incoming.revision",
    "projected": "incoming.projected",
    "projection_version": "incoming.projection_version",
    "projection_error": "NULL",
    "next_projection_at": later(
        "$2::timestamptz", f"incoming.seconds * {PAUSE_FACTOR} * interval '1 second'"
    ),
    "span_bytes": "incoming.span_bytes",
    "settle_at": later("$2::timestamptz", "incoming.settle_seconds * interval '1 second'"),
}

UPDATE_RUNS = f"""
UPDATE run SET {", ".join(f"{column} = {value}" for column, value in _RUN_VALUES.items())}
FROM json_to_recordset($3) AS incoming (root_plan_id uuid, {
    ", ".join(
        f"{column} {type_}"
        for column, type_ in (
            *((column, column_type("run", column)) for column in RUN_FIELDS),
            *_RUN_COLUMNS.items(),
        )
    )
})
WHERE run.project_id = $1 AND run.root_plan_id = incoming.root_plan_id
    AND run.root_plan_id = ANY($4::uuid[])"""
"""Update the locked runs $4 from the rows $3, at the time $2."""


@cache
def removing(kind: Kind) -> tuple[str, str]:
    """Return two statements that remove the records $3 of the runs $2.

    The first adds the records to `removed_record`, so that live views of the runs remove them. The
    second deletes them. If they were one statement, Citus would send the deleted rows to all
    workers.
    """
    of_runs = f"""stored.project_id = $1 AND stored.root_plan_id = ANY($2::uuid[])
        AND stored.{RULES[kind].id_field} = ANY($3::uuid[])"""
    return (
        f"""
    INSERT INTO removed_record (project_id, root_plan_id, record_id, kind, revision)
    SELECT run.project_id, run.root_plan_id, stored.{RULES[kind].id_field}, '{kind}', run.revision
    FROM {TABLES[kind]} AS stored
    JOIN run ON run.project_id = $1 AND run.root_plan_id = stored.root_plan_id
        AND run.root_plan_id = ANY($2::uuid[])
    WHERE {of_runs}
    ON CONFLICT (root_plan_id, record_id, project_id) DO UPDATE
    SET kind = excluded.kind, revision = excluded.revision""",
        f"DELETE FROM {TABLES[kind]} AS stored WHERE {of_runs}",
    )


@cache
def replacing(kind: Kind) -> str:
    """Return the statement that replaces records of the runs $3 by the rows $2."""
    table, key, fields = TABLES[kind], RULES[kind].id_field, PROJECTED_FIELDS[kind]
    types = {field: column_type(table, field) for field in (key, *fields)}
    types |= {"digest": "bigint", "recorded_at": "timestamptz"}
    values = {field: f"incoming.{field}" for field in (*fields, "recorded_at", "digest")}
    column_types = {"root_plan_id": "uuid"} | types
    new = {column: f"excluded.{column}" for column in values if column != "recorded_at"}
    return f"""
    INSERT INTO {table} AS stored (project_id, root_plan_id, {key}, revision, {", ".join(values)})
    SELECT run.project_id, run.root_plan_id, incoming.{key}, run.revision,
        {", ".join(values.values())}
    FROM json_to_recordset($2) AS incoming (
        {", ".join(f"{name} {of_column}" for name, of_column in column_types.items())})
    JOIN run ON run.project_id = $1 AND run.root_plan_id = incoming.root_plan_id
        AND run.root_plan_id = ANY($3::uuid[])
    ORDER BY incoming.root_plan_id, incoming.{key}
    ON CONFLICT (project_id, root_plan_id, {key}) DO UPDATE
    SET revision = excluded.revision, {", ".join(f"{c} = {value}" for c, value in new.items())}"""


ADD_SESSIONS = """
INSERT INTO otel_session (project_id, root_plan_id, session_run_id)
SELECT $1, root_plan_id, session_run_id
FROM unnest($2::uuid[], $3::uuid[]) AS incoming (root_plan_id, session_run_id)
ORDER BY root_plan_id, session_run_id
ON CONFLICT (root_plan_id, session_run_id, project_id) DO NOTHING
RETURNING root_plan_id"""
"""Store that the locked runs $2 name the sessions $3. Return the runs that name a new session."""

PROJECT_AGAIN = """
UPDATE pending_run SET arrived = arrived + 1
WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[])"""
"""Keep the locked runs $2 pending after `FINISH`."""

FINISH = """
WITH incoming AS (
    SELECT * FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[])
        AS incoming (root_plan_id, arrived, spans, size)
), rest AS (
    UPDATE pending_run AS stored
    SET attempts = 0, failure = NULL, with_prices = false, since = stored.attempted_at,
        spans = stored.spans - incoming.spans, size = stored.size - incoming.size,
        due_at = greatest(stored.due_at, run.next_projection_at)
    FROM incoming JOIN run ON run.project_id = $1 AND run.root_plan_id = incoming.root_plan_id
        AND run.root_plan_id = ANY($2::uuid[])
    WHERE stored.project_id = $1 AND stored.root_plan_id = incoming.root_plan_id
        AND stored.root_plan_id = ANY($2::uuid[]) AND stored.arrived <> incoming.arrived
)
DELETE FROM pending_run AS stored USING incoming
WHERE stored.project_id = $1 AND stored.root_plan_id = incoming.root_plan_id
    AND stored.root_plan_id = ANY($2::uuid[]) AND stored.arrived = incoming.arrived"""
"""End the pending state of the runs $2. A run stays pending if a request has arrived that its
projection has not read."""

RENEW_RUN_LEASES = """
INSERT INTO recorder_lease AS stored (project_id, recorder_id, seen_at, length)
SELECT $1, run_id, seen_at, $4::interval
FROM unnest($2::uuid[], $3::timestamptz[]) AS incoming (run_id, seen_at) ORDER BY run_id
ON CONFLICT (recorder_id, project_id) DO UPDATE
SET seen_at = greatest(stored.seen_at, excluded.seen_at), length = excluded.length"""
"""Renew the leases of the locked runs $2, which have unfinished records, for the duration $4.

$3 are the times when the newest blocks of the runs arrived.
"""

# --- Failures ------------------------------------------------------------------------------------

_RETRY_PAUSE = "interval '100 milliseconds' * 2 ^ greatest(stored.attempts, incoming.attempts)"

NOTE_FAILURES = f"""
WITH failed AS (
    UPDATE pending_run AS stored SET failure = incoming.failure,
        attempts = greatest(stored.attempts, incoming.attempts),
        due_at = CASE WHEN greatest(stored.attempts, incoming.attempts) >= {MOST_ATTEMPTS}
            THEN 'infinity' ELSE {later("$2::timestamptz", _RETRY_PAUSE)} END
    FROM unnest($3::uuid[], $4::text[], $5::integer[]) AS incoming (root_plan_id, failure, attempts)
    WHERE stored.project_id = $1 AND stored.root_plan_id = incoming.root_plan_id
        AND stored.root_plan_id = ANY($3::uuid[]) AND stored.attempts > 0
    RETURNING stored.root_plan_id, stored.due_at = 'infinity' AS is_over, stored.failure
)
UPDATE run SET projection_error = failed.failure, revision = run.revision + 1
FROM failed
WHERE run.project_id = $1 AND run.root_plan_id = failed.root_plan_id
    AND run.root_plan_id = ANY($3::uuid[]) AND failed.is_over
    AND run.projection_error IS DISTINCT FROM failed.failure
RETURNING run.root_plan_id"""
"""Record at the time $2 that projections of the locked runs $3 failed.

$4 are the reasons, and $5 the least numbers of attempts to count. After `MOST_ATTEMPTS`, the reason
is also stored in `run.projection_error`. Runs without an attempt are skipped: they have been
projected meanwhile.
"""
