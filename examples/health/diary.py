"""The diary: what users measured, take, feel and went through, in tables of the application's own.

An entry belongs to one user. Each method takes whose it is, and touches no other's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg.sql import Composed
from psycopg_pool import AsyncConnectionPool

from health.arguments import Clock
from health.tables import SCHEMA, Table, insert, select, update
from tracer import (
    ConfigurationError,
    InvalidArguments,
    StoreUnavailable,
    Surroundings,
    ToolError,
    ToolUnavailable,
)

Entry = dict[str, Any]
"""One row of the diary, as a tool returns it: without whose it is."""

ANSWER_SECONDS = 10.0
"""How long a tool waits for a connection before it gives up."""

SCHEMA_LOCK = 4_861_001
"""Any number that the processes agree on: `IF NOT EXISTS` alone fails when two create at once."""

_OUTAGES = (psycopg.OperationalError, psycopg.InterfaceError)


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - tests pass another clock


class NoSuchRecord(ToolError):
    """The diary has no such record. Query it, and use a record_id from there."""

    reason = "no_such_record"


class Diary:
    """The diary's tables: closed when made, usable while `open` is entered.

    Args:
        clock: Returns the time of entries that have none of their own.
        answer_seconds: How long to wait for a connection before reporting that the database does
            not answer.
    """

    def __init__(self, clock: Clock = _now, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.clock = clock
        self._answer_seconds = answer_seconds
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[DictRow]] | None = None

    @asynccontextmanager
    async def open(self, surroundings: Surroundings) -> AsyncIterator[None]:
        """Create the tables where they are missing, and keep a small pool while inside.

        Args:
            surroundings: The Postgres that holds the diary.

        Raises:
            ConfigurationError: There is none.
            StoreUnavailable: It does not answer.
        """
        if self._pool is not None:
            raise RuntimeError("The diary is open already: open it once a process.")
        if surroundings.database_url is None:
            raise ConfigurationError(
                "The health application keeps a diary in a Postgres of its own: "
                "set TRACER_DATABASE_URL, beside TRACER_URL."
            )
        pool = AsyncConnectionPool(
            _without_driver(surroundings.database_url),
            connection_class=psycopg.AsyncConnection[DictRow],
            kwargs={"autocommit": True, "row_factory": dict_row},
            configure=_speak_utc,
            check=AsyncConnectionPool.check_connection,
            min_size=1,
            max_size=4,
            timeout=self._answer_seconds,
            open=False,
        )
        async with pool:
            try:
                async with pool.connection() as connection, connection.transaction():
                    await connection.execute("SELECT pg_advisory_xact_lock(%s)", [SCHEMA_LOCK])
                    await connection.execute(SCHEMA)
            except _OUTAGES as error:
                raise StoreUnavailable("The diary's database does not answer.") from error
            self._pool = pool
            try:
                yield
            finally:
                self._pool = None

    async def add(self, table: Table, user_id: str, entry: Mapping[str, Any]) -> Entry:
        """Add an entry and return it; it is committed then.

        Args:
            table: Which kind it is.
            user_id: Whose it is.
            entry: The table's time, and each of its columns.

        Raises:
            ToolError: The diary is closed.
            ToolUnavailable: Its database does not answer.
        """
        [added] = await self._fetch(insert(table), {**entry, "user_id": user_id})
        return added

    async def find(
        self,
        table: Table,
        user_id: str,
        *,
        limit: int,
        offset: int,
        since: datetime | None = None,
        same_text: Mapping[str, str | None] | None = None,
    ) -> list[Entry]:
        """Return entries of a user, newest first.

        Args:
            table: Which kind.
            user_id: Whose.
            limit: How many at most.
            offset: How many of the newest to skip.
            since: Only those from then on.
            same_text: What columns have to say, in any case; None: anything.

        Raises:
            ToolError: The diary is closed.
            ToolUnavailable: Its database does not answer.
        """
        same_text = same_text or {}
        page = {"user_id": user_id, "since": since, "limit": limit, "offset": offset}
        return await self._fetch(select(table, same_text), {**same_text, **page})

    async def change(
        self, table: Table, user_id: str, record_id: int, changes: Mapping[str, Any]
    ) -> Entry:
        """Change an entry of a user and return it as it is then.

        Args:
            table: Which kind it is.
            user_id: Whose it has to be.
            record_id: Which one.
            changes: What it says from now on; None leaves a column as it is.

        Raises:
            InvalidArguments: There is nothing to change.
            NoSuchRecord: There is none, or it is somebody else's: nobody is told which.
            psycopg.errors.CheckViolation: What it would say then does not fit together.
            ToolError: The diary is closed.
            ToolUnavailable: Its database does not answer.
        """
        values = {name: value for name, value in changes.items() if value is not None}
        if not values:
            raise InvalidArguments(f"Nothing to change: give at least one of {', '.join(changes)}.")
        rows = await self._fetch(
            update(table, values), {**values, "record_id": record_id, "user_id": user_id}
        )
        if not rows:
            raise NoSuchRecord
        return rows[0]

    async def _fetch(self, statement: Composed, values: Mapping[str, Any]) -> list[Entry]:
        if self._pool is None:
            raise ToolError("The diary is closed: the application has not opened its database.")
        try:
            async with self._pool.connection() as connection:
                cursor = await connection.execute(statement, values)
                return await cursor.fetchall()
        except _OUTAGES as error:
            raise ToolUnavailable("The diary's database does not answer. Try later.") from error


def _without_driver(url: str) -> str:
    """Return a database's address without SQLAlchemy's `+driver`, which libpq rejects."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"


async def _speak_utc(connection: psycopg.AsyncConnection[DictRow]) -> None:
    await connection.execute("SET TIME ZONE 'UTC'")
