"""Add the schema for the views of analysts, and the table of the project of each analyst.

The views are created after every migration by `tracer.storage.postgres.administration.migrate`, and
the policies and rights of analysts by `tracer.storage.postgres.administration.analysts`.
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TABLE = """
CREATE TABLE analyst (
    role_name text PRIMARY KEY,
    project_id integer NOT NULL CONSTRAINT analyst_of_project REFERENCES project,
    was_made boolean NOT NULL
)"""

NO_ANALYSTS = """
DO $$
DECLARE
    read regclass;
BEGIN
    FOR read IN SELECT polrelid FROM pg_policy WHERE polname = 'for_analysts' LOOP
        EXECUTE format('DROP POLICY for_analysts ON %s', read);
        EXECUTE format('REVOKE ALL ON %s FROM tracer_reader', read);
    END LOOP;
END $$"""


def upgrade() -> None:
    op.execute("CREATE SCHEMA trace")
    op.execute(TABLE)


def downgrade() -> None:
    op.execute("DROP SCHEMA trace CASCADE")
    op.execute(NO_ANALYSTS)
    op.execute("DROP TABLE analyst")
