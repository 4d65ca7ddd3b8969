"""Projectors, accepts and deletions on one database, at each interleaving of their statements."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.array import ListBinaryDumper

from tests.otel.made_traces import TRACE_ID, agent, chat, spans_from, tool
from tracer.leases import DEFAULT_TERMS
from tracer.merge import RULES
from tracer.otel.blocks import traces_of
from tracer.otel.projection.rows import fields_of, project_run
from tracer.otel.spans import Span
from tracer.records import RECORDS
from tracer.storage.burial_statements import BELOW_RUNS
from tracer.storage.engine import SyncConnection, connection_options, open_pool, sync_connection
from tracer.storage.postgres_deletion import PostgresDeletion
from tracer.storage.postgres_spans import PostgresSpans
from tracer.storage.project_pool import ProjectPool
from tracer.storage.projector import Projector
from tracer.storage.tables import TABLES

RUN = UUID(hex=TRACE_ID)
PROJECT = 1


class Server:
    """What other processes do, each with connections of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._threads = ThreadPoolExecutor(4)

    def accept(self, spans: list[Span]) -> None:
        async def write() -> None:
            async with open_pool(self.url) as pool:
                project = ProjectPool(pool, PROJECT)
                accepting = PostgresSpans(project, None, None, DEFAULT_TERMS, lambda *_: None)
                await accepting.write(traces_of(spans))

        asyncio.run(write())

    def project(self) -> None:
        with sync_connection(connection_options(self.url)) as connection:
            Projector(connection).project_run(PROJECT, RUN)

    def delete(self) -> None:
        async def erase() -> None:
            async with open_pool(self.url) as pool:
                await PostgresDeletion(ProjectPool(pool, PROJECT)).erase_run(RUN)

        asyncio.run(erase())

    def start(self, work: Callable[[], None]) -> Future[None]:
        """Start work in a thread, and return when it is done or waits for a lock."""
        running = self._threads.submit(work)
        with psycopg.connect(**connection_options(self.url)) as connection:
            while not running.done():
                [(waiting,)] = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND wait_event_type = 'Lock'"
                ).fetchall()
                if waiting:
                    break
        return running


@contextmanager
def stepping(url: str, at: int, work: Callable[[], None]) -> Iterator[SyncConnection]:
    """Lend a connection that calls `work` before its statement number `at`."""
    steps = 0

    class Stepping(psycopg.Connection[tuple[Any, ...]]):
        def wait(self, *given: Any, **named: Any) -> Any:
            nonlocal steps
            if threading.current_thread() is stepped:
                steps += 1
                if steps == at:
                    work()
            return super().wait(*given, **named)

    stepped: threading.Thread | None = None
    with Stepping.connect(**connection_options(url)) as connection:
        connection.adapters.register_dumper(list, ListBinaryDumper)
        connection.execute("SET TIME ZONE 'UTC'")
        stepped = threading.current_thread()
        yield connection
        stepped = None
    if steps < at:
        raise EndOfSteps


class EndOfSteps(Exception):
    """The projector has fewer statements."""


@pytest.fixture
def server(database_url: str) -> Server:
    return Server(database_url)


def parts_of_a_trace() -> tuple[list[Span], list[Span]]:
    """Return two parts of a trace; the second one changes, adds and removes records."""
    first = spans_from(
        agent(1, "planner", at=(0, None)),
        chat(2, ("call_1", "search", '{"q":1}'), parent=1, at=(1, 2)),
        tool(3, "search", "call_1", parent=9, at=(3, 4)),
    )
    second = spans_from(
        agent(1, "planner", at=(0, 20)),
        agent(9, "worker", parent=1, at=(2.5, 5)),
        chat(5, parent=1, at=(6, 7)),
    )
    return first, second


def assert_projected(url: str, spans: list[Span]) -> None:
    """Check that the run has the records of these spans, and that nothing is pending."""
    expected = project_run([trace.message for trace in traces_of(spans)])
    with psycopg.connect(**connection_options(url)) as connection:
        assert connection.execute("SELECT * FROM pending_run").fetchall() == []
        cursor = connection.cursor(row_factory=psycopg.rows.dict_row)
        for kind in RECORDS:
            rows = {
                row[RULES[kind].id_field].bytes: row
                for row in cursor.execute(f"SELECT * FROM {TABLES[kind]}")
            }
            found = {
                record_id: {name: row[name] for name in fields_of(kind, expected_row)}
                for record_id, row in rows.items()
                if (expected_row := expected.rows[kind].get(record_id)) is not None
            }
            assert rows.keys() == expected.rows[kind].keys()
            assert found == {
                record_id: fields_of(kind, row) for record_id, row in expected.rows[kind].items()
            }


def interleave(url: str, work: Callable[[Server], None], at: int) -> bool:
    """Project a run with `work` before one statement; return whether there is that statement."""
    server = Server(url)
    started: list[Future[None]] = []
    try:
        with stepping(url, at, lambda: started.append(server.start(lambda: work(server)))) as own:
            Projector(own).project_run(PROJECT, RUN)
    except EndOfSteps:
        return False
    for running in started:
        running.result()
    return True


def reset(url: str) -> None:
    with psycopg.connect(**connection_options(url)) as connection:
        connection.execute(f"TRUNCATE run, {', '.join(BELOW_RUNS)} CASCADE")


def test_accept_at_any_step_of_a_projection_is_projected(server: Server) -> None:
    first, second = parts_of_a_trace()
    at = 0
    while True:
        at += 1
        reset(server.url)
        server.accept(first)
        if not interleave(server.url, lambda server: server.accept(second), at):
            break
        server.project()
        assert_projected(server.url, first + second)
    assert at > 15


def test_second_projector_at_any_step_changes_nothing(server: Server) -> None:
    first, second = parts_of_a_trace()
    at = 0
    while True:
        at += 1
        reset(server.url)
        server.accept(first)
        server.project()
        server.accept(second)
        if not interleave(server.url, Server.project, at):
            break
        server.project()
        assert_projected(server.url, first + second)
        with psycopg.connect(**connection_options(server.url)) as connection:
            assert connection.execute("SELECT revision FROM run").fetchall() == [(3,)]


def test_projection_without_its_claim_is_not_written_twice(server: Server) -> None:
    first, second = parts_of_a_trace()

    def accept_and_project(server: Server) -> None:
        """Project without a claim, as if the other projector had lost its own."""
        server.accept(second)
        with sync_connection(connection_options(server.url)) as connection:
            Projector(connection).project_claimed(PROJECT, [RUN], None, is_due=False)

    at = 0
    while True:
        at += 1
        reset(server.url)
        server.accept(first)
        if not interleave(server.url, accept_and_project, at):
            break
        server.project()
        assert_projected(server.url, first + second)


def test_deletion_at_any_step_leaves_no_row(server: Server) -> None:
    first, second = parts_of_a_trace()
    at = 0
    while True:
        at += 1
        reset(server.url)
        server.accept(first)
        server.project()
        server.accept(second)
        if not interleave(server.url, Server.delete, at):
            break
        server.project()
        with psycopg.connect(**connection_options(server.url)) as connection:
            for table in BELOW_RUNS:
                assert connection.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)]
