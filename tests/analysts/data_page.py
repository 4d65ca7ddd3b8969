"""`docs/reference/data.md`: views and tables, from the catalog of a migrated database."""

from __future__ import annotations

import textwrap
from pathlib import Path

import psycopg

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "data.md"

WIDTH = 100
HEADINGS = "| column | type | meaning |\n| --- | --- | --- |\n"

INTRODUCTION = """# Views and tables

To analyse runs with SQL, query the views of the schema `trace`. The column names of these views
are stable. [Queries](../guides/queries.md) has examples. The tables in the schema `public` belong
to the program and can change with each version. In views and tables, an analyst sees only the rows
of one project ([Security](../explanation/security.md#analysts)).

The key of a record consists of its id, `root_plan_id` and `project_id`. In a query, join records by
their id and `root_plan_id`.

<!-- `make data` generates this page from the comments in the database. To change a text, edit
`tracer/records/record_classes.py`, `tracer/storage/postgres/schema/` or
`tracer/storage/postgres/views.sql`. -->
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
        text = textwrap.fill(" ".join(about.split()), WIDTH, break_on_hyphens=False)
        sections.append(f"### `{prefix}{name}`\n\n{text}\n\n{HEADINGS}{rows}")
    return sections


def _in_a_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
