"""The tools that record, query and update medication."""

from __future__ import annotations

from health.arguments import Caller, Limit, Name, Notes, Offset, RecordId, read_time
from health.diary import Diary, Entry
from health.entry_count import count_entry
from health.tables import MEDICATION
from tracer import Tool, tool


def medication_tools(diary: Diary) -> tuple[Tool, ...]:
    """Return the medication tools over a diary."""

    @tool(tool_hooks=[count_entry])
    async def record_medication(
        user_id: Caller,
        medication_name: Name,
        dosage: Name,
        frequency: Name | None = None,
        record_time: str | None = None,
        notes: Notes | None = None,
    ) -> Entry:
        """Record one medication that the user takes and return it as recorded.

        Args:
            user_id: Who takes it.
            medication_name: The medication, such as lisinopril.
            dosage: How much is taken at a time, such as 10 mg.
            frequency: How often, such as every morning.
            record_time: When it was taken or begun, ISO 8601 with offset; left out: now.
            notes: Anything worth keeping, such as what it is taken for.
        """
        medication = {
            "medication_name": medication_name,
            "dosage": dosage,
            "frequency": frequency,
            "record_time": read_time("record_time", record_time, diary.clock),
            "notes": notes,
        }
        return await diary.add(MEDICATION, user_id, medication)

    @tool
    async def query_medication(
        user_id: Caller,
        medication_name: Name | None = None,
        limit: Limit = 10,
        offset: Offset = 0,
    ) -> list[Entry]:
        """Return the user's recorded medication, newest first.

        Args:
            user_id: Who takes it.
            medication_name: Only this medication, upper and lower case alike; left out: all.
            limit: How many to return at most.
            offset: How many of the newest to skip.
        """
        named = {"medication_name": medication_name}
        return await diary.find(MEDICATION, user_id, same_text=named, limit=limit, offset=offset)

    @tool
    async def update_medication(
        user_id: Caller,
        record_id: RecordId,
        medication_name: Name | None = None,
        dosage: Name | None = None,
        frequency: Name | None = None,
        notes: Notes | None = None,
    ) -> Entry:
        """Correct a recorded medication of the user and return it as it is then.

        Args:
            user_id: Who takes it.
            record_id: The medication's record_id, from a query.
            medication_name: The medication; left out, as all that follows: unchanged.
            dosage: How much is taken at a time, such as 10 mg.
            frequency: How often, such as every morning.
            notes: Anything worth keeping, such as what it is taken for.
        """
        changes = {
            "medication_name": medication_name,
            "dosage": dosage,
            "frequency": frequency,
            "notes": notes,
        }
        return await diary.change(MEDICATION, user_id, record_id, changes)

    return record_medication, query_medication, update_medication
