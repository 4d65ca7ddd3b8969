"""Keep the leases of recorders, and which runs they wrote to.

Comments come from the docstrings in `tracer.storage.postgres.schema.lease_tables`, by
`tracer.storage.postgres.administration.migrate`.
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE recorder_lease (
    project_id integer NOT NULL,
    recorder_id uuid NOT NULL,
    seen_at timestamptz NOT NULL,
    length interval NOT NULL,
    lag interval,
    due_at timestamptz,
    PRIMARY KEY (recorder_id, project_id),
    CONSTRAINT lease_has_a_length CHECK (length > '0')
);
CREATE INDEX recorder_lease_by_due_at ON recorder_lease (due_at);
CREATE TABLE recorder_run (
    project_id integer NOT NULL,
    recorder_id uuid NOT NULL,
    root_plan_id uuid NOT NULL,
    may_be_open boolean NOT NULL DEFAULT true,
    has_abandoned boolean NOT NULL DEFAULT false,
    PRIMARY KEY (recorder_id, root_plan_id, project_id),
    CONSTRAINT recorder_run_refers_to_run FOREIGN KEY (project_id, root_plan_id)
        REFERENCES run (project_id, root_plan_id) DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX recorder_run_by_root_plan_id ON recorder_run (root_plan_id, project_id)"""


def upgrade() -> None:
    op.execute(TABLES)


def downgrade() -> None:
    op.execute("DROP TABLE recorder_run; DROP TABLE recorder_lease")
