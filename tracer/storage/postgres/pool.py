"""Connections to Postgres: pools, and what their errors mean."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import orjson
import psycopg
from psycopg import errors
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import PipelineStatus
from psycopg.types.array import ListBinaryDumper
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout
from sqlalchemy.exc import DBAPIError
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from tracer.errors import ConfigurationError, SchemaOutOfDate, StoreUnavailable
from tracer.logs import get_logger
from tracer.store import Refusal

# --- Errors of writes to Postgres: rows that cannot be stored, and conflicts with other writers.

UNSTORABLE = (
    errors.DataError,
    errors.IntegrityError,
    errors.ProgramLimitExceeded,
    errors.StatementTooComplex,
    orjson.JSONEncodeError,
)
"""Errors that a written item causes. Other items of the write may be storable."""

log = get_logger(__name__)

CONFLICTS = (errors.DeadlockDetected, errors.SerializationFailure)


class PartlyWritten(StoreUnavailable):
    """A part of the store does not answer. Check that every worker runs and try again."""

    def __init__(self, written: Set[int], refused: list[Refusal]) -> None:
        """Set the items of a batch that were written although others were not.

        Args:
            written: The indexes of items that were written or finally rejected.
            refused: The refusals of the rejected items.
        """
        super().__init__()
        self.written = written
        self.refused = refused


Item = TypeVar("Item")
Answer = TypeVar("Answer")
Given = ParamSpec("Given")
Numbered = tuple[int, Item]
"""An item of a write, with its index."""


async def write_storable(
    items: list[Numbered[Item]],
    word: str,
    write: Callable[[list[Numbered[Item]]], Awaitable[list[Refusal]]],
) -> list[Refusal]:
    """Write the items that the database can store, and return the refusals.

    Args:
        items: The items.
        word: A word for an item, such as `event`, for messages.
        write: Writes all items that it receives, or none, and returns the refusals. If it fails
            because of an item, it is called again with smaller lists.
    """
    if not items:
        return []
    try:
        return await write(items)
    except UNSTORABLE as error:
        if len(items) == 1:
            return [Refusal(items[0][0], "not_storable", _why_unstorable(error, word))]
    # Some item is not storable: halve the list until that item is alone.
    middle = len(items) // 2
    halves = (items[:middle], items[middle:])
    return [each for half in halves for each in await write_storable(half, word, write)]


def _why_unstorable(error: Exception, word: str) -> str:
    """Return the message for an item that the database cannot store.

    The message does not quote the item, which may contain secrets.

    Args:
        error: One of `UNSTORABLE`.
        word: A word for the item.
    """
    constraint = error.diag.constraint_name if isinstance(error, errors.Error) else None
    rule = f" ({constraint})" if constraint else ""
    return f"The database cannot store the {word}: {type(error).__name__}{rule}."


async def retry_on_conflict(
    transact: Callable[Given, Awaitable[Answer]], *args: Given.args, **kwargs: Given.kwargs
) -> Answer:
    """Run a transaction, and repeat it if it fails because of a conflict with another one."""
    try:
        return await transact(*args, **kwargs)
    except CONFLICTS:  # not within tenacity, which costs as much as a small write
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(CONFLICTS),
            stop=stop_after_attempt(8),
            wait=wait_random_exponential(multiplier=0.01, max=0.5),
            reraise=True,
        )
        return await retrying(transact, *args, **kwargs)


@contextmanager
def postponing_errors(event: str, project_id: int) -> Iterator[None]:
    """End the block if its work fails, so that the projections of this process go on.

    Conflicts with other writers are not logged. The caller repeats the work later.

    Raises:
        psycopg.OperationalError: The database does not answer.
    """
    try:
        yield
    except (*CONFLICTS, errors.LockNotAvailable):
        pass
    except psycopg.OperationalError:
        raise
    except Exception:
        log.exception(event, project_id=project_id)


# --- Connections to Postgres: the pool, and the translation of its errors.

ANSWER_SECONDS = 2.0
"""How long a caller waits for a database that is down."""

READ_SECONDS = 30.0
"""The timeout of reads. A client that waits longer has left."""

READERS = 6
"""How many reads run at once in a process. The others wait for one of them to end."""

_VANISHED = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
"""After about 30 seconds without an answer from the database's machine, a connection is closed.
With TCP's defaults, it would wait for hours."""

INTERVAL = 0.1
"""How often, in seconds, a waiting connection checks whether it was interrupted. Psycopg's
default."""

T = TypeVar("T")

