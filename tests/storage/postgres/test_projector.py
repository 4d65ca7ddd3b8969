"""Projections, accepted spans and deletions on one database, at each step of their statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from psycopg.types.array import ListBinaryDumper

from tests import citus_databases
from tests.otel.made_traces import TRACE_ID, agent, chat, make_span, spans_from, tool
from tests.otel.sent import traces_of
from tests.storage.postgres.lock_waits import waiting_query
from tracer.otel.dialects import genai
from tracer.otel.projection import PROJECTION_VERSION, fields_of, project_run
from tracer.records.merge import RULES
from tracer.records.record_classes import RECORDS
from tracer.records.spans import ReadableSpan, Span
from tracer.storage.postgres import (
    Pool,
    ProjectPool,
    connection_options,
    open_pool,
    projection_rows,
    projector,
    sync_connection,
)
from tracer.storage.postgres.deletion import PURGED_TABLES, PostgresDeletion
from tracer.storage.postgres.pool import SyncConnection, open_sync_connection
from tracer.storage.postgres.projector import Projector, Round, TimeLimits
from tracer.storage.postgres.tables import TABLES
from tracer.storage.postgres.writer import PostgresSpans

RUN = UUID(hex=TRACE_ID)
PROJECT = 1


class Server:
    """What other processes do, each over connections of its own, and the projector that they meet.

    All connections stay open, because most of the time of a short test goes to opening them.
    """

    def __init__(self, url: str, portal: BlockingPortal, pool: Pool) -> None:
        self.url = url
        self._portal = portal
        self._project = ProjectPool(pool, PROJECT)
        self._threads = ThreadPoolExecutor(4)
        self._started: list[Future[None]] = []
        self._others: list[SyncConnection] = []
        self.observer = psycopg.connect(**connection_options(url))
        self.stepping = Stepping.connect(**connection_options(url))
        self.stepping.adapters.register_dumper(list, ListBinaryDumper)
        self.stepping.execute("SET TIME ZONE 'UTC'")
        self.projector = Projector(self.stepping)

    def close(self) -> None:
        self._threads.shutdown()
        for connection in (self.observer, self.stepping, *self._others):
            connection.close()

    def accept(self, spans: list[Span]) -> None:
        accepting = PostgresSpans(self._project, None, None, lambda *_: None)
        self._portal.call(accepting.write, traces_of(spans))

    def project(self) -> None:
        with self._connection() as connection:
            Projector(connection).project_run(PROJECT, RUN)

    def project_without_claim(self) -> None:
        """Project as if the other projector had lost its claim."""
        with self._connection() as connection:
            Projector(connection).project_claimed(PROJECT, [RUN], None, is_due=False)

    def delete(self) -> None:
        self._portal.call(PostgresDeletion(self._project).erase_run, RUN)

    @contextmanager
    def _connection(self) -> Iterator[SyncConnection]:
        if not self._others:
            self._others.append(open_sync_connection(connection_options(self.url)))
        connection = self._others.pop()
        yield connection
        self._others.append(connection)

    def _start(self, work: Callable[[], None]) -> None:
        """Start work in a thread, and return when it is done or waits for a lock."""
        running = self._threads.submit(work)
        self._started.append(running)
        while not running.done():
            if self.observer.execute(waiting_query(self.url)).fetchone():
                break

    def interleave(self, prepare: Callable[[], None], work: Callable[[], None]) -> Iterator[None]:
        """Project a run with `work` before one statement; yield after each, for each statement.

        Args:
            prepare: Stores the run.
            work: What is done meanwhile. It is finished when the projection waits for nothing.
        """
        last = 0
        for _ in range(2):  # the first time, the connection prepares the statements
            self._reset()
            prepare()
            last = self.stepping.count(lambda: self.projector.project_run(PROJECT, RUN))
        assert last > 15
        for at in range(1, last + 1):
            self._reset()
            prepare()
            self.stepping.call_at(at, partial(self._start, work))
            self.projector.project_run(PROJECT, RUN)
            self._started.pop().result()
            yield

    def _reset(self) -> None:
        deletes = "; ".join(f"DELETE FROM {table}" for table in ("run", *PURGED_TABLES))
        # Without foreign keys the order does not matter. TRUNCATE takes much longer.
        self.observer.execute(f"SET session_replication_role = replica; {deletes}")
        self.observer.execute("RESET session_replication_role")


class Stepping(psycopg.Connection[tuple[Any, ...]]):
    """A connection that does some work before one of its statements."""

    _steps = 0
    _at: int | None = None
    _work: Callable[[], None] = staticmethod(lambda: None)

    def count(self, work: Callable[[], object]) -> int:
        """Return the number of statements of some work."""
        before = self._steps
        work()
        return self._steps - before

    def call_at(self, at: int, work: Callable[[], None]) -> None:
        """Call `work` before the statement number `at`, from now on."""
        self._at, self._work = self._steps + at, work

    def wait(self, *given: Any, **named: Any) -> Any:
        self._steps += 1
        if self._steps == self._at:
            self._work()
        return super().wait(*given, **named)


@pytest.fixture
def server(database_url: str) -> Iterator[Server]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_pool(database_url)) as pool,
        closing(Server(database_url, portal, pool)) as server,
    ):
        yield server


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


def assert_projected(server: Server, spans: list[Span]) -> None:
    """Check that the run has the records of these spans, and that nothing is pending."""
    expected = project_run([trace.message for trace in traces_of(spans)])
    assert server.observer.execute("SELECT * FROM pending_run").fetchall() == []
    cursor = server.observer.cursor(row_factory=psycopg.rows.dict_row)
    for kind in RECORDS:
        rows = {
            row[RULES[kind].id_field].bytes: row
            for row in cursor.execute(f"SELECT * FROM {TABLES[kind]}")
        }
        found = {
            record_id: {
                name: [] if row[name] is None and name in RULES[kind].union else row[name]
                for name in fields_of(kind, expected_row)
            }
            for record_id, row in rows.items()
            if (expected_row := expected.rows[kind].get(record_id)) is not None
        }
        assert rows.keys() == expected.rows[kind].keys()
        assert found == {
            record_id: fields_of(kind, row) for record_id, row in expected.rows[kind].items()
        }


def test_spans_accepted_at_any_step_of_a_projection_are_projected(server: Server) -> None:
    first, second = parts_of_a_trace()
    for _ in server.interleave(lambda: server.accept(first), lambda: server.accept(second)):
        server.project()
        assert_projected(server, first + second)


def test_second_projector_at_any_step_of_a_projection_changes_nothing(server: Server) -> None:
    first, second = parts_of_a_trace()

    def prepare() -> None:
        server.accept(first)
        server.project()
        server.accept(second)

    for _ in server.interleave(prepare, server.project):
        server.project()
        assert_projected(server, first + second)
        assert server.observer.execute("SELECT revision FROM run").fetchall() == [(3,)]


def test_projection_that_lost_its_claim_is_not_written(server: Server) -> None:
    first, second = parts_of_a_trace()

    def prepare() -> None:
        server.accept(first)
        server.project()  # the rows of a first projection would collide
        server.accept(second[:2])

    def accept_and_project() -> None:
        server.accept(second[2:])
        server.project_without_claim()

    for _ in server.interleave(prepare, accept_and_project):
        server.project()
        assert_projected(server, first + second)


def test_deletion_at_any_step_of_a_projection_leaves_no_row(server: Server) -> None:
    first, second = parts_of_a_trace()

    def prepare() -> None:
        server.accept(first)
        server.project()
        server.accept(second)

    for _ in server.interleave(prepare, server.delete):
        server.project()
        for table in PURGED_TABLES:
            assert server.observer.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)]


# --- Failures ------------------------------------------------------------------------------------


@pytest.fixture
def faulty_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the dialect of GenAI spans raise an error for spans named "boom"."""
    kind_of = genai.kind_of

    def faulty(span: ReadableSpan) -> Any:
        if span.name == "boom":
            raise KeyError("patient 4711")
        return kind_of(span)

    monkeypatch.setattr(genai, "kind_of", faulty)


