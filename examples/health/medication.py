"""The tools that record and query medication."""

from __future__ import annotations

from health.arguments import Limit, Name, Notes, Offset, PatientId, read_record_time
from health.diary import INSERT_MEDICATION, SELECT_MEDICATION, Diary, Entry
from tracer.tools.definition import Tool, tool


def medication_tools(diary: Diary) -> tuple[Tool, ...]:
    """Return the medication tools over a diary."""

    @tool
    async def record_medication(
        patient_id: PatientId,
        medication_name: Name,
        dosage: Name,
        frequency: Name | None = None,
        record_time: str | None = None,
        notes: Notes | None = None,
    ) -> Entry:
        """Record one medication that a patient takes and return it as recorded.

        Args:
            patient_id: The patient's id, such as p-1.
            medication_name: The medication, such as lisinopril.
            dosage: How much is taken at a time, such as 10 mg.
            frequency: How often, such as every morning.
            record_time: When it was taken or begun, ISO 8601 with offset; left out: now.
            notes: Anything worth keeping, such as what it is taken for.
        """
        values = {
            "patient_id": patient_id,
            "medication_name": medication_name,
            "dosage": dosage,
            "frequency": frequency,
            "record_time": read_record_time(record_time, diary.clock),
            "notes": notes,
        }
        [medication] = await diary.fetch(INSERT_MEDICATION, values)
        return medication

    @tool
    async def query_medication(
        patient_id: PatientId,
        medication_name: Name | None = None,
        limit: Limit = 10,
        offset: Offset = 0,
    ) -> list[Entry]:
        """Return a patient's recorded medication, newest first.

        Args:
            patient_id: The patient's id, such as p-1.
            medication_name: Only this medication, upper and lower case alike; left out: all.
            limit: How many to return at most.
            offset: How many of the newest to skip.
        """
        values = {
            "patient_id": patient_id,
            "medication_name": medication_name,
            "limit": limit,
            "offset": offset,
        }
        return await diary.fetch(SELECT_MEDICATION, values)

    return record_medication, query_medication
