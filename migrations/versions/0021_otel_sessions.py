"""Note which runs belong to the sessions of log records that name no trace."""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

UPGRADE = """
CREATE TABLE otel_session (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    session_run_id uuid NOT NULL,
    PRIMARY KEY (root_plan_id, session_run_id, project_id),
    CONSTRAINT otel_session_refers_to_run FOREIGN KEY (project_id, root_plan_id) REFERENCES run
        DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX otel_session_by_session ON otel_session (project_id, session_run_id)"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP TABLE otel_session")
