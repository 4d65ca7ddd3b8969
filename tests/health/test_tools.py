"""The tools of the health application read and write the diary of their caller only."""

from typing import Any

import psycopg

from health.agents import diary_tools
from health.diary import Diary
from tests.health.entries import LEAST, MEDICATION, READING, WHOLE, time_of
from tests.health.nurse import OTHER_PATIENT, CallNurse, refusal, rows
from tracer.records import Status


async def test_query_returns_an_entry_only_to_the_patient_who_recorded_it(
    opened: Diary, call_nurse: CallNurse
) -> None:
    found = {}
    expected: dict[str, object] = {}
    for noun, entry in WHOLE.items():
        arguments = entry | {time_of(noun): "2026-03-01T20:00:00+08:00"}
        recorded = rows(await call_nurse(f"record_{noun}", **arguments))
        queried = rows(await call_nurse(f"query_{noun}"))
        of_other = rows(await call_nurse(f"query_{noun}", by=OTHER_PATIENT))
        found[noun] = recorded, queried, of_other
        stored = arguments | {"record_id": 1, time_of(noun): "2026-03-01T12:00:00Z"}
        expected[noun] = stored, [stored], []

    assert found == expected


async def test_entry_without_a_time_gets_the_current_time(
    opened: Diary, call_nurse: CallNurse
) -> None:
    found = {}
    for noun, entry in LEAST.items():
        recorded = rows(await call_nurse(f"record_{noun}", **entry))
        # The clock moves on by a millisecond each time that it is read.
        found[noun] = recorded[time_of(noun)][:19], recorded["notes"]

    assert found == dict.fromkeys(LEAST, ("2026-03-02T08:30:00", None))


async def test_forged_user_id_is_ignored_and_the_callers_diary_is_used(
    opened: Diary, call_nurse: CallNurse
) -> None:
    failures = []
    for number, name in enumerate(["user_id", "userId", "USER-ID", "patient_id", "Patient Id"], 1):
        forged = {name: OTHER_PATIENT}
        await call_nurse("record_symptom", symptom_name="mine", **forged)
        own = rows(await call_nurse("query_symptom", **forged))
        others = rows(await call_nurse("query_symptom", by=OTHER_PATIENT))
        if (len(own), others) != (number, []):
            failures.append(f"{name}: expected {number} and [], got {len(own)} and {others}")

    assert failures == []


async def test_token_that_cannot_be_a_user_id_is_rejected(
    opened: Diary, call_nurse: CallNurse
) -> None:
    tokens = ["half \ud83d", "NUL \0", "  ", "x" * 201]
    reasons = [
        refusal(await call_nurse("record_symptom", by=token, symptom_name="dizziness"))[0]
        for token in tokens
    ]

    assert reasons == ["missing_identity"] * len(tokens)


def test_tool_schemas_do_not_mention_the_user_id(diary: Diary) -> None:
    for tool in diary_tools(diary):
        seen = f"{tool.description} {tool.parameters}".lower()

        assert "user_id" not in seen
        assert "patient_id" not in seen
        assert list(tool.hidden) == ["user_id"], tool.name


async def test_query_returns_the_newest_entries_first_in_pages(
    opened: Diary, call_nurse: CallNurse
) -> None:
    async def page(noun: str, **which: Any) -> list[int]:
        found = rows(await call_nurse(f"query_{noun}", **which))
        return [each["record_id"] for each in found]

    pages = {}
    for noun in WHOLE:
        for day in (3, 1, 2, 2):
            time = {time_of(noun): f"2026-02-0{day}T00:00:00Z"}
            await call_nurse(f"record_{noun}", **WHOLE[noun], **time)
        pages[noun] = [
            await page(noun),
            await page(noun, limit=2),
            await page(noun, limit=2, offset=2),
            await page(noun, offset=4),
        ]

    assert pages == {key: [[1, 4, 3, 2], [1, 4], [3, 2], []] for key in WHOLE}


async def test_query_with_since_excludes_older_entries(
    opened: Diary, call_nurse: CallNurse
) -> None:
    nouns = ["blood_pressure", "health_event", "symptom"]
    found = {}
    for noun in nouns:
        for day in (1, 2, 3):
            time = {time_of(noun): f"2026-02-0{day}T00:00:00Z"}
            await call_nurse(f"record_{noun}", **WHOLE[noun], **time)
        newer = rows(await call_nurse(f"query_{noun}", since="2026-02-02T08:00:00+08:00"))
        found[noun] = [each["record_id"] for each in newer]

    assert found == {key: [3, 2] for key in nouns}


async def test_medication_is_found_by_name_case_insensitively(
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


async def test_impossible_entries_are_rejected_with_a_message_and_not_stored(
    opened: Diary, call_nurse: CallNurse
) -> None:
    failures = []
    for noun, change, reason, message in REFUSED:
        outcome = await call_nurse(f"record_{noun}", **WHOLE[noun] | change)
        error_text = (outcome.error and outcome.error.message) or ""
        if (outcome.status, outcome.reason) != (Status.FAILED, reason) or message not in error_text:
            got = f"{outcome.status}, {outcome.reason}: {error_text[:100]!r}"
            failures.append(f"{noun} {change}: expected {reason}: {message!r}, got {got}")
    stored = {noun: rows(await call_nurse(f"query_{noun}")) for noun in WHOLE}

    assert failures == []
    assert stored == {noun: [] for noun in WHOLE}


async def test_record_time_slightly_in_the_future_is_accepted(
    opened: Diary, call_nurse: CallNurse
) -> None:
    ahead = await call_nurse("record_blood_pressure", **READING, record_time="2026-03-02T08:34:00Z")

    assert ahead.status is Status.SUCCEEDED


async def test_tool_call_after_the_diary_is_closed_fails_with_a_reason(
    call_nurse: CallNurse,
) -> None:
    reason, said = refusal(await call_nurse("query_symptom"))

    assert reason == "tool_error"
    assert "closed" in (said or "")


async def test_broken_database_connection_is_replaced(
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
