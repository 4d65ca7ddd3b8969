"""Add prices of a project's own models, and count the model calls of unknown cost.

The counts of stored runs are computed: a second or two for each million think-acts.
"""

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

TABLE = """
CREATE TABLE model_price (
    project_id integer NOT NULL CONSTRAINT model_price_of_project REFERENCES project,
    model text NOT NULL,
    provider text NOT NULL,
    valid_from date NOT NULL,
    input_usd numeric NOT NULL,
    output_usd numeric NOT NULL,
    cache_read_usd numeric,
    cache_write_usd numeric,
    reasoning_usd numeric,
    PRIMARY KEY (project_id, model, provider, valid_from),
    CONSTRAINT model_price_names_a_model CHECK (length(model) BETWEEN 1 AND 200),
    CONSTRAINT model_price_has_rates CHECK (
        input_usd BETWEEN 0 AND 1000000 AND output_usd BETWEEN 0 AND 1000000
        AND cache_read_usd BETWEEN 0 AND 1000000 AND cache_write_usd BETWEEN 0 AND 1000000
        AND reasoning_usd BETWEEN 0 AND 1000000)
)"""

COUNT = """
UPDATE run SET unpriced_calls = unpriced.calls FROM (
    SELECT project_id, root_plan_id, count(*) AS calls FROM think_act_record
    WHERE cost_usd IS NULL AND (status = 'succeeded'
        OR coalesce(input_tokens, 0) + coalesce(output_tokens, 0) > 0)
    GROUP BY project_id, root_plan_id
) AS unpriced
WHERE run.project_id = unpriced.project_id AND run.root_plan_id = unpriced.root_plan_id
    AND run.deleted_at IS NULL"""

COUNTS = """
ALTER TABLE run DROP CONSTRAINT run_totals_are_counts;
ALTER TABLE run ADD CONSTRAINT run_totals_are_counts CHECK ({counts})"""

BEFORE = (
    "input_tokens >= 0 AND output_tokens >= 0 AND cost_usd >= 0 AND tool_calls >= 0"
    " AND failures >= 0"
)


def upgrade() -> None:
    op.execute(TABLE)
    op.execute("ALTER TABLE run ADD unpriced_calls bigint NOT NULL DEFAULT 0")
    op.execute(COUNT)
    op.execute(COUNTS.format(counts=f"{BEFORE} AND unpriced_calls >= 0"))


def downgrade() -> None:
    op.execute(COUNTS.format(counts=BEFORE))
    op.execute("ALTER TABLE run DROP unpriced_calls")
    op.execute("DROP TABLE model_price")
