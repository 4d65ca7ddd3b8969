import asyncio
from typing import Any

import psycopg
import pytest

from health.diary import Diary
from tests.health.nurse import CallNurse, rows
from tracer.errors import StoreUnavailable
from tracer.status import Status

READING: dict[str, Any] = {"patient_id": "p-1", "systolic": 152, "diastolic": 95}
MEDICATION: dict[str, Any] = {
    "patient_id": "p-1",
    "medication_name": "Lisinopril",
    "dosage": "10 mg",
}
SYMPTOM: dict[str, Any] = {"patient_id": "p-1", "symptom_name": "头晕"}

# What is recorded, with everything that can be said about it.
WHOLE: dict[str, dict[str, Any]] = {
    "blood_pressure": READING | {"heart_rate": 78, "notes": "起床时"},
    "medication": MEDICATION | {"frequency": "every morning", "notes": "since 2019"},
    "symptom": SYMPTOM | {"severity": "mild", "notes": "when getting up"},
}


@pytest.mark.parametrize("noun", WHOLE)
async def test_what_is_recorded_is_found_by_query(
    noun: str, opened: Diary, call_nurse: CallNurse
) -> None:
    told = WHOLE[noun] | {"record_time": "2026-03-01T20:00:00+08:00"}

    recorded = rows(await call_nurse(f"record_{noun}", **told))

    assert recorded == told | {"record_id": 1, "record_time": "2026-03-01T12:00:00Z"}
    assert rows(await call_nurse(f"query_{noun}", patient_id="p-1")) == [recorded]


@pytest.mark.parametrize(("noun", "told"), [("blood_pressure", READING), ("symptom", SYMPTOM)])
async def test_an_entry_without_a_time_is_for_now(
    noun: str, told: dict[str, Any], opened: Diary, call_nurse: CallNurse
) -> None:
    recorded = rows(await call_nurse(f"record_{noun}", **told))

    assert recorded["record_time"] == "2026-03-02T08:30:00Z"
    assert recorded["notes"] is None


@pytest.mark.parametrize("noun", WHOLE)
async def test_a_patient_sees_nothing_of_another(
    noun: str, opened: Diary, call_nurse: CallNurse
) -> None:
    await call_nurse(f"record_{noun}", **WHOLE[noun])

    assert rows(await call_nurse(f"query_{noun}", patient_id="p-2")) == []


@pytest.mark.parametrize("noun", WHOLE)
async def test_the_newest_come_first_and_pages_follow_each_other(
    noun: str, opened: Diary, call_nurse: CallNurse
) -> None:
    for day in (3, 1, 2, 2):
        time = f"2026-02-0{day}T00:00:00Z"
        await call_nurse(f"record_{noun}", **WHOLE[noun], record_time=time)

    async def page(**which: int) -> list[int]:
        found = rows(await call_nurse(f"query_{noun}", patient_id="p-1", **which))
        return [each["record_id"] for each in found]

    assert await page() == [1, 4, 3, 2]
    assert await page(limit=2) == [1, 4]
    assert await page(limit=2, offset=2) == [3, 2]
    assert await page(offset=4) == []


@pytest.mark.parametrize("noun", ["blood_pressure", "symptom"])
async def test_since_leaves_out_what_came_before(
    noun: str, opened: Diary, call_nurse: CallNurse
) -> None:
    for day in (1, 2, 3):
        time = f"2026-02-0{day}T00:00:00Z"
        await call_nurse(f"record_{noun}", **WHOLE[noun], record_time=time)

    since = "2026-02-02T08:00:00+08:00"
    found = rows(await call_nurse(f"query_{noun}", patient_id="p-1", since=since))

    assert [each["record_id"] for each in found] == [3, 2]


