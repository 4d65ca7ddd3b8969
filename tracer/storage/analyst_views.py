"""The views of the schema `trace`: what people who ask Postgres may rely on.

A view's columns keep their names and their meaning; new ones come at the end. What changes here
needs a migration, if an empty one: views are replaced after each. `docs/data.md` is made from the
comments, and `docs/queries.md` shows what to ask.

No condition in here may keep one of the analyst's from an index, or go across the shards of Citus:
everything is joined within its run.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from tracer.storage.analysts import VIEWS
from tracer.storage.figure_views import FIGURE_VIEWS
from tracer.storage.record_views import LINEAGE_OF, RECORD_VIEWS
from tracer.storage.span_views import SPAN_VIEWS

ANALYST_VIEWS = (*RECORD_VIEWS, *FIGURE_VIEWS, *SPAN_VIEWS)


def make_views(connection: Connection) -> None:
    """Make the views, or replace them, with their comments, in the caller's transaction.

    Args:
        connection: As the owner of the tables, which are all there.
    """
    connection.execute(text(LINEAGE_OF))
    for view in ANALYST_VIEWS:
        name = f"{VIEWS}.{view.name}"
        columns = ", ".join(f"{expression} AS {column}" for column, expression, _ in view.columns)
        query = f"SELECT {columns} {view.source}"
        connection.exec_driver_sql(
            f"CREATE OR REPLACE VIEW {name} WITH (security_invoker) AS {query}"
        )
        _comment(connection, f"VIEW {name}", view.comment)
        for column, _, comment in view.columns:
            _comment(connection, f"COLUMN {name}.{column}", comment)
    about = "Views for people who ask Postgres; the columns keep their names."
    _comment(connection, f"SCHEMA {VIEWS}", about)
    about = "The plans of one run with their paths from the root: `trace.lineage` for one run."
    _comment(connection, f"FUNCTION {VIEWS}.lineage_of(uuid)", about)


def _comment(connection: Connection, of: str, comment: str) -> None:
    quoted = comment.replace("'", "''").replace("%", "%%")
    connection.exec_driver_sql(f"COMMENT ON {of} IS '{quoted}'")
