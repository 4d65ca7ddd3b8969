"""The projectors of a server: processes that the server starts, watches and ends, or one thread."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Literal

import orjson
import psutil
import psycopg

from tracer.logs import get_logger
from tracer.records.leases import DEFAULT_TERMS, LeaseTerms
from tracer.storage.postgres.connection.pool import connection_options, sync_connection
from tracer.storage.postgres.spans.projector import Projector, ProjectRunKey
from tracer.storage.postgres.spans.projector_process import (
    ProjectorOptions,
    Report,
    keep_projecting,
    read_run_in_progress,
)

GROUP_SECONDS = 60.0
"""The longest time, in seconds, that one group of runs may take."""

MOST_BYTES = 2 * 2**30
"""By how many bytes the memory of a projector may grow while it works on one group. The largest
run, 200,000 spans, needs less."""

LOOK_SECONDS = 0.6
"""How often a working projector is checked, in seconds.

If a projector has worked on one group for this long, a replacement is started: another process,
which projects the other runs. So a bad run does not delay other runs for longer. A run in a larger
group is stopped earlier, by `TimeLimits.in_group`.
"""

STAND_IN_SECONDS = 60.0
"""How long a replacement continues after its projector has reported again, because large runs often
recur."""

SPARE_SECONDS = 1.0
"""How many seconds after a projector has begun the next spare process is started. A start takes a
second of processor time, which the projector needs first."""

NOTE_MILLISECONDS = 1000
"""The longest time for recording a failed attempt. It delays the start of the next projector."""

MOST_STAND_INS = 4
"""The most replacements at the same time, so that bad runs cannot start processes without end."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""How many seconds to wait before a projector is started again. The pause doubles until a projector
has projected a run."""

END_SECONDS = 5.0
"""The time, in seconds, in which a projector may finish its group when the server ends."""

THREAD: Literal["thread"] = "thread"

_COMMAND = (sys.executable, "-P", "-m", "tracer.storage.postgres.spans.projector_process")

log = get_logger(__name__)


@dataclass
class ProjectionCounts:
    """Counts the work of a server's projectors since it started."""

    runs: int = 0
    failures: int = 0
    """Projections that failed, and projectors that died or were killed while they worked."""
    seconds: float = 0.0

    def add(self, report: Report) -> None:
        """Count what a projector did."""
        if not report.is_begin:
            self.runs += report.runs
            self.failures += report.failures
            self.seconds += report.seconds


@dataclass(frozen=True)
class Limits:
    """The limits of time and memory above which a projector is killed."""

    group_seconds: float = GROUP_SECONDS
    most_bytes: int = MOST_BYTES


@asynccontextmanager
async def projectors(
    url: str,
    number: int | Literal["thread"] | None = None,
    terms: LeaseTerms = DEFAULT_TERMS,
    limits: Limits | None = None,
) -> AsyncIterator[ProjectionCounts]:
    """Run projectors during the block, and yield the counts of their work.

    A projector that ends is replaced. A projector that takes too long or too much memory is killed,
    and a failed attempt is counted for the runs that it worked on.

    Args:
        url: The Postgres, without a pooler.
        number: How many processes to run, or `"thread"` for one thread of this process. None: one
            process less than the usable cores, but at least one and at most two.
        terms: How long leases last.
        limits: When to kill a process.
    """
    counts = ProjectionCounts()
    if number is None:
        number = max(1, min(2, int(usable_cores()) - 1))
    options = ProjectorOptions(
        url,
        terms.lease.total_seconds(),
        terms.span_idle.total_seconds(),
        1 if number == THREAD else number,
    )
    if number == THREAD:
        async with _in_thread(options, counts):
            yield counts
        return
    if number == 0:
        yield counts
        return
    processes = _Processes(options, counts, limits or Limits())
    tasks = [
        asyncio.create_task(processes.keep_running(), name=f"tracer-projector-{each}")
        for each in range(number)
    ]
    try:
        yield counts
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await processes.close()


