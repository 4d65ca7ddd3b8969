"""Projector processes end with their server and are replaced if they die or stand still."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import orjson
import psutil
import pytest
from psycopg import AsyncConnection

from api.commands import database
from tests.servers import start_server
from tests.storage.postgres.lock_waits import PLENTY_SECONDS, until
from tests.storage.postgres.pending_runs import (
    accept,
    living,
    pending,
    small_trace,
    store,
    stuck_run,
    unread_trace,
    until_living,
    until_projected,
)
from tests.torture.private_postgres import private_postgres
from tracer.clock import utc_now
from tracer.records import new_id
from tracer.records.spans import TraceSpans
from tracer.storage.postgres import processes as module
from tracer.storage.postgres.processes import OTHER_SCOPES, Limits, projectors
from tracer.storage.postgres.projector import Projector
from tracer.storage.postgres.watch import PENDING_CHANNEL, pending_message


def children() -> list[psutil.Process]:
    """Return the projectors of this process."""
    return list(filter(is_projector, psutil.Process().children()))


def is_projector(process: psutil.Process) -> bool:
    try:
        return "tracer.storage.postgres.processes" in process.cmdline()
    except psutil.Error:  # it has just ended
        return False


async def until_logged(caplog: pytest.LogCaptureFixture, words: str) -> None:
    """Return when a line of the log has these words."""

    async def is_logged() -> bool:
        return words in caplog.text

    await until(is_logged)


async def start_projector(url: str) -> asyncio.subprocess.Process:
    """Start a projector without a server, and return when it is connected."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tracer.storage.postgres.processes"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    given = {"database_url": url, "lease_seconds": 60, "span_idle_seconds": 900}
    input_of(process).write(orjson.dumps(given) + b"\n")
    await until_living(url, 1)
    return process


def input_of(process: asyncio.subprocess.Process) -> asyncio.StreamWriter:
    assert process.stdin is not None
    return process.stdin


async def test_accepted_runs_are_projected_and_counted(database_url: str) -> None:
    async with projectors(database_url) as counts:
        await accept(database_url, *(small_trace() for _ in range(20)))

        async def are_counted() -> bool:
            return counts.runs == 20

        await until(are_counted)
        assert await pending(database_url) == []
        assert len(children()) == 2
    assert children() == []
    assert counts.failures == 0


async def test_unread_spans_are_counted_once_by_scope(database_url: str) -> None:
    run, other = new_id(), new_id()
    async with projectors(database_url, 1) as counts:

        async def project(expected: int, *traces: TraceSpans) -> None:
            await accept(database_url, *traces)

            async def are_counted() -> bool:
                return counts.unread.total() == expected

            await until(are_counted)

        await project(2, unread_trace(run, 1, 2))
        await project(4, unread_trace(run, 3), unread_trace(run, 4, scope="other.llm"))
        await project(5, unread_trace(other, 1, scope="one two"))  # no name of a library

    assert counts.unread == {"acme.llm": 3, "other.llm": 1, OTHER_SCOPES: 1}


async def test_projector_finishes_the_run_in_progress_when_its_standard_input_closes(
    database_url: str,
) -> None:
    process = await start_projector(database_url)
    process.send_signal(signal.SIGINT)  # Ctrl-C ends the server, which ends it
    async with stuck_run(database_url):
        input_of(process).close()
    assert await process.wait() == 0
    assert await pending(database_url) == []
    assert await living(database_url) == 0


async def test_killed_projector_is_replaced(database_url: str) -> None:
    async with projectors(database_url, 1):
        await until_living(database_url, 1)
        children()[0].kill()
        await accept(database_url, small_trace())
        await until_projected(database_url)


