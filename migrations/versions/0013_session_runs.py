"""Add the runs of each conversation, and find conversations by the session id of a run.

Comments come from the docstrings in `tracer.storage.postgres.schema.project_tables`, by
`tracer.storage.postgres.administration.migrate`.
"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# The generated column rewrites the table, which has one row per conversation.
UPGRADE = """
ALTER TABLE session_state
    ADD run_ids uuid[] NOT NULL DEFAULT '{}',
    ADD session text GENERATED ALWAYS AS (regexp_replace(session_id, '@[0-9a-f]*$', '')) STORED;
CREATE INDEX session_state_by_session ON session_state (project_id, (session::name))"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("ALTER TABLE session_state DROP session, DROP run_ids")
