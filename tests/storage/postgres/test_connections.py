"""Database connections that break, outages, and callers that are cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import anyio
import psycopg
import pytest
from anyio.abc import ByteStream, SocketAttribute
from psycopg import sql

from tests.contract.moments import Moments
from tests.sample_runs import sample_run
from tests.storage.postgres.lock_waits import PLENTY_SECONDS, until_asleep, until_waiting, waiting
from tests.storage.postgres.test_large_answers import AND_NO_END, MUCH, ROWS, answer
from tests.trees import read_tree
from tracer.errors import ConfigurationError, RecordNotFound, StoreUnavailable
from tracer.lineage import Payloads
from tracer.records import new_id
from tracer.records.events import Event
from tracer.storage.postgres import Pool, PostgresWriter, ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.pool import READERS, libpq_url, pooled_connection
from tracer.storage.postgres.project_stores import PostgresSessions
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.session import fetched
from tracer.store import RunFilter, ToolCallFilter


@contextmanager
def down(server_url: str, database_url: str) -> Iterator[None]:
    """Let nobody into the database, and throw out who is in."""
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    with psycopg.connect(server_url, autocommit=True) as connection:
        alter = "ALTER DATABASE {} ALLOW_CONNECTIONS {}"
        connection.execute(sql.SQL(alter).format(sql.Identifier(str(name)), sql.SQL("false")))
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        yield
        connection.execute(sql.SQL(alter).format(sql.Identifier(str(name)), sql.SQL("true")))


def everything(
    writer: PostgresWriter, reader: PostgresReader, sessions: PostgresSessions
) -> list[Awaitable[Any]]:
    some = new_id()
    return [
        sessions.read_state("s", {}),
        sessions.change_state("s", {}, []),
        sessions.add_run("s", {}, some),
        writer.write(sample_run().events),
        writer.delete_run(some),
        writer.request_cancel(some),
        reader.list_runs(RunFilter(), 1, None),
        reader.list_tool_calls(ToolCallFilter(), 1, None),
        reader.read_run(some),
        reader.read_plan(some),
        read_tree(reader, some, Payloads.NONE),
        reader.read_think_act(some),
        reader.read_tool_call(some),
        reader.find_cancel_requests([some]),
        reader.list_exchanges([some]),
        reader.check(),
    ]


async def until_available(reader: PostgresReader) -> None:
    async with asyncio.timeout(PLENTY_SECONDS):
        while True:
            try:
                return await reader.check()
            except StoreUnavailable:
                continue


async def test_outage_is_reported_within_seconds_and_ends_without_a_restart(
    postgres_server_url: str, database_url: str
) -> None:
    async with open_pool(database_url, answer_seconds=1) as pool:
        writer, reader = postgres_writer(ProjectPool(pool)), PostgresReader(ProjectPool(pool))
        sessions = PostgresSessions(ProjectPool(pool))
        await until_available(reader)
        with down(postgres_server_url, database_url):
            before = time.monotonic()
            outcomes = await asyncio.gather(
                *everything(writer, reader, sessions), return_exceptions=True
            )
            assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
            assert all(isinstance(o, StoreUnavailable) and o.__cause__ for o in outcomes)
            assert time.monotonic() - before < 20, "of 30 s, if nobody had said so"
        # The first to ask may still come too early.
        await until_available(reader)
        assert (await writer.write(sample_run().events)).refused == []


async def test_a_pool_opens_while_the_database_is_down(
    postgres_server_url: str, database_url: str
) -> None:
    with down(postgres_server_url, database_url):
        async with open_pool(database_url, answer_seconds=0.2) as pool:
            with pytest.raises(StoreUnavailable):
                await PostgresReader(ProjectPool(pool)).check()


async def test_dead_idle_connections_are_replaced_without_an_error(
    database_url: str, pool: Pool, writer: PostgresWriter
) -> None:
    await asyncio.gather(*(writer.write([Moments().plan_started()]) for _ in range(20)))
    kill_all(database_url)
    for _ in range(20):
        await writer.write([Moments().plan_started()])


def kill_all(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            # Given a time, it returns when the backend is gone.
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@contextmanager
def held(database_url: str, run: Moments) -> Iterator[psycopg.Connection]:
    """Hold a run's lock, so that its writers wait."""
    with psycopg.connect(database_url) as connection:
        connection.execute("SELECT FROM run WHERE root_plan_id = %s FOR UPDATE", [run.root])
        yield connection


async def test_write_whose_backend_is_killed_stores_all_or_nothing(
    database_url: str, writer: PostgresWriter, reader: PostgresReader
) -> None:
    run = Moments()
    await writer.write([run.plan_started()])
    events: list[Event] = [run.call_started(), run.plan_finished()]
    with held(database_url, run) as connection:
        writing = asyncio.create_task(writer.write(events))
        await until_waiting(database_url, 1)
        [writers] = await waiting(database_url)
        connection.execute("SELECT pg_terminate_backend(%s::integer)", [writers])
        with pytest.raises(StoreUnavailable):
            await writing
    assert (await reader.read_run(run.root)).status == "running"
    assert (await reader.read_tree(run.root, Payloads.NONE)).tool_calls == []
    assert (await writer.write(events)).refused == []


