"""Let what changed in a run be found: by revision, and the records that a projection removed.

Comments come from the docstrings in `tracer.storage.postgres.schema.record_tables`, by
`tracer.storage.postgres.administration.migrate`.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


RECORDS = (
    "plan_execution_record",
    "agent_execution_record",
    "think_act_record",
    "act_tool_info",
)


def upgrade() -> None:
    _index("project_id, root_plan_id, revision")
    op.execute("""CREATE TABLE removed_record (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    record_id uuid NOT NULL,
    kind text NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (root_plan_id, record_id, project_id),
    CONSTRAINT removed_record_has_a_kind CHECK (kind IN ('plan', 'step', 'thinkAct', 'toolCall')),
    CONSTRAINT removed_record_refers_to_run FOREIGN KEY (project_id, root_plan_id)
        REFERENCES run (project_id, root_plan_id) DEFERRABLE INITIALLY DEFERRED
)""")


def downgrade() -> None:
    op.execute("DROP TABLE removed_record")
    _index("project_id, root_plan_id")


def _index(columns: str) -> None:
    for table in RECORDS:
        op.execute(f"DROP INDEX {table}_by_run")
        op.execute(
            f"CREATE INDEX {table}_by_run ON {table} ({columns}) WHERE recorded_at > '-infinity'"
        )
