"""Projectors as processes: their loop, and the processes that a server starts and watches."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import select
import signal
import sys
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Self
from uuid import UUID

import orjson
import psutil
import psycopg

from tracer.logs import configure_logs, get_logger
from tracer.records import DEFAULT_TERMS, LeaseTerms
from tracer.search import Follower
from tracer.storage.postgres import projection_rows
from tracer.storage.postgres.linker import Linker
from tracer.storage.postgres.pool import SyncConnection, connection_options, sync_connection
from tracer.storage.postgres.projection_rows import ProjectorSession
from tracer.storage.postgres.projector import PER_MEGABYTE, Projector, TimeLimits
from tracer.storage.postgres.rollups import Sums
from tracer.storage.postgres.search_source import SearchSource
from tracer.storage.postgres.watch import DUE_NOW, PENDING_CHANNEL, pending_message

# --- A projector: a loop that turns the pending spans of all projects into records. In between it
# derives what depends on records: links between runs, and sums.
#
# `tracer serve` runs it in processes (`python -m tracer.storage.postgres.processes`), and `tracer
# projector` in its own. A process of a server reads one line of JSON from standard input
# (`ProjectorOptions`) and ends when standard input is closed. It writes one line of JSON (`Report`)
# to standard output when it begins a group of runs, and after each look for due runs.

PRIORITY = 10
"""How much nicer a projector process is than the server (see `nice`), so that requests have
priority."""

QUIET_SECONDS = 0.1
"""How long a projector waits after it is notified of new spans: their run is not due earlier."""

LOOK_SECONDS = 1.0
"""The longest pause of a projector, and how often its server checks it."""

LOST_SECONDS = 5.0
"""How often one projector of all looks for due runs whose notification got lost."""

MOST_NOTIFIED, MOST_ASKED = 20_000, 2_000
"""How many runs a projector remembers, and for how many it asks at a time. Further ones are found
as if their notification had got lost."""

BETWEEN_SECONDS = 0.25
"""While many groups of runs are due, background work is done this often between two of them. Larger
batches take less time per run."""

STABLE_SECONDS = 10.0
"""If a projector has worked for this long before it fails, its count of consecutive failures
restarts."""

RETRY_SECONDS = (0, 0.1, 0.5, 1, 2, 5)
"""The pauses after consecutive failures, for example while the database is down."""

_JOIN = "SET application_name TO 'tracer projector'"

log = get_logger("tracer.storage.postgres.processes")  # as a process it is `__main__`


@dataclass(frozen=True)
class ProjectorOptions:
    """The parameters of a projector."""

    database_url: str
    """The database's URL, without a pooler: claims and notifications need a session."""
    lease_seconds: float
    span_idle_seconds: float
    search_directory: str | None = None
    """The directory of search indexes; None: this projector keeps none."""

    @classmethod
    def of(cls, url: str, terms: LeaseTerms, search: Path | None = None) -> Self:
        """Return the parameters of a projector for a database, with the lengths of leases."""
        directory = None if search is None else str(search)
        return cls(url, terms.lease.total_seconds(), terms.span_idle.total_seconds(), directory)

    @property
    def terms(self) -> LeaseTerms:
        """How long leases last."""
        return LeaseTerms(
            timedelta(seconds=self.lease_seconds), timedelta(seconds=self.span_idle_seconds)
        )


@dataclass(frozen=True)
class Report:
    """Progress of a projector, for the server that watches it.

    A projector also reports if it had nothing to do, or could not reach the database. A projector
    that reports nothing for long is stuck.
    """

    is_begin: bool = False
    """Whether the projector begins a group of runs. Otherwise it has finished all due groups."""
    runs: int = 0
    root_plan_id: str | None = None
    """The run's id, if the group that begins has only one run."""
    failures: int = 0
    unread: Mapping[str, int] = field(default_factory=dict)
    """How many spans with token counts no rule could read, by scope."""
    weight: int = 0
    """The weight of the group's spans (`tracer.otel.otlp.blocks.weight`)."""


def keep_projecting(
    options: ProjectorOptions,
    end: int,
    report: Callable[[Report], None] = lambda _: None,
    limits: TimeLimits | None = None,
) -> None:
    """Project due runs, again and again, until a file descriptor becomes readable.

    If the database is down, or anything else fails, the failure is logged once and the work is
    retried.

    Args:
        options: The database, and how long leases last.
        end: The descriptor. When it becomes readable, a waiting projector ends at once, and a
            working one ends after the runs in progress.
        report: Receives each report.
        limits: How long the projection of one run may take; None: any time.
    """
    failures = 0
    while not _readable([end], RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]):
        began = time.monotonic()
        try:
            with _session(options.database_url) as connection:
                _project_in_turns(connection, options, end, report, limits)
        except Exception as error:  # of any kind: spans wait for this projector
            failures = failures + 1 if time.monotonic() - began < STABLE_SECONDS else 1
            if failures == 1:
                is_outage = isinstance(error, psycopg.OperationalError)
                log.warning(
                    "projector_interrupted",
                    error=type(error).__name__,
                    exc_info=None if is_outage else error,
                )
            report(Report())


