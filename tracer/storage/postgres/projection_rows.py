"""Write the rows of projections, with the SQL for accepting and projecting spans."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache, cached_property, partial
from hashlib import blake2b
from struct import Struct
from typing import Any
from uuid import UUID

from psycopg import RawCursor
from psycopg.types.numeric import DecimalBinaryDumper

from tracer.errors import TracerError
from tracer.otel.otlp.blocks import UnreadableBlock, pack_block
from tracer.otel.otlp.spans import EPOCH
from tracer.otel.projection import (
    PROJECTED_FIELDS,
    PROJECTION_VERSION,
    RUN_FIELDS,
    ProjectedRun,
    Row,
    fields_of,
    fields_of_run,
    project_run,
)
from tracer.records import Kind, LeaseTerms, Status
from tracer.records.merge import RULES, Fields, json_batches
from tracer.records.prices import NO_OWN_PRICES, OwnPrices, is_unpriced
from tracer.records.record_classes import RECORDS
from tracer.storage.postgres.leases import NOTE_RUNS
from tracer.storage.postgres.pool import SyncConnection
from tracer.storage.postgres.session import Standing, entering, standing_of_sync
from tracer.storage.postgres.spans import MOST_ATTEMPTS, RUN_LOCK_KEY, later
from tracer.storage.postgres.tables import ALWAYS, TABLES, column_type
from tracer.storage.postgres.watch import pending_message

# --- Rows in the binary format of `COPY`, and their digests.
#
# The format is documented under "Binary Format" of `COPY` in the PostgreSQL manual. A row of a
# projection is packed once: the same bytes are hashed and sent.

POSTGRES_EPOCH = 946_684_800_000_000
"""2000-01-01, from which Postgres counts, in microseconds since 1970."""

_CHUNK_BYTES = 2**18
_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_TRUE, _FALSE = b"\0\0\0\1\1", b"\0\0\0\1\0"
_UUID_LENGTH = b"\0\0\0\x10"
_TEXT_OID = 25

_length = Struct(">i").pack
_count = Struct(">h").pack
_int4 = Struct(">ii").pack
_int8 = Struct(">iq").pack
_two_int8 = Struct(">iqiq").pack
_list_header = Struct(">iiiii").pack
_unpack_digest = Struct(">q").unpack

_numeric = DecimalBinaryDumper(Decimal).dump


def _bytes_value(value: bytes) -> bytes:
    return _length(len(value)) + value


def _text_value(value: str) -> bytes:
    data = value.encode()
    return _length(len(data)) + data


def _numeric_value(value: Decimal | int) -> bytes:
    data = _numeric(Decimal(value))
    assert data is not None
    return _bytes_value(bytes(data))


def _list_value(value: tuple[str, ...]) -> bytes:
    if not value:
        return _NULL
    items = b"".join(map(_text_value, value))
    return _bytes_value(_list_header(1, 0, _TEXT_OID, len(value), 1) + items)


_VALUES: Mapping[str, Callable[[Any], bytes]] = {
    "UUID": _UUID_LENGTH.__add__,
    "TEXT": _text_value,
    "record_status": {status: _text_value(status) for status in Status}.__getitem__,
    "TEXT[]": _list_value,
    "BOOLEAN": {True: _TRUE, False: _FALSE}.__getitem__,
    "INTEGER": partial(_int4, 4),
    "BIGINT": partial(_int8, 8),
    "NUMERIC": _numeric_value,
    "TIMESTAMP WITH TIME ZONE": lambda value: _int8(8, value - POSTGRES_EPOCH),
}
"""How a value of each type is written. Times are microseconds since 1970."""

_FIELDS = {
    kind: [_VALUES[column_type(TABLES[kind], field)] for field in fields]
    for kind, fields in PROJECTED_FIELDS.items()
}


def pack_row(kind: Kind, row: Row) -> bytes:
    """Return the fields of a projected row in the format of `COPY`.

    Raises:
        struct.error: A number is too large for its column.
    """
    return b"".join(
        [
            _NULL if value is None else packed(value)
            for packed, value in zip(_FIELDS[kind], row, strict=True)
        ]
    )


def digest_of(packed: bytes) -> int:
    """Return 64 bits of BLAKE2b over a packed row, as a `bigint`."""
    digest: int = _unpack_digest(blake2b(packed, digest_size=8).digest())[0]
    return digest


class CopyRows:
    """The rows of one project and one kind of record that are copied into its table."""

    def __init__(self, project_id: int, kind: Kind) -> None:
        keys = f"project_id root_plan_id revision {RULES[kind].id_field} recorded_at digest"
        columns = (*keys.split(), *PROJECTED_FIELDS[kind])
        self.statement = f"COPY {TABLES[kind]} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
        self._start = _count(len(columns)) + _int4(4, project_id) + _UUID_LENGTH
        self._parts: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def beginning(self, run_id: bytes, revision: int) -> bytes:
        """Return the bytes with which each row of a run begins.

        Args:
            run_id: The run, as 16 bytes.
            revision: The run's revision.
        """
        return self._start + run_id + _int8(8, revision) + _UUID_LENGTH

    def add(
        self,
        beginning: bytes,
        record_id: bytes,
        recorded_at: int,
        row: Row,
        packed: bytes,
        digest: int,
    ) -> None:
        """Add a row.

        Args:
            beginning: The bytes that `beginning` returns for the row's run.
            record_id: The record, as 16 bytes.
            recorded_at: Microseconds since 1970.
            row: The values of the projected fields.
            packed: The same values, packed by `pack_row`.
            digest: The digest of `packed`.
        """
        parts = self._parts
        parts.append(beginning + record_id + _two_int8(8, recorded_at - POSTGRES_EPOCH, 8, digest))
        parts.append(packed)

    def chunks(self) -> Iterator[bytes]:
        """Yield the data to send to Postgres."""
        data = b"".join((_HEADER, *self._parts, _TRAILER))
        for start in range(0, len(data), _CHUNK_BYTES):
            yield data[start : start + _CHUNK_BYTES]


def no_rows(project_id: int, kinds: Iterable[Kind] = RECORDS) -> dict[Kind, CopyRows]:
    """Return an empty `CopyRows` for each kind of record."""
    return {kind: CopyRows(project_id, kind) for kind in kinds}


# --- A projector's connection: its statements, and its transactions within one project.

# Not by an advisory lock, which any role could take to keep projectors out.
IS_PROJECTOR = """application_name = 'tracer projector' AND datname = current_database()
    AND usename NOT IN (SELECT role_name FROM analyst)"""
"""The condition for the connection of a projector in `pg_stat_activity`."""

COUNT_PROJECTORS = f"SELECT count(*) FROM pg_stat_activity WHERE {IS_PROJECTOR}"
"""Count the projectors of all servers that are connected to the database."""


class ProjectorSession:
    """Executes statements over one connection, which must be in autocommit mode and not pooled."""

    def __init__(self, connection: SyncConnection) -> None:
        """Use `connection`, whose role owns the tables."""
        self.connection = connection
        self.left_pending: set[UUID] = set()
        """Runs that this projector made pending, or could not finish. See `announce`."""

    @property
    def standing(self) -> Standing:
        """Whether row-level security is in force, and whether Citus distributes the tables."""
        return standing_of_sync(self.connection)

    @cached_property
    def is_spread(self) -> bool:
        """Whether Citus distributes the tables."""
        return self.standing.is_spread

    def ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, which takes its values as $1, $2, ..."""
        cursor = RawCursor(self.connection)
        cursor.execute(statement, values, prepare=True, binary=True)
        return cursor.fetchall() if cursor.description else []

    @contextmanager
    def in_project(self, project_id: int, mode: str = "") -> Iterator[None]:
        """Open a transaction that row-level security restricts to a project."""
        with self.connection.transaction():
            if mode:
                self.connection.execute(f"SET TRANSACTION {mode}")
            self.become(project_id)
            yield

    def announce(self) -> None:
        """Notify all projectors of the runs in `left_pending`, outside of a transaction."""
        if self.left_pending:
            self.connection.execute(*pending_message("projector", self.left_pending))
            self.left_pending.clear()

    def check_references(self) -> None:
        """Check the deferred foreign keys now, and raise an error if one is broken.

        If the check failed at the commit, psycopg would lose the connection. On Citus, workers
        check at the commit nevertheless.
        """
        self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def become(self, project_id: int | None) -> None:
        """Restrict the transaction to a project, or return to the role of the tables' owner."""
        self.connection.execute("; ".join(entering(self.standing, project_id)))


