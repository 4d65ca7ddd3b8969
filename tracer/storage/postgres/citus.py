"""Citus: Postgres on several machines, whose tables are spread over them.

Each run is stored on one worker. `tracer migrate` distributes the tables if the database has the
extension. Code that needs other SQL for Citus checks `is_spread` (decision 24).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from psycopg.errors import InternalError_, OperationalError
from sqlalchemy import Connection, text

from tracer.errors import ConfigurationError, StoreUnavailable
from tracer.storage.postgres.pool import (
    Numbered,
    PartlyWritten,
    Pool,
    PoolConnection,
    pooled_connection,
)
from tracer.storage.postgres.session import ANALYSTS_POLICY, PROGRAM_ROLE, VIEWS_SCHEMA, standing_of
from tracer.storage.postgres.tables import METADATA
from tracer.store import Refusal

Item = TypeVar("Item")

MINIMUM_VERSION = 14
"""The first major version of Citus that supports PostgreSQL 18."""

_RUN = "run"
_RUNS = "root_plan_id"

_BY_THEMSELVES = {"session_state": "session_id", "conversation": "session_key"}
"""Tables that do not belong to runs, and their distribution columns."""

LOCAL_TABLES = {"lease_check", "recorder_lease", "run_day", "tool_hour"}
"""Tables that are not distributed: they exist on the coordinator only.

They are small. The statement that renews leases cannot run on shards, and a roll-up counts the runs
of all shards.
"""

HAS_CITUS = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"

_spread: WeakKeyDictionary[Pool, bool] = WeakKeyDictionary()


async def is_spread(pool: Pool) -> bool:
    """Return whether Citus distributes a database's tables. The result is cached per pool."""
    if pool not in _spread:
        async with pooled_connection(pool) as connection:
            _spread[pool] = await is_spread_by(connection)
    return _spread[pool]


async def is_spread_by(connection: PoolConnection) -> bool:
    """Return whether Citus distributes the tables of a connection's database."""
    return (await standing_of(connection)).is_spread


def runs_per_transaction(most: int, *, is_spread: bool) -> int:
    """Return how many runs a transaction may lock.

    With Citus the result is 1, because no transaction can lock runs on two shards.

    Args:
        most: The result without Citus.
        is_spread: Whether Citus distributes the tables.
    """
    return 1 if is_spread else most


async def check_workers(connection: PoolConnection) -> None:
    """Check that the coordinator reaches all workers, if Citus is used.

    Raises:
        StoreUnavailable: The coordinator does not reach some workers. The message names them.
    """
    if not await is_spread_by(connection):
        return
    # Twice: the first query reports cached connections to a worker that was restarted.
    if await _unreached(connection) and (unreached := await _unreached(connection)):
        raise StoreUnavailable(
            f"Citus cannot reach the workers {', '.join(unreached)}. Until they answer, their runs "
            "cannot be written, and lists and trees cannot be read."
        )


async def _unreached(connection: PoolConnection) -> list[str]:
    cursor = await connection.execute(_UNREACHED)
    return [f"{host}:{port}" for host, port in await cursor.fetchall()]


def is_there(connection: Connection) -> bool:
    """Return whether a database has the extension `citus`."""
    return bool(connection.scalar(text(HAS_CITUS)))


def use_one_connection_per_worker(connection: Connection) -> None:
    """Make Citus, if it is used, change the shards of a table one by one in this transaction.

    After a parallel change of a distributed table, Citus rejects changes of the reference tables
    that its foreign keys lead to.
    """
    if is_there(connection):
        connection.execute(text("SET LOCAL citus.multi_shard_modify_mode TO 'sequential'"))


