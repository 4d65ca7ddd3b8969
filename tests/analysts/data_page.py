"""`docs/data.md`: views and tables with their columns, from a migrated database's catalog."""

from __future__ import annotations

import textwrap
from pathlib import Path

import psycopg

PAGE = Path(__file__).parents[2] / "docs" / "data.md"

WIDTH = 100
HEADINGS = "| column | type | what it is |\n| --- | --- | --- |\n"

INTRODUCTION = """# The data

The views and tables as they are in the database. Generated from its catalog by `make data`: change
the comments in `tracer/records/record_classes.py`, `tracer/storage/postgres/schema/` and
`tracer/storage/postgres/administration/views.sql`.

The schema `trace` is for people who ask Postgres, and keeps the names of its columns;
[queries.md](queries.md) shows what to ask. The tables are the program's, and change with it.
Row-level security holds an analyst to one project, by either ([security.md](security.md)).

A record's own key is its id with `root_plan_id` and `project_id`: join by id and `root_plan_id`.
"""

RELATIONS = """
SELECT c.oid, c.relname, obj_description(c.oid)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind = %s AND c.relname NOT LIKE 'alembic_version%%'
ORDER BY c.relname"""

COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), col_description(attrelid, attnum)
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""

# What a reference says beside the project and the run, which nearly all have in common.
REFERENCES = """
SELECT DISTINCT k.conrelid::regclass::text, k.confrelid::regclass::text, a.attname
FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[cardinality(k.conkey)]
WHERE k.contype = 'f' AND c.relnamespace = 'public'::regnamespace
ORDER BY 1, 2, 3"""


def data_page(database_url: str) -> str:
    """Return the page, from a migrated database."""
    with psycopg.connect(database_url) as connection:
        parts = [
            INTRODUCTION,
            "## How tables refer to each other\n\n" + _diagram(connection),
            "## Views\n",
            *_dictionary(connection, "trace", "v"),
            "## Tables\n",
            *_dictionary(connection, "public", "r"),
        ]
    return "\n".join(parts)


def _diagram(connection: psycopg.Connection) -> str:
    lines = [
        f'    {target} ||--o{{ {source} : "{columns}"'
        for source, target, columns in connection.execute(REFERENCES).fetchall()
    ]
    return "\n".join(("```mermaid", "erDiagram", *lines, "```", ""))


def _dictionary(connection: psycopg.Connection, schema: str, kind: str) -> list[str]:
    """Return a section for each view or table of a schema."""
    sections = []
    prefix = "" if schema == "public" else f"{schema}."
    for relation, name, about in connection.execute(RELATIONS, [schema, kind]).fetchall():
        columns = connection.execute(COLUMNS, [relation]).fetchall()
        rows = "".join(
            f"| `{column}` | {of} | {_in_a_cell(said)} |\n" for column, of, said in columns
        )
        text = textwrap.fill(about, WIDTH, break_on_hyphens=False)
        sections.append(f"### `{prefix}{name}`\n\n{text}\n\n{HEADINGS}{rows}")
    return sections


def _in_a_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