_SCHEMA_ERRORS = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedObject,
    errors.UndefinedFunction,
)
_OUTAGES = (
    errors.OperationalError,  # including the pool's own errors
    errors.InterfaceError,
    TimeoutError,
    errors.ReadOnlySqlTransaction,  # a standby, after a change of roles
    # Limits in the server's settings.
    errors.IdleInTransactionSessionTimeout,
    errors.TransactionTimeout,
    errors.InternalError_,  # so Citus calls it where a worker can't commit
)


class PoolConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """An asynchronous connection of a pool."""

    async def wait(
        self, gen: PQGen[RV], interval: float = INTERVAL, timeout: float | None = None
    ) -> RV:
        """Run one of the driver's generators, and close it if the caller is cancelled."""
        try:
            return await super().wait(gen, interval, timeout)
        finally:
            # At the end of a pipeline the driver leaves it to the garbage collector, which prints
            # the error that the generator raises.
            with suppress(psycopg.Error, RuntimeError):
                gen.close()


SyncConnection = psycopg.Connection[tuple[Any, ...]]


class Readers:
    """Runs reads in worker threads, each over a synchronous connection.

    Each transaction is read-only and sees one snapshot. Threads and connections are started when
    they are first needed.
    """

    def __init__(self, options: Mapping[str, Any], answer_seconds: float) -> None:
        """Set the options of the connections, and how many seconds to wait for one."""
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="reader")
        self._is_down = False
        """Whether the last read that needed a connection got none."""
        self._connections = ConnectionPool(
            kwargs=dict(options),
            connection_class=SyncConnection,
            open=False,
            min_size=0,
            max_size=READERS,
            timeout=answer_seconds,
            reconnect_timeout=answer_seconds,
            configure=_configure_reader,
            num_workers=1,
        )

    async def run(self, read: Callable[[SyncConnection], T]) -> T:
        """Run `read` in a thread and return its result.

        If the caller is cancelled, the query is cancelled too.

        Raises:
            TimeoutError: `read` took longer than `READ_SECONDS`.
        """
        lent: list[SyncConnection] = []
        is_cancelled = threading.Event()
        # Held to cancel, so that the connection cannot be lent to another read meanwhile.
        lock = threading.Lock()
        asked_at = time.monotonic()

        def run() -> T:
            # In an outage, reads that waited for a thread do not wait as long again for a
            # connection. If the last one got a connection, the threads were only busy.
            waited = time.monotonic() - asked_at if self._is_down else 0.0
            seconds = max(self._connections.timeout - waited, INTERVAL)
            try:
                connection = self._live_connection(seconds)
            except PoolTimeout:
                self._is_down = True
                raise
            self._is_down = False
            try:
                with lock:
                    if is_cancelled.is_set():
                        raise InterruptedError
                    lent.append(connection)
                return read(connection)
            finally:
                with lock:
                    lent.clear()
                self._connections.putconn(connection)

        def cancel() -> None:
            with lock:
                is_cancelled.set()
                for connection in lent:
                    _end(connection)

        loop = asyncio.get_running_loop()
        async with asyncio.timeout(READ_SECONDS):
            try:
                return await loop.run_in_executor(self._threads, run)
            except asyncio.CancelledError:
                loop.run_in_executor(None, cancel)  # not awaited
                raise

    def _live_connection(self, seconds: float) -> SyncConnection:
        """Return a connection that the server has not closed; wait at most `seconds` for it."""
        self._connections.open()
        while True:
            connection = self._connections.getconn(seconds)
            if not _has_unread_data(connection):
                return connection
            connection.close()
            self._connections.putconn(connection)

    def close(self) -> None:
        """Wait for the reads that are running, and close the connections."""
        self._threads.shutdown(cancel_futures=True)
        self._connections.close()


def _end(connection: SyncConnection) -> None:
    """Cancel the query that another thread runs over `connection`, and shut down its socket."""
    with suppress(psycopg.Error, OSError):
        connection.cancel_safe(timeout=ANSWER_SECONDS)
    # The driver's `close` would free memory that the other thread uses.
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


