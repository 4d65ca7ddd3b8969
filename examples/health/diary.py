"""The diary: measurements, medications, symptoms and events, in the application's own tables.

Each entry belongs to one user. Each method takes the user's id and accesses only their entries.
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
"""One row of the diary, as a tool returns it: without the user's id."""

ANSWER_SECONDS = 10.0
"""How long a tool waits for a connection before the call fails."""

SCHEMA_LOCK = 4_861_001
"""The key of an advisory lock. Without it, parallel `CREATE … IF NOT EXISTS` may fail."""

_OUTAGES = (psycopg.OperationalError, psycopg.InterfaceError)


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - tests pass another clock


class NoSuchRecord(ToolError):
    """The diary has no such record. Query it, and use a record_id from there."""

    reason = "no_such_record"


class Diary:
    """The diary's tables. Use them inside `async with open(…)`.

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
        """Create missing tables, and keep a small connection pool open inside the block.

        Args:
            surroundings: The Postgres that holds the diary.

        Raises:
            ConfigurationError: The surroundings have no Postgres.
            StoreUnavailable: It does not answer.
        """
        if self._pool is not None:
            raise RuntimeError("The diary is open already: open it once a process.")
        if surroundings.database_url is None:
            raise ConfigurationError(
                "The health application stores its diary in Postgres. Set TRACER_DATABASE_URL in "
                "addition to TRACER_URL."
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
            table: The kind of entry.
            user_id: The user.
            limit: The largest number of entries.
            offset: The number of newest entries to skip.
            since: The earliest time.
            same_text: The values of columns, regardless of case; None: any value.

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
        """Change an entry of a user, and return the changed entry.

        Args:
            table: The kind of entry.
            user_id: The user, to whom the entry must belong.
            record_id: The entry.
            changes: New values of columns; None leaves a column unchanged.

        Raises:
            InvalidArguments: All new values are None.
            NoSuchRecord: The entry does not exist, or belongs to another user. Both cases give the
                same error, so that nobody learns which ids exist.
            psycopg.errors.CheckViolation: The new values contradict each other.
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
