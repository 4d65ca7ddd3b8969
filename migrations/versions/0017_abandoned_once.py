"""Store once per recorder and run whether the recorder is dead in it.

Records had a copy each. Comments come from the docstrings in
`tracer.storage.postgres.schema.lease_tables`.
"""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

RECORDS = ("plan_execution_record", "agent_execution_record", "think_act_record", "act_tool_info")

_WHOSE = """CASE run.source WHEN 'events' THEN coalesce(record.recorder_id, record.root_plan_id)
    ELSE record.root_plan_id END"""

_UNFINISHED = "record.status IN ('pending', 'running')"


def _of_run(table: str) -> str:
    return f"""FROM {table} AS record
    JOIN run ON run.project_id = record.project_id AND run.root_plan_id = record.root_plan_id
        AND run.deleted_at IS NULL"""


# The dropped flags told the reaper which leases to check. It now checks every lease once.
UPGRADE = """
ALTER TABLE recorder_run ADD abandoned_at timestamptz, DROP may_be_open, DROP has_abandoned;
UPDATE recorder_lease SET due_at = now();
ALTER TABLE recorder_lease ALTER due_at SET NOT NULL"""

FILL = """
INSERT INTO recorder_run AS kept (project_id, recorder_id, root_plan_id, abandoned_at)
SELECT record.project_id, {whose}, record.root_plan_id, min(record.abandoned_at) {of_run}
WHERE record.abandoned_at IS NOT NULL AND {unfinished} GROUP BY 1, 2, 3
ON CONFLICT (recorder_id, root_plan_id, project_id) DO UPDATE
SET abandoned_at = least(kept.abandoned_at, excluded.abandoned_at)"""

COPY_BACK = """
UPDATE {table} AS kept SET abandoned_at = part.abandoned_at
FROM recorder_run AS part, {table} AS record
JOIN run ON run.project_id = record.project_id AND run.root_plan_id = record.root_plan_id
WHERE kept.ctid = record.ctid AND {unfinished} AND part.abandoned_at IS NOT NULL
    AND part.project_id = record.project_id AND part.root_plan_id = record.root_plan_id
    AND part.recorder_id = {whose}"""


def upgrade() -> None:
    op.execute(UPGRADE)
    for table in RECORDS:
        op.execute(FILL.format(whose=_WHOSE, unfinished=_UNFINISHED, of_run=_of_run(table)))
    for table in ("run", *RECORDS):
        op.execute(f"ALTER TABLE {table} DROP abandoned_at")


def downgrade() -> None:
    for table in ("run", *RECORDS):
        op.execute(f"ALTER TABLE {table} ADD abandoned_at timestamptz")
        values = {"table": table, "unfinished": _UNFINISHED, "whose": _WHOSE}
        op.execute(COPY_BACK.format(**values))
    op.execute(
        "ALTER TABLE recorder_lease ALTER due_at DROP NOT NULL;"
        "ALTER TABLE recorder_run ADD may_be_open boolean NOT NULL DEFAULT true,"
        " ADD has_abandoned boolean NOT NULL DEFAULT false;"
        "UPDATE recorder_run SET has_abandoned = abandoned_at IS NOT NULL;"
        "ALTER TABLE recorder_run DROP abandoned_at"
    )