class Pool(AsyncConnectionPool[PoolConnection]):
    """A pool of connections for writers, with threads that read beside it.

    So slow searches take no connection from writers and from the lookup of keys.
    """

    options: Mapping[str, Any]
    """The options of its connections, from `connection_options`."""
    readers: Readers
    """The threads that read, with connections of their own."""
    connect_failure: BaseException | None = None
    """The error of the last attempt to connect. Set only if the pool is quiet."""
    _returned = 0
    """How many working connections were returned."""

    async def close(self, timeout: float = 5.0) -> None:
        """Close all connections."""
        await super().close(timeout)
        await asyncio.to_thread(self.readers.close)

    async def getconn(self, timeout: float | None = None) -> PoolConnection:
        """Return a connection. If none can be opened, the error has the reason as its cause.

        While other callers return working connections, the pool is busy and the database answers.
        Then this method waits on. The caller limits the time.
        """
        while True:
            returned = self._returned
            try:
                return await super().getconn(timeout)
            except PoolTimeout as error:
                if returned == self._returned:
                    raise error from self.connect_failure

    async def putconn(self, conn: PoolConnection) -> None:
        """Return a connection to the pool."""
        self._returned += not conn.closed
        await super().putconn(conn)


def libpq_url(url: str) -> str:
    """Return a database's address for libpq, without SQLAlchemy's `+driver`."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"


def _seconds(answer_seconds: float | None) -> float:
    return ANSWER_SECONDS if answer_seconds is None else answer_seconds


def connection_options(url: str, answer_seconds: float | None = None) -> dict[str, Any]:
    """Return the arguments with which psycopg connects to the database at `url`.

    Args:
        url: See `open_pool`.
        answer_seconds: See `open_pool`.

    Raises:
        ConfigurationError: `url` is no address of a Postgres.
    """
    try:
        url_options = conninfo_to_dict(libpq_url(url))
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(
            "The database's address cannot be parsed. Write it as "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
        ) from error
    defaults = {
        "connect_timeout": max(1, round(_seconds(answer_seconds))),
        "application_name": "tracer",
        **_VANISHED,
    }
    return {**defaults, **url_options, "autocommit": True}


def open_pool(
    url: str,
    *,
    max_size: int = 10,
    answer_seconds: float | None = None,
    has_sessions: bool = True,
    is_quiet: bool = False,
) -> Pool:
    """Return a pool of connections to the database at `url`, to be entered with `async with`.

    The pool opens even if the database does not run, and connects when the database is available.

    Args:
        url: `postgresql://…` or `postgres://…`, with SQLAlchemy's `+psycopg` or without.
        max_size: The most connections that are open at once.
        answer_seconds: How long to wait for a connection before the store counts as unavailable;
            None: `ANSWER_SECONDS`.
        has_sessions: Whether a connection has the same backend from one transaction to the next.
            This is false behind a transaction-mode PgBouncer. Statements are then not prepared.
        is_quiet: Whether the pool does not log each failed attempt to connect. A recorder logs
            one line for an outage.

    Raises:
        ConfigurationError: `url` is no address of a Postgres.
    """
    answer_seconds = _seconds(answer_seconds)
    options = connection_options(url, answer_seconds)
    kwargs = {**options, **({} if has_sessions else {"prepare_threshold": None})}
    pool = Pool(
        kwargs=kwargs,
        connection_class=PoolConnection,
        open=False,
        min_size=1,
        max_size=max_size,
        timeout=answer_seconds,
        # Giving up early lets the next caller try afresh, rather than wait out a long back-off.
        reconnect_timeout=answer_seconds,
        configure=_configure,
        # With a reset of its own the pool takes connections back in a task of its own: a caller
        # that is cancelled, perhaps twice, cannot lose one on the way.
        reset=_leave_pipeline,
    )
    pool.options = options
    pool.readers = Readers(kwargs, answer_seconds)
    if is_quiet:
        _quiet_pools[pool.name] = pool
    return pool


_quiet_pools: WeakValueDictionary[str, Pool] = WeakValueDictionary()


def _is_logged(record: logging.LogRecord) -> bool:
    """Return whether a log record of psycopg_pool is logged.

    Failed connection attempts of a quiet pool are not logged. Their reason is stored in
    `connect_failure`.
    """
    if not record.msg.startswith(("error connecting in", "reconnection attempt in")):
        return True
    name, *rest = record.args if isinstance(record.args, tuple) else ("",)
    pool = _quiet_pools.get(str(name))
    if pool is None:
        return True
    pool.connect_failure = next(
        (each for each in rest if isinstance(each, psycopg.Error)), pool.connect_failure
    )
    return False


logging.getLogger("psycopg.pool").addFilter(_is_logged)


def open_sync_connection(options: Mapping[str, Any]) -> SyncConnection:
    """Return a new connection for a thread or a process without an event loop.

    Args:
        options: As `connection_options` returns them.
    """
    connection = psycopg.connect(**options)
    _configure_sync(connection)
    return connection


def _configure_reader(connection: SyncConnection) -> None:
    _configure_sync(connection)
    connection.read_only = True
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ


def _configure_sync(connection: SyncConnection) -> None:
    connection.adapters.register_dumper(list, ListBinaryDumper)  # see `_configure`
    connection.execute("SET TIME ZONE 'UTC'")


@contextmanager
def sync_connection(options: Mapping[str, Any]) -> Iterator[SyncConnection]:
    """Yield a new synchronous connection, and close it at the end."""
    with open_sync_connection(options) as connection:
        yield connection


@asynccontextmanager
async def pooled_connection(
    pool: Pool, seconds: float | None = READ_SECONDS
) -> AsyncIterator[PoolConnection]:
    """Yield a connection. Changes that are not committed at the end are rolled back.

    Args:
        pool: The pool of the connection.
        seconds: How long the connection may be used; None: unlimited.

    Raises:
        TimeoutError: `seconds` have passed. A database may stop answering without closing its
            connections.
    """
    async with asyncio.timeout(seconds):
        connection = await _live_connection(pool)
        try:
            yield connection
        except errors.ReadOnlySqlTransaction:
            # The primary may be another server now, which only a new connection reaches.
            await connection.close()
            raise
        finally:
            await pool.putconn(connection)


async def cancel_until_done(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks that use a pool, and return when all of them have ended.

    A single cancellation may be lost, so it is repeated. psycopg_pool waits with
    `asyncio.wait_for`, which in Python 3.11 returns normally if a connection becomes free at the
    moment of the cancellation.
    """
    remaining = set(tasks)
    while remaining:
        for task in remaining:
            task.cancel()
        _, remaining = await asyncio.wait(remaining, timeout=1)


