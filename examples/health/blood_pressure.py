"""The tools that record and query blood pressure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from health.arguments import Limit, Notes, Offset, PatientId, read_record_time, read_since
from health.diary import INSERT_BLOOD_PRESSURE, SELECT_BLOOD_PRESSURE, Diary, Entry
from tracer.errors import ToolError
from tracer.tools.definition import Tool, tool

Systolic = Annotated[int, Field(ge=50, le=300)]
Diastolic = Annotated[int, Field(ge=20, le=200)]
HeartRate = Annotated[int, Field(ge=20, le=300)]


def blood_pressure_tools(diary: Diary) -> tuple[Tool, ...]:
    """Return the blood pressure tools over a diary."""

    @tool
    async def record_blood_pressure(
        patient_id: PatientId,
        systolic: Systolic,
        diastolic: Diastolic,
        heart_rate: HeartRate | None = None,
        record_time: str | None = None,
        notes: Notes | None = None,
    ) -> Entry:
        """Record one blood pressure reading of a patient and return it as recorded.

        Args:
            patient_id: The patient's id, such as p-1.
            systolic: The upper value, in mmHg.
            diastolic: The lower value, in mmHg; below the systolic one.
            heart_rate: The pulse, in beats a minute.
            record_time: When it was measured, ISO 8601 with offset; left out: now.
            notes: Anything worth keeping, in the patient's words.
        """
        if diastolic >= systolic:
            raise ToolError(
                f"The systolic value ({systolic}) has to be above the diastolic one ({diastolic}): "
                "check whether the two were swapped."
            )
        values = {
            "patient_id": patient_id,
            "systolic": systolic,
            "diastolic": diastolic,
            "heart_rate": heart_rate,
            "record_time": read_record_time(record_time, diary.clock),
            "notes": notes,
        }
        [reading] = await diary.fetch(INSERT_BLOOD_PRESSURE, values)
        return reading

    @tool
    async def query_blood_pressure(
        patient_id: PatientId, since: str | None = None, limit: Limit = 10, offset: Offset = 0
    ) -> list[Entry]:
        """Return a patient's blood pressure readings, newest first.

        Args:
            patient_id: The patient's id, such as p-1.
            since: Only readings from this moment on, ISO 8601 with offset; left out: all.
            limit: How many to return at most.
            offset: How many of the newest to skip.
        """
        values = {
            "patient_id": patient_id,
            "since": read_since(since),
            "limit": limit,
            "offset": offset,
        }
        return await diary.fetch(SELECT_BLOOD_PRESSURE, values)

    return record_blood_pressure, query_blood_pressure
