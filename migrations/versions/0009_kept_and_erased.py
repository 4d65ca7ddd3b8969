"""Add the retention settings of projects, and the deletion of runs in steps.

Writers wait while the indexes are built, as in 0008.
"""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

START = "(CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END)"

UPGRADE = f"""
ALTER TABLE project
    ADD keep_days integer,
    ADD keep_runs bigint,
    ADD payloads text NOT NULL DEFAULT 'keep',
    ADD CONSTRAINT project_keeps_some_days CHECK (keep_days BETWEEN 1 AND 36500),
    ADD CONSTRAINT project_keeps_some_runs CHECK (keep_runs > 0),
    ADD CONSTRAINT project_has_a_payload_policy CHECK (payloads IN ('keep', 'preview', 'drop'));
ALTER TABLE run ADD swept_at timestamptz;
UPDATE run SET swept_at = deleted_at WHERE deleted_at IS NOT NULL;
CREATE INDEX run_by_session_id ON run (project_id, (session_id::name))
    WHERE session_id IS NOT NULL;
CREATE INDEX run_by_subject ON run (project_id, (subject::name), root_plan_id)
    WHERE subject IS NOT NULL;
CREATE INDEX run_buried ON run (project_id, root_plan_id)
    WHERE deleted_at IS NOT NULL AND swept_at IS NULL;
CREATE INDEX run_by_swept_at ON run (project_id, swept_at) WHERE swept_at IS NOT NULL;
DROP INDEX plan_execution_record_by_run;
CREATE INDEX plan_execution_record_by_run ON plan_execution_record (root_plan_id, revision);
DROP INDEX plan_execution_record_by_start;
CREATE INDEX plan_execution_record_by_start ON plan_execution_record (project_id, {START})
    WHERE tool_call_id IS NOT NULL"""

BELOW = (
    "otel_span",
    "removed_record",
    "act_tool_info",
    "think_act_record",
    "agent_execution_record",
    "plan_execution_record",
)

DOWNGRADE = f"""
UPDATE run SET session_id = NULL, subject = NULL WHERE deleted_at IS NOT NULL;
DROP INDEX plan_execution_record_by_run;
CREATE INDEX plan_execution_record_by_run
    ON plan_execution_record (project_id, root_plan_id, revision) WHERE recorded_at > '-infinity';
DROP INDEX plan_execution_record_by_start;
CREATE INDEX plan_execution_record_by_start ON plan_execution_record (project_id, {START});
DROP INDEX run_by_session_id;
DROP INDEX run_by_subject;
DROP INDEX run_buried;
DROP INDEX run_by_swept_at;
ALTER TABLE run DROP swept_at;
ALTER TABLE project DROP keep_days, DROP keep_runs, DROP payloads"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    for table in BELOW:  # else a run that is half deleted would be seen again
        op.execute(
            f"DELETE FROM {table} AS part USING run WHERE run.project_id = part.project_id AND"
            " run.root_plan_id = part.root_plan_id AND run.deleted_at IS NOT NULL"
            " AND run.swept_at IS NULL"
        )
    op.execute("SET CONSTRAINTS ALL IMMEDIATE")
    op.execute(DOWNGRADE)
