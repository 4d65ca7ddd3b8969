"""The time of a database's statements, by Postgres's own clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from psycopg import sql


@dataclass(frozen=True)
class Costs:
    """The total time of the statements of one measurement."""

    statements: float
    milliseconds: float
    """Planning and executing."""


def note_statements(url: str) -> None:
    """Make Postgres measure each statement, in connections that are opened from now on."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        for name, value in (("track", "top"), ("track_planning", "on"), ("track_utility", "off")):
            statement = sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                sql.Identifier(connection.info.dbname),
                sql.Identifier("pg_stat_statements", name),
                sql.Literal(value),
            )
            connection.execute(statement)


def costs_of(url: str, times: int, ask: Callable[[], object]) -> Costs:
    """Return what `ask` costs, which does the same so many times.

    Rarer statements are the server's own, such as the check whether keys exist.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET pg_stat_statements.track = none")
        connection.execute("SELECT pg_stat_statements_reset()")
        ask()
        row = connection.execute(
            "SELECT coalesce(sum(calls), 0)::float, coalesce(sum(total_exec_time"
            " + total_plan_time), 0) FROM pg_stat_statements"
            " WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND calls >= %s",
            [times],
        ).fetchone()
    assert row is not None
    return Costs(row[0] / times, row[1] / times)