# --- The SQL for projecting spans, for raw cursors.
#
# Each statement takes the project's id as $1. docs/explanation/projection.md explains the order of
# the statements, and the conditions that each relies on.

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


_COMPARED_TYPES = {"record_status": "{}::text"} | dict.fromkeys(
    ("TEXT[]", "UUID[]"), "coalesce({}, '{{}}')"
)
"""The SQL that converts columns of these types for a comparison: psycopg returns a binary
enumeration as bytes, and an empty list is stored as null."""


def _compared(table: str, columns: Iterable[str]) -> str:
    """Return the SQL of columns, converted where necessary to compare them with new rows."""
    return ", ".join(
        _COMPARED_TYPES.get(column_type(table, each), "{}").format(each) for each in columns
    )


# --- Claim ---------------------------------------------------------------------------------------

TAKE_LOOK = """
UPDATE lease_check SET due_checked_at = statement_timestamp()
FROM set_config('synchronous_commit', 'off', true)
WHERE (due_checked_at BETWEEN statement_timestamp() - $1::interval
    AND statement_timestamp() + $1::interval) IS NOT TRUE RETURNING is_only"""
"""Return a row if no projector has sent `FIND_DUE` within the time $1. Then this one must send it.
A time in the future is ignored, because the database's clock was set back."""

