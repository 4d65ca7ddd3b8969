"""Keep the service of a run: name, version and deployment environment."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

COLUMNS = ("service_name", "service_version", "deployment_environment")


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("run", sa.Column(name, sa.Text()))


def downgrade() -> None:
    for name in reversed(COLUMNS):
        op.drop_column("run", name)
