"""Keep how long calls took without the sub-agents that they opened.

Runs whose calls opened sub-plans are rolled up again by the roll-up job. Until then, the time of
their sub-agents counts as the calls' own.
"""

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("run_group", "tool_hour"):
        op.execute(
            f"ALTER TABLE {table} ADD own_buckets smallint[], ADD own_bucket_counts bigint[]"
        )
    op.execute("""
UPDATE run SET summed_revision = 0 FROM (
    SELECT DISTINCT project_id, root_plan_id FROM run_group WHERE sub_plans > 0
) AS opening
WHERE run.project_id = opening.project_id AND run.root_plan_id = opening.root_plan_id""")


def downgrade() -> None:
    for table in ("tool_hour", "run_group"):
        op.execute(f"ALTER TABLE {table} DROP own_bucket_counts, DROP own_buckets")