LAST_LOOK = """
SELECT extract(epoch FROM statement_timestamp() - due_checked_at)::float8 FROM lease_check"""
"""Return how many seconds ago a projector sent `FIND_DUE`."""

FIND_DUE = """
SELECT root_plan_id FROM pending_run
WHERE due_at <= coalesce($1::timestamptz, statement_timestamp())
ORDER BY row_number() OVER (PARTITION BY project_id ORDER BY due_at), project_id LIMIT $2"""
"""Find at most $2 due runs of all projects, in turns of one run per project.

On Citus this reads all shards. The project's id is not a parameter.
"""

DUE = f"""
SELECT project_id, root_plan_id, attempts, failure IS NOT NULL, pending.size + run.span_bytes,
    extract(epoch FROM
        greatest(due_at, CASE WHEN attempts > 0 THEN attempted_at + {IN_PROGRESS} END)
        - coalesce($1::timestamptz, statement_timestamp()))::float8
FROM pending_run AS pending JOIN run USING (project_id, root_plan_id)
WHERE root_plan_id = ANY($2::uuid[]) AND due_at < 'infinity'
    AND ({_IS_LIGHT.replace("spans", "pending.spans")} OR $4)
    AND run.projection_version <= $3 AND run.deleted_at IS NULL
ORDER BY row_number() OVER (PARTITION BY project_id ORDER BY due_at), project_id LIMIT $5"""
"""Find at most $5 of the runs $2 that are pending, in turns of one run per project. The last column
is the number of seconds until a run is due.

Heavy runs are omitted unless $4 is true. The project's id is not a parameter.
"""

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
    "span_count": "bigint",
    "span_records": "bytea",
    "settle_seconds": "float8",
}

