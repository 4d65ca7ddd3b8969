"""Keep what hooks do to a tool call, and the state of sessions.

Comments come from the docstrings in `tracer.storage.postgres.schema.record_tables`, by
`tracer.storage.postgres.administration.migrate`.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

COLUMNS = {
    "effective_arguments": "text",
    "forged_arguments": "text[] NOT NULL DEFAULT '{}'",
    "short_circuited_by": "text",
    "state_changes": "text",
    "still_running": "boolean",
}


def upgrade() -> None:
    added = ", ".join(f"ADD COLUMN {name} {kind}" for name, kind in COLUMNS.items())
    op.execute(f"ALTER TABLE act_tool_info {added}")
    op.execute("""CREATE TABLE session_state (
    project_id integer NOT NULL,
    session_id text NOT NULL,
    state json NOT NULL,
    revision bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, project_id)
)""")


def downgrade() -> None:
    op.execute("DROP TABLE session_state")
    dropped = ", ".join(f"DROP COLUMN {name}" for name in COLUMNS)
    op.execute(f"ALTER TABLE act_tool_info {dropped}")
