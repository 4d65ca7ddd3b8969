"""A projector: a loop that turns the pending spans of all projects into records.

`tracer serve` runs it in processes (`python -m tracer.storage.postgres.spans.projector_process`),
and `tracer projector` in its own. A process of a server reads one line of JSON from standard input
(`ProjectorOptions`) and ends when standard input is closed. It writes one line of JSON (`Report`)
to standard output when it begins a group of runs, and after each look for due runs.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Self
from uuid import UUID

import orjson
import psycopg

from tracer.logs import configure_logs, get_logger
from tracer.records.leases import LeaseTerms
from tracer.storage.postgres.connection.notifications import LOOK_NOW, PENDING_CHANNEL
from tracer.storage.postgres.connection.pool import (
    SyncConnection,
    connection_options,
    sync_connection,
)
from tracer.storage.postgres.spans.projector import Projector, TimeLimits

PRIORITY = 10
"""How much nicer a projector process is than the server (see `nice`), so that requests have
priority."""

QUIET_SECONDS = 0.1
"""How long a projector waits after it is notified of new spans: their run is not due earlier."""

LOOK_SECONDS = 1.0
"""A projector looks for due runs at least this often, because a notification may get lost."""

MOST_BLOCKED = 6
"""How many times the pause is doubled while other projectors have claimed all due runs."""

STABLE_SECONDS = 10.0
"""If a projector has worked for this long before it fails, its count of consecutive failures
restarts."""

RETRY_SECONDS = (0, 0.1, 0.5, 1, 2, 5)
"""The pauses after consecutive failures, for example while the database is down."""

_JOIN = "SET application_name TO 'tracer projector'"

log = get_logger("tracer.storage.postgres.spans.projector_process")  # as a process it is `__main__`


@dataclass(frozen=True)
class ProjectorOptions:
    """The parameters of a projector."""

    database_url: str
    """The database's URL, without a pooler: claims and notifications need a session."""
    lease_seconds: float
    span_idle_seconds: float

    @classmethod
    def of(cls, url: str, terms: LeaseTerms) -> Self:
        """Return the parameters of a projector for a database, with the lengths of leases."""
        return cls(url, terms.lease.total_seconds(), terms.span_idle.total_seconds())

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
    projector = Projector(
        connection,
        terms=options.terms,
        on_begin=lambda runs: report(_beginning(runs)),
        limits=limits,
    )
    blocked = 0
    while not _readable([end], 0):
        done = projector.project_due()
        report(Report(False, done.projected, None, done.failures))
        if done.projected or done.failures:
            blocked = 0
            continue
        pause = LOOK_SECONDS if done.next_due_in is None else done.next_due_in
        if pause <= 0:  # another projector has the runs that are due
            pause = QUIET_SECONDS * 2**blocked
            blocked += blocked < MOST_BLOCKED
        else:
            blocked = 0
        _wait_for_work(connection, end, min(pause, LOOK_SECONDS))


def _beginning(runs: Sequence[UUID]) -> Report:
    return Report(True, len(runs), str(runs[0]) if len(runs) == 1 else None)


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


def _wait_for_work(connection: SyncConnection, end: int, seconds: float) -> None:
    """Return when a run may be due, or `end` is readable.

    Args:
        connection: A connection that listens for accepted runs.
        end: See `keep_projecting`.
        seconds: The longest wait.
    """
    until = time.monotonic() + seconds
    is_over = False
    while not is_over and (rest := until - time.monotonic()) > 0:
        messages = {each.payload for each in connection.notifies(timeout=0)}
        if LOOK_NOW in messages:
            return
        if messages:
            rest = min(rest, QUIET_SECONDS)
            until = time.monotonic() + rest
        is_over = end in _readable([connection.fileno(), end], rest)


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


if __name__ == "__main__":
    main()
