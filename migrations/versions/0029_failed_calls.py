"""Rename counts of failed calls, so that `failures` counts only origins everywhere."""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

NAMES = {"run": "failed_calls", "run_group": "failed", "tool_hour": "failed"}

# Since version 18, Postgres stores each NOT NULL as a constraint that is named after the column.
RENAME = """
ALTER TABLE {table} RENAME {old} TO {new};
DO $$ BEGIN
    ALTER TABLE {table} RENAME CONSTRAINT {table}_{old}_not_null TO {table}_{new}_not_null;
EXCEPTION WHEN undefined_object THEN NULL;
END $$"""


def upgrade() -> None:
    for table, name in NAMES.items():
        op.execute(RENAME.format(table=table, old="failures", new=name))


def downgrade() -> None:
    for table, name in NAMES.items():
        op.execute(RENAME.format(table=table, old=name, new="failures"))
