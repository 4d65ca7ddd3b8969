"""Connections to Postgres: the pool, and what its errors mean."""

from __future__ import annotations

import asyncio
import logging
import select
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import psycopg
from psycopg import errors, waiting
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import PipelineStatus
from psycopg.types.array import ListBinaryDumper
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from sqlalchemy.exc import DBAPIError

from tracer.errors import ConfigurationError, SchemaOutOfDate, StoreUnavailable

ANSWER_SECONDS = 2.0
"""How long a database that is down may keep a caller waiting."""

READ_SECONDS = 30.0
"""How long reading may take: whoever waits longer has gone."""

LEFT_BY_READERS = 0.4
"""The part of a pool that those who read leave to others: a few slow searches at once would keep
everybody from recording, and their keys from being looked up."""

_VANISHED = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
"""After how long a machine that says nothing at all counts as gone: TCP alone waits for hours."""

PIECES = 4
"""After how many pieces it pays to hand over to a thread."""

INTERVAL = 0.1
"""psycopg's own: after how many seconds without an answer it looks whether it was given up."""

_SCHEMA_ERRORS = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedObject,
    errors.UndefinedFunction,
)
_OUTAGES = (
    errors.OperationalError,  # the pool's own errors included
    errors.InterfaceError,
    TimeoutError,
    errors.ReadOnlySqlTransaction,  # a standby, after a change of roles
    # What the server's own settings may forbid.
    errors.IdleInTransactionSessionTimeout,
    errors.TransactionTimeout,
    errors.InternalError_,  # so Citus calls it where a worker can't commit
)


@dataclass(frozen=True)
class _Unfinished:
    """What a generator waits for that has more to take in."""

    state: waiting.Wait


class PoolConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection whose large answers are taken in by a thread.

    They come in pieces of 16 kB at most. To wait for one costs the event loop more than taking it
    in; in a thread it is one call of the system.
    """

    async def wait(
        self, gen: PQGen[RV], interval: float = INTERVAL, timeout: float | None = None
    ) -> RV:
        """Carry out what the driver does, as its own `wait`."""
        try:
            return await self._carry_out(gen, interval, timeout)
        finally:
            # Left to the garbage collector, who is cancelled at the end of a pipeline leaves words
            # on the error output: of a connection that was closed, or of one still being asked.
            with suppress(psycopg.Error, RuntimeError):
                gen.close()

    async def _carry_out(self, gen: PQGen[RV], interval: float, timeout: float | None) -> RV:
        done = await super().wait(_begin(gen), interval, timeout)
        if not isinstance(done, _Unfinished):
            return done
        given_up = threading.Event()
        rest = asyncio.ensure_future(
            asyncio.to_thread(
                waiting.wait, _rest(gen, done.state, given_up), self.pgconn.socket, interval
            )
        )
        try:
            await asyncio.wait([rest])
        except asyncio.CancelledError:
            ending = asyncio.create_task(self._end(rest, given_up))
            while not ending.done():  # nobody else may touch the connection meanwhile
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([ending])
            raise
        return rest.result()

    async def _end(self, rest: asyncio.Future[Any], given_up: threading.Event) -> None:
        """End what a thread takes in, with the connection where Postgres does not answer."""
        with suppress(psycopg.Error):
            await self.cancel_safe(timeout=ANSWER_SECONDS)
        await asyncio.wait([rest], timeout=ANSWER_SECONDS)
        if not rest.done():
            given_up.set()
            await asyncio.wait([rest])
            self.pgconn.finish()
        rest.exception()  # nobody asks for it


class Pool(AsyncConnectionPool[PoolConnection]):
    """A pool whose readers leave some connections to those who write."""

    options: Mapping[str, Any]
    """What its connections are opened with: `connection_options`."""
    connect_failure: BaseException | None = None
    """The error of the last attempt to connect. Set only if the pool is quiet."""

    async def getconn(self, timeout: float | None = None) -> PoolConnection:
        """Lend a connection. If none can be opened, the error's cause is the reason."""
        try:
            return await super().getconn(timeout)
        except PoolTimeout as error:
            raise error from self.connect_failure

    @cached_property
    def turns_to_read(self) -> asyncio.Semaphore:
        """As many as may read at once."""
        return asyncio.Semaphore(self.max_size - int(self.max_size * LEFT_BY_READERS))


def _begin(gen: PQGen[RV]) -> PQGen[RV | _Unfinished]:
    """Go on with a generator until it is done, or has taken in some pieces."""
    pieces = 0
    try:
        state = next(gen)
        while pieces < PIECES:
            ready = yield state
            pieces += ready == waiting.READY_R
            state = gen.send(ready)
    except StopIteration as end:
        done: RV = end.value
        return done
    return _Unfinished(state)


def _rest(gen: PQGen[RV], state: waiting.Wait, given_up: threading.Event) -> PQGen[RV]:
    """Go on with a generator that waits for `state` until it is done.

    Raises:
        InterruptedError: It was given up.
    """
    try:
        while True:
            ready = yield state
            if given_up.is_set():
                raise InterruptedError
            state = gen.send(ready)
    except StopIteration as end:
        done: RV = end.value
        return done


