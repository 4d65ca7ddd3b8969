"""Tool services with their own store, and the records of their calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.trees import Node, TreeRows, read_tree
from tracer.lineage import Payloads
from tracer.recorder import Recorder, Spool
from tracer.records import Lease, Run
from tracer.records.events import Event, ToolCallFinished
from tracer.records.spans import TraceSpans
from tracer.storage.memory import RecordingInMemory, recording_in_memory
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.project_stores import PostgresSessions
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import Erasure, TraceReader, TraceWriter, WriteAnswer
from tracer.tools import CallOutcome, Tool, Toolkit, ToolRegistry, ToolResources, ToolService


@dataclass(eq=False)
class NotingWriter:
    """Passes events on to a store, and notes them."""

    inner: TraceWriter
    events: list[Event] = field(default_factory=list)

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        self.events += events
        answer = await self.inner.write(events)
        assert answer.refused == []
        return answer

    async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        return await self.inner.write_spans(traces)

    async def renew(self, recorder_id: UUID) -> Lease:
        return await self.inner.renew(recorder_id)

    async def delete_run(self, root_plan_id: UUID, *, all_parts: bool = True) -> None:
        await self.inner.delete_run(root_plan_id)

    async def delete_subject(self, subject: str) -> Erasure:
        return await self.inner.delete_subject(subject)

    async def delete_session(self, session_id: str) -> Erasure:
        return await self.inner.delete_session(session_id)

    async def request_cancel(self, root_plan_id: UUID) -> Run:
        return await self.inner.request_cancel(root_plan_id)


@dataclass
class Service:
    """A tool service with the store that it records to."""

    tools: ToolService
    reader: TraceReader | RecordingInMemory
    events: list[Event]
    """All that was written, in order."""

    async def rows(self, root_plan_id: UUID) -> TreeRows:
        """Return a run's current records."""
        return await read_tree(self.reader, root_plan_id, Payloads.FULL)

    async def row(self, outcome: CallOutcome) -> Node:
        """Return a call's current record."""
        rows = await self.rows(outcome.root_plan_id)
        [found] = [
            each for each in rows.tool_calls if each["toolCallId"] == str(outcome.tool_call_id)
        ]
        return found

    def endings(self, outcome: CallOutcome) -> list[ToolCallFinished]:
        """Return the endings that were recorded of a call."""
        return [
            each
            for each in self.events
            if isinstance(each, ToolCallFinished) and each.tool_call_id == outcome.tool_call_id
        ]


@asynccontextmanager
async def service(spool: Path, *tools: Tool | Toolkit, **resources: Any) -> AsyncIterator[Service]:
    """Open a service that records in memory.

    Args:
        spool: Where its spool may be.
        tools: What it calls.
        resources: See `ToolResources`.
    """
    store = recording_in_memory()
    async with _service(spool, store, store, tools, resources) as opened:
        yield opened


@asynccontextmanager
async def postgres_service(
    spool: Path, database_url: str, *tools: Tool | Toolkit, **resources: Any
) -> AsyncIterator[Service]:
    """Open a service over Postgres, the sessions included."""
    async with open_pool(database_url) as pool:
        resources.setdefault("sessions", PostgresSessions(ProjectPool(pool)))
        writer, reader = postgres_writer(ProjectPool(pool)), PostgresReader(ProjectPool(pool))
        async with _service(spool, writer, reader, tools, resources) as opened:
            yield opened


@asynccontextmanager
async def _service(
    spool: Path,
    writer: TraceWriter,
    reader: TraceReader | RecordingInMemory,
    tools: Sequence[Tool | Toolkit],
    resources: dict[str, Any],
) -> AsyncIterator[Service]:
    noting = NotingWriter(writer)
    async with (
        Recorder(noting, Spool(spool / "spool.db")) as recorder,
        ToolService(ToolRegistry(tools), recorder, ToolResources(**resources)) as opened,
    ):
        yield Service(opened, reader, noting.events)
