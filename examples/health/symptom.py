"""The tools that record, query and update symptoms."""

from __future__ import annotations

from typing import Literal

from health.arguments import Caller, Limit, Name, Notes, Offset, RecordId, read_since, read_time
from health.diary import Diary, Entry
from health.entry_count import count_entry
from health.tables import SYMPTOM
from tracer import Tool, tool

Severity = Literal["mild", "moderate", "severe"]


def symptom_tools(diary: Diary) -> tuple[Tool, ...]:
    """Return the symptom tools over a diary."""

    @tool(tool_hooks=[count_entry])
    async def record_symptom(
        user_id: Caller,
        symptom_name: Name,
        severity: Severity | None = None,
        record_time: str | None = None,
        notes: Notes | None = None,
    ) -> Entry:
        """Record one symptom of the user and return it as recorded.

        Args:
            user_id: Who feels it.
            symptom_name: The symptom, such as dizziness.
            severity: How bad it is.
            record_time: When it was felt, ISO 8601 with offset; left out: now.
            notes: Anything worth keeping, in the user's words.
        """
        symptom = {
            "symptom_name": symptom_name,
            "severity": severity,
            "record_time": read_time("record_time", record_time, diary.clock),
            "notes": notes,
        }
        return await diary.add(SYMPTOM, user_id, symptom)

    @tool
    async def query_symptom(
        user_id: Caller, since: str | None = None, limit: Limit = 10, offset: Offset = 0
    ) -> list[Entry]:
        """Return the user's symptoms, newest first.

        Args:
            user_id: Who feels them.
            since: Only symptoms from this moment on, ISO 8601 with offset; left out: all.
            limit: How many to return at most.
            offset: How many of the newest to skip.
        """
        return await diary.find(
            SYMPTOM, user_id, since=read_since(since), limit=limit, offset=offset
        )

    @tool
    async def update_symptom(
        user_id: Caller,
        record_id: RecordId,
        symptom_name: Name | None = None,
        severity: Severity | None = None,
        notes: Notes | None = None,
    ) -> Entry:
        """Correct a recorded symptom of the user and return it as it is then.

        Args:
            user_id: Who feels it.
            record_id: The symptom's record_id, from a query.
            symptom_name: The symptom; left out, as all that follows: unchanged.
            severity: How bad it is.
            notes: Anything worth keeping, in the user's words.
        """
        changes = {"symptom_name": symptom_name, "severity": severity, "notes": notes}
        return await diary.change(SYMPTOM, user_id, record_id, changes)

    return record_symptom, query_symptom, update_symptom
