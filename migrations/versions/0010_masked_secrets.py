"""Say of each record where secrets were masked.

Comments come from docstrings, by `tracer.storage.postgres.administration.migrate`.
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TABLES = (
    "run",
    "plan_execution_record",
    "agent_execution_record",
    "think_act_record",
    "act_tool_info",
)


def upgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ADD COLUMN masked text[] NOT NULL DEFAULT '{{}}'")


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} DROP COLUMN masked")
