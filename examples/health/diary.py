"""The diary: what patients measured, take and feel, in Postgres tables of the application's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, LiteralString

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from tracer.clock import Clock, utc_now
from tracer.errors import StoreUnavailable, ToolError
from tracer.storage.engine import libpq_url

Entry = dict[str, Any]
"""One row of the diary, as a tool returns it."""

ANSWER_SECONDS = 10.0
"""How long a tool waits for a connection before it gives up."""

SCHEMA_LOCK = 4_861_001
"""Any number that the processes agree on: `IF NOT EXISTS` alone fails when two create at once."""

_OUTAGES = (psycopg.OperationalError, psycopg.InterfaceError)

SCHEMA = """
CREATE SCHEMA IF NOT EXISTS health;

CREATE TABLE IF NOT EXISTS health.blood_pressure (
    record_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    patient_id  text NOT NULL,
    systolic    smallint NOT NULL,
    diastolic   smallint NOT NULL CHECK (diastolic < systolic),
    heart_rate  smallint,
    record_time timestamptz NOT NULL,
    notes       text
);
CREATE INDEX IF NOT EXISTS blood_pressure_by_patient
    ON health.blood_pressure (patient_id, record_time DESC, record_id DESC);

CREATE TABLE IF NOT EXISTS health.medication (
    record_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    patient_id      text NOT NULL,
    medication_name text NOT NULL,
    dosage          text NOT NULL,
    frequency       text,
    record_time     timestamptz NOT NULL,
    notes           text
);
CREATE INDEX IF NOT EXISTS medication_by_patient
    ON health.medication (patient_id, record_time DESC, record_id DESC);

CREATE TABLE IF NOT EXISTS health.symptom (
    record_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    patient_id   text NOT NULL,
    symptom_name text NOT NULL,
    severity     text,
    record_time  timestamptz NOT NULL,
    notes        text
);
CREATE INDEX IF NOT EXISTS symptom_by_patient
    ON health.symptom (patient_id, record_time DESC, record_id DESC);
"""

INSERT_BLOOD_PRESSURE = """
INSERT INTO health.blood_pressure
    (patient_id, systolic, diastolic, heart_rate, record_time, notes)
VALUES
    (%(patient_id)s, %(systolic)s, %(diastolic)s, %(heart_rate)s, %(record_time)s, %(notes)s)
RETURNING *
"""

INSERT_MEDICATION = """
INSERT INTO health.medication
    (patient_id, medication_name, dosage, frequency, record_time, notes)
VALUES
    (%(patient_id)s, %(medication_name)s, %(dosage)s, %(frequency)s, %(record_time)s, %(notes)s)
RETURNING *
"""

INSERT_SYMPTOM = """
INSERT INTO health.symptom (patient_id, symptom_name, severity, record_time, notes)
VALUES (%(patient_id)s, %(symptom_name)s, %(severity)s, %(record_time)s, %(notes)s)
RETURNING *
"""

SELECT_BLOOD_PRESSURE = """
SELECT * FROM health.blood_pressure
WHERE patient_id = %(patient_id)s AND record_time >= coalesce(%(since)s, '-infinity'::timestamptz)
ORDER BY record_time DESC, record_id DESC
LIMIT %(limit)s OFFSET %(offset)s
"""

SELECT_MEDICATION = """
SELECT * FROM health.medication
WHERE patient_id = %(patient_id)s
  AND (%(medication_name)s::text IS NULL OR lower(medication_name) = lower(%(medication_name)s))
ORDER BY record_time DESC, record_id DESC
LIMIT %(limit)s OFFSET %(offset)s
"""

SELECT_SYMPTOM = """
SELECT * FROM health.symptom
WHERE patient_id = %(patient_id)s AND record_time >= coalesce(%(since)s, '-infinity'::timestamptz)
ORDER BY record_time DESC, record_id DESC
LIMIT %(limit)s OFFSET %(offset)s
"""


class Diary:
    """The diary's tables: closed when made, usable while `open` is entered.

    Args:
        clock: Says what time it is, for entries that bring no time of their own.
    """

    def __init__(self, clock: Clock = utc_now) -> None:
        self.clock = clock
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[DictRow]] | None = None

    @asynccontextmanager
    async def open(self, database_url: str) -> AsyncIterator[None]:
        """Create the tables where they are missing, and keep a small pool while inside.

        Args:
            database_url: The Postgres that holds the diary.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        if self._pool is not None:
            raise RuntimeError("The diary is open already: open it once a process.")
        pool = AsyncConnectionPool(
            libpq_url(database_url),
            connection_class=psycopg.AsyncConnection[DictRow],
            kwargs={"autocommit": True, "row_factory": dict_row},
            configure=_speak_utc,
            check=AsyncConnectionPool.check_connection,
            min_size=1,
            max_size=4,
            timeout=ANSWER_SECONDS,
            open=False,
        )
        async with pool:
            try:
                async with pool.connection() as connection, connection.transaction():
                    await connection.execute("SELECT pg_advisory_xact_lock(%s)", [SCHEMA_LOCK])
                    await connection.execute(SCHEMA)
            except _OUTAGES as error:
                raise StoreUnavailable("The diary's database does not answer.") from error
            self._pool = pool
            try:
                yield
            finally:
                self._pool = None

    async def fetch(self, query: LiteralString, values: Mapping[str, Any]) -> list[Entry]:
        """Run one of this file's statements and return its rows.

        Args:
            query: The statement; a write is committed when this returns.
            values: What its `%(name)s` stand for.

        Raises:
            ToolError: The diary is closed, or its database does not answer.
        """
        if self._pool is None:
            raise ToolError("The diary is closed: the application has not opened its database.")
        try:
            async with self._pool.connection() as connection:
                cursor = await connection.execute(query, values)
                return await cursor.fetchall()
        except _OUTAGES as error:
            raise ToolError("The diary's database does not answer. Try again later.") from error


async def _speak_utc(connection: psycopg.AsyncConnection[DictRow]) -> None:
    await connection.execute("SET TIME ZONE 'UTC'")