def spread(connection: Connection) -> bool:
    """Distribute tables that are not distributed yet, in the caller's transaction.

    Args:
        connection: A connection of the tables' owner. All tables must exist.

    Returns:
        Whether any table was distributed. If so, the views were dropped, because they depend on the
        tables.

    Raises:
        ConfigurationError: Citus is too old, or has no workers.
    """
    if not is_there(connection):
        return False
    distributed_tables = set(
        connection.scalars(text("SELECT logicalrelid::text FROM pg_dist_partition"))
    )
    missing = [
        table.name
        for table in METADATA.sorted_tables
        if table.name not in distributed_tables | LOCAL_TABLES
    ]
    if not missing:
        return False
    _check(connection)
    # Citus creates new roles on all nodes, but not one that was there before the workers. Where the
    # role exists, this fails on the worker and changes nothing.
    create = f"CREATE ROLE {PROGRAM_ROLE} NOLOGIN NOINHERIT"
    connection.execute(text(f"SELECT run_command_on_workers('{create}')"))
    for table in connection.scalars(text(_ANALYSTS_POLICIES), {"policy": ANALYSTS_POLICY}).all():
        connection.execute(text(f"DROP POLICY {ANALYSTS_POLICY} ON {table}"))
    # Views would have to exist on the workers before their tables do.
    connection.execute(text(f"DROP SCHEMA IF EXISTS {VIEWS_SCHEMA} CASCADE"))
    connection.execute(text(f"CREATE SCHEMA {VIEWS_SCHEMA}"))
    # References form cycles, and may only lead to tables that are distributed in the same way.
    references = connection.execute(text(_REFERENCES), {"tables": missing}).fetchall()
    for table, name, _ in references:
        connection.execute(text(f"ALTER TABLE {table} DROP CONSTRAINT {name}"))
    for name in sorted(missing, key=_turn):
        connection.execute(text(f"SELECT {_spreading(name)}"))
        # Rows that were there before went to the workers, and stay here as well until now.
        connection.execute(text(f"SELECT truncate_local_data_after_distributing_table('{name}')"))
    for table, name, definition in references:
        connection.execute(text(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}"))
    return True


def authorize_program(connection: Connection) -> None:
    """Let the coordinator connect to its workers as the program's role, too."""
    connection.execute(text(f"ALTER ROLE {PROGRAM_ROLE} LOGIN"))
    database = connection.scalar(text("SELECT quote_ident(current_database())"))
    setting = "citus.propagate_set_commands"
    if connection.scalar(text(f"SHOW {setting}")) != "local":
        connection.execute(text(f"ALTER DATABASE {database} SET {setting} TO 'local'"))


def _check(connection: Connection) -> None:
    version = str(connection.scalar(text("SHOW citus.version")))
    if int(version.partition(".")[0]) < MINIMUM_VERSION:
        raise ConfigurationError(
            f"Tracer needs Citus {MINIMUM_VERSION} or newer; the coordinator's is {version}."
        )
    workers = "SELECT count(*) FROM pg_dist_node WHERE isactive AND shouldhaveshards"
    if not connection.scalar(text(workers)):
        raise ConfigurationError(
            "Citus has no workers yet. Add each on the coordinator, and migrate then: "
            "SELECT citus_add_node('HOST', 5432)."
        )


def _turn(table: str) -> int:
    """Return the sort key by which tables are distributed.

    Reference tables come first, because policies refer to them.
    """
    return 1 if table == _RUN else 2 if table in _BY_THEMSELVES or _is_of_runs(table) else 0


def _is_of_runs(table: str) -> bool:
    return _RUNS in METADATA.tables[table].columns


def _spreading(table: str) -> str:
    if table in _BY_THEMSELVES:
        column, group = _BY_THEMSELVES[table], "none"
    elif _is_of_runs(table):
        column, group = _RUNS, "none" if table == _RUN else _RUN
    else:
        return f"create_reference_table('{table}')"
    return f"create_distributed_table('{table}', '{column}', colocate_with => '{group}')"


_UNREACHED = """
SELECT nodename, nodeport FROM pg_dist_node
WHERE isactive AND groupid > 0 AND NOT citus_check_connection_to_node(nodename, nodeport)
ORDER BY nodename, nodeport"""

_ANALYSTS_POLICIES = "SELECT polrelid::regclass::text FROM pg_policy WHERE polname = :policy"

_REFERENCES = """
SELECT conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(oid)
FROM pg_constraint WHERE contype = 'f' AND conrelid::regclass::text = ANY(:tables)
ORDER BY conrelid::regclass::text, conname"""


async def by_shard(
    pool: Pool, items: list[Numbered[Item]], run_of: Callable[[Item], UUID]
) -> list[list[Numbered[Item]]]:
    """Divide items by the shard of their runs. Without Citus, all items are one part.

    Each part can be written in one transaction: a transaction cannot lock runs on two shards.

    Args:
        pool: The connections.
        items: The items to write.
        run_of: Returns an item's run.
    """
    if not await is_spread(pool):
        return [items]
    runs = {run_of(item) for _, item in items}
    if len(runs) < 2:
        return [items]
    async with pooled_connection(pool) as connection:
        shards = dict(await (await connection.execute(_SHARDS, [list(runs)])).fetchall())
    groups: dict[int, list[Numbered[Item]]] = {}
    for numbered in items:
        groups.setdefault(shards[run_of(numbered[1])], []).append(numbered)
    return [*groups.values()]


async def write_parts(
    parts: list[list[Numbered[Item]]],
    write: Callable[[list[Numbered[Item]]], Awaitable[list[Refusal]]],
) -> list[Refusal]:
    """Write the parts that `by_shard` returned, and return the refusals.

    Args:
        parts: The items of each shard.
        write: Writes one part and returns the refusals.

    Raises:
        PartlyWritten: A worker does not answer. The parts for other workers are written.
        StoreUnavailable: The coordinator or all needed workers do not answer.
    """
    refused: list[Refusal] = []
    written: set[int] = set()
    failure: Exception | None = None
    for part in parts:
        try:
            refused += await write(part)
            written.update(index for index, _ in part)
        except (OperationalError, InternalError_) as error:
            if error.sqlstate is None or len(parts) == 1:
                raise  # it is the coordinator who is away, or there is nothing else to write
            failure = error
    if failure is not None:
        raise PartlyWritten(written, refused) from failure
    return refused


async def runs_by_shard(pool: Pool, runs: Iterable[UUID]) -> list[list[UUID]]:
    """Divide runs into groups, one for each shard. Without Citus, all runs are one group."""
    groups = await by_shard(pool, list(enumerate(runs)), lambda run_id: run_id)
    return [[run_id for _, run_id in group] for group in groups]


_SHARDS = f"""
SELECT id, get_shard_id_for_distribution_column('{_RUN}', id)
FROM unnest(%s::uuid[]) AS wanted (id)"""