def other_trace(number: int) -> list[Span]:
    """Return a trace with an id of its own."""
    spans = [agent(1, "planner"), chat(2, parent=1)]
    for span in spans:
        span["traceId"] = f"{number:032x}"
    return spans_from(*spans)


def project_all(url: str, after: timedelta = timedelta(seconds=10)) -> Round:
    """Project everything that is due until some time from now, a few times."""
    now = datetime.now(UTC) + after
    done = Round()
    with sync_connection(connection_options(url)) as connection:
        for number in range(10):
            done += Projector(connection).project_due(now + number * timedelta(seconds=10))
    return done


def run_row(url: str, *columns: str) -> tuple[Any, ...]:
    with psycopg.connect(**connection_options(url)) as connection:
        found: tuple[Any, ...] | None = connection.execute(
            f"SELECT {', '.join(columns)} FROM run LEFT JOIN pending_run USING (root_plan_id)"
            " WHERE root_plan_id = %s",
            [RUN],
        ).fetchone()
    assert found is not None
    return found


@pytest.mark.usefixtures("faulty_dialect")
def test_dialect_error_keeps_spans_and_records_and_is_reported(server: Server) -> None:
    good, _ = parts_of_a_trace()
    server.accept(good)
    project_all(server.url)
    server.accept(spans_from(make_span(7, "boom", parent=1)))
    for number in range(1, 30):
        server.accept(other_trace(number))

    done = project_all(server.url)

    assert (done.projected, done.failures) == (29, 5)
    error, attempts, is_over, spans = run_row(
        server.url, "projection_error", "attempts", "due_at = 'infinity'", "spans"
    )
    assert error.startswith("The projection raised KeyError (test_projector.py, line ")
    assert "4711" not in error
    assert (attempts, is_over, spans) == (5, True, 1)
    assert run_row(server.url, "status", "agent_name") == ("running", "planner")


