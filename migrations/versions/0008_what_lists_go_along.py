"""Add an index for each list and filter.

Writers wait while the indexes are built: a few seconds for each million tool calls. Recorders spool
their events. `CONCURRENTLY` is not possible: it cannot run in a transaction, and the transaction
makes servers that start at the same time migrate only once.
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

START = "(CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END)"

OLD = {
    "run_by_recorded_at": "run (project_id, recorded_at DESC, root_plan_id DESC)"
    " WHERE deleted_at IS NULL",
    "act_tool_info_by_recorded_at": "act_tool_info"
    " (project_id, recorded_at DESC, tool_call_id DESC) WHERE recorded_at > '-infinity'",
    "act_tool_info_by_name": "act_tool_info"
    " (project_id, (name::name), recorded_at DESC, tool_call_id DESC) WHERE name IS NOT NULL",
    "act_tool_info_by_provider_call_id": "act_tool_info"
    " (project_id, (provider_call_id::name), recorded_at DESC, tool_call_id DESC)"
    " WHERE provider_call_id IS NOT NULL",
}

NEW = {
    "run_by_recorded_at": "run (project_id, recorded_at, root_plan_id) WHERE deleted_at IS NULL",
    "run_of_agents": "run (project_id, recorded_at, root_plan_id)"
    " WHERE deleted_at IS NULL AND is_agent_work",
    "run_by_start": f"run (project_id, {START}, root_plan_id) WHERE deleted_at IS NULL",
    "run_open": "run (project_id, recorded_at, root_plan_id)"
    " WHERE deleted_at IS NULL AND status < 'cancelled'",
    "run_failed": "run (project_id, recorded_at, root_plan_id)"
    " WHERE deleted_at IS NULL AND status = 'failed'",
    "plan_execution_record_by_start": f"plan_execution_record (project_id, {START})",
    "act_tool_info_by_start": f"act_tool_info (project_id, {START}, tool_call_id)",
    "act_tool_info_open": f"act_tool_info (project_id, {START}, tool_call_id)"
    " WHERE status < 'cancelled'",
    "act_tool_info_failed": f"act_tool_info (project_id, {START}, tool_call_id)"
    " WHERE status = 'failed'",
    "act_tool_info_by_name": f"act_tool_info (project_id, (name::name), {START}, tool_call_id)"
    " WHERE name IS NOT NULL",
    "act_tool_info_failed_by_name": "act_tool_info"
    f" (project_id, (name::name), {START}, tool_call_id)"
    " WHERE name IS NOT NULL AND status = 'failed'",
    "act_tool_info_by_provider_call_id": "act_tool_info"
    f" (project_id, (provider_call_id::name), {START}, tool_call_id)"
    " WHERE provider_call_id IS NOT NULL",
}


def upgrade() -> None:
    _replace(OLD, NEW)


def downgrade() -> None:
    _replace(NEW, OLD)


def _replace(old: dict[str, str], new: dict[str, str]) -> None:
    for name in old:
        op.execute(f"DROP INDEX {name}")
    for name, what in new.items():
        op.execute(f"CREATE INDEX {name} ON {what}")
