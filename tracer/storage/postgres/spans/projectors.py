"""The projectors of a server: processes that the server starts, watches, replaces and ends."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import orjson
import psutil

from tracer.logs import get_logger
from tracer.records.leases import DEFAULT_TERMS, LeaseTerms
from tracer.storage.postgres.spans.projector_process import (
    ProjectorOptions,
    Report,
)

LOOK_SECONDS = 1.0
"""How often a projector that reports nothing is checked, in seconds."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""How many seconds to wait before a projector is started again. The pause doubles until a projector
has projected a run."""

END_SECONDS = 5.0
"""The time, in seconds, in which a projector may finish its group when the server ends."""

_COMMAND = (sys.executable, "-P", "-m", "tracer.storage.postgres.spans.projector_process")

log = get_logger(__name__)


@dataclass
class ProjectionCounts:
    """Counts the work of a server's projectors since it started."""

    runs: int = 0
    failures: int = 0
    """Projections that failed, and projectors that died or were killed while they worked."""

    def add(self, report: Report) -> None:
        """Count what a projector did."""
        if not report.is_begin:
            self.runs += report.runs
            self.failures += report.failures


@dataclass(frozen=True)
class Limits:
    """A projector that exceeds one of these limits between two of its reports is killed."""

    work_seconds: float = 60.0
    """Processor time. `TimeLimits` ends a long projection earlier, if it can be interrupted."""
    still_seconds: float = 60.0
    """Time without any work of the process: it is stopped, or waits for a lock or a dead peer."""
    most_bytes: int = 2 * 2**30
    """Growth of its memory. The largest run, 200,000 spans, needs less."""


@asynccontextmanager
async def projectors(
    url: str,
    number: int = 2,
    terms: LeaseTerms = DEFAULT_TERMS,
    limits: Limits | None = None,
) -> AsyncIterator[ProjectionCounts]:
    """Run projectors during the block, and yield the counts of their work.

    A projector that ends or exceeds a limit is replaced. The attempt to project its runs is
    counted, so a run that repeatedly ends its projector is given up.

    Args:
        url: The Postgres, without a pooler.
        number: How many processes to run.
        terms: How long leases last.
        limits: When to kill a process.
    """
    counts = ProjectionCounts()
    options = ProjectorOptions.of(url, terms)
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
                if usage.seconds - begin.seconds > limits.work_seconds:
                    return f"it worked for more than {limits.work_seconds:g} s on one group"
                if usage.bytes - begin.bytes > limits.most_bytes:
                    return f"its memory grew by more than {limits.most_bytes} bytes"
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
