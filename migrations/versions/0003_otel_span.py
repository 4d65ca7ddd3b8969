"""Store OpenTelemetry spans as received, and which links of their projection are inferred.

Comments come from the docstrings in `tracer.storage.postgres.schema.record_tables`, by
`tracer.storage.postgres.administration.migrate`.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INFERRED = {
    "inferred": "boolean NOT NULL DEFAULT false",
    "inferred_from": "text",
}


def upgrade() -> None:
    op.execute("ALTER TABLE run ADD COLUMN is_agent_work boolean NOT NULL DEFAULT true")
    for table in ("plan_execution_record", "act_tool_info"):
        added = ", ".join(f"ADD COLUMN {name} {kind}" for name, kind in INFERRED.items())
        op.execute(f"ALTER TABLE {table} {added}")
    op.execute("""CREATE TABLE otel_span (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    span_id bytea NOT NULL,
    parent_span_id bytea,
    name text NOT NULL,
    start_time bigint NOT NULL,
    end_time bigint NOT NULL,
    body bytea NOT NULL,
    recorded_at timestamptz NOT NULL,
    PRIMARY KEY (root_plan_id, span_id, project_id),
    CONSTRAINT span_has_an_id CHECK (octet_length(span_id) = 8),
    CONSTRAINT span_has_times CHECK (start_time >= 0 AND end_time >= 0),
    CONSTRAINT span_refers_to_run FOREIGN KEY (project_id, root_plan_id)
        REFERENCES run (project_id, root_plan_id) DEFERRABLE INITIALLY DEFERRED
)""")


def downgrade() -> None:
    op.execute("DROP TABLE otel_span")
    for table in ("act_tool_info", "plan_execution_record"):
        dropped = ", ".join(f"DROP COLUMN {name}" for name in INFERRED)
        op.execute(f"ALTER TABLE {table} {dropped}")
    op.execute("ALTER TABLE run DROP COLUMN is_agent_work")
