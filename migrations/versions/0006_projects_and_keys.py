"""Add projects, keys and sign-ins, and indexes by name that row-level security can use.

The policies are created after every migration, from the tables' definitions: see
`tracer.storage.postgres.connection.row_security`. Comments come from docstrings, by
`tracer.storage.postgres.administration.migrate`.
"""

from alembic import op

revision = "0006"
down_revision = "0004"
branch_labels = None
depends_on = None

COPIED = (
    "run",
    "plan_execution_record",
    "agent_execution_record",
    "think_act_record",
    "act_tool_info",
    "otel_span",
)
"""Tables whose rows may be copied in, which names no project: the transaction does."""

OF_THE_TRANSACTION = "current_setting('tracer.project_id')::integer"

NEWEST_FIRST = "recorded_at DESC, tool_call_id DESC"

TABLES = """
CREATE TABLE project (
    project_id integer PRIMARY KEY,
    name text NOT NULL CONSTRAINT project_has_its_own_name UNIQUE,
    created_at timestamptz NOT NULL,
    CONSTRAINT project_has_a_name CHECK (length(name) BETWEEN 1 AND 100)
);
CREATE TABLE api_key (
    key_id uuid PRIMARY KEY,
    project_id integer NOT NULL CONSTRAINT api_key_of_project REFERENCES project,
    name text NOT NULL,
    scopes text[] NOT NULL,
    digest bytea NOT NULL CONSTRAINT api_key_is_nobody_elses UNIQUE,
    created_at timestamptz NOT NULL,
    last_used_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT api_key_has_a_name CHECK (length(name) BETWEEN 1 AND 100),
    CONSTRAINT api_key_allows_something
        CHECK (scopes <@ '{record,read,admin}' AND cardinality(scopes) > 0),
    CONSTRAINT api_key_has_a_digest CHECK (octet_length(digest) = 32)
);
CREATE TABLE sign_in (
    digest bytea PRIMARY KEY,
    key_id uuid NOT NULL CONSTRAINT sign_in_with_key REFERENCES api_key,
    expires_at timestamptz NOT NULL,
    CONSTRAINT sign_in_has_a_digest CHECK (octet_length(digest) = 32)
);
INSERT INTO project VALUES (1, 'default', now())"""


def upgrade() -> None:
    op.execute(TABLES)
    for table in COPIED:
        op.execute(f"ALTER TABLE {table} ALTER project_id SET DEFAULT {OF_THE_TRANSACTION}")
    # The cast to `name` is leakproof, the function `left` is not. Behind a policy, Postgres uses an
    # index only for leakproof conditions.
    _index_calls("({column}::name)")


NO_WALL = """
DO $$
DECLARE
    secured regclass;
BEGIN
    FOR secured IN SELECT polrelid FROM pg_policy WHERE polname = 'of_its_project' LOOP
        EXECUTE format('DROP POLICY of_its_project ON %s', secured);
        EXECUTE format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', secured);
        EXECUTE format('REVOKE ALL ON %s FROM tracer_program', secured);
    END LOOP;
END $$"""


def downgrade() -> None:
    op.execute(NO_WALL)
    for table in COPIED:
        op.execute(f"ALTER TABLE {table} ALTER project_id DROP DEFAULT")
    _index_calls("left({column}, 100)")
    op.execute("DROP TABLE sign_in; DROP TABLE api_key; DROP TABLE project")


def _index_calls(beginning: str) -> None:
    for column in ("name", "provider_call_id"):
        key = beginning.format(column=column)
        op.execute(f"DROP INDEX act_tool_info_by_{column}")
        op.execute(
            f"CREATE INDEX act_tool_info_by_{column} ON act_tool_info"
            f" (project_id, {key}, {NEWEST_FIRST}) WHERE {column} IS NOT NULL"
        )
