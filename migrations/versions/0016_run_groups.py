"""Replace the roll-ups of old hours: each run remembers which hours it contributes to.

The roll-up job fills the new tables. The generated column rewrites `run`, in 26 s for each
million of runs on two busy cores; writers wait meanwhile.
"""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

FIGURES = """
    hour timestamptz NOT NULL,
    number integer NOT NULL,
    tool_name text NOT NULL,
    tool_type text,
    calls bigint NOT NULL,
    succeeded bigint NOT NULL,
    failures bigint NOT NULL,
    cancelled bigint NOT NULL,
    abandoned bigint NOT NULL,
    running bigint NOT NULL,
    sub_plans bigint NOT NULL,
    latest_at timestamptz NOT NULL,
    greatest_ms float8,
    failed_at timestamptz,
    buckets smallint[] NOT NULL,
    bucket_counts bigint[] NOT NULL"""

UPGRADE = f"""
DROP TABLE changed_hour;
DROP TABLE summed_calls;
DROP TABLE summed_range;
ALTER TABLE project ADD summed_at timestamptz;
ALTER TABLE run
    ADD summed_revision bigint NOT NULL DEFAULT 0,
    ADD is_summed boolean NOT NULL GENERATED ALWAYS AS (revision <= summed_revision) STORED;
CREATE INDEX run_to_sum_up ON run (project_id, recorded_at, root_plan_id) WHERE NOT is_summed;
CREATE TABLE run_group (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,{FIGURES},
    PRIMARY KEY (root_plan_id, hour, number, project_id),
    CONSTRAINT group_refers_to_run FOREIGN KEY (project_id, root_plan_id) REFERENCES run
        DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX run_group_by_hour ON run_group (project_id, hour);
CREATE TABLE tool_hour (
    project_id integer NOT NULL,{FIGURES},
    PRIMARY KEY (project_id, hour, number)
);
CREATE INDEX tool_hour_by_name ON tool_hour (project_id, (tool_name::name), hour)"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute("DROP TABLE tool_hour; DROP TABLE run_group")
    op.execute("ALTER TABLE run DROP is_summed, DROP summed_revision")
    op.execute("ALTER TABLE project DROP summed_at")
    # The older server fills these tables.
    script = op.get_context().script
    assert script is not None
    script.get_revision("0012").module.upgrade()