def _project_in_turns(
    connection: SyncConnection,
    options: ProjectorOptions,
    end: int,
    report: Callable[[Report], None],
    limits: TimeLimits | None,
) -> None:
    with closing(BackgroundWork(connection, options.search_directory)) as background:
        projector = Projector(
            connection,
            terms=options.terms,
            on_begin=lambda runs, size: report(_beginning(runs, size)),
            on_end=background.work_if_due,
            limits=limits,
        )
        notified = Notified(connection, projector)
        while not _readable([end], 0):
            done = projector.project_due(runs=notified.take_due())
            notified.put_back(done.waiting)
            has_projected = bool(done.projected or done.failures)
            has_worked = background.work(is_idle=not has_projected)
            unread = Counter[str]()
            _count_scopes(unread, done.unread)
            report(Report(False, done.projected, None, done.failures, unread))
            if not has_projected and not has_worked:
                notified.wait(end)


class Notified:
    """The pending runs of which a projector was notified, and when to ask for each.

    All projectors of all servers are notified of all runs. If a notification gets lost, one of them
    finds the run, and notifies all again.
    """

    def __init__(self, connection: SyncConnection, projector: Projector) -> None:
        """Find the runs whose notifications were sent before `connection` listened to them."""
        self._connection = connection
        self._projector = projector
        self._session = ProjectorSession(connection)
        self._moments: dict[UUID, float] = {}
        self._look_at = 0.0
        self._look(timedelta())

    def take_due(self) -> list[UUID]:
        """Return runs that may be due now, and forget them."""
        self._receive()
        now = time.monotonic()
        if now >= self._look_at:
            self._look(timedelta(seconds=LOST_SECONDS))
        due = (run for run, moment in self._moments.items() if moment <= now)
        runs = list(islice(due, MOST_ASKED))
        for run in runs:
            del self._moments[run]
        return runs

    def put_back(self, waiting: Mapping[UUID, float]) -> None:
        """Remember runs, each with the number of seconds until it may be due."""
        now = time.monotonic()
        for run, seconds in waiting.items():
            self._moments[run] = now + seconds

    def wait(self, end: int) -> None:
        """Return after `LOOK_SECONDS`, when a run may be due, or when `end` is readable."""
        until = min(time.monotonic() + LOOK_SECONDS, self._look_at)
        while True:
            self._receive()
            rest = min([until, *self._moments.values()]) - time.monotonic()
            if rest <= 0 or end in _readable([self._connection.fileno(), end], rest):
                return

    def _receive(self) -> None:
        for notification in self._connection.notifies(timeout=0):
            sender, *runs = notification.payload.split() or [""]
            is_due = sender == DUE_NOW
            moment = time.monotonic() + (0.0 if is_due else QUIET_SECONDS)
            with suppress(ValueError):  # any role may send messages
                for run in map(UUID, runs):
                    # New spans do not make a run due earlier.
                    if is_due or len(self._moments) < MOST_NOTIFIED:
                        self._moments[run] = moment if is_due else self._moments.get(run, moment)

    def _look(self, pause: timedelta) -> None:
        if self._session.ask(projection_rows.TAKE_LOOK, pause):
            found = self._projector.find_due()
            self._connection.execute(*pending_message(DUE_NOW, found))
        ((seconds,),) = self._session.ask(projection_rows.LAST_LOOK)
        self._look_at = time.monotonic() + max(0.0, LOST_SECONDS - seconds)


