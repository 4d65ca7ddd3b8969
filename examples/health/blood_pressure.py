"""The tools that record, query and update blood pressure."""

from __future__ import annotations

from typing import Annotated

from psycopg.errors import CheckViolation
from pydantic import Field

from health.arguments import Caller, Limit, Notes, Offset, RecordId, read_since, read_time
from health.diary import Diary, Entry
from health.entry_count import count_entry
from health.tables import BLOOD_PRESSURE
from tracer import Tool, ToolError, tool

Systolic = Annotated[int, Field(ge=50, le=300)]
Diastolic = Annotated[int, Field(ge=20, le=200)]
HeartRate = Annotated[int, Field(ge=20, le=300)]


def blood_pressure_tools(diary: Diary) -> tuple[Tool, ...]:
    """Return the blood pressure tools over a diary."""

    @tool(tool_hooks=[count_entry])
    async def record_blood_pressure(
        user_id: Caller,
        systolic: Systolic,
        diastolic: Diastolic,
        heart_rate: HeartRate | None = None,
        record_time: str | None = None,
        notes: Notes | None = None,
    ) -> Entry:
        """Record one blood pressure reading of the user and return it as recorded.

        Args:
            user_id: Whose it is.
            systolic: The upper value, in mmHg.
            diastolic: The lower value, in mmHg; below the systolic one.
            heart_rate: The pulse, in beats a minute.
            record_time: When it was measured, ISO 8601 with offset; left out: now.
            notes: Anything worth keeping, in the user's words.
        """
        if diastolic >= systolic:
            raise _swapped(systolic, diastolic)
        reading = {
            "systolic": systolic,
            "diastolic": diastolic,
            "heart_rate": heart_rate,
            "record_time": read_time("record_time", record_time, diary.clock),
            "notes": notes,
        }
        return await diary.add(BLOOD_PRESSURE, user_id, reading)

    @tool
    async def query_blood_pressure(
        user_id: Caller, since: str | None = None, limit: Limit = 10, offset: Offset = 0
    ) -> list[Entry]:
        """Return the user's blood pressure readings, newest first.

        Args:
            user_id: Whose they are.
            since: Only readings from this moment on, ISO 8601 with offset; left out: all.
            limit: How many to return at most.
            offset: How many of the newest to skip.
        """
        return await diary.find(
            BLOOD_PRESSURE, user_id, since=read_since(since), limit=limit, offset=offset
        )

    @tool
    async def update_blood_pressure(
        user_id: Caller,
        record_id: RecordId,
        systolic: Systolic | None = None,
        diastolic: Diastolic | None = None,
        heart_rate: HeartRate | None = None,
        notes: Notes | None = None,
    ) -> Entry:
        """Correct a blood pressure reading of the user and return it as it is then.

        Args:
            user_id: Whose it is.
            record_id: The reading's record_id, from a query.
            systolic: The upper value, in mmHg; left out, as all that follows: unchanged.
            diastolic: The lower value, in mmHg; below the systolic one.
            heart_rate: The pulse, in beats a minute.
            notes: Anything worth keeping, in the user's words.
        """
        if systolic is not None and diastolic is not None and diastolic >= systolic:
            raise _swapped(systolic, diastolic)
        changes = {
            "systolic": systolic,
            "diastolic": diastolic,
            "heart_rate": heart_rate,
            "notes": notes,
        }
        try:
            return await diary.change(BLOOD_PRESSURE, user_id, record_id, changes)
        except CheckViolation:
            # Not as its cause: Postgres quotes the row, and with it whose it is.
            raise ToolError(
                "With that the systolic value would not be above the diastolic one any more: give "
                "both, and check whether they were swapped. Nothing was changed."
            ) from None

    return record_blood_pressure, query_blood_pressure, update_blood_pressure


def _swapped(systolic: int, diastolic: int) -> ToolError:
    return ToolError(
        f"The systolic value ({systolic}) has to be above the diastolic one ({diastolic}): "
        "check whether the two were swapped."
    )
