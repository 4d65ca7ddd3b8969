"""Rename the index of tombstones, and delete session states of deleted runs.

The session state of a conversation is now deleted with its last run. Earlier programs deleted it
after the rows of the run. This migration completes deletions that were interrupted before that.
"""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

IS_TOMBSTONE = "deleted_at IS NOT NULL AND swept_at IS NULL"

# A run without a session has its own id as its session.
UPGRADE = f"""
ALTER INDEX run_buried RENAME TO run_to_purge;
DELETE FROM session_state WHERE (project_id, session) IN (
    SELECT project_id, coalesce(session_id, root_plan_id::text) FROM run WHERE {IS_TOMBSTONE}
    EXCEPT
    SELECT project_id, coalesce(session_id, root_plan_id::text) FROM run WHERE deleted_at IS NULL
);
UPDATE run SET session_id = NULL WHERE {IS_TOMBSTONE}"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("ALTER INDEX run_to_purge RENAME TO run_buried")
