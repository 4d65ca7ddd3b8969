"""What analysts may read: the role that they inherit from, and the wall around each one's project.

`tracer.storage.analysts` makes somebody an analyst. Like the wall of the program's role, this one
is raised from the tables' definitions after every migration.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from tracer.logs import get_logger
from tracer.storage.program_role import make_role, secured_tables
from tracer.storage.tables import METADATA

READER_ROLE = "tracer_reader"
POLICY = "for_analysts"
VIEWS = "trace"

READABLE = (
    "run",
    "plan_execution_record",
    "agent_execution_record",
    "think_act_record",
    "act_tool_info",
    "otel_span",
    "otel_block",
    "pending_run",
    "recorder_lease",
    "recorder_run",
    "project",
    "analyst",
)
"""What analysts read beside the views. What tools keep of conversations, keys and sign-ins is no
part of it."""

# A scalar subquery: asked once a statement, and its value chooses indexes.
_OF_THE_ANALYST = "project_id = (SELECT project_id FROM analyst WHERE role_name = current_user)"
_THEIR_OWN = "role_name = current_user"

log = get_logger(__name__)


def let_analysts_in(connection: Connection) -> None:
    """Raise what is missing of the analysts' wall, and let them read, in the caller's transaction.

    Args:
        connection: As the owner of the tables and views, which are all there.
    """
    if not make_role(connection, READER_ROLE):
        log.info("no_role_for_analysts", detail=f"A superuser may: CREATE ROLE {READER_ROLE}")
        return
    secured = secured_tables(connection, POLICY)
    for table in READABLE:
        if table not in secured:
            condition = _THEIR_OWN if table == "analyst" else _OF_THE_ANALYST
            connection.execute(text(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"))
            connection.execute(
                text(
                    f"CREATE POLICY {POLICY} ON {table} FOR SELECT TO {READER_ROLE}"
                    f" USING ({condition})"
                )
            )
        assert "project_id" in METADATA.tables[table].columns
        connection.execute(text(f"GRANT SELECT ON {table} TO {READER_ROLE}"))
    schema = connection.scalar(text("SELECT quote_ident(current_schema)"))
    connection.execute(text(f"GRANT USAGE ON SCHEMA {schema}, {VIEWS} TO {READER_ROLE}"))
    connection.execute(text(f"GRANT SELECT ON ALL TABLES IN SCHEMA {VIEWS} TO {READER_ROLE}"))