class BackgroundWork:
    """What a projector does between groups of projections: it takes a batch from each queue.

    All queues are short most of the time. Batches are small, so no queue waits for another one.
    """

    def __init__(self, connection: SyncConnection, search_directory: str | None = None) -> None:
        """Use the projector's connection, and the directory of search indexes if there is one."""
        self._queues = (Linker(connection).visit_due, Sums(connection).add_due)
        self._next = 0.0
        self._follower = None
        if search_directory is not None:
            source = SearchSource(connection)
            self._follower = Follower(source, source.directory(Path(search_directory)))
        self._index_began = time.monotonic()
        self._index_seconds = 0.0

    def work(self, *, is_idle: bool = True) -> bool:
        """Take a batch from each queue. Return whether one had any.

        Args:
            is_idle: Whether there is nothing to project. Otherwise the search index gets at most
                `INDEX_SHARE` of a core.

        Raises:
            psycopg.OperationalError: The database does not answer. All work is done later.
        """
        has_worked = [bool(take()) for take in self._queues]
        self._next = time.monotonic() + BETWEEN_SECONDS
        is_idle = is_idle and not any(has_worked)
        return self._index(is_idle=is_idle) or any(has_worked)

    def work_if_due(self) -> None:
        """Work while many groups are projected one after another."""
        if time.monotonic() >= self._next:
            self.work(is_idle=False)

    def close(self) -> None:
        """Release the search index."""
        if self._follower is not None:
            self._follower.close()

    def _index(self, *, is_idle: bool) -> bool:
        elapsed = time.monotonic() - self._index_began
        if self._follower is None or not (is_idle or self._index_seconds < INDEX_SHARE * elapsed):
            return False
        if elapsed > _SHARED_SECONDS:
            self._index_began, self._index_seconds = time.monotonic(), 0.0
        begun = time.process_time()
        has_worked = self._follower.step()
        self._index_seconds += time.process_time() - begun
        return has_worked


INDEX_SHARE = 0.25
_SHARED_SECONDS = 60.0
"""How long the time that the index took counts."""


def _count_scopes(counts: Counter[str], more: Mapping[str, int]) -> None:
    """Add counts by scope. Unusual names, and those after the first hundred, count as one.

    Args:
        counts: The counts so far, to which `more` is added.
        more: The counts to add.
    """
    for scope, spans in more.items():
        is_counted = scope in counts or len(counts) < _MOST_SCOPES
        counts[scope if is_counted and _SCOPE.fullmatch(scope) else OTHER_SCOPES] += spans


_SCOPE = re.compile(r"[\w.@/:+-]{1,100}", re.ASCII)
_MOST_SCOPES = 100
OTHER_SCOPES = "other"


def _beginning(runs: Sequence[UUID], size: int) -> Report:
    return Report(True, len(runs), str(runs[0]) if len(runs) == 1 else None, weight=size)


@contextmanager
def _session(url: str) -> Iterator[SyncConnection]:
    """Open a connection that counts as a projector and listens for accepted runs."""
    with sync_connection(connection_options(url)) as connection:
        with suppress(psycopg.errors.InvalidParameterValue):  # not every platform supports it
            # If this process is killed, its session ends although it waits for a lock.
            connection.execute("SET client_connection_check_interval = '1s'")
        connection.execute(_JOIN)
        connection.execute(f"LISTEN {PENDING_CHANNEL}")
        yield connection


def _readable(descriptors: Sequence[int], seconds: float) -> list[int]:
    """Return the descriptors that become readable or are closed at the other end."""
    poll = select.poll()
    for each in descriptors:
        poll.register(each, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(seconds * 1000)]


def main() -> None:
    """Run a projector as a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the server, which ends this
    os.nice(PRIORITY)
    configure_logs()
    if line := sys.stdin.buffer.readline():
        # As in the server (`api.main`): a large run is not garbage.
        gc.freeze()
        gc.set_threshold(50_000)
        options = ProjectorOptions(**orjson.loads(line))
        keep_projecting(options, sys.stdin.fileno(), _print, TimeLimits())


def _print(report: Report) -> None:
    os.write(sys.stdout.fileno(), orjson.dumps(report, option=orjson.OPT_APPEND_NEWLINE))


# --- The projectors of a server: processes that the server starts, watches, replaces and ends.


FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""How many seconds to wait before a projector is started again. The pause doubles until a projector
has projected a run."""

END_SECONDS = 5.0
"""The time, in seconds, in which a projector may finish its group when the server ends."""

_COMMAND = (sys.executable, "-P", "-m", "tracer.storage.postgres.processes")


@dataclass
class ProjectionCounts:
    """Counts the work of a server's projectors since it started."""

    runs: int = 0
    failures: int = 0
    """Projections that failed, and projectors that died or were killed while they worked."""
    unread: Counter[str] = field(default_factory=Counter)
    """Spans with token counts that no rule could read, by instrumentation scope."""

    def add(self, report: Report) -> None:
        """Count what a projector did."""
        if not report.is_begin:
            self.runs += report.runs
            self.failures += report.failures
            _count_scopes(self.unread, report.unread)


MEMORY_FACTOR = 4
"""How many bytes of memory a projection may need for each byte of its run's weight."""


@dataclass(frozen=True)
class Limits:
    """A projector that exceeds one of these limits between two of its reports is killed.

    The limits of processor time and memory grow with the weight of the group's spans.
    """

    work_seconds: float = 60.0
    """Processor time. `TimeLimits` ends a long projection earlier, if it can be interrupted."""
    still_seconds: float = 60.0
    """Time without any work of the process: it is stopped, or waits for a lock or a dead peer."""
    most_bytes: int = 2 * 2**30
    """Growth of its memory, and in addition `MEMORY_FACTOR` times the weight."""


