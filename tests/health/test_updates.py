import asyncio
from typing import Any

import pytest

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


@pytest.mark.parametrize(("noun", "change"), CHANGES)
async def test_an_update_changes_what_is_given_and_leaves_the_rest(
    noun: str, change: dict[str, Any], opened: Diary, call_nurse: CallNurse
) -> None:
    before = rows(await call_nurse(f"record_{noun}", **WHOLE[noun]))
    other = rows(await call_nurse(f"record_{noun}", **WHOLE[noun]))

    changed = rows(await call_nurse(f"update_{noun}", record_id=before["record_id"], **change))

    assert changed == before | change
    found = rows(await call_nurse(f"query_{noun}"))
    assert sorted(found, key=lambda each: each["record_id"]) == [changed, other]


async def test_an_events_time_can_be_corrected_but_not_into_the_future(
    opened: Diary, call_nurse: CallNurse
) -> None:
    await call_nurse("record_health_event", **WHOLE["health_event"])

    async def moved(time: str) -> Any:
        return await call_nurse("update_health_event", record_id=1, event_time=time)

    assert rows(await moved("2026-03-01T08:00:00+08:00"))["event_time"] == "2026-03-01T00:00:00Z"
    assert "the future" in (refusal(await moved("2026-04-01T08:00:00Z"))[1] or "")
    assert "no offset" in (refusal(await moved("2026-03-01T08:00:00"))[1] or "")


@pytest.mark.parametrize("noun", WHOLE)
async def test_another_patients_record_is_refused_as_one_that_is_not_there(
    noun: str, opened: Diary, call_nurse: CallNurse
) -> None:
    mine = rows(await call_nurse(f"record_{noun}", **WHOLE[noun]))

    async def changed(record_id: int) -> Any:
        return await call_nurse(
            f"update_{noun}", by=OTHER_PATIENT, record_id=record_id, notes="stolen"
        )

    not_theirs, not_there = await changed(mine["record_id"]), await changed(4_711)

    assert not_theirs.reason == "no_such_record"
    assert refusal(not_theirs) == refusal(not_there)
    assert not_theirs.for_model == not_there.for_model
    assert rows(await call_nurse(f"query_{noun}")) == [mine]
    assert rows(await call_nurse(f"query_{noun}", by=OTHER_PATIENT)) == []


async def test_naming_the_owner_does_not_open_another_patients_record(
    opened: Diary, call_nurse: CallNurse
) -> None:
    mine = rows(await call_nurse("record_symptom", **WHOLE["symptom"]))

    stolen = await call_nurse(
        "update_symptom", by=OTHER_PATIENT, record_id=1, notes="stolen", user_id=PATIENT
    )

    assert stolen.reason == "no_such_record"
    assert rows(await call_nurse("query_symptom")) == [mine]


@pytest.mark.parametrize("noun", WHOLE)
async def test_an_update_of_nothing_is_refused_and_says_what_there_is_to_change(
    noun: str, opened: Diary, call_nurse: CallNurse
) -> None:
    await call_nurse(f"record_{noun}", **WHOLE[noun])

    reason, said = refusal(await call_nurse(f"update_{noun}", record_id=1))

    assert reason == "invalid_arguments"
    assert set(WHOLE[noun]) <= set((said or "").replace(",", " ").replace(".", " ").split())


@pytest.mark.parametrize("record_id", [0, -1, 2**63, "first", None])
async def test_what_is_no_record_id_is_refused(
    record_id: object, opened: Diary, call_nurse: CallNurse
) -> None:
    outcome = await call_nurse("update_symptom", record_id=record_id, severity="mild")

    assert outcome.reason == "invalid_arguments"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"systolic": 95}, "would not be above"),
        ({"diastolic": 152}, "would not be above"),
        ({"systolic": 95, "notes": "lower"}, "would not be above"),
        ({"systolic": 80, "diastolic": 120}, "were swapped"),
        ({"systolic": 100, "diastolic": 100}, "were swapped"),
    ],
)
async def test_after_an_update_too_the_systolic_value_is_above_the_diastolic_one(
    change: dict[str, Any], said: str, opened: Diary, call_nurse: CallNurse
) -> None:
    before = rows(await call_nurse("record_blood_pressure", **READING))

    outcome = await call_nurse("update_blood_pressure", record_id=1, **change)

    assert outcome.reason == "tool_error"
    assert outcome.error is not None
    assert said in (outcome.error.message or "")
    assert PATIENT not in str(outcome)
    assert "Failing row" not in str(outcome)
    assert rows(await call_nurse("query_blood_pressure")) == [before]


async def test_updates_that_fit_one_by_one_and_not_together_are_not_both_made(
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


async def test_side_by_side_updates_of_different_fields_are_all_kept(
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
    told = {"systolic": 160, "diastolic": 100, "heart_rate": 70, "notes": "again"}
    assert {name: reading[name] for name in told} == told
