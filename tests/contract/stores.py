"""What the contract is asked of: a writer and a reader of one project."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

import httpx2

from api.app import create_app
from api.parts import Parts
from tests.otel.sent import traces_of
from tests.projecting import (
    DatabaseProjection,
    Projection,
    project,
    projecting_after,
    projecting_before,
)
from tests.searching import IndexedFirst
from tests.stepping import stepping_clock
from tests.trees import Node, build_tree, read_tree
from tracer.clock import Clock
from tracer.lineage import Payloads
from tracer.records.events import Event
from tracer.records.record_classes import Record
from tracer.records.spans import Span
from tracer.storage.http import HttpWriter
from tracer.storage.postgres import Pool, ProjectPool, RunWatch, WriterOptions, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import RunFilter, ToolCallFilter, TraceReader, TraceWriter

RECORDED = datetime(2026, 2, 1, tzinfo=UTC)

_projects = count(2)  # 1 is the project of the servers that tests start


class Projecting(StrEnum):
    """When the spans of a store are projected."""

    AFTER_WRITES = "projected-after-writes"
    BEFORE_READS = "projected-before-reads"
    ON_DEMAND = "projected-on-demand"


@dataclass(frozen=True)
class Store:
    """One store: what writes to it, what reads it, and what projects its spans."""

    writer: TraceWriter
    reader: TraceReader
    projection: Projection

    async def record(self, *events: Event) -> None:
        """Write events of which none may be refused."""
        answer = await self.writer.write(events)
        assert answer.refused == []
        assert answer.stored == len(events)

    async def record_spans(self, *requests: Iterable[Span]) -> None:
        """Write requests of spans of which none may be refused."""
        for request in requests:
            traces = traces_of(request)
            answer = await self.writer.write_spans(traces)
            assert answer.refused == []
            assert answer.stored == sum(trace.count for trace in traces)

    async def link(self) -> None:
        """Derive the links between runs."""
        await self.projection.link()

    async def project(self) -> int:
        """Project all pending runs, and return how many there were."""
        return await project(self.projection)


SomeStore = TypeVar("SomeStore", bound=Store)


def projecting(store: SomeStore, when: Projecting) -> SomeStore:
    """Return a store that projects its spans by itself."""
    match when:
        case Projecting.AFTER_WRITES:
            names = frozenset({"write_spans"})
            writer = projecting_after(store.writer, store.projection, names)
            return replace(store, writer=writer)
        case Projecting.BEFORE_READS:
            return replace(store, reader=projecting_before(store.reader, store.projection))
    return store


NewStore = Callable[[], Store]
"""Answers an empty store, whose server clock starts at `RECORDED` and steps a millisecond."""


def postgres_stores(
    pool: Pool,
    when: Projecting = Projecting.AFTER_WRITES,
) -> NewStore:
    """Return stores in one database, each a project of its own.

    Args:
        pool: Connections to the database.
        when: When spans are projected.
    """

    index = IndexedFirst(pool.kwargs)

    def new_store() -> Store:
        own_project = ProjectPool(pool, next(_projects))
        projection = DatabaseProjection(pool.kwargs)

        async def settle() -> list[UUID]:
            await project(projection)
            return []

        writer = postgres_writer(own_project, WriterOptions(clock=clock(), settle=settle))
        store = Store(writer, PostgresReader(own_project, index), projection)
        return projecting(store, when)

    return new_store


def http_stores(pool: Pool) -> NewStore:
    """Return stores that are written to over HTTP, each through a server of its own."""
    new_postgres_store = postgres_stores(pool, Projecting.ON_DEMAND)

    def new_store() -> Store:
        behind = new_postgres_store()
        writer = HttpWriter("http://tracer", transport=serving(behind))
        return projecting(replace(behind, writer=writer), Projecting.AFTER_WRITES)

    return new_store


def serving(store: Store) -> httpx2.ASGITransport:
    """Return what carries requests to a server of `store` in this process; it runs no agents."""
    watch = RunWatch(store.reader)
    parts = Parts(store.reader, store.writer, None, watch, projection=store.projection)
    return httpx2.ASGITransport(create_app(parts))


def clock() -> Clock:
    return stepping_clock(RECORDED)


async def tree(store: Store, plan_id: UUID, payloads: Payloads = Payloads.FULL) -> Node:
    return build_tree(await read_tree(store.reader, plan_id, payloads), str(plan_id))


BOOKKEEPING = {"project_id", "revision", "recorded_at"}


def content(record: Record) -> dict[str, Any]:
    """Return a record without its bookkeeping fields."""
    return record.model_dump(exclude=BOOKKEEPING)


async def all_records(store: Store) -> dict[Any, dict[str, Any]]:
    """Return what a store holds, by kind and id, read through every door but the tree's."""
    found: dict[Any, dict[str, Any]] = {}
    runs = await store.reader.list_runs(RunFilter(), 1000, None)
    for run in runs.items:
        assert run == await store.reader.read_run(run.root_plan_id)
        found["run", run.root_plan_id] = content(run.model_copy(update={"seen_at": None}))
        rows = await read_tree(store.reader, run.root_plan_id, Payloads.FULL)
        assert rows.revision.number == run.revision
        for plan in rows.plans:
            record = (await store.reader.read_plan(UUID(plan["planId"]))).plan
            found["plan", run.root_plan_id, record.plan_id] = content(record)
        for step in rows.steps:
            found["step", run.root_plan_id, step["stepId"]] = step
        for think_act in rows.think_acts:
            round_ = await store.reader.read_think_act(UUID(think_act["thinkActId"]))
            found["thinkAct", run.root_plan_id, round_.think_act_id] = content(round_)
    calls = await store.reader.list_tool_calls(ToolCallFilter(), 1000, None)
    for call in calls.items:
        found["toolCall", call.root_plan_id, call.tool_call_id] = content(call)
    return found
