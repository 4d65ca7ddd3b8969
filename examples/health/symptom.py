"""The tools that record and query symptoms."""

from __future__ import annotations

from typing import Literal

from health.arguments import (
    Limit,
    Name,
    Notes,
    Offset,
    PatientId,
    read_record_time,
    read_since,
)
from health.diary import INSERT_SYMPTOM, SELECT_SYMPTOM, Diary, Entry
from tracer.tools.definition import Tool, tool

Severity = Literal["mild", "moderate", "severe"]


def symptom_tools(diary: Diary) -> tuple[Tool, ...]:
    """Return the symptom tools over a diary."""

    @tool
    async def record_symptom(
        patient_id: PatientId,
        symptom_name: Name,
        severity: Severity | None = None,
        record_time: str | None = None,
        notes: Notes | None = None,
    ) -> Entry:
        """Record one symptom of a patient and return it as recorded.

        Args:
            patient_id: The patient's id, such as p-1.
            symptom_name: The symptom, such as dizziness.
            severity: How bad it is.
            record_time: When it was felt, ISO 8601 with offset; left out: now.
            notes: Anything worth keeping, in the patient's words.
        """
        values = {
            "patient_id": patient_id,
            "symptom_name": symptom_name,
            "severity": severity,
            "record_time": read_record_time(record_time, diary.clock),
            "notes": notes,
        }
        [symptom] = await diary.fetch(INSERT_SYMPTOM, values)
        return symptom

    @tool
    async def query_symptom(
        patient_id: PatientId, since: str | None = None, limit: Limit = 10, offset: Offset = 0
    ) -> list[Entry]:
        """Return a patient's symptoms, newest first.

        Args:
            patient_id: The patient's id, such as p-1.
            since: Only symptoms from this moment on, ISO 8601 with offset; left out: all.
            limit: How many to return at most.
            offset: How many of the newest to skip.
        """
        values = {
            "patient_id": patient_id,
            "since": read_since(since),
            "limit": limit,
            "offset": offset,
        }
        return await diary.fetch(SELECT_SYMPTOM, values)

    return record_symptom, query_symptom
