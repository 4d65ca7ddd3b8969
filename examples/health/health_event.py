"""The tools that record, query and update health events."""

from __future__ import annotations

from typing import Literal

from health.arguments import (
    Caller,
    Limit,
    Name,
    Notes,
    Offset,
    RecordId,
    read_past_moment,
    read_since,
    read_time,
)
from health.diary import Diary, Entry
from health.entry_count import count_entry
from health.tables import HEALTH_EVENT
from tracer import Tool, tool

EventType = Literal[
    "diagnosis", "examination", "hospital_stay", "injury", "surgery", "vaccination", "other"
]


def health_event_tools(diary: Diary) -> tuple[Tool, ...]:
    """Return the health event tools over a diary."""

    @tool(tool_hooks=[count_entry])
    async def record_health_event(
        user_id: Caller,
        event_type: EventType,
        event_name: Name,
        event_time: str | None = None,
        notes: Notes | None = None,
    ) -> Entry:
        """Record one event in the user's health and return it as recorded.

        Args:
            user_id: Whose it is.
            event_type: What kind of event.
            event_name: The event, such as sprained ankle.
            event_time: When it was, ISO 8601 with offset; left out: now.
            notes: Anything worth keeping, in the user's words.
        """
        event = {
            "event_type": event_type,
            "event_name": event_name,
            "event_time": read_time("event_time", event_time, diary.clock),
            "notes": notes,
        }
        return await diary.add(HEALTH_EVENT, user_id, event)

    @tool
    async def query_health_event(
        user_id: Caller, since: str | None = None, limit: Limit = 10, offset: Offset = 0
    ) -> list[Entry]:
        """Return the events in the user's health, newest first.

        Args:
            user_id: Whose they are.
            since: Only events from this moment on, ISO 8601 with offset; left out: all.
            limit: How many to return at most.
            offset: How many of the newest to skip.
        """
        return await diary.find(
            HEALTH_EVENT, user_id, since=read_since(since), limit=limit, offset=offset
        )

    @tool
    async def update_health_event(
        user_id: Caller,
        record_id: RecordId,
        event_type: EventType | None = None,
        event_name: Name | None = None,
        event_time: str | None = None,
        notes: Notes | None = None,
    ) -> Entry:
        """Correct an event in the user's health and return it as it is then.

        Args:
            user_id: Whose it is.
            record_id: The event's record_id, from a query.
            event_type: What kind of event; left out, as all that follows: unchanged.
            event_name: The event, such as sprained ankle.
            event_time: When it was, ISO 8601 with offset.
            notes: Anything worth keeping, in the user's words.
        """
        moment = event_time and read_past_moment("event_time", event_time, diary.clock)
        changes = {
            "event_type": event_type,
            "event_name": event_name,
            "event_time": moment,
            "notes": notes,
        }
        return await diary.change(HEALTH_EVENT, user_id, record_id, changes)

    return record_health_event, query_health_event, update_health_event
