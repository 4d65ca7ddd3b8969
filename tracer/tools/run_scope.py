"""What all parts of one run share: its application, its recorder, and whether it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID

from tracer.context import ToolContext
from tracer.errors import LineageError
from tracer.events import Event
from tracer.ids import IdSource
from tracer.recorder.recorder import Recorder
from tracer.runtime.application import Application
from tracer.tools.ending import Ending, cancelled


class RunStamp(TypedDict):
    """What each event of a run carries."""

    at: datetime
    recorder_id: UUID
    root_plan_id: UUID


class RunScope:
    """One run while it goes on."""

    def __init__(
        self,
        application: Application,
        recorder: Recorder,
        root_plan_id: UUID,
        ids: IdSource,
        left_behind: set[asyncio.Task[None]],
    ) -> None:
        """Begin a run.

        Args:
            application: Whose run it is.
            recorder: Records it.
            root_plan_id: Its id.
            ids: Mints the ids of its records.
            left_behind: Holds what goes on beside it, perhaps for longer than the run.
        """
        self.application = application
        self.root_plan_id = root_plan_id
        self.ids = ids
        self.cancel_reason: str | None = None
        """Why the run is being cancelled, where somebody asked for it."""
        self._recorder = recorder
        self._left_behind = left_behind

    def stamp(self) -> RunStamp:
        """Return what the event of this moment carries."""
        return {**self._recorder.stamp(), "root_plan_id": self.root_plan_id}

    async def record(self, *events: Event) -> None:
        """Record events; they are durable when this returns or raises.

        Whoever starts a record has to end it. So a cancellation waits until the events are safe,
        and the caller can tell from where it is raised which of its records are there.

        Raises:
            asyncio.CancelledError: The task was cancelled meanwhile.
        """
        writing = asyncio.ensure_future(self._recorder.record(*events))
        cancellation: asyncio.CancelledError | None = None
        while not writing.done():
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError as error:
                cancellation = error
        if cancellation is not None:
            raise cancellation

    def cancelled(self) -> Ending:
        """Return the ending of what this run's cancellation ends."""
        return cancelled(self.cancel_reason)

    def leave_behind(self, watching: Coroutine[Any, Any, None]) -> None:
        """Let something go on beside the run, such as waiting for a tool that was given up."""
        task = asyncio.create_task(watching)
        self._left_behind.add(task)
        task.add_done_callback(self._left_behind.discard)


def run_of(context: ToolContext) -> RunScope:
    """Return the run that a call belongs to.

    Raises:
        LineageError: It belongs to none: the tool was not called by the runtime.
    """
    if not isinstance(context.run, RunScope):
        raise LineageError("This tool opens work of its own, so only a running plan can call it.")
    return context.run