@pytest.mark.usefixtures("faulty_dialect")
def test_new_spans_retry_a_failed_projection_at_most_once_a_minute(server: Server) -> None:
    server.accept(spans_from(make_span(7, "boom")))
    project_all(server.url)
    server.accept(spans_from(make_span(8, "more")))

    assert project_all(server.url, timedelta(seconds=-10)).failures == 0
    assert run_row(server.url, "attempts", "due_at - attempted_at") == (4, timedelta(minutes=1))
    assert project_all(server.url, timedelta(minutes=3)).failures == 1
    assert run_row(server.url, "attempts", "due_at = 'infinity'") == (5, True)


def test_failed_run_recovers_when_its_spans_can_be_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = parts_of_a_trace()
    with monkeypatch.context() as patched:
        patched.setattr(genai, "kind_of", lambda _: 1 / 0)
        server.accept(first)
        project_all(server.url)
    assert run_row(server.url, "projection_error")[0] is not None
    server.accept(second)
    project_all(server.url, timedelta(minutes=3))

    assert run_row(server.url, "projection_error", "attempts") == (None, None)
    assert_projected(server, first + second)


def test_run_that_repeatedly_crashes_projectors_is_marked_as_failed(server: Server) -> None:
    good, _ = parts_of_a_trace()
    server.accept(good)
    server.accept(other_trace(1))
    groups: list[int] = []

    def end(runs: Sequence[UUID], _: int) -> None:
        groups.append(len(runs))
        if RUN in runs:
            raise SystemExit

    now = datetime.now(UTC) + timedelta(seconds=10)
    for _ in range(8):
        with (
            sync_connection(connection_options(server.url)) as connection,
            suppress(SystemExit),
        ):
            Projector(connection, on_begin=end).project_due(now)
        now += timedelta(seconds=10)

    if not citus_databases.tests_run_on_citus():  # there, a group is one run
        assert groups == [2, 1, 1, 1, 1, 1]  # together, then each alone: first the other run
    error, is_over = run_row(server.url, "projection_error", "due_at = 'infinity'")
    assert error.startswith("The projection ended its process")
    assert is_over


def test_row_that_postgres_rejects_fails_only_its_own_run(server: Server) -> None:
    with psycopg.connect(**connection_options(server.url)) as connection:
        connection.execute("ALTER TABLE act_tool_info ADD CHECK (name <> 'search')")
    server.accept(other_trace(1))
    server.accept(parts_of_a_trace()[0])
    server.accept(other_trace(2))

    assert project_all(server.url).projected == 2
    assert "CheckViolation" in run_row(server.url, "projection_error")[0]


