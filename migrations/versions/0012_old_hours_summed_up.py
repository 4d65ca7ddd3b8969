"""Make room for how the tools' calls of old hours went.

Servers sum them up bit by bit afterwards. Comments come from the docstrings in
`tracer.storage.summary_tables`, by `tracer.storage.postgres.administration.migrate`.
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE summed_range (
    project_id integer PRIMARY KEY,
    since timestamptz,
    until timestamptz NOT NULL,
    summed_at timestamptz NOT NULL
);
CREATE TABLE summed_calls (
    project_id integer NOT NULL,
    hours smallint NOT NULL,
    since timestamptz NOT NULL,
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
    opened_since timestamptz,
    latest_at timestamptz NOT NULL,
    least_ms float8,
    greatest_ms float8,
    slowest_id uuid,
    failed_at timestamptz,
    failed_id uuid,
    buckets smallint[] NOT NULL,
    bucket_counts bigint[] NOT NULL,
    PRIMARY KEY (project_id, hours, since, number),
    CONSTRAINT summed_calls_are_of_an_hour_or_a_day CHECK (hours IN (1, 24)),
    CONSTRAINT summed_calls_have_a_histogram
        CHECK (cardinality(buckets) = cardinality(bucket_counts))
);
CREATE INDEX summed_calls_by_name ON summed_calls (project_id, (tool_name::name), hours, since);
CREATE INDEX summed_calls_opened_before ON summed_calls (project_id, since)
    WHERE hours = 1 AND opened_since < since;
CREATE TABLE changed_hour (
    project_id integer NOT NULL,
    hour timestamptz NOT NULL,
    mark_id uuid NOT NULL DEFAULT gen_random_uuid(),
    PRIMARY KEY (project_id, hour, mark_id)
)"""


def upgrade() -> None:
    op.execute(TABLES)


def downgrade() -> None:
    op.execute("DROP TABLE changed_hour; DROP TABLE summed_calls; DROP TABLE summed_range")
