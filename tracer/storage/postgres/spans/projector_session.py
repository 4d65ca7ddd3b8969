"""A projector's connection: its statements, and its transactions within one project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from psycopg import RawCursor

from tracer.storage.postgres.connection.pool import (
    Pool,
    SyncConnection,
    pooled_connection,
    store_errors,
)
from tracer.storage.postgres.connection.row_security import Standing, entering, standing_of_sync

# Not by an advisory lock, which any role could take to keep projectors out.
IS_PROJECTOR = """application_name = 'tracer projector' AND datname = current_database()
    AND usename NOT IN (SELECT role_name FROM analyst)"""
"""The condition for the connection of a projector in `pg_stat_activity`."""

COUNT_PROJECTORS = f"SELECT count(*) FROM pg_stat_activity WHERE {IS_PROJECTOR}"
"""Count the projectors of all servers that are connected to the database."""


class ProjectorSession:
    """Executes statements over one connection, which must be in autocommit mode and not pooled."""

    def __init__(self, connection: SyncConnection) -> None:
        """Use `connection`, whose role owns the tables."""
        self.connection = connection

    @property
    def standing(self) -> Standing:
        """Whether row-level security is in force, and whether Citus distributes the tables."""
        return standing_of_sync(self.connection)

    @cached_property
    def is_spread(self) -> bool:
        """Whether Citus distributes the tables."""
        return self.standing.is_spread

    def ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, which takes its values as $1, $2, ..."""
        cursor = RawCursor(self.connection)
        cursor.execute(statement, values, prepare=True, binary=True)
        return cursor.fetchall() if cursor.description else []

    @contextmanager
    def in_project(self, project_id: int, mode: str = "") -> Iterator[None]:
        """Open a transaction that row-level security restricts to a project."""
        with self.connection.transaction():
            if mode:
                self.connection.execute(f"SET TRANSACTION {mode}")
            self.become(project_id)
            yield

    def check_references(self) -> None:
        """Check the deferred foreign keys now, and raise an error if one is broken.

        If the check failed at the commit, psycopg would lose the connection. On Citus, workers
        check at the commit nevertheless.
        """
        self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def become(self, project_id: int | None) -> None:
        """Restrict the transaction to a project, or return to the role of the tables' owner."""
        self.connection.execute("; ".join(entering(self.standing, project_id)))


async def count_projectors(pool: Pool) -> int:
    """Return how many projectors of all servers are connected to the database.

    Raises:
        StoreUnavailable: The database does not answer.
    """
    with store_errors():
        async with pooled_connection(pool) as connection:
            ((number,),) = await (await connection.execute(COUNT_PROJECTORS.encode())).fetchall()
    return int(number)
