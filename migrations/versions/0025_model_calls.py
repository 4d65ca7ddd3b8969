"""Keep what a model was asked with: provider, parameters, offered tools, kinds of tokens."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

COLUMNS = {
    "provider": sa.Text(),
    "parameters": sa.Text(),
    "offered_tools": sa.Text(),
    "offered_tools_from": sa.Uuid(),
    "node": sa.Text(),
    "finish_reasons": postgresql.ARRAY(sa.Text()),
    "cache_read_tokens": sa.BigInteger(),
    "cache_written_tokens": sa.BigInteger(),
    "reasoning_tokens": sa.BigInteger(),
    "first_token_at": sa.DateTime(timezone=True),
}


def upgrade() -> None:
    for name, type_ in COLUMNS.items():
        op.add_column("think_act_record", sa.Column(name, type_))
    op.add_column("run", sa.Column("run_metadata", sa.Text()))


def downgrade() -> None:
    op.drop_column("run", "run_metadata")
    for name in reversed(COLUMNS):
        op.drop_column("think_act_record", name)