@pytest.mark.thorough
async def test_idle_projector_that_is_stopped_is_replaced(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with projectors(database_url, 1, limits=Limits(still_seconds=2)) as counts:
        await until_living(database_url, 1)
        children()[0].suspend()
        await until_logged(caplog, "no progress for more than 2 s")
        await accept(database_url, small_trace())
        await until_projected(database_url)
    assert counts.failures == 0


async def test_projector_that_waits_for_a_lock_is_replaced(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with projectors(database_url, 1, limits=Limits(still_seconds=2)) as counts:
        await until_living(database_url, 1)
        async with stuck_run(database_url) as run:
            await until_logged(caplog, "no progress for more than 2 s")
        await until_projected(database_url)
    assert counts.failures >= 1
    assert str(run) in caplog.text


@pytest.mark.parametrize(
    ("program", "limits", "reason"),
    [
        ("while True: pass", Limits(work_seconds=0.2), "it worked for more than 0.2 s"),
        ("x = b'x' * 2**27; input(); input()", Limits(most_bytes=2**26), "its memory grew by more"),
    ],
)
async def test_projector_that_exceeds_a_limit_is_killed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    program: str,
    limits: Limits,
    reason: str,
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(module, "_COMMAND", (sys.executable, "-c", program))
    async with projectors("postgresql://nowhere", 1, limits=limits):
        await until_logged(caplog, reason)


async def test_stopped_projector_ends_with_the_server(database_url: str) -> None:
    async with projectors(database_url, 1):
        await until_living(database_url, 1)
        child = children()[0]
        child.suspend()
    assert not child.is_running()


async def test_projectors_end_when_the_server_is_killed(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACER_PROJECTORS", "2")
    server = await asyncio.to_thread(start_server, database_url, tmp_path)
    await until_living(database_url, 2)
    server.process.kill()
    await asyncio.to_thread(server.process.wait)
    await until_living(database_url, 0)


async def test_command_starts_a_projector_only_if_none_is_connected(database_url: str) -> None:
    async with database.projecting(database_url):
        await accept(database_url, small_trace())
        await until_projected(database_url)
        async with database.projecting(database_url):
            assert len(children()) == 1
    assert children() == []


async def test_projector_command_projects_and_reports_in_a_file(
    database_url: str, tmp_path: Path
) -> None:
    health = tmp_path / "health"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tracer.cli", "projector", "--health-file", str(health)),
        env={**os.environ, "TRACER_DATABASE_URL": database_url, "TRACER_HOME": str(tmp_path)},
    )
    await accept(database_url, small_trace())
    await until_projected(database_url)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    assert health.exists()


def test_run_whose_notification_is_lost_is_announced_to_all_projectors(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:

        def connect() -> module.Notified:
            connection = stack.enter_context(module._session(database_url))
            return module.Notified(connection, Projector(connection))

        monkeypatch.setattr(module, "LOST_SECONDS", 3_600.0)
        others = [connect(), connect()]
        end, _ = os.pipe()
        an_hour_ago = utc_now() - timedelta(hours=1)
        traces = [small_trace() for _ in range(450)]  # three messages
        asyncio.run(store(database_url, *traces, clock=lambda: an_hour_ago))
        assert [each.take_due() for each in others] == [[], []]  # they look once an hour

        runs = {UUID(bytes=trace.trace_id) for trace in traces}
        for each in [connect(), *others]:  # a new connection looks at once
            due: set[UUID] = set()
            while due < runs:
                each.wait(end)
                due.update(each.take_due())
            assert due == runs


def test_unreadable_notification_is_ignored(database_url: str) -> None:
    with module._session(database_url) as connection:
        notified = module.Notified(connection, Projector(connection))
        for text in ("", "now", "now x", "hello"):
            connection.execute("SELECT pg_notify(%s, %s)", [PENDING_CHANNEL, text])
        connection.execute(*pending_message("now", [run := new_id()]))
        assert notified.take_due() == [run]


@pytest.mark.thorough
async def test_projectors_survive_an_outage_of_the_database() -> None:
    with private_postgres() as postgres:
        async with projectors(postgres.url, 2):
            await until_living(postgres.url, 2)
            before = {child.pid for child in children()}
            postgres.kill()
            postgres.start()
            await accept(postgres.url, small_trace())
            await until_projected(postgres.url)
            assert {child.pid for child in children()} == before


FAULTY = """
import os, sys
from tracer.otel.projection import forest
from tracer.storage.postgres import processes

read_span = forest.read_span

def faulty(span, *more):
    if span.name == "raises":
        raise KeyError(span.name)
    while span.name == "loops":
        pass
    if span.name == "ends":
        os._exit(3)
    return read_span(span, *more)

forest.read_span = faulty
processes.main()
"""


async def value_of(url: str, query: str, *given: object) -> object:
    async with await AsyncConnection.connect(url) as connection:
        row = await (await connection.execute(query.encode(), given)).fetchone()
    return row[0] if row else None


@pytest.mark.thorough
async def test_failing_runs_do_not_stop_other_runs(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_COMMAND", (sys.executable, "-c", FAULTY))
    bad = [small_trace(name) for name in ("raises", "loops", "ends")]
    raising, looping, ending = (UUID(bytes=trace.trace_id) for trace in bad)
    await accept(database_url, *bad, *(small_trace() for _ in range(1_000)))

    async def projected() -> object:
        return await value_of(database_url, "SELECT count(*) FROM run WHERE projected > 0")

    async def attempts_of(run: UUID) -> object:
        query = "SELECT attempts FROM pending_run WHERE root_plan_id = %s"
        return await value_of(database_url, query, run)

    async def error_of(run: UUID) -> str:
        query = "SELECT projection_error FROM run WHERE root_plan_id = %s"
        return str(await value_of(database_url, query, run))

    async def is_alone() -> bool:
        return await attempts_of(looping) == 2

    async def are_projected(number: int) -> bool:
        return await projected() == number

    async def is_given_up() -> bool:
        # The reason is noted when a sixth attempt would begin.
        return (await error_of(ending)).startswith("The projection ended its process")

    async with projectors(database_url, 2):
        await until(lambda: are_projected(1_000))
        await until(is_alone)
        # The lone attempt takes a minute, in which the other projector projects the other runs.
        await accept(database_url, *(small_trace() for _ in range(100)))
        await until(lambda: are_projected(1_100))
        assert await attempts_of(looping) == 2
        # It is the turn of the ending run when the lone attempt is over.
        await until(is_given_up, 5 * PLENTY_SECONDS)

    assert await attempts_of(raising)  # it waits for the lone attempt of the other one
    assert await value_of(database_url, "SELECT sum(spans) FROM otel_block") == 1_103
