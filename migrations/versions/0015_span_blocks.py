"""Store spans in compressed blocks and project them after the write.

Adds tables and columns only. `tracer pack-spans`, or the server in the background, moves the rows
of `otel_span` into blocks afterwards. Comments come from docstrings, by
`tracer.storage.postgres.administration.migrate`.
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

RECORDS = ("plan_execution_record", "agent_execution_record", "think_act_record", "act_tool_info")

# Runs that exist have records, which the next projection must compare: their `projected` is 1. A
# default of an added column is stored once for all rows.
UPGRADE = """
ALTER TABLE run
    ADD projected bigint NOT NULL DEFAULT 1,
    ADD projection_version integer NOT NULL DEFAULT 0,
    ADD projection_error text,
    ADD next_projection_at timestamptz,
    ADD span_bytes bigint NOT NULL DEFAULT 0,
    ADD settle_at timestamptz;
ALTER TABLE run ALTER projected SET DEFAULT 0;
CREATE INDEX run_to_settle ON run (settle_at) WHERE settle_at IS NOT NULL;
CREATE TABLE otel_block (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    key bytea NOT NULL CONSTRAINT block_has_a_key CHECK (octet_length(key) = 16),
    spans integer NOT NULL,
    size bigint NOT NULL,
    recorded_at timestamptz NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (root_plan_id, key, project_id),
    CONSTRAINT block_refers_to_run FOREIGN KEY (project_id, root_plan_id) REFERENCES run
        DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT block_holds_spans CHECK (spans > 0 AND size > 0)
);
ALTER TABLE otel_block ALTER body SET STORAGE EXTERNAL;
CREATE TABLE pending_run (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    arrived bigint NOT NULL,
    spans bigint NOT NULL,
    size bigint NOT NULL,
    since timestamptz NOT NULL,
    seen_at timestamptz,
    due_at timestamptz NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    attempted_at timestamptz,
    with_prices boolean NOT NULL DEFAULT false,
    failure text,
    PRIMARY KEY (root_plan_id, project_id),
    CONSTRAINT pending_run_refers_to_run FOREIGN KEY (project_id, root_plan_id) REFERENCES run
        DEFERRABLE INITIALLY DEFERRED
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 1000
)"""


def upgrade() -> None:
    op.execute(UPGRADE)
    for table in RECORDS:
        op.execute(f"ALTER TABLE {table} ADD digest bigint")


def downgrade() -> None:
    # Blocks cannot become rows of `otel_span` in SQL: their spans would be lost.
    op.execute(
        "DO $$ BEGIN IF EXISTS (SELECT FROM otel_block) THEN RAISE EXCEPTION"
        " 'otel_block holds spans that the older schema cannot hold; export the runs first';"
        " END IF; END $$"
    )
    op.execute("DROP TABLE pending_run; DROP TABLE otel_block")
    for table in RECORDS:
        op.execute(f"ALTER TABLE {table} DROP digest")
    op.execute(
        "ALTER TABLE run DROP projected, DROP projection_version, DROP projection_error,"
        " DROP next_projection_at, DROP span_bytes, DROP settle_at"
    )