def test_older_program_keeps_records_of_a_newer_projection_version(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = parts_of_a_trace()
    with monkeypatch.context() as patched:
        for module in (projector, projection_rows):
            patched.setattr(module, "PROJECTION_VERSION", PROJECTION_VERSION + 1)
        server.accept(first)
        project_all(server.url)
    server.accept(second)

    assert project_all(server.url).projected == 0
    assert run_row(server.url, "arrived", "attempts") == (2, 0)


def test_damaged_span_block_fails_only_its_own_run(server: Server) -> None:
    server.accept(parts_of_a_trace()[0])
    server.accept(other_trace(1))
    with psycopg.connect(**connection_options(server.url)) as connection:
        connection.execute("UPDATE otel_block SET body = 'x' WHERE root_plan_id = %s", [RUN])

    assert project_all(server.url).projected == 1
    assert run_row(server.url, "projection_error") == (
        "A stored block of spans is damaged: it is shorter than its header.",
    )


def make_endless(patched: pytest.MonkeyPatch, pattern: str | None = None) -> None:
    """Make the dialect of GenAI spans loop for spans named "boom", or match a slow pattern."""
    kind_of = genai.kind_of

    def endless(span: ReadableSpan) -> Any:
        while span.name == "boom":
            if pattern is not None:
                re.match(pattern, "a" * 60 + "b")
        return kind_of(span)

    patched.setattr(genai, "kind_of", endless)


@pytest.mark.parametrize("pattern", [None, r"(a+)+$"])
def test_projection_that_does_not_end_fails_only_its_own_run(
    server: Server, monkeypatch: pytest.MonkeyPatch, pattern: str | None
) -> None:
    make_endless(monkeypatch, pattern)
    server.accept(spans_from(make_span(7, "boom")))
    server.accept(other_trace(1))

    now = datetime.now(UTC) + timedelta(seconds=10)
    with sync_connection(connection_options(server.url)) as connection:
        # A second, because the other run of the group has to end within the limit.
        own = Projector(connection, limits=TimeLimits(in_group=1.0, alone=0.05))
        rounds = [own.project_due(now + number * timedelta(seconds=10)) for number in range(6)]

    assert [(each.projected, each.failures) for each in rounds] == [(1, 1), *[(0, 1)] * 4, (0, 0)]
    assert run_row(server.url, "projection_error", "attempts") == (
        "The projection took too long.",
        5,
    )


@citus_databases.on_one_postgres
def test_finished_projections_are_written_before_the_next_slow_run(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_endless(monkeypatch)
    server.accept(other_trace(1))
    server.accept(spans_from(make_span(7, "boom")))
    server.accept(other_trace(2))
    groups: list[tuple[int, int]] = []

    def note(runs: Sequence[UUID], _: int) -> None:
        [(pending,)] = server.observer.execute("SELECT count(*) FROM pending_run").fetchall()
        groups.append((len(runs), pending))

    with sync_connection(connection_options(server.url)) as connection:
        own = Projector(connection, on_begin=note, limits=TimeLimits(in_group=1.0))
        own.project_due(datetime.now(UTC) + timedelta(seconds=10))

    assert groups == [(3, 3), (1, 2)]  # the first is written before the third begins


@pytest.mark.parametrize("state", ["attempts = 1", "spans = 5001"])
def test_heavy_run_is_projected_only_by_the_oldest_projector(server: Server, state: str) -> None:
    server.accept(spans_from(agent(1, "planner")))
    server.observer.execute(f"UPDATE pending_run SET {state}")
    server.observer.commit()
    server.accept(other_trace(1))
    now = datetime.now(UTC) + timedelta(seconds=10)

    with ExitStack() as connections:
        oldest, younger = (
            connections.enter_context(sync_connection(connection_options(server.url)))
            for _ in range(2)
        )
        for each in (oldest, younger):
            each.execute("SET application_name TO 'tracer projector'")
        assert Projector(younger).project_due(now).projected == 1
        assert run_row(server.url, "projected") == (0,)
        assert Projector(oldest).project_due(now).projected == 1


def test_run_that_failed_itself_is_projected_after_those_whose_process_ended(
    server: Server,
) -> None:
    server.accept(spans_from(agent(1, "planner")))
    server.accept(other_trace(1))
    server.observer.execute("UPDATE pending_run SET attempts = 1")
    server.observer.execute(
        "UPDATE pending_run SET failure = 'x' WHERE root_plan_id = %s", [UUID(int=1)]
    )
    server.observer.commit()
    begun: list[UUID] = []

    with sync_connection(connection_options(server.url)) as connection:
        own = Projector(connection, on_begin=lambda runs, _: begun.extend(runs))
        own.project_due(datetime.now(UTC) + timedelta(seconds=10))

    assert begun == [RUN, UUID(int=1)]