async def test_medication_is_found_by_name_in_any_case(
    opened: Diary, call_nurse: CallNurse
) -> None:
    await call_nurse("record_medication", **MEDICATION)
    await call_nurse("record_medication", **MEDICATION | {"medication_name": "ginkgo"})

    async def named(name: str) -> list[str]:
        found = rows(await call_nurse("query_medication", patient_id="p-1", medication_name=name))
        return [each["medication_name"] for each in found]

    assert await named("LISINOPRIL") == ["Lisinopril"]
    assert await named("l%") == []
    assert await named("'; DROP TABLE health.medication; --") == []


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("blood_pressure", {"systolic": 88, "diastolic": 146}, "tool_error", "were swapped"),
    ("blood_pressure", {"systolic": 120, "diastolic": 120}, "tool_error", "were swapped"),
    ("blood_pressure", {"systolic": 1520}, "invalid_arguments", "systolic"),
    ("blood_pressure", {"systolic": "high"}, "invalid_arguments", "systolic"),
    ("blood_pressure", {"diastolic": 2}, "invalid_arguments", "diastolic"),
    ("blood_pressure", {"heart_rate": 5}, "invalid_arguments", "heart_rate"),
    ("blood_pressure", {"pulse": 78}, "invalid_arguments", "pulse"),
    ("blood_pressure", {"patient_id": "  "}, "invalid_arguments", "patient_id"),
    ("blood_pressure", {"notes": "NUL \0"}, "invalid_arguments", "notes"),
    ("blood_pressure", {"notes": "half \ud83d"}, "invalid_arguments", "notes"),
    ("blood_pressure", {"record_time": "yesterday"}, "tool_error", "no ISO 8601 time"),
    ("blood_pressure", {"record_time": "2026-02-30T08:00:00Z"}, "tool_error", "no ISO 8601 time"),
    ("blood_pressure", {"record_time": "2026-03-01T08:00:00"}, "tool_error", "no offset"),
    ("blood_pressure", {"record_time": "2026-03-03T08:00:00Z"}, "tool_error", "the future"),
    ("blood_pressure", {"record_time": "9999-12-31T23:00:00-09:00"}, "tool_error", "no ISO 8601"),
    ("medication", {"record_time": "0026-03-01T08:00:00Z"}, "tool_error", "before 1900"),
    ("medication", {"dosage": ""}, "invalid_arguments", "dosage"),
    ("medication", {"medication_name": "x" * 201}, "invalid_arguments", "medication_name"),
    ("symptom", {"severity": "unbearable"}, "invalid_arguments", "severity"),
]


@pytest.mark.parametrize(("noun", "change", "reason", "said"), REFUSED)
async def test_what_cannot_be_is_refused_in_words_and_leaves_nothing(
    noun: str,
    change: dict[str, Any],
    reason: str,
    said: str,
    opened: Diary,
    call_nurse: CallNurse,
) -> None:
    ending = await call_nurse(f"record_{noun}", **WHOLE[noun] | change)

    assert ending.status is Status.FAILED
    assert ending.reason == reason
    assert ending.error is not None
    assert said in ending.error.message
    assert rows(await call_nurse(f"query_{noun}", patient_id="p-1")) == []


async def test_a_patients_clock_may_run_a_little_ahead(
    opened: Diary, call_nurse: CallNurse
) -> None:
    ahead = await call_nurse("record_blood_pressure", **READING, record_time="2026-03-02T08:34:00Z")

    assert ahead.status is Status.SUCCEEDED


async def test_processes_that_open_at_once_create_the_tables_once(database_url: str) -> None:
    async def open_one() -> None:
        async with Diary().open(database_url):
            pass

    await asyncio.gather(*(open_one() for _ in range(8)))

    connection = await psycopg.AsyncConnection.connect(database_url)
    async with connection:
        found = await connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'health' ORDER BY 1"
        )
        tables = [name for (name,) in await found.fetchall()]
    assert tables == ["blood_pressure", "medication", "symptom"]


async def test_what_was_recorded_outlives_the_application(
    diary: Diary, database_url: str, call_nurse: CallNurse
) -> None:
    async with diary.open(database_url):
        recorded = rows(await call_nurse("record_symptom", **SYMPTOM))
    async with diary.open(database_url):
        assert rows(await call_nurse("query_symptom", patient_id="p-1")) == [recorded]


async def test_a_tool_of_a_closed_diary_fails_in_words(call_nurse: CallNurse) -> None:
    ending = await call_nurse("query_symptom", patient_id="p-1")

    assert ending.reason == "tool_error"
    assert ending.error is not None
    assert "closed" in ending.error.message


async def test_a_connection_that_breaks_is_replaced(
    opened: Diary, database_url: str, call_nurse: CallNurse
) -> None:
    await call_nurse("record_symptom", **SYMPTOM)
    connection = await psycopg.AsyncConnection.connect(database_url, autocommit=True)
    async with connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    [symptom] = rows(await call_nurse("query_symptom", patient_id="p-1"))
    assert symptom["symptom_name"] == "头晕"


async def test_an_application_whose_database_is_not_there_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("health.diary.ANSWER_SECONDS", 0.5)

    with pytest.raises(StoreUnavailable):
        async with Diary().open("postgresql://127.0.0.1:1/none"):
            pass
