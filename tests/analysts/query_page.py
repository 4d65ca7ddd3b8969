"""`docs/guides/queries.md`: its questions, asked as an analyst of the ward, with the answers."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from tests.analysts.ward_week import tell_week
from tests.citus_databases import tests_run_on_citus
from tracer.storage.postgres import open_pool
from tracer.storage.postgres.analysts import add_analyst, remove_analyst
from tracer.storage.postgres.projects import ensure_project

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "queries.md"
WARD = "ward"

# A question's query, and its result as far as the page has one.
QUERY = re.compile(r"^```sql\n(.*?)^```\n(?:\n(?:\|[^\n]*\n)+)?", re.DOTALL | re.MULTILINE)


async def answered_page(database_url: str) -> str:
    """Return the page with what the database answers, in a migrated database of its own.

    On Citus, where no analyst can be added, the owner asks, and no other project has the same data.
    """
    async with open_pool(database_url) as pool:
        await tell_week(pool, await ensure_project(pool, WARD))
        if tests_run_on_citus():
            return _answered_by(database_url)
        await tell_week(pool, 1)
        role = f"reader of {urlsplit(database_url).path[1:]}"
        analyst = await add_analyst(pool, role, WARD)
        try:
            return _answered_by(analyst.url)
        finally:
            await remove_analyst(pool, role)


def _answered_by(url: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        return QUERY.sub(lambda found: _answered_one(connection, found), _page())


def _answered_one(connection: psycopg.Connection, found: re.Match[str]) -> str:
    if tests_run_on_citus() and "trace.lineage" in found[1]:
        return found[0]  # Citus does not support this view
    return _answered(connection, found[1])


def queries() -> list[str]:
    """Return the page's queries."""
    return QUERY.findall(_page())


def _page() -> str:
    return PAGE.read_text(encoding="utf-8")


def _answered(connection: psycopg.Connection, query: str) -> str:
    cursor = connection.execute(query.encode())
    assert cursor.description is not None
    names = [column.name for column in cursor.description]
    rows = [[_text(value) for value in row] for row in cursor.fetchall()]
    lines = [names, ["---"] * len(names), *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"```sql\n{query}```\n\n{table}"


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
        case Decimal():
            return f"{value.normalize():f}"
        case float():
            return f"{value:g}"
        case timedelta():
            return str(value)
        case list():
            return ", ".join(map(_text, value))
        case _:
            # Markdown would take leading spaces away, and a bar for the end of a cell.
            text = str(value).replace("|", r"\|")
            depth = len(text) - len(text.lstrip(" "))
            return "&nbsp;" * depth + text.lstrip(" ")