_RUN_VALUES = {column: f"incoming.{column}" for column in RUN_FIELDS} | {
    "cancel_requested_at": "least(run.cancel_requested_at, incoming.cancel_requested_at)",
    "revision": "incoming.revision",
    "changed_at": "CASE WHEN incoming.revision > run.revision THEN $2::timestamptz"
    " ELSE run.changed_at END",
    "projected": "incoming.projected",
    "projection_version": "incoming.projection_version",
    "projection_error": "NULL",
    "next_projection_at": later(
        "$2::timestamptz", f"incoming.seconds * {PAUSE_FACTOR} * interval '1 second'"
    ),
    "span_bytes": "incoming.span_bytes",
    "span_count": "incoming.span_count",
    "span_records": "incoming.span_records",
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
UPDATE run SET projection_error = failed.failure, revision = run.revision + 1,
    changed_at = $2::timestamptz
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


# --- Writing projections: the rows of runs, under the locks of the runs, in the caller's
# transaction.
#
# docs/explanation/projection.md describes the steps.

SETTLE_SECONDS = 600.0
"""The blocks of a run are merged when no span of it has arrived for that long."""

_OPEN = (Status.PENDING, Status.RUNNING)
_STATUS = {kind: PROJECTED_FIELDS[kind].index("status") for kind in RECORDS}
_COST = PROJECTED_FIELDS[Kind.THINK_ACT].index("cost_usd")
_USAGE = ("requested_model", "model", "input_tokens", "output_tokens")
_USAGE_INDEXES = [PROJECTED_FIELDS[Kind.THINK_ACT].index(name) for name in _USAGE]
_ROUND_STATUS = PROJECTED_FIELDS[Kind.THINK_ACT].index("status")
_TOKENS = slice(_COST - 2, _COST)
"""The indexes of the input and output tokens, which precede the cost in a row."""
_RUN_COST = RUN_FIELDS.index("cost_usd")
"""The index of the cost in the fields of a run. The next field is `unpriced_calls`."""
_COMPARED_FIELDS = [name for name in RUN_FIELDS if name != "cancel_requested_at"]
_MICROSECOND = timedelta(microseconds=1)


class MissingSpans(TracerError):
    """A run has no stored spans. Its records are kept, because they cannot be projected again."""


@dataclass
class Attempt:
    """A claimed run with its pending spans."""

    run_id: UUID
    arrived: int
    spans: int
    size: int
    seen_at: datetime | None
    with_prices: bool = False


@dataclass
class StoredSpans:
    """The spans of a run as they are stored."""

    projected: int = 0
    """The value of `run.projected` when the spans were read."""
    messages: list[bytes] = field(default_factory=list)
    arrivals: list[datetime] = field(default_factory=list)
    """When each of the messages arrived, in ascending order."""
    spans: int = 0
    """The number of stored spans. Each stored version of a span counts."""
    size: int = 0
    of_sessions: dict[UUID, list[bytes]] = field(default_factory=dict)
    """The messages with log records of the run's sessions, by the id of the run that stores
    them."""
    error: UnreadableBlock | None = None
    """Why a block of the run cannot be read; None if all can."""


@dataclass
class Computed:
    """The projection of a run, ready to be written."""

    attempt: Attempt
    stored: StoredSpans
    rows: ProjectedRun
    packed: dict[Kind, dict[bytes, tuple[bytes, int]]]
    """Each row in the binary format of `COPY` with its digest, by record id."""
    seconds: float
    unread: Counter[str] = field(default_factory=Counter)
    """The spans that no rule could read, by scope, without those of the stored projection."""


def computed(attempt: Attempt, stored: StoredSpans, prices: OwnPrices = NO_OWN_PRICES) -> Computed:
    """Return the projection of a run.

    Raises:
        MissingSpans: The run has no stored spans.
        UnreadableBlock: One of its blocks is damaged.
        Exception: A dialect failed.
    """
    begin = time.monotonic()
    if stored.error is not None:
        raise stored.error
    if not stored.messages:
        raise MissingSpans("The run has no stored spans, so it cannot be projected.")
    of_sessions = [each for messages in stored.of_sessions.values() for each in messages]
    rows = project_run(stored.messages, of_sessions, prices)
    packed = {
        kind: {record_id: _packed(kind, row) for record_id, row in of_kind.items()}
        for kind, of_kind in rows.rows.items()
    }
    return Computed(attempt, stored, rows, packed, time.monotonic() - begin)


def _packed(kind: Kind, row: Row) -> tuple[bytes, int]:
    packed = pack_row(kind, row)
    return packed, digest_of(packed)


def _settle_seconds(stored: StoredSpans, spans: int) -> float | None:
    """Return after how many seconds to merge the blocks of a run; None: never."""
    if len(stored.messages) < 2:
        return None
    return 0.0 if stored.spans > 2 * spans else SETTLE_SECONDS


def _has_open_records(rows: ProjectedRun) -> bool:
    return any(
        row[_STATUS[kind]] in _OPEN
        for kind, of_kind in rows.rows.items()
        for row in of_kind.values()
    )


def _added(unread: Counter[str], earlier: int, scopes: Iterable[str]) -> Counter[str]:
    """Return the unread spans that the stored projection does not count, by scope.

    Args:
        unread: All unread spans of the run, by scope.
        earlier: How many of them the stored projection counts.
        scopes: The scopes of these.
    """
    added = Counter(unread)
    for scope in sorted(scopes):
        known = min(earlier, unread[scope])
        added[scope] -= known
        earlier -= known
    return +added


Digests = dict[UUID, dict[Kind, dict[bytes, int]]]
"""The digests of stored records, by run, kind and record id."""


class ProjectionWriter:
    """Writes projections over a projector's connection."""

    def __init__(self, session: ProjectorSession, terms: LeaseTerms) -> None:
        """Set the connection, and how long a run counts as alive after its newest span."""
        self._session = session
        self._terms = terms

    def read_digests(self, project_id: int, runs: list[UUID]) -> Digests:
        """Return the digests of all records of runs."""
        digests: Digests = {run_id: {kind: {} for kind in RECORDS} for run_id in runs}
        if not runs:
            return digests
        for kind in RECORDS:
            for run_id, record_id, digest in self._session.ask(
                READ_DIGESTS[kind], project_id, runs
            ):
                digests[run_id][kind][record_id.bytes] = digest
        return digests

    def write_locked(
        self,
        project_id: int,
        group: list[Computed],
        known: Digests,
        now: datetime,
    ) -> tuple[list[Computed], list[UUID]]:
        """Lock runs, write their rows, and end their pending state, in the caller's transaction.

        Returns:
            The projections that were written, and the runs whose revisions grew.
        """
        by_run = {each.attempt.run_id: each for each in group}
        # Row-level security allows `COPY` to the owner alone. On Citus the owner's connections to
        # the workers do not see the rows of this transaction.
        writing = _Writing(None if self._session.is_spread else no_rows(project_id))
        written: list[Computed] = []
        for run_id, projected, revision, _, error, *shown in self._session.ask(
            LOCK_PROJECTED_RUNS, project_id, list(by_run)
        ):
            each = by_run[run_id]
            if projected != each.stored.projected:
                continue  # another projector projected it
            self._keep_costs(project_id, each, known.get(run_id))
            run = fields_of_run(each.rows.run)
            if each.rows.unread:
                stored = dict(zip(RUN_FIELDS, shown, strict=True))
                each.unread = _added(
                    each.rows.unread, stored["unread_spans"], stored["unread_scopes"]
                )
            is_changed = error is not None or any(
                run[name] != value
                for name, value in zip(RUN_FIELDS, shown, strict=True)
                if name in _COMPARED_FIELDS
            )
            writing.add(each, known.get(run_id, {}), revision, is_changed, run)
            written.append(each)
        if written:
            self._execute(project_id, writing, now)
            self._note_sessions(project_id, written)
            self._session.ask(
                FINISH,
                project_id,
                [each.attempt.run_id for each in written],
                [each.attempt.arrived for each in written],
                [each.attempt.spans for each in written],
                [each.attempt.size for each in written],
            )
            self._note_signs(project_id, written)
        return written, writing.changed

    def _note_sessions(self, project_id: int, written: list[Computed]) -> None:
        """Store which sessions the runs name. Make runs that name a new session pending again.

        Log records of the session may have been projected at the same time. That projection did not
        see the new rows, so it did not make these runs pending.
        """
        named = [
            (each.attempt.run_id, UUID(bytes=session))
            for each in written
            for session in each.rows.sessions
        ]
        if named:
            columns = map(list, zip(*named, strict=True))
            new = self._session.ask(ADD_SESSIONS, project_id, *columns)
            if new:
                runs = sorted({run_id for (run_id,) in new})
                self._session.ask(PROJECT_AGAIN, project_id, runs)
                self._session.left_pending.update(runs)

    def _execute(self, project_id: int, writing: _Writing, now: datetime) -> None:
        runs = [run_id for run_id, _ in writing.runs]
        for batch in json_batches(Kind.RUN, writing.runs):
            self._session.ask(UPDATE_RUNS, project_id, now, batch, runs)
        for kind in RECORDS:
            if gone := writing.gone[kind]:
                for statement in removing(kind):
                    self._session.ask(statement, project_id, runs, gone)
        self._copy(project_id, [each for each in (writing.new or {}).values() if each])
        for kind in RECORDS:
            for batch in json_batches(kind, writing.changes[kind]):
                self._session.ask(replacing(kind), project_id, batch, runs)

    def _copy(self, project_id: int, copies: list[CopyRows]) -> None:
        if copies:
            self._session.become(None)  # policies allow no `COPY`
            for each in copies:
                with self._session.connection.cursor().copy(each.statement) as copy:
                    for chunk in each.chunks():
                        copy.write(chunk)
            self._session.become(project_id)

    def _keep_costs(
        self, project_id: int, each: Computed, known: dict[Kind, dict[bytes, int]] | None
    ) -> None:
        """Keep the stored costs of think-acts whose token usage has not changed.

        Without this, a cost that was computed from a price list would change after an update of the
        list. Costs that the spans contain are not affected.
        """
        if known is None or each.attempt.with_prices:
            return
        digests, packed = known[Kind.THINK_ACT], each.packed[Kind.THINK_ACT]
        rows = each.rows.rows[Kind.THINK_ACT]
        changed = [
            record_id
            for record_id, row in rows.items()
            if (record_id in each.rows.priced or row[_COST] is None)
            and digests.get(record_id, packed[record_id][1]) != packed[record_id][1]
        ]
        if not changed:
            return
        total: Decimal = each.rows.run[_RUN_COST]
        unpriced_calls: int = each.rows.run[_RUN_COST + 1]
        ids = [UUID(bytes=record_id) for record_id in changed]
        for _, think_act_id, cost, *usage in self._session.ask(
            READ_COSTS, project_id, [each.attempt.run_id], ids
        ):
            record_id, row = think_act_id.bytes, rows[think_act_id.bytes]
            if cost is not None and usage == [row[index] for index in _USAGE_INDEXES]:
                total += cost - (row[_COST] or 0)
                unpriced_calls -= is_unpriced(row[_ROUND_STATUS], row[_TOKENS], row[_COST])
                row = rows[record_id] = (*row[:_COST], cost, *row[_COST + 1 :])
                packed[record_id] = _packed(Kind.THINK_ACT, row)
        run = each.rows.run
        each.rows.run = (*run[:_RUN_COST], total, unpriced_calls, *run[_RUN_COST + 2 :])

    def _note_signs(self, project_id: int, written: list[Computed]) -> None:
        signs = {
            each.attempt.run_id: each.attempt.seen_at
            for each in written
            if each.attempt.seen_at is not None and _has_open_records(each.rows)
        }
        if signs:
            runs, moments = [*signs], [*signs.values()]
            self._session.ask(NOTE_RUNS, project_id, runs, runs)
            self._session.ask(RENEW_RUN_LEASES, project_id, runs, moments, self._terms.span_idle)


class _Writing:
    """The rows that a transaction writes."""

    def __init__(self, new: dict[Kind, CopyRows] | None) -> None:
        """Set the collector of new rows; None: new rows are written like changed ones."""
        self.new = new
        self.runs: dict[tuple[UUID, UUID], Fields] = {}
        self.changed: list[UUID] = []
        self.changes: dict[Kind, dict[tuple[UUID, UUID], Fields]] = {k: {} for k in RECORDS}
        self.gone: dict[Kind, list[UUID]] = {k: [] for k in RECORDS}

    def add(
        self,
        each: Computed,
        known: dict[Kind, dict[bytes, int]],
        revision: int,
        is_changed: bool,
        run: Fields,
    ) -> None:
        """Add a run.

        Args:
            each: The run's projection.
            known: The digests of the run's stored records; empty before its first projection.
            revision: The run's revision before this write.
            is_changed: Whether the run's own fields change.
            run: The run's own fields.
        """
        attempt, stored, rows = each.attempt, each.stored, each.rows
        run_id = attempt.run_id
        later, arrivals = rows.later, stored.arrivals
        moments = [(at - EPOCH) // _MICROSECOND for at in arrivals]
        for kind, packed_rows in each.packed.items():
            digests = known.get(kind, {})
            of_kind = rows.rows[kind]
            new = self.new[kind] if self.new is not None else None
            # The revision grows if there is any new row.
            beginning = new.beginning(run_id.bytes, revision + 1) if new is not None else b""
            for record_id, (packed, digest) in packed_rows.items():
                stored_digest = digests.get(record_id)
                if stored_digest == digest:
                    continue
                is_changed = True
                first, row = later.get(record_id, 0), of_kind[record_id]
                if stored_digest is None and new is not None:
                    new.add(beginning, record_id, moments[first], row, packed, digest)
                else:
                    self.changes[kind][run_id, UUID(bytes=record_id)] = {
                        **fields_of(kind, row),
                        "recorded_at": arrivals[first],
                        "digest": digest,
                    }
            if gone := digests.keys() - packed_rows.keys():
                is_changed = True
                self.gone[kind] += [UUID(bytes=record_id) for record_id in gone]
        if is_changed:
            revision += 1
            self.changed.append(run_id)
        self.runs[run_id, run_id] = {
            **run,
            "revision": revision,
            "projected": attempt.arrived,
            "projection_version": PROJECTION_VERSION,
            "seconds": each.seconds,
            "span_bytes": stored.size,
            "span_count": stored.spans,
            "span_records": f"\\x{pack_block(rows.span_records).hex()}",
            "settle_seconds": _settle_seconds(stored, rows.spans),
        }
