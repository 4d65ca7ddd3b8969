"""The time that Postgres alone takes for the same rows: the yardsticks of writing."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import psycopg

from benchmarks.other_forms import Row

# The columns that `otel_span` had when the yardstick was made, with its primary key only.
_MAKE = """
DROP TABLE IF EXISTS bare_span;
CREATE TABLE bare_span (
    project_id bigint, root_plan_id uuid, span_id bytea, parent_span_id bytea, name text,
    start_time bigint, end_time bigint, body bytea, recorded_at timestamptz,
    PRIMARY KEY (root_plan_id, span_id, project_id)
)"""

_TYPES = ("int8", "uuid", "bytea", "bytea", "text", "int8", "int8", "bytea", "timestamptz")

_UPSERT = f"""
INSERT INTO bare_span VALUES ({", ".join(["%s"] * len(_TYPES))})
ON CONFLICT (root_plan_id, span_id, project_id) DO UPDATE SET body = excluded.body"""


def copy_rate(url: str, rows: Sequence[Row]) -> float:
    """Return how many rows per second one COPY writes to a table with a primary key."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_MAKE)
        began = perf_counter()
        with (
            connection.cursor() as cursor,
            cursor.copy("COPY bare_span FROM STDIN (FORMAT binary)") as copy,
        ):
            copy.set_types(_TYPES)
            for row in rows:
                copy.write_row(row)
        return len(rows) / (perf_counter() - began)


def upsert_rate(url: str, rows: Sequence[Row]) -> float:
    """Return how many rows per second `executemany` of one upsert writes to it."""
    with psycopg.connect(url) as connection:
        connection.execute(_MAKE)
        connection.commit()
        began = perf_counter()
        with connection.cursor() as cursor:
            cursor.executemany(_UPSERT, rows)
        connection.commit()
        return len(rows) / (perf_counter() - began)
