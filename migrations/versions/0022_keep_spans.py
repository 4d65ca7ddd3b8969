"""Let a project keep the spans of agent work only."""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

UPGRADE = """
ALTER TABLE project ADD keep_spans text NOT NULL DEFAULT 'all'
    CONSTRAINT project_keeps_spans CHECK (keep_spans IN ('all', 'agent'));
ALTER TABLE run ADD removed_spans bigint NOT NULL DEFAULT 0"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("ALTER TABLE run DROP removed_spans; ALTER TABLE project DROP keep_spans")
