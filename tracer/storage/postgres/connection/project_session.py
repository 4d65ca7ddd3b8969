"""The database as one project sees it: what a query that forgets its project can not leave.

Each transaction begins by becoming a role that row-level security holds to one project
(`tracer.storage.postgres.connection.row_security`), and by naming the project. Both end with the
transaction, so that a pooler may hand the connection on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg import AsyncRawCursor

from tracer.errors import TracerError
from tracer.records.ids import DEFAULT_PROJECT_ID
from tracer.storage.postgres.connection.pool import (
    READ_SECONDS,
    Pool,
    PoolConnection,
    SyncConnection,
    borrowed,
    borrowed_to_read,
)
from tracer.storage.postgres.connection.row_security import (
    entering,
    role_of,
    standing_of,
    standing_of_sync,
)

T = TypeVar("T")

Statement = tuple[str, Sequence[Any]]
"""SQL for a raw cursor, and its parameters."""

Row = tuple[Any, ...]

_ENTER = "SELECT set_config('role', $1, true), set_config('tracer.project_id', $2, true)"
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_CHECK_REFERENCES: Statement = ("SET CONSTRAINTS ALL IMMEDIATE", ())


@dataclass(frozen=True)
class ProjectPool:
    """A pool of connections that see one project."""

    pool: Pool
    project_id: int = DEFAULT_PROJECT_ID

    @property
    def walled_project_id(self) -> int:
        """The project that row-level security holds its transactions to."""
        return self.project_id


@asynccontextmanager
async def in_project(
    project: ProjectPool, seconds: float | None = READ_SECONDS, *, sees_one_state: bool = False
) -> AsyncIterator[PoolConnection]:
    """Lend a connection in a pipelined transaction of a project, committed at the end.

    Args:
        project: Whose rows it sees.
        seconds: How long it may be used; None: as long as it takes.
        sees_one_state: Whether all statements see the rows as they are at its beginning. To change
            what others changed since is refused.

    Raises:
        TimeoutError: The time was over.
    """
    async with borrowed(project.pool, seconds) as connection:
        try:
            begin = "BEGIN ISOLATION LEVEL REPEATABLE READ" if sees_one_state else "BEGIN"
            async with _begun(connection, project, begin):
                yield connection
                await connection.execute("COMMIT", prepare=False)
        except TracerError:
            # Not by a statement: only so does the driver forget what it prepared meanwhile.
            await connection.rollback()
            raise


def reading(project: ProjectPool) -> AbstractAsyncContextManager[PoolConnection]:
    """Lend a connection that sees a project's rows and changes nothing."""
    return _reading(project, "BEGIN READ ONLY")


def snapshot(project: ProjectPool) -> AbstractAsyncContextManager[PoolConnection]:
    """Lend a connection whose statements all see one state of a project, and change nothing."""
    return _reading(project, _SNAPSHOT)


async def read_many(project: ProjectPool, read: Callable[[SyncConnection], T]) -> T:
    """Read many rows in a worker thread, in a transaction that sees one state of a project.

    Args:
        project: Whose rows it sees.
        read: Reads them, over a connection in a pipeline.

    Raises:
        TimeoutError: It took longer than `READ_SECONDS`.
    """

    def within(connection: SyncConnection) -> T:
        statements = entering(standing_of_sync(connection), project.walled_project_id)
        with connection.pipeline(), connection.transaction():
            for each in statements:
                connection.execute(each, prepare=False)
            return read(connection)

    return await project.pool.large_reads.run(within)


@asynccontextmanager
async def _reading(project: ProjectPool, begin: str) -> AsyncIterator[PoolConnection]:
    async with (
        borrowed_to_read(project.pool) as connection,
        _begun(connection, project, begin),
    ):
        try:
            yield connection
        except TracerError:  # such as RecordNotFound: nothing is wrong with the connection
            await connection.execute("COMMIT", prepare=False)
            raise
        await connection.execute("COMMIT", prepare=False)


@asynccontextmanager
async def _begun(
    connection: PoolConnection, project: ProjectPool, begin: str
) -> AsyncIterator[None]:
    """Pipeline a transaction of a project. Whoever ends the pipeline early does not end that."""
    standing = await standing_of(connection)
    async with connection.pipeline():
        for each in (begin, *entering(standing, project.walled_project_id)):
            await connection.execute(each, prepare=False)
        yield


@asynccontextmanager
async def transaction_in(
    project: ProjectPool, *first: Statement
) -> AsyncIterator[tuple[PoolConnection, list[Row]]]:
    """Lend a connection in a transaction of a project, for as long as it takes.

    It is no pipeline, so that answers can be read in it. `committed` ends it; else it is undone.

    Args:
        project: Whose rows it sees.
        first: What is executed with its beginning, in one round trip. The rows of the last
            statement are lent, too.
    """
    async with borrowed(project.pool, seconds=None) as connection:
        async with _begun(connection, project, "BEGIN"):
            cursors = await _executing(connection, first)
        yield connection, await cursors[-1].fetchall()


async def committed(connection: PoolConnection, statements: Iterable[Statement]) -> list[list[Row]]:
    """Execute the last statements of a transaction and commit it, in one round trip.

    Returns:
        The rows that each answered.
    """
    async with connection.pipeline():
        cursors = await _executing(connection, (*statements, _CHECK_REFERENCES))
        await connection.execute("COMMIT", prepare=False)
    return [await _rows(each) for each in cursors[:-1]]


async def executed(project: ProjectPool, statements: Iterable[Statement]) -> list[list[Row]]:
    """Execute statements in one transaction of a project and one round trip.

    Leaving the pipeline commits: a pipeline in autocommit mode is one implicit transaction. Citus
    needs explicit statements.

    Args:
        project: Whose rows they see.
        statements: What to execute, in order.

    Returns:
        The rows that each answered.
    """
    async with borrowed(project.pool, seconds=None) as connection:
        standing = await standing_of(connection)
        # A statement reports broken references: the driver loses a connection at a commit.
        last: list[Statement] = [_CHECK_REFERENCES]
        if standing.is_spread:  # Citus commits each statement of a pipeline without BEGIN
            begin = ["BEGIN", *entering(standing, project.walled_project_id)]
            first: list[Statement] = [(each, ()) for each in begin]
            last.append(("COMMIT", ()))
        else:  # three statements fewer: a tenth of the processor time of a small write
            first = [(_ENTER, [role_of(standing), str(project.walled_project_id)])]
        async with connection.pipeline():
            cursors = await _executing(connection, (*first, *statements, *last))
        return [await _rows(each) for each in cursors[len(first) : -len(last)]]


async def _executing(
    connection: PoolConnection, statements: Iterable[Statement]
) -> list[AsyncRawCursor[Row]]:
    """Send statements in a pipeline; the cursors have their rows when that ends."""
    cursors: list[AsyncRawCursor[Row]] = []
    for statement, given in statements:
        cursor = AsyncRawCursor(connection)
        await cursor.execute(statement, given, prepare=True)
        cursors.append(cursor)
    return cursors


async def _rows(cursor: AsyncRawCursor[Row]) -> list[Row]:
    return await cursor.fetchall() if cursor.description else []
