"""Order the lists of runs by start, and index the failed records of each run.

Building the indexes blocks writers, a second or two for each million records. Recorders keep what
they have to write meanwhile.
"""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

START = "(CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END)"

INDEXES = {
    "run_of_agents": "is_agent_work",
    "run_open": "status < 'cancelled'",
    "run_failed": "status = 'failed'",
}


TABLES = ("plan_execution_record", "agent_execution_record", "think_act_record", "act_tool_info")


def upgrade() -> None:
    _replace(START)
    for table in TABLES:
        op.execute(
            f"CREATE INDEX {table}_failed_by_run ON {table} (root_plan_id) WHERE status = 'failed'"
        )


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP INDEX {table}_failed_by_run")
    _replace("recorded_at")


def _replace(moment: str) -> None:
    for name, condition in INDEXES.items():
        op.execute(f"DROP INDEX {name}")
        op.execute(
            f"CREATE INDEX {name} ON run (project_id, {moment}, root_plan_id)"
            f" WHERE deleted_at IS NULL AND {condition}"
        )
