"""Create the record tables.

Plain SQL, since this is what analysts read; a test holds it equal to
`tracer.storage.postgres.schema.record_tables`. Comments come from the docstrings there, by
`tracer.storage.postgres.administration.migrate`.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = (
    "act_tool_info",
    "think_act_record",
    "agent_execution_record",
    "plan_execution_record",
    "run",
)

RECORD = """
    status record_status NOT NULL,
    reason text,
    started_at timestamptz,
    finished_at timestamptz,
    abandoned_at timestamptz,
    recorder_id uuid,
    recorded_at timestamptz NOT NULL,
    revision bigint NOT NULL"""

ERROR = """
    error_type text,
    error_message text,
    error_stack text"""

# Without statistics, the planner rates every index that begins with the project and the run like
# the primary key. Each check of a foreign key could then read the whole run. Therefore the ids come
# first in indexes. Indexes in which they cannot come first have this condition. It is always true,
# but the query of a check does not imply it, so the planner does not choose these indexes.
ALWAYS = "recorded_at > '-infinity'"

DEFERRED = "DEFERRABLE INITIALLY DEFERRED"


def reference(column: str, table: str, key: str) -> str:
    return f"""
    CONSTRAINT {column}_refers_to_{table}
        FOREIGN KEY (project_id, root_plan_id, {column})
        REFERENCES {table} (project_id, root_plan_id, {key}) {DEFERRED}"""


def upgrade() -> None:
    op.execute(
        "CREATE TYPE record_status AS ENUM"
        " ('unknown', 'pending', 'running', 'cancelled', 'failed', 'succeeded')"
    )
    create_run()
    create_plan()
    create_step()
    create_think_act()
    create_tool_call()
    for column, table, key in (
        ("tool_call_id", "act_tool_info", "tool_call_id"),
        ("opened_by_step_id", "agent_execution_record", "step_id"),
    ):
        op.execute(f"ALTER TABLE plan_execution_record ADD {reference(column, table, key)}")


def create_run() -> None:
    op.execute(f"""CREATE TABLE run (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    {RECORD},
    title text,
    agent_name text,
    session_id text,
    subject text,
    tags text[] NOT NULL,
    traceparent text,
    cancel_requested_at timestamptz,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost_usd numeric NOT NULL,
    tool_calls bigint NOT NULL,
    failures bigint NOT NULL,
    source text NOT NULL,
    deleted_at timestamptz,
    PRIMARY KEY (project_id, root_plan_id),
    CONSTRAINT run_totals_are_counts CHECK (
        input_tokens >= 0 AND output_tokens >= 0 AND cost_usd >= 0
        AND tool_calls >= 0 AND failures >= 0),
    CONSTRAINT run_has_one_source CHECK (source IN ('events', 'spans'))
)""")
    op.execute(
        "CREATE INDEX run_by_recorded_at"
        " ON run (project_id, recorded_at DESC, root_plan_id DESC) WHERE deleted_at IS NULL"
    )


def create_plan() -> None:
    op.execute(f"""CREATE TABLE plan_execution_record (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    plan_id uuid NOT NULL,
    parent_plan_id uuid,
    tool_call_id uuid,
    opened_by_step_id uuid,
    position integer,
    depth integer,
    {RECORD},
    title text,
    user_request text,
    agent_name text,
    template text,
    template_version text,
    summary text,
    {ERROR},
    PRIMARY KEY (plan_id, root_plan_id, project_id),
    CONSTRAINT root_plan_id_refers_to_run
        FOREIGN KEY (project_id, root_plan_id)
        REFERENCES run (project_id, root_plan_id) {DEFERRED},
    {reference("parent_plan_id", "plan_execution_record", "plan_id")},
    CONSTRAINT plan_started_has_links CHECK (
        started_at IS NULL OR plan_id = root_plan_id OR (parent_plan_id IS NOT NULL
        AND (tool_call_id IS NOT NULL OR opened_by_step_id IS NOT NULL))),
    CONSTRAINT plan_at_the_root_has_no_parent CHECK (
        plan_id <> root_plan_id OR (parent_plan_id IS NULL AND tool_call_id IS NULL
        AND opened_by_step_id IS NULL)),
    CONSTRAINT plan_is_not_its_own_parent CHECK (parent_plan_id <> plan_id),
    CONSTRAINT plan_has_counts CHECK (position >= 0 AND depth >= 0)
)""")
    index_run("plan_execution_record")
    for column in ("parent_plan_id", "tool_call_id", "opened_by_step_id"):
        index_link("plan_execution_record", column, f"WHERE {column} IS NOT NULL")


def create_step() -> None:
    op.execute(f"""CREATE TABLE agent_execution_record (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    step_id uuid NOT NULL,
    plan_id uuid,
    position integer,
    {RECORD},
    agent_name text,
    request text,
    result text,
    {ERROR},
    PRIMARY KEY (step_id, root_plan_id, project_id),
    {reference("plan_id", "plan_execution_record", "plan_id")},
    CONSTRAINT step_has_links CHECK (status = 'unknown' OR plan_id IS NOT NULL),
    CONSTRAINT step_has_counts CHECK (position >= 0)
)""")
    index_run("agent_execution_record")
    index_link("agent_execution_record", "plan_id")


def create_think_act() -> None:
    op.execute(f"""CREATE TABLE think_act_record (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    think_act_id uuid NOT NULL,
    step_id uuid,
    position integer,
    {RECORD},
    thought text,
    requested_model text,
    model text,
    messages text,
    input_tokens bigint,
    output_tokens bigint,
    cost_usd numeric,
    {ERROR},
    PRIMARY KEY (think_act_id, root_plan_id, project_id),
    {reference("step_id", "agent_execution_record", "step_id")},
    CONSTRAINT think_act_has_links CHECK (status = 'unknown' OR step_id IS NOT NULL),
    CONSTRAINT think_act_has_counts CHECK (
        position >= 0 AND input_tokens >= 0 AND output_tokens >= 0 AND cost_usd >= 0)
)""")
    index_run("think_act_record")
    index_link("think_act_record", "step_id")


def create_tool_call() -> None:
    op.execute(f"""CREATE TABLE act_tool_info (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    tool_call_id uuid NOT NULL,
    step_id uuid,
    think_act_id uuid,
    parent_tool_call_id uuid,
    position integer,
    {RECORD},
    provider_call_id text,
    name text,
    tool_type text,
    attempt integer,
    arguments text,
    arguments_json jsonb,
    result text,
    result_json jsonb,
    {ERROR},
    late_finished_at timestamptz,
    late_status record_status,
    late_result text,
    PRIMARY KEY (tool_call_id, root_plan_id, project_id),
    {reference("step_id", "agent_execution_record", "step_id")},
    {reference("think_act_id", "think_act_record", "think_act_id")},
    {reference("parent_tool_call_id", "act_tool_info", "tool_call_id")},
    CONSTRAINT tool_call_has_links CHECK (status = 'unknown' OR step_id IS NOT NULL),
    CONSTRAINT tool_call_is_not_its_own_parent CHECK (parent_tool_call_id <> tool_call_id),
    CONSTRAINT tool_call_has_counts CHECK (position >= 0 AND attempt >= 1)
)""")
    index_run("act_tool_info")
    index_link("act_tool_info", "step_id")
    for column in ("think_act_id", "parent_tool_call_id"):
        index_link("act_tool_info", column, f"WHERE {column} IS NOT NULL")
    newest_first = "recorded_at DESC, tool_call_id DESC"
    for name, columns in (
        ("recorded_at", newest_first),
        # A prefix: an index entry has room for 2,700 bytes, and a name may have megabytes.
        ("name", f"left(name, 100), {newest_first}"),
        ("provider_call_id", f"left(provider_call_id, 100), {newest_first}"),
    ):
        op.execute(
            f"CREATE INDEX act_tool_info_by_{name} ON act_tool_info (project_id, {columns})"
            f" WHERE {ALWAYS if name == 'recorded_at' else f'{name} IS NOT NULL'}"
        )


def index_run(table: str) -> None:
    op.execute(f"CREATE INDEX {table}_by_run ON {table} (project_id, root_plan_id) WHERE {ALWAYS}")


def index_link(table: str, column: str, where: str = "") -> None:
    op.execute(f"CREATE INDEX {table}_by_{column} ON {table} ({column}, root_plan_id) {where}")


def downgrade() -> None:
    op.execute(f"DROP TABLE {', '.join(TABLES)}")
    op.execute("DROP TYPE record_status")