def usable_cores(
    groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> float:
    """Return how many cores this process may use, by its affinity and the limits of its cgroups.

    Args:
        groups: The directory in which cgroups (version 2) are mounted.
        own: The file that names the cgroup of this process.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = float(len(os.sched_getaffinity(0)))
    else:
        cores = float(os.cpu_count() or 1)
    with suppress(OSError):
        for line in own.read_text().splitlines():
            if line.startswith("0::/"):
                group = groups / line.removeprefix("0::/")
                for each in (group, *group.parents):
                    if each.is_relative_to(groups):
                        cores = min(cores, _quota(each / "cpu.max"))
    return cores


def _quota(file: Path) -> float:
    """Return how many cores a file `cpu.max` allows."""
    try:
        quota, _, period = file.read_text().partition(" ")
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max"
        return float("inf")


@asynccontextmanager
async def _in_thread(options: ProjectorOptions, counts: ProjectionCounts) -> AsyncIterator[None]:
    end, ending = os.pipe()
    # A daemon: a run that takes longer than a server waits must not keep the process alive.
    thread = threading.Thread(
        target=keep_projecting,
        args=(options, end, counts.add),
        name="tracer-projector",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        os.close(ending)
        await asyncio.to_thread(thread.join, END_SECONDS)
        if not thread.is_alive():
            os.close(end)


# --- Processes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Projector:
    """A projector process. A spare one waits until the server sends its options, then projects."""

    process: Process
    progress: IO[bytes]
    """The file that contains the run in progress."""


class _Processes:
    """The projectors of a server, and a spare process that has started and waits for its options.

    Starting a process takes more than a second of processor time. With a spare, no run waits for
    it.
    """

    def __init__(self, options: ProjectorOptions, counts: ProjectionCounts, limits: Limits) -> None:
        self._options = options
        self._counts = counts
        self._limits = limits
        self._spare: asyncio.Task[_Projector] | None = None
        self._stand_ins: set[asyncio.Task[None]] = set()

    async def keep_running(self) -> None:
        """Run a projector, and start another one each time it ends."""
        pause = FIRST_PAUSE
        while True:
            before = self._counts.runs
            await self._run_or_log()
            if self._counts.runs > before:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def close(self) -> None:
        """End the replacements and the spare process."""
        for stand_in in self._stand_ins:
            stand_in.cancel()
        if self._stand_ins:
            await asyncio.wait(self._stand_ins)
        if self._spare is not None:
            self._spare.cancel()  # unless it has started
            with suppress(OSError, asyncio.CancelledError):
                await _end(await self._spare)

    async def _take(self) -> _Projector:
        """Return a started process, and start the next spare."""
        spare, self._spare = self._spare, None
        projector = await (spare or asyncio.create_task(_start()))
        if self._spare is None:
            self._spare = asyncio.create_task(_start(SPARE_SECONDS))
        return projector if projector.process.returncode is None else await self._take()

    async def _run_or_log(self) -> None:
        try:
            await self._run()
        except OSError as error:  # such as no memory for another process
            log.error("projector_not_started", error=str(error))

    async def _run(self) -> None:
        """Run one projector until it ends or has to be killed."""
        projector = await self._take()
        process = projector.process
        try:
            assert process.stdin is not None
            options = replace(self._options, progress=projector.progress.fileno())
            process.stdin.write(orjson.dumps(options, option=orjson.OPT_APPEND_NEWLINE))
            working, reason = await self._watch(process)
            if reason is not None:
                process.kill()
            code = await process.wait()
            run = read_run_in_progress(projector.progress.fileno())
        finally:
            await _end(projector)
        if working is not None:
            self._counts.failures += 1
        log.warning(
            "projector_ended",
            reason=reason or "it ended by itself",
            exit_code=code,
            runs=working.runs if working else 0,
            root_plan_id=str(run.root_plan_id) if run else working and working.root_plan_id,
        )
        if run is not None:
            await asyncio.to_thread(_note_end, self._options, run)

    async def _watch(self, process: Process) -> tuple[Report | None, str | None]:
        """Read what a projector reports until it ends or has to be killed.

        Returns:
            The group of runs in progress (None if idle), and why the projector has to be killed
            (None if it ended by itself).
        """
        assert process.stdout is not None
        loop = asyncio.get_running_loop()
        working: Report | None = None
        stand_in: asyncio.Task[None] | None = None
        ending: asyncio.TimerHandle | None = None
        since, size = 0.0, 0
        try:
            while True:
                try:
                    async with asyncio.timeout(LOOK_SECONDS if working else None):
                        line = await process.stdout.readline()
                except TimeoutError:
                    if loop.time() - since > self._limits.group_seconds:
                        seconds = self._limits.group_seconds
                        return working, f"it took more than {seconds:g} s for one group"
                    if _memory(process.pid) - size > self._limits.most_bytes:
                        most = self._limits.most_bytes
                        return working, f"its memory grew by more than {most} bytes"
                    if ending is not None:
                        ending.cancel()
                        ending = None
                    if stand_in is None or stand_in.done():
                        stand_in = self._start_stand_in()
                    continue
                if not line:
                    return working, None
                report = Report(**orjson.loads(line))
                self._counts.add(report)
                working = report if report.is_begin else None
                since, size = loop.time(), _memory(process.pid)
                if stand_in is not None and ending is None:
                    ending = loop.call_later(STAND_IN_SECONDS, stand_in.cancel)
        finally:
            if ending is not None:
                ending.cancel()
            if stand_in is not None:
                stand_in.cancel()

    def _start_stand_in(self) -> asyncio.Task[None] | None:
        """Start a replacement for a busy projector, and return its task.

        Return None if there are `MOST_STAND_INS` replacements already.
        """
        if len(self._stand_ins) >= MOST_STAND_INS:
            return None
        stand_in = asyncio.create_task(self._run_or_log())
        self._stand_ins.add(stand_in)
        stand_in.add_done_callback(self._stand_ins.discard)
        return stand_in


async def _start(pause: float = 0.0) -> _Projector:
    """Start a process after some seconds."""
    await asyncio.sleep(pause)
    progress = TemporaryFile()  # noqa: SIM115 - `_end` closes it
    try:
        process = await asyncio.create_subprocess_exec(
            *_COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=[progress.fileno()],
            start_new_session=True,  # Ctrl-C ends the server, which ends this
        )
    except BaseException:
        progress.close()
        raise
    return _Projector(process, progress)


def _note_end(options: ProjectorOptions, run: ProjectRunKey) -> None:
    """Record a failed attempt for a run whose projection ended a projector.

    Give up if the database does not answer within `NOTE_MILLISECONDS`.
    """
    with (
        suppress(psycopg.OperationalError),
        sync_connection(connection_options(options.database_url)) as connection,
    ):
        connection.execute(f"SET statement_timeout = {NOTE_MILLISECONDS}")
        Projector(connection, terms=options.terms).note_end(run)


def _memory(pid: int) -> int:
    """Return the resident memory of a process in bytes, 0 if it has ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


async def _end(projector: _Projector) -> None:
    """End a process: close its input, then send SIGTERM, then SIGKILL, until it ends."""
    process = projector.process
    try:
        assert process.stdin is not None
        process.stdin.close()
        for seconds, next_step in ((END_SECONDS, process.terminate), (1.0, process.kill)):
            try:
                async with asyncio.timeout(seconds):
                    await process.wait()
                return
            except TimeoutError:
                next_step()
        await process.wait()
    finally:
        projector.progress.close()
        if process.returncode is None:
            process.kill()
