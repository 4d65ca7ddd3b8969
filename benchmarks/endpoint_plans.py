"""How Postgres executed the statements of an endpoint: their plans, as they were run.

`auto_explain` writes them to the server's log, which is read through Postgres.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg
from psycopg import sql

from benchmarks.grown_tables import BIG_TABLES
from tracer.records import new_id

_SETTINGS = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "auto_explain.log_nested_statements": "off",
}

_SHOWN = ("Index Name", "Index Cond", "Filter", "Rows Removed by Filter")


@dataclass(frozen=True)
class Plans:
    """The plans of the statements of one request."""

    roots: list[dict[str, Any]]

    @property
    def big_scans(self) -> list[str]:
        """The big tables that were read completely."""
        return [
            node["Relation Name"]
            for root in self.roots
            for _, node in _nodes(root)
            if node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG_TABLES
        ]

    @property
    def blocks(self) -> int:
        """How many blocks of tables and indexes were looked at, of 8 kB each."""
        return sum(
            root.get(f"{where} {how} Blocks", 0)
            for root in self.roots
            for where in ("Shared", "Temp")
            for how in ("Hit", "Read")
        )

    def outline(self) -> str:
        """Return the plans in lines, those of few blocks left out."""
        lines = []
        for root in self.roots:
            for depth, node in _nodes(root):
                details = {name: node[name] for name in _SHOWN if name in node}
                blocks = node.get("Shared Hit Blocks", 0) + node.get("Shared Read Blocks", 0)
                if blocks > 100:
                    lines.append(
                        f"{'  ' * depth}{node['Node Type']} {node.get('Relation Name', '')}"
                        f" rows={node.get('Actual Rows')} loops={node.get('Actual Loops')}"
                        f" blocks={blocks} {details}"
                    )
        return "\n".join(lines)


def explain_statements(url: str) -> None:
    """Let Postgres log the plan of each statement, in connections that are made from now on."""
    with psycopg.connect(url, autocommit=True) as connection:
        for name, value in _SETTINGS.items():
            statement = sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                sql.Identifier(connection.info.dbname),
                sql.SQL(".").join(map(sql.Identifier, name.split("."))),
                sql.Literal(value),
            )
            connection.execute(statement)


def plans_of(url: str, ask: Callable[[], object]) -> Plans:
    """Return the plans of the statements that a server runs for `ask`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET auto_explain.log_min_duration = -1")
        begin = _marker(connection)
        ask()
        end = _marker(connection)
        lines = ""
        while not (begin in lines and end in lines):  # the log is written a little later
            [lines] = connection.execute(_READ).fetchone() or [""]
        database = connection.info.dbname
    roots = []
    for line in lines.partition(begin)[2].partition(end)[0].splitlines()[1:-1]:
        entry = orjson.loads(line)
        _, is_plan, plan = entry.get("message", "").partition("plan:\n")
        if is_plan and entry.get("dbname") == database:
            roots.append(orjson.loads(plan)["Plan"])
    return Plans(roots)


def _marker(connection: psycopg.Connection[tuple[Any, ...]]) -> str:
    """Write a line to the end of the log, and return it."""
    text = f"marker {new_id()}"
    connection.execute(f"DO $$ BEGIN RAISE LOG '{text}'; END $$".encode())
    return text


_READ = """
SELECT pg_read_file(file, greatest(0, size - 10000000), 10000000)
FROM pg_current_logfile('jsonlog') AS file, pg_stat_file(file)"""
"""The end of the log."""


def _nodes(node: dict[str, Any], depth: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    yield depth, node
    for child in node.get("Plans", ()):
        yield from _nodes(child, depth + 1)
