"""The diary's tables, and the statements over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from psycopg.sql import SQL, Composed, Identifier, Placeholder


@dataclass(frozen=True)
class Table:
    """The table of one kind of entry. Each has `record_id`, `user_id`, a time and more columns."""

    name: str
    columns: tuple[str, ...]
    """The columns with the content of an entry."""
    time: str = "record_time"
    """The column with the time of the entry."""

    @property
    def shown(self) -> Composed:
        """The columns that tools return: all except `user_id`."""
        return _names(("record_id", *self.columns, self.time))


BLOOD_PRESSURE = Table("blood_pressure", ("systolic", "diastolic", "heart_rate", "notes"))
HEALTH_EVENT = Table("health_event", ("event_type", "event_name", "notes"), time="event_time")
MEDICATION = Table("medication", ("medication_name", "dosage", "frequency", "notes"))
SYMPTOM = Table("symptom", ("symptom_name", "severity", "notes"))

SCHEMA = """
CREATE SCHEMA IF NOT EXISTS health;

-- In older versions models supplied the owner of an entry, as `patient_id`.
DO $$
DECLARE
    former record;
BEGIN
    FOR former IN
        SELECT table_name FROM information_schema.columns
        WHERE table_schema = 'health' AND column_name = 'patient_id'
    LOOP
        EXECUTE format('ALTER TABLE health.%I RENAME patient_id TO user_id', former.table_name);
        EXECUTE format(
            'ALTER INDEX IF EXISTS health.%I RENAME TO %I',
            former.table_name || '_by_patient', former.table_name || '_by_user'
        );
    END LOOP;
END $$;

CREATE TABLE IF NOT EXISTS health.blood_pressure (
    record_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id     text NOT NULL,
    systolic    smallint NOT NULL,
    diastolic   smallint NOT NULL CHECK (diastolic < systolic),
    heart_rate  smallint,
    record_time timestamptz NOT NULL,
    notes       text
);
CREATE INDEX IF NOT EXISTS blood_pressure_by_user
    ON health.blood_pressure (user_id, record_time DESC, record_id DESC);

CREATE TABLE IF NOT EXISTS health.health_event (
    record_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id    text NOT NULL,
    event_type text NOT NULL,
    event_name text NOT NULL,
    event_time timestamptz NOT NULL,
    notes      text
);
CREATE INDEX IF NOT EXISTS health_event_by_user
    ON health.health_event (user_id, event_time DESC, record_id DESC);

CREATE TABLE IF NOT EXISTS health.medication (
    record_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id         text NOT NULL,
    medication_name text NOT NULL,
    dosage          text NOT NULL,
    frequency       text,
    record_time     timestamptz NOT NULL,
    notes           text
);
CREATE INDEX IF NOT EXISTS medication_by_user
    ON health.medication (user_id, record_time DESC, record_id DESC);

CREATE TABLE IF NOT EXISTS health.symptom (
    record_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id      text NOT NULL,
    symptom_name text NOT NULL,
    severity     text,
    record_time  timestamptz NOT NULL,
    notes        text
);
CREATE INDEX IF NOT EXISTS symptom_by_user
    ON health.symptom (user_id, record_time DESC, record_id DESC);
"""


def insert(table: Table) -> Composed:
    """Return the statement that adds an entry.

    Its values: `user_id`, the table's time, and each of its columns.
    """
    names = ("user_id", table.time, *table.columns)
    return SQL("INSERT INTO health.{table} ({names}) VALUES ({values}) RETURNING {shown}").format(
        table=Identifier(table.name),
        names=_names(names),
        values=SQL(", ").join(map(Placeholder, names)),
        shown=table.shown,
    )


def select(table: Table, same_text: Iterable[str] = ()) -> Composed:
    """Return the statement that finds a user's entries, newest first.

    Its values: `user_id`, `since` (None: all), `limit`, `offset`, and those of `same_text`.

    Args:
        table: The table.
        same_text: Columns that must equal their values, regardless of case; None: any value.
    """
    conditions = [
        SQL(" AND ({value}::text IS NULL OR lower({name}) = lower({value}))").format(
            name=Identifier(each), value=Placeholder(each)
        )
        for each in same_text
    ]
    return SQL(
        "SELECT {shown} FROM health.{table}"
        " WHERE user_id = %(user_id)s"
        " AND {time} >= coalesce(%(since)s, '-infinity'::timestamptz){conditions}"
        " ORDER BY {time} DESC, record_id DESC LIMIT %(limit)s OFFSET %(offset)s"
    ).format(
        shown=table.shown,
        table=Identifier(table.name),
        time=Identifier(table.time),
        conditions=SQL("").join(conditions),
    )


def update(table: Table, changed: Iterable[str]) -> Composed:
    """Return the statement that changes one entry of a user, and no other user's entry.

    Its values: `user_id`, `record_id`, and those of `changed`.
    """
    return SQL(
        "UPDATE health.{table} SET {changes}"
        " WHERE record_id = %(record_id)s AND user_id = %(user_id)s RETURNING {shown}"
    ).format(
        table=Identifier(table.name),
        changes=SQL(", ").join(
            SQL("{} = {}").format(Identifier(each), Placeholder(each)) for each in changed
        ),
        shown=table.shown,
    )


def _names(names: Iterable[str]) -> Composed:
    return SQL(", ").join(map(Identifier, names))
