from typing import Any

import psycopg
import pytest

from health.agents import diary_tools
from health.diary import Diary
from tests.health.entries import LEAST, MEDICATION, READING, WHOLE, time_of
from tests.health.nurse import OTHER_PATIENT, CallNurse, refusal, rows
from tracer.status import Status


@pytest.mark.parametrize("noun", WHOLE)
async def test_what_is_recorded_is_found_by_query(
    noun: str, opened: Diary, call_nurse: CallNurse
) -> None:
    time = time_of(noun)
    told = WHOLE[noun] | {time: "2026-03-01T20:00:00+08:00"}

    recorded = rows(await call_nurse(f"record_{noun}", **told))

    assert recorded == told | {"record_id": 1, time: "2026-03-01T12:00:00Z"}
    assert rows(await call_nurse(f"query_{noun}")) == [recorded]


@pytest.mark.parametrize("noun", LEAST)
async def test_an_entry_without_a_time_is_for_now(
    noun: str, opened: Diary, call_nurse: CallNurse
) -> None:
    recorded = rows(await call_nurse(f"record_{noun}", **LEAST[noun]))

    assert recorded[time_of(noun)] == "2026-03-02T08:30:00Z"
    assert recorded["notes"] is None


@pytest.mark.parametrize("noun", WHOLE)
async def test_a_patient_sees_nothing_of_another(
    noun: str, opened: Diary, call_nurse: CallNurse
) -> None:
    await call_nurse(f"record_{noun}", **WHOLE[noun])

    assert rows(await call_nurse(f"query_{noun}", by=OTHER_PATIENT)) == []


@pytest.mark.parametrize("name", ["user_id", "userId", "USER-ID", "patient_id", "Patient Id"])
async def test_who_names_another_patient_reaches_their_own_diary_only(
    name: str, opened: Diary, call_nurse: CallNurse
) -> None:
    await call_nurse("record_symptom", symptom_name="mine", **{name: OTHER_PATIENT})

    assert rows(await call_nurse("query_symptom", by=OTHER_PATIENT)) == []
    [symptom] = rows(await call_nurse("query_symptom", **{name: OTHER_PATIENT}))
    assert symptom["symptom_name"] == "mine"


@pytest.mark.parametrize("by", ["half \ud83d", "NUL \0", "  ", "x" * 201])
async def test_a_token_that_can_be_nobodys_is_refused(
    by: str, opened: Diary, call_nurse: CallNurse
) -> None:
    reason, _ = refusal(await call_nurse("record_symptom", by=by, symptom_name="dizziness"))

    assert reason == "missing_identity"


def test_no_tool_tells_a_model_that_there_is_a_user_id(diary: Diary) -> None:
    for tool in diary_tools(diary):
        seen = f"{tool.description} {tool.parameters}".lower()

        assert "user_id" not in seen
        assert "patient_id" not in seen
        assert list(tool.hidden) == ["user_id"], tool.name


@pytest.mark.parametrize("noun", WHOLE)
async def test_the_newest_come_first_and_pages_follow_each_other(
    noun: str, opened: Diary, call_nurse: CallNurse
) -> None:
    for day in (3, 1, 2, 2):
        time = {time_of(noun): f"2026-02-0{day}T00:00:00Z"}
        await call_nurse(f"record_{noun}", **WHOLE[noun], **time)

    async def page(**which: Any) -> list[int]:
        found = rows(await call_nurse(f"query_{noun}", **which))
        return [each["record_id"] for each in found]

    assert await page() == [1, 4, 3, 2]
    assert await page(limit=2) == [1, 4]
    assert await page(limit=2, offset=2) == [3, 2]
    assert await page(offset=4) == []


@pytest.mark.parametrize("noun", ["blood_pressure", "health_event", "symptom"])
async def test_since_leaves_out_what_came_before(
    noun: str, opened: Diary, call_nurse: CallNurse
) -> None:
    for day in (1, 2, 3):
        time = {time_of(noun): f"2026-02-0{day}T00:00:00Z"}
        await call_nurse(f"record_{noun}", **WHOLE[noun], **time)

    found = rows(await call_nurse(f"query_{noun}", since="2026-02-02T08:00:00+08:00"))

    assert [each["record_id"] for each in found] == [3, 2]


async def test_medication_is_found_by_name_in_any_case(
    opened: Diary, call_nurse: CallNurse
) -> None:
    await call_nurse("record_medication", **MEDICATION)
    await call_nurse("record_medication", **MEDICATION | {"medication_name": "ginkgo"})

    async def named(name: str) -> list[str]:
        found = rows(await call_nurse("query_medication", medication_name=name))
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
    ("blood_pressure", {"notes": "NUL \0"}, "invalid_arguments", "notes"),
    ("blood_pressure", {"notes": "half \ud83d"}, "invalid_arguments", "notes"),
    ("blood_pressure", {"record_time": "yesterday"}, "tool_error", "no ISO 8601 time"),
    ("blood_pressure", {"record_time": "2026-02-30T08:00:00Z"}, "tool_error", "no ISO 8601 time"),
    ("blood_pressure", {"record_time": "2026-03-01T08:00:00"}, "tool_error", "no offset"),
    ("blood_pressure", {"record_time": "2026-03-03T08:00:00Z"}, "tool_error", "the future"),
    ("blood_pressure", {"record_time": "9999-12-31T23:00:00-09:00"}, "tool_error", "no ISO 8601"),
    ("health_event", {"event_time": "2026-03-03T08:00:00Z"}, "tool_error", "event_time"),
    ("health_event", {"event_type": "party"}, "invalid_arguments", "event_type"),
    ("health_event", {"event_name": " "}, "invalid_arguments", "event_name"),
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
    outcome = await call_nurse(f"record_{noun}", **WHOLE[noun] | change)

    assert outcome.status is Status.FAILED
    assert outcome.reason == reason
    assert said in (refusal(outcome)[1] or "")
    assert rows(await call_nurse(f"query_{noun}")) == []


async def test_a_patients_clock_may_run_a_little_ahead(
    opened: Diary, call_nurse: CallNurse
) -> None:
    ahead = await call_nurse("record_blood_pressure", **READING, record_time="2026-03-02T08:34:00Z")

    assert ahead.status is Status.SUCCEEDED


async def test_a_tool_of_a_closed_diary_fails_in_words(call_nurse: CallNurse) -> None:
    reason, said = refusal(await call_nurse("query_symptom"))

    assert reason == "tool_error"
    assert "closed" in (said or "")


async def test_a_connection_that_breaks_is_replaced(
    opened: Diary, database_url: str, call_nurse: CallNurse
) -> None:
    await call_nurse("record_symptom", symptom_name="头晕")
    connection = await psycopg.AsyncConnection.connect(database_url, autocommit=True)
    async with connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    [symptom] = rows(await call_nurse("query_symptom"))
    assert symptom["symptom_name"] == "头晕"
