"""The health diary: its database tables, their migration, and the separation of users."""

import asyncio
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from health.diary import Diary, NoSuchRecord
from health.tables import SYMPTOM as SYMPTOM_TABLE
from tests.health.entries import SYMPTOM
from tests.health.nurse import OTHER_PATIENT, CallNurse, nurse_over, rows
from tests.profiles import scaled
from tracer.errors import StoreUnavailable
from tracer.records import new_id
from tracer.runtime import Surroundings

FORMER_TABLES = """
CREATE SCHEMA health;
CREATE TABLE health.blood_pressure (
    record_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    patient_id  text NOT NULL,
    systolic    smallint NOT NULL,
    diastolic   smallint NOT NULL CHECK (diastolic < systolic),
    heart_rate  smallint,
    record_time timestamptz NOT NULL,
    notes       text
);
CREATE INDEX blood_pressure_by_patient
    ON health.blood_pressure (patient_id, record_time DESC, record_id DESC);
CREATE TABLE health.medication (
    record_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    patient_id      text NOT NULL,
    medication_name text NOT NULL,
    dosage          text NOT NULL,
    frequency       text,
    record_time     timestamptz NOT NULL,
    notes           text
);
CREATE INDEX medication_by_patient
    ON health.medication (patient_id, record_time DESC, record_id DESC);
CREATE TABLE health.symptom (
    record_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    patient_id   text NOT NULL,
    symptom_name text NOT NULL,
    severity     text,
    record_time  timestamptz NOT NULL,
    notes        text
);
CREATE INDEX symptom_by_patient
    ON health.symptom (patient_id, record_time DESC, record_id DESC);
INSERT INTO health.symptom (patient_id, symptom_name, record_time)
    VALUES ('user-p-1', 'dizziness', '2026-03-01'), ('user-p-2', 'cough', '2026-03-01');
"""


async def fetch(database_url: str, query: LiteralString) -> list[Any]:
    connection = await psycopg.AsyncConnection.connect(database_url)
    async with connection:
        return [row for (row,) in await (await connection.execute(query)).fetchall()]


async def open_one(database_url: str, diary: Diary | None = None) -> None:
    async with (diary or Diary()).open(Surroundings(database_url)):
        pass


async def test_concurrent_opens_of_a_diary_create_its_tables_once(database_url: str) -> None:
    await asyncio.gather(*(open_one(database_url) for _ in range(8)))

    tables = await fetch(
        database_url, "SELECT tablename FROM pg_tables WHERE schemaname = 'health' ORDER BY 1"
    )
    assert tables == ["blood_pressure", "health_event", "medication", "symptom"]


async def test_opening_a_diary_of_an_older_schema_migrates_it(
    database_url: str, tmp_path: Path
) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await connection.execute(FORMER_TABLES)

    await asyncio.gather(*(open_one(database_url) for _ in range(4)))

    diary = Diary()
    async with diary.open(Surroundings(database_url)), nurse_over(diary, tmp_path) as call_nurse:
        [symptom] = rows(await call_nurse("query_symptom"))
        changed = rows(await call_nurse("update_symptom", record_id=1, severity="mild"))
        theirs = rows(await call_nurse("query_symptom", by=OTHER_PATIENT))
    assert symptom["symptom_name"] == "dizziness"
    assert changed == symptom | {"severity": "mild"}
    assert [each["symptom_name"] for each in theirs] == ["cough"]


async def test_migrated_diary_has_the_same_tables_as_a_new_diary(
    database_url: str, empty_database_url: str
) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await connection.execute(FORMER_TABLES)

    await open_one(database_url)
    await open_one(empty_database_url)

    for query in (
        "SELECT (table_name, column_name, data_type, is_nullable)::text"
        " FROM information_schema.columns WHERE table_schema = 'health' ORDER BY 1",
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'health' ORDER BY 1",
    ):
        assert await fetch(database_url, query) == await fetch(empty_database_url, query)


async def test_entries_survive_closing_and_opening_the_diary(
    diary: Diary, database_url: str, call_nurse: CallNurse
) -> None:
    async with diary.open(Surroundings(database_url)):
        recorded = rows(await call_nurse("record_symptom", **SYMPTOM))
    async with diary.open(Surroundings(database_url)):
        assert rows(await call_nurse("query_symptom")) == [recorded]


async def test_opening_a_diary_without_a_database_raises() -> None:
    with pytest.raises(StoreUnavailable):
        await open_one("postgresql://127.0.0.1:1/none", Diary(answer_seconds=0.5))


@settings(max_examples=scaled(30))
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.none() | st.integers(0, 12), st.text("ab", min_size=1)),
        max_size=12,
    )
)
async def test_users_find_only_their_own_entries_after_any_order_of_writes(
    opened: Diary, steps: list[tuple[int, int | None, str]]
) -> None:
    users = [str(new_id()) for _ in range(3)]  # others than in the examples before
    expected: dict[int, tuple[str, str]] = {}
    for number, which, said in steps:
        user = users[number]
        record_ids = list(expected)
        if which is None or which >= len(record_ids):
            entry = {"symptom_name": said, "severity": None, "notes": None}
            now = {"record_time": opened.clock()}
            added = await opened.add(SYMPTOM_TABLE, user, entry | now)
            expected[added["record_id"]] = (user, said)
        elif expected[record_ids[which]][0] == user:
            changes = {"symptom_name": said}
            await opened.change(SYMPTOM_TABLE, user, record_ids[which], changes)
            expected[record_ids[which]] = (user, said)
        else:
            with pytest.raises(NoSuchRecord):
                await opened.change(SYMPTOM_TABLE, user, record_ids[which], {"notes": said})

    for user in users:
        found = await opened.find(SYMPTOM_TABLE, user, limit=100, offset=0)
        assert {each["record_id"]: (user, each["symptom_name"]) for each in found} == {
            record_id: entry for record_id, entry in expected.items() if entry[0] == user
        }
        assert {each["notes"] for each in found} <= {None}
