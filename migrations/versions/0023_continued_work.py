"""Add what a call continued, and what a run follows.

Neither is a foreign key. A continued plan may be that of a call that has not arrived, and the call
that a run follows belongs to another run.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("act_tool_info", sa.Column("continued_plan_id", sa.Uuid()))
    op.add_column("plan_execution_record", sa.Column("follows_provider_call_id", sa.Text()))


def downgrade() -> None:
    op.drop_column("plan_execution_record", "follows_provider_call_id")
    op.drop_column("act_tool_info", "continued_plan_id")
