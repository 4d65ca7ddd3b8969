"""Index the calls with a provider's id without their order: few calls share an id.

An entry takes 24 bytes less, and entries of equal ids share a key.
"""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

REPLACE = """
DROP INDEX act_tool_info_by_provider_call_id;
CREATE INDEX act_tool_info_by_provider_call_id ON act_tool_info ({columns})
    WHERE provider_call_id IS NOT NULL"""

START = "(CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END)"


def upgrade() -> None:
    op.execute(REPLACE.format(columns="project_id, (provider_call_id::name)"))


def downgrade() -> None:
    columns = f"project_id, (provider_call_id::name), {START}, tool_call_id"
    op.execute(REPLACE.format(columns=columns))