def libpq_url(url: str) -> str:
    """Return a database's address as libpq reads it: SQLAlchemy's `+driver` is not for it."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"


def connection_options(url: str, answer_seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    """Return what psycopg is given to connect to the database at `url`.

    Raises:
        ConfigurationError: `url` is no address of a Postgres.
    """
    try:
        given = conninfo_to_dict(libpq_url(url))
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(
            "The database's address can't be read: write it as "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
        ) from error
    defaults = {
        "connect_timeout": max(1, round(answer_seconds)),
        "application_name": "tracer",
        **_VANISHED,
    }
    return {**defaults, **given, "autocommit": True}


def open_pool(
    url: str,
    *,
    max_size: int = 10,
    answer_seconds: float = ANSWER_SECONDS,
    has_sessions: bool = True,
    is_quiet: bool = False,
) -> Pool:
    """Return a pool of connections to the database at `url`, to be entered with `async with`.

    It opens whether or not the database runs, and recovers by itself when that comes back.

    Args:
        url: `postgresql://…` or `postgres://…`, with SQLAlchemy's `+psycopg` or without.
        max_size: The most connections that are open at once.
        answer_seconds: How long to wait for a connection before the store counts as unavailable.
        has_sessions: Whether a connection is to the same backend from one transaction to the next.
            Behind PgBouncer it may not be, and then nothing is prepared.
        is_quiet: Whether the pool does not log each failed attempt to connect. A recorder logs
            one line for an outage.

    Raises:
        ConfigurationError: `url` is no address of a Postgres.
    """
    pool = Pool(
        kwargs={
            **connection_options(url, answer_seconds),
            **({} if has_sessions else {"prepare_threshold": None}),
        },
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
    pool.options = connection_options(url, answer_seconds)
    if is_quiet:
        _quiet_pools[pool.name] = pool
    return pool


_quiet_pools: WeakValueDictionary[str, Pool] = WeakValueDictionary()


def _is_logged(record: logging.LogRecord) -> bool:
    """Return whether a line of the pool is logged. Keep the reason that it contains."""
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


SyncConnection = psycopg.Connection[tuple[Any, ...]]


def open_sync_connection(options: Mapping[str, Any]) -> SyncConnection:
    """Return a new connection for a thread or a process without an event loop.

    Args:
        options: As `connection_options` returns them.
    """
    connection = psycopg.connect(**options)
    connection.adapters.register_dumper(list, ListBinaryDumper)
    connection.execute("SET TIME ZONE 'UTC'")
    return connection


@contextmanager
def sync_connection(options: Mapping[str, Any]) -> Iterator[SyncConnection]:
    """Lend the same, and close it at the end."""
    with open_sync_connection(options) as connection:
        yield connection


@asynccontextmanager
async def borrowed(
    pool: Pool, seconds: float | None = READ_SECONDS
) -> AsyncIterator[PoolConnection]:
    """Lend a connection; what is not committed at the end is rolled back.

    Args:
        pool: Whose connection to lend.
        seconds: How long it may be used; None: as long as it takes.

    Raises:
        TimeoutError: The time was over. A database may stop answering without closing anything.
    """
    async with asyncio.timeout(seconds):
        connection = await _live_connection(pool)
        try:
            yield connection
        except errors.ReadOnlySqlTransaction:
            # What is written to may be elsewhere by now, or only for who connects anew.
            await connection.close()
            raise
        finally:
            await pool.putconn(connection)


@asynccontextmanager
async def borrowed_to_read(pool: Pool) -> AsyncIterator[PoolConnection]:
    """Lend a connection to somebody who reads, who leaves some to those who write.

    Raises:
        TimeoutError: Others read for as long as one may wait, or the time was over.
    """
    turns = pool.turns_to_read
    async with asyncio.timeout(pool.timeout if turns.locked() else None):
        await turns.acquire()
    try:
        async with borrowed(pool) as connection:
            yield connection
    finally:
        turns.release()


async def cancel_until_done(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks that use a pool, and return when all of them have ended.

    One cancellation may be lost: psycopg_pool waits with `asyncio.wait_for`, which in Python 3.11
    returns normally if a connection becomes free in the moment of the cancellation.
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
            if not _has_news(connection) or await _answers(connection):
                return connection
        except BaseException:
            await pool.putconn(connection)
            raise
        await pool.putconn(connection)


@contextmanager
def store_errors() -> Iterator[None]:
    """Translate what Postgres, its driver and the pool raise.

    Raises:
        StoreUnavailable: The database does not answer, or failed meanwhile.
        SchemaOutOfDate: It lacks a table or a column.
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
    """Return the error for an outage. It quotes no values of rows: they may be secret."""
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
    # As text, the driver's default, each element is searched for what has to be quoted: for bytes
    # that takes eight times as long, and Postgres reads them back from hexadecimal. In binary a
    # list has a type: one of `str` is `text[]`, and is compared with text only, or needs a cast.
    connection.adapters.register_dumper(list, ListBinaryDumper)
    await connection.execute("SET TIME ZONE 'UTC'")


def _has_news(connection: PoolConnection) -> bool:
    """Return whether an idle connection has something to say: that the server closed it, mostly.

    Asking the server each time would cost every use a round trip.
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