async def _live_connection(pool: Pool) -> PoolConnection:
    # Not by the pool's own check: that waits for seconds between one dead connection and the
    # next, and after a restart of the server all of them are dead.
    while True:
        connection = await pool.getconn()
        try:
            if not _has_unread_data(connection) or await _answers(connection):
                return connection
        except BaseException:
            await pool.putconn(connection)
            raise
        await pool.putconn(connection)


@contextmanager
def store_errors() -> Iterator[None]:
    """Translate the errors of Postgres, its driver and the pool.

    Raises:
        StoreUnavailable: The database does not answer, or failed while it executed the statement.
        SchemaOutOfDate: The database lacks a table or a column.
    """
    try:
        yield
    except DBAPIError as error:
        if isinstance(error.orig, _SCHEMA_ERRORS):
            raise SchemaOutOfDate() from error
        if isinstance(error.orig, _OUTAGES):
            raise _unavailable(error.orig) from error
        raise
    except _SCHEMA_ERRORS as error:
        raise SchemaOutOfDate() from error
    except _OUTAGES as error:
        raise _unavailable(error) from error


def _unavailable(error: BaseException | None) -> StoreUnavailable:
    """Return the error for an outage. The message quotes no values of rows: they may be secret."""
    match error:
        case TimeoutError():
            problem = "the database did not answer in time"
        case errors.ReadOnlySqlTransaction():
            problem = "the database is read-only"
        case errors.DiskFull():
            problem = "the database's disk is full"
        case PoolTimeout(__cause__=psycopg.Error() as cause):
            # The reason names the host and the user, never the password.
            reason = str(cause).partition("\n")[0].rpartition("failed: ")[2].strip()
            problem = f"the database does not answer: {reason[:200]}"
        case psycopg.Error(sqlstate=str(code)):
            problem = f"the database reports {type(error).__name__} (SQLSTATE {code})"
        case _:
            problem = "the database does not answer"
    return StoreUnavailable(
        problem=problem,
        what_to_do="Check that the database runs and that TRACER_DATABASE_URL is its address.",
    )


async def _configure(connection: PoolConnection) -> None:
    # The driver's default is text, in which each element is searched for characters to quote. For
    # bytes that takes eight times as long, and Postgres has to parse hexadecimal. A binary list has
    # a type: a list of `str` is `text[]`, and needs a cast to be compared with other types.
    connection.adapters.register_dumper(list, ListBinaryDumper)
    await connection.execute("SET TIME ZONE 'UTC'")


def _has_unread_data(connection: PoolConnection | SyncConnection) -> bool:
    """Return whether an idle connection has unread data: usually the server has closed it.

    The socket is polled, because a query would cost a round trip for each use of a connection.
    """
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLHUP)
    return bool(poll.poll(0))


async def _answers(connection: PoolConnection) -> bool:
    try:
        await connection.execute("")
    except psycopg.OperationalError:
        return False
    return True


async def _leave_pipeline(connection: PoolConnection) -> None:
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        await connection.close()