@asynccontextmanager
async def projectors(
    url: str,
    number: int = 2,
    terms: LeaseTerms = DEFAULT_TERMS,
    limits: Limits | None = None,
    search: Path | None = None,
) -> AsyncIterator[ProjectionCounts]:
    """Run projectors during the block, and yield the counts of their work.

    A projector that ends or exceeds a limit is replaced. The attempt to project its runs is
    counted, so a run that repeatedly ends its projector is given up.

    Args:
        url: The Postgres, without a pooler.
        number: How many processes to run.
        terms: How long leases last.
        limits: When to kill a process.
        search: The directory of search indexes; None: no index.
    """
    counts = ProjectionCounts()
    options = ProjectorOptions.of(url, terms, search)
    tasks = [
        asyncio.create_task(
            _keep_running(options, counts, limits or Limits()), name=f"tracer-projector-{each}"
        )
        for each in range(number)
    ]
    try:
        yield counts
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _keep_running(
    options: ProjectorOptions, counts: ProjectionCounts, limits: Limits
) -> None:
    """Run a projector, and start another one each time it ends."""
    pause = FIRST_PAUSE
    while True:
        before = counts.runs
        try:
            await _run(options, counts, limits)
        except OSError as error:  # such as no memory for another process
            log.error("projector_not_started", error=str(error))
        if counts.runs > before:
            pause = FIRST_PAUSE
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


async def _run(options: ProjectorOptions, counts: ProjectionCounts, limits: Limits) -> None:
    """Run one projector until it ends or has to be killed."""
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C ends the server, which ends this
    )
    watch = _Watch(process, counts, limits)
    try:
        assert process.stdin is not None
        process.stdin.write(orjson.dumps(options, option=orjson.OPT_APPEND_NEWLINE))
        reason = await watch.until_end()
        if reason is not None:
            process.kill()
        code = await process.wait()
    finally:
        await _end(process, is_working=watch.group is not None)
    if watch.group is not None:
        counts.failures += 1
    log.warning(
        "projector_ended",
        reason=reason or "it ended by itself",
        exit_code=code,
        runs=watch.group.runs if watch.group else 0,
        root_plan_id=watch.group and watch.group.root_plan_id,
    )


class _Watch:
    """Reads the reports of a projector, and checks its limits."""

    def __init__(self, process: Process, counts: ProjectionCounts, limits: Limits) -> None:
        self._process = process
        self._counts = counts
        self._limits = limits
        self.group: Report | None = None
        """The group of runs in progress; None if there is none."""

    async def until_end(self) -> str | None:
        """Return why the projector has to be killed; None if it ended by itself."""
        assert self._process.stdout is not None
        clock = asyncio.get_running_loop().time
        limits = self._limits
        begin = last = _usage(self._process.pid)
        moved_at = clock()
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    line = await self._process.stdout.readline()
            except TimeoutError:
                usage = _usage(self._process.pid)
                if usage.seconds > last.seconds:
                    moved_at = clock()
                last = usage
                size = self.group.weight if self.group else 0
                work_seconds = limits.work_seconds + PER_MEGABYTE * size / 1e6
                most_bytes = limits.most_bytes + MEMORY_FACTOR * size
                if usage.seconds - begin.seconds > work_seconds:
                    return f"it worked for more than {work_seconds:g} s on one group"
                if usage.bytes - begin.bytes > most_bytes:
                    return f"its memory grew by more than {most_bytes} bytes"
                if clock() - moved_at > limits.still_seconds:
                    return f"it made no progress for more than {limits.still_seconds:g} s"
                continue
            if not line:
                return None
            report = Report(**orjson.loads(line))
            self._counts.add(report)
            self.group = report if report.is_begin else None
            begin = last = _usage(self._process.pid)
            moved_at = clock()


@dataclass(frozen=True)
class _Usage:
    seconds: float
    """The processor time of a process."""
    bytes: int
    """Its resident memory."""


def _usage(pid: int) -> _Usage:
    """Return what a process uses, zero if it has ended."""
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        return _Usage(times.user + times.system, int(process.memory_info().rss))
    except psutil.Error:
        return _Usage(0.0, 0)


async def _end(process: Process, *, is_working: bool) -> None:
    """End a process. If it works on a group of runs, let it finish the group first."""
    try:
        if is_working and process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            await asyncio.wait_for(process.wait(), END_SECONDS)
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


if __name__ == "__main__":
    main()
