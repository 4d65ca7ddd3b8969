"""Diary entries for the tests."""

from typing import Any

READING: dict[str, Any] = {"systolic": 152, "diastolic": 95}
EVENT: dict[str, Any] = {"event_type": "injury", "event_name": "扭伤膝盖"}
MEDICATION: dict[str, Any] = {"medication_name": "Lisinopril", "dosage": "10 mg"}
SYMPTOM: dict[str, Any] = {"symptom_name": "头晕"}

WHOLE: dict[str, dict[str, Any]] = {
    "blood_pressure": READING | {"heart_rate": 78, "notes": "起床时"},
    "health_event": EVENT | {"notes": "while running"},
    "medication": MEDICATION | {"frequency": "every morning", "notes": "since 2019"},
    "symptom": SYMPTOM | {"severity": "mild", "notes": "when getting up"},
}
"""What is recorded, with everything that can be said about it, by noun."""

LEAST: dict[str, dict[str, Any]] = {
    "blood_pressure": READING,
    "health_event": EVENT,
    "medication": MEDICATION,
    "symptom": SYMPTOM,
}
"""The same with what has to be said."""


def time_of(noun: str) -> str:
    """Return what the time of such an entry is called."""
    return "event_time" if noun == "health_event" else "record_time"