@pytest.mark.parametrize(
    "times", [2, *(pytest.param(times, marks=pytest.mark.thorough) for times in (1, 3))]
)
async def test_cancelled_writer_leaves_no_broken_connection_in_the_pool(
    database_url: str, times: int
) -> None:
    async with open_pool(database_url, max_size=2) as pool:
        writer = postgres_writer(ProjectPool(pool))
        run = Moments()
        await writer.write([run.plan_started()])
        for _ in range(4):
            # The backend of a cancelled writer waits until the lock is released. Let it end first:
            # the next holder can overtake it, and it would then wait as long as the test does.
            await until_waiting(database_url, 0)
            with held(database_url, run):
                writing = asyncio.create_task(writer.write([run.plan_finished()]))
                await until_waiting(database_url, 1)
                for _ in range(times):
                    writing.cancel()
                    await asyncio.sleep(0)
                with pytest.raises(asyncio.CancelledError):
                    await writing
        await asyncio.gather(*(writer.write([run.step_started()]) for _ in range(10)))
        await PostgresReader(ProjectPool(pool)).read_run(run.root)


async def test_cancelled_transaction_leaves_no_broken_connection_in_the_pool(
    database_url: str,
) -> None:
    async with open_pool(database_url, max_size=1) as pool:
        writer, reader = postgres_writer(ProjectPool(pool)), PostgresReader(ProjectPool(pool))
        run = sample_run()
        await writer.write(run.events)
        for number in range(30):
            with anyio.move_on_after(number / 3000):
                await read_tree(reader, run.root, Payloads.FULL)
                await writer.write(run.events)
            await reader.read_run(run.root)


async def test_cancelled_pipeline_leaves_no_unread_results(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The driver looks after the event loop before it sends; there it is cancelled.
    monkeypatch.setattr(psycopg.waiting, "MAX_BUSY_TIME", 0)
    async with open_pool(database_url, max_size=1) as pool:
        with anyio.CancelScope() as scope:
            async with pooled_connection(pool) as connection, connection.pipeline():
                await connection.execute("SELECT 1")
                scope.cancel()
        assert scope.cancelled_caught
        await PostgresReader(ProjectPool(pool)).check()


async def test_reading_a_missing_record_leaves_no_open_transaction(
    reader: PostgresReader, caplog: pytest.LogCaptureFixture
) -> None:
    for read in (reader.read_plan, reader.read_tool_call, reader.read_think_act):
        with pytest.raises(RecordNotFound):
            await read(new_id())
    with pytest.raises(RecordNotFound):
        await read_tree(reader, new_id(), Payloads.NONE)
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


async def test_invalid_database_url_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="postgresql://"):
        open_pool("postgresql://localhost:port/?nonsense=1")


class Way:
    """A way to the database that can be made to swallow everything, closing nothing."""

    def __init__(self, database_url: str) -> None:
        self._target = psycopg.conninfo.conninfo_to_dict(database_url)
        self.is_frozen = False

    async def serve(self, near: ByteStream) -> None:
        async with near, await self._far_end() as far, anyio.create_task_group() as group:
            group.start_soon(self._pump, near, far)
            group.start_soon(self._pump, far, near)

    async def _far_end(self) -> ByteStream:
        host, port = str(self._target.get("host", "")), int(self._target.get("port") or 5432)
        if host.startswith("/"):
            return await anyio.connect_unix(f"{host}/.s.PGSQL.{port}")
        return await anyio.connect_tcp(host or "127.0.0.1", port)

    async def _pump(self, source: ByteStream, sink: ByteStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for data in source:
                if not self.is_frozen:
                    await sink.send(data)
            await sink.aclose()


@asynccontextmanager
async def through(way: Way, database_url: str) -> AsyncIterator[str]:
    """Give the address of a database at the near end of a way."""
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, way.serve)
        port = listener.extra(SocketAttribute.local_port)
        yield psycopg.conninfo.make_conninfo(libpq_url(database_url), host="127.0.0.1", port=port)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()


@pytest.mark.thorough
async def test_frozen_database_is_reported_unavailable_within_seconds(database_url: str) -> None:
    way = Way(database_url)
    async with through(way, database_url) as url, open_pool(url, max_size=1) as pool:
        reader = PostgresReader(ProjectPool(pool))
        await reader.check()
        way.is_frozen = True

        async with asyncio.timeout(PLENTY_SECONDS):
            with pytest.raises(StoreUnavailable):
                await reader.check()


@pytest.mark.thorough
async def test_reading_a_large_result_from_a_frozen_database_times_out(
    database_url: str,
) -> None:
    way = Way(database_url)
    async with through(way, database_url) as url, open_pool(url, max_size=1) as pool:
        reading = asyncio.create_task(answer(pool, AND_NO_END))
        await until_asleep(database_url)
        way.is_frozen = True
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        way.is_frozen = False
        assert len(await answer(pool, MUCH)) == ROWS


async def test_slow_reads_take_no_connection_from_a_writer(database_url: str) -> None:
    async with open_pool(database_url, max_size=1, answer_seconds=60) as pool:
        project = ProjectPool(pool)
        slow = [
            asyncio.create_task(fetched(project, "SELECT pg_sleep(3600)"))
            for _ in range(READERS + 1)
        ]
        await until_asleep(database_url, READERS)
        answer = await postgres_writer(project).write(sample_run().events)
        for each in slow:
            each.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    assert answer.refused == []


async def test_caller_waits_for_a_busy_pool_longer_than_for_a_database_that_is_down(
    database_url: str,
) -> None:
    async with open_pool(database_url, max_size=1, answer_seconds=1) as pool:

        async def use() -> None:
            async with pooled_connection(pool) as connection:
                await connection.execute("SELECT pg_sleep(0.03)")

        # Together they need three seconds of the only connection.
        await asyncio.gather(*(use() for _ in range(100)))
