"""A replacement for the recorder, for programs that record nothing."""

from __future__ import annotations

from tracer.clock import utc_now
from tracer.records.events import Event, Stamp
from tracer.records.ids import new_id


class Unrecorded:
    """Stamps events as a `Recorder` does, and discards them.

    It opens no file and starts no task.
    """

    is_recording = False

    def __init__(self) -> None:
        self._recorder_id = new_id()

    def stamp(self) -> Stamp:
        """Return the fields that a recorder sets on each event."""
        return {"at": utc_now(), "recorder_id": self._recorder_id}

    async def record(self, *events: Event) -> None:
        """Discard the events."""
