"""The tools of the health application that change diary entries."""

import asyncio
from typing import Any

from health.diary import Diary
from tests.health.entries import READING, WHOLE
from tests.health.nurse import OTHER_PATIENT, PATIENT, CallNurse, refusal, rows

CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("blood_pressure", {"systolic": 149}),
    ("blood_pressure", {"systolic": 90, "diastolic": 60, "heart_rate": 60, "notes": "at rest"}),
    ("health_event", {"event_type": "surgery", "event_name": "knee", "notes": "went well"}),
    ("medication", {"dosage": "5 mg"}),
    ("medication", {"medication_name": "ginkgo", "frequency": "never", "notes": "stopped"}),
    ("symptom", {"severity": "severe"}),
    ("symptom", {"symptom_name": "nausea", "notes": "after meals"}),
]


async def test_update_changes_only_the_given_fields_of_one_entry(
    opened: Diary, call_nurse: CallNurse
) -> None:
    failures = []
    for noun, change in CHANGES:
        before = rows(await call_nurse(f"record_{noun}", **WHOLE[noun]))
        other = rows(await call_nurse(f"record_{noun}", **WHOLE[noun]))
        changed = rows(await call_nurse(f"update_{noun}", record_id=before["record_id"], **change))
        found = rows(await call_nurse(f"query_{noun}", limit=2))
        newest = sorted(found, key=lambda each: each["record_id"])
        if (changed, newest) != (before | change, [changed, other]):
            failures.append(f"{noun} {change}: got {newest}")

    assert failures == []


async def test_time_of_an_event_can_be_updated_but_not_to_the_future(
    opened: Diary, call_nurse: CallNurse
) -> None:
    await call_nurse("record_health_event", **WHOLE["health_event"])

    async def moved(time: str) -> Any:
        return await call_nurse("update_health_event", record_id=1, event_time=time)

    assert rows(await moved("2026-03-01T08:00:00+08:00"))["event_time"] == "2026-03-01T00:00:00Z"
    assert "the future" in (refusal(await moved("2026-04-01T08:00:00Z"))[1] or "")
    assert "no offset" in (refusal(await moved("2026-03-01T08:00:00"))[1] or "")


async def test_update_of_another_patients_record_fails_like_a_missing_record(
    opened: Diary, call_nurse: CallNurse
) -> None:
    for noun in WHOLE:
        mine = rows(await call_nurse(f"record_{noun}", **WHOLE[noun]))
        not_theirs, not_there = [
            await call_nurse(
                f"update_{noun}", by=OTHER_PATIENT, record_id=record_id, notes="stolen"
            )
            for record_id in (mine["record_id"], 4_711)
        ]

        assert not_theirs.reason == "no_such_record", noun
        assert refusal(not_theirs) == refusal(not_there), noun
        assert not_theirs.for_model == not_there.for_model, noun
        assert rows(await call_nurse(f"query_{noun}")) == [mine], noun
        assert rows(await call_nurse(f"query_{noun}", by=OTHER_PATIENT)) == [], noun


async def test_forged_user_id_cannot_update_another_patients_record(
    opened: Diary, call_nurse: CallNurse
) -> None:
    mine = rows(await call_nurse("record_symptom", **WHOLE["symptom"]))

    stolen = await call_nurse(
        "update_symptom", by=OTHER_PATIENT, record_id=1, notes="stolen", user_id=PATIENT
    )

    assert stolen.reason == "no_such_record"
    assert rows(await call_nurse("query_symptom")) == [mine]


async def test_update_without_changes_is_rejected_and_lists_the_fields(
    opened: Diary, call_nurse: CallNurse
) -> None:
    for noun in WHOLE:
        await call_nurse(f"record_{noun}", **WHOLE[noun])

        reason, message = refusal(await call_nurse(f"update_{noun}", record_id=1))

        assert reason == "invalid_arguments", noun
        words = (message or "").replace(",", " ").replace(".", " ").split()
        assert set(WHOLE[noun]) <= set(words), noun


async def test_update_with_an_invalid_record_id_is_rejected(
    opened: Diary, call_nurse: CallNurse
) -> None:
    record_ids: list[object] = [0, -1, 2**63, "first", None]
    outcomes = [
        await call_nurse("update_symptom", record_id=record_id, severity="mild")
        for record_id in record_ids
    ]

    assert [each.reason for each in outcomes] == ["invalid_arguments"] * len(record_ids)


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"systolic": 95}, "would not be above"),
    ({"diastolic": 152}, "would not be above"),
    ({"systolic": 95, "notes": "lower"}, "would not be above"),
    ({"systolic": 80, "diastolic": 120}, "were swapped"),
    ({"systolic": 100, "diastolic": 100}, "were swapped"),
]


async def test_update_that_makes_a_reading_impossible_is_rejected(
    opened: Diary, call_nurse: CallNurse
) -> None:
    before = rows(await call_nurse("record_blood_pressure", **READING))
    failures = []
    for change, message in IMPOSSIBLE:
        outcome = await call_nurse("update_blood_pressure", record_id=1, **change)
        error_text = (outcome.error and outcome.error.message) or ""
        if outcome.reason != "tool_error" or message not in error_text:
            failures.append(
                f"{change}: expected {message!r}, got {outcome.reason}: {error_text[:100]!r}"
            )
        if leaked := [text for text in (PATIENT, "Failing row") if text in str(outcome)]:
            failures.append(f"{change}: the outcome contains {leaked}")

    assert failures == []
    assert rows(await call_nurse("query_blood_pressure")) == [before]


async def test_one_of_two_conflicting_concurrent_updates_succeeds(
    opened: Diary, call_nurse: CallNurse
) -> None:
    await call_nurse("record_blood_pressure", systolic=150, diastolic=90)

    outcomes = await asyncio.gather(
        call_nurse("update_blood_pressure", record_id=1, systolic=110),
        call_nurse("update_blood_pressure", record_id=1, diastolic=120),
    )

    [reading] = rows(await call_nurse("query_blood_pressure"))
    assert sorted(each.status.value for each in outcomes) == ["failed", "succeeded"]
    assert (reading["systolic"], reading["diastolic"]) in [(110, 90), (150, 120)]


async def test_concurrent_updates_of_different_fields_are_all_applied(
    opened: Diary, call_nurse: CallNurse
) -> None:
    await call_nurse("record_blood_pressure", **READING)

    await asyncio.gather(
        call_nurse("update_blood_pressure", record_id=1, systolic=160),
        call_nurse("update_blood_pressure", record_id=1, diastolic=100),
        call_nurse("update_blood_pressure", record_id=1, heart_rate=70),
        call_nurse("update_blood_pressure", record_id=1, notes="again"),
    )

    [reading] = rows(await call_nurse("query_blood_pressure"))
    values = {"systolic": 160, "diastolic": 100, "heart_rate": 70, "notes": "again"}
    assert {name: reading[name] for name in values} == values
