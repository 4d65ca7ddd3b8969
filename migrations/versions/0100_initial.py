"""Create all tables.

Plain SQL, because analysts read it. A test compares the result with
`tracer.storage.postgres.tables`. `tracer.storage.postgres.migrate`
writes the comments, from the docstrings there.

Before the first release, a change of the schema edits this file and raises its revision. A database
with a lower revision is then refused. After the release, a change is a migration of its own.
"""

import re

from alembic import op

revision = "0117"
down_revision = None
branch_labels = None
depends_on = None

# Without statistics, the planner rates every index that begins with the project and the run like
# the primary key. Each check of a foreign key could then read the whole run. Therefore the ids come
# first in indexes. Indexes in which they cannot come first have the condition
# `recorded_at > '-infinity'`. It is always true, but the query of a check does not imply it, so the
# planner does not choose these indexes.
TABLES = """
CREATE TYPE record_status AS ENUM
    ('unknown', 'pending', 'running', 'cancelled', 'failed', 'succeeded');
CREATE SCHEMA trace;

CREATE TABLE project (
    project_id integer NOT NULL,
    name text NOT NULL,
    created_at timestamptz NOT NULL,
    keep_days integer,
    keep_runs bigint,
    payloads text NOT NULL DEFAULT 'keep',
    erased_at timestamptz,
    summed_at timestamptz,
    PRIMARY KEY (project_id),
    CONSTRAINT project_has_its_own_name UNIQUE (name),
    CONSTRAINT project_has_a_name CHECK (length(name) BETWEEN 1 AND 100),
    CONSTRAINT project_keeps_some_days CHECK (keep_days BETWEEN 1 AND 36500),
    CONSTRAINT project_keeps_some_runs CHECK (keep_runs > 0),
    CONSTRAINT project_has_a_payload_policy CHECK (payloads IN ('keep', 'preview', 'drop'))
);

CREATE TABLE run (
    project_id integer NOT NULL DEFAULT current_setting('tracer.project_id')::integer,
    root_plan_id uuid NOT NULL,
    status record_status NOT NULL,
    reason text,
    started_at timestamptz,
    finished_at timestamptz,
    recorder_id uuid,
    recorded_at timestamptz NOT NULL,
    revision bigint NOT NULL,
    title text,
    agent_name text,
    session_id text,
    subject text,
    tags text[],
    traceparent text,
    cancel_requested_at timestamptz,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost_usd numeric NOT NULL,
    tool_calls bigint NOT NULL,
    failed_calls bigint NOT NULL,
    source text NOT NULL,
    deleted_at timestamptz,
    is_agent_work boolean NOT NULL DEFAULT true,
    swept_at timestamptz,
    masked text[],
    projected bigint NOT NULL DEFAULT 0,
    projection_version integer NOT NULL DEFAULT 0,
    projection_error text,
    next_projection_at timestamptz,
    span_bytes bigint NOT NULL DEFAULT 0,
    settle_at timestamptz,
    summed_revision bigint NOT NULL DEFAULT 0,
    is_summed boolean GENERATED ALWAYS AS (revision <= summed_revision) STORED NOT NULL,
    run_metadata text,
    service_name text,
    service_version text,
    deployment_environment text,
    unpriced_calls bigint NOT NULL DEFAULT 0,
    unread_spans bigint NOT NULL DEFAULT 0,
    unread_scopes text[],
    follows_calls uuid[],
    follows_runs uuid[],
    follows_keys text[],
    prompt_sequence bigint,
    prompt_number bigint,
    open_at timestamptz,
    left_open_at timestamptz,
    work_keys text[],
    refused_spans bigint NOT NULL DEFAULT 0,
    span_count bigint NOT NULL DEFAULT 0,
    span_records bytea,
    continues_run_id uuid,
    head_id uuid,
    is_inside boolean NOT NULL DEFAULT false,
    whole_status text,
    beginning_deleted boolean NOT NULL DEFAULT false,
    is_bare boolean NOT NULL DEFAULT false,
    parts_revision bigint NOT NULL DEFAULT 0,
    linked_revision bigint NOT NULL DEFAULT 0,
    linked_session_id text,
    is_linked boolean GENERATED ALWAYS AS (revision <= linked_revision) STORED NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (project_id, root_plan_id),
    CONSTRAINT run_totals_are_counts CHECK (
        input_tokens >= 0 AND output_tokens >= 0 AND cost_usd >= 0 AND tool_calls >= 0 AND
        failed_calls >= 0 AND unpriced_calls >= 0),
    CONSTRAINT run_has_one_source CHECK (source IN ('events', 'spans'))
);
CREATE INDEX run_by_recorded_at
    ON run (project_id, recorded_at, root_plan_id) WHERE deleted_at IS NULL;
CREATE INDEX run_by_start
    ON run (
        project_id,
        (CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END), root_plan_id)
    WHERE deleted_at IS NULL;
CREATE INDEX run_by_subject
    ON run (project_id, (subject::name), root_plan_id) WHERE subject IS NOT NULL;
CREATE INDEX run_by_session_id
    ON run (project_id, (session_id::name)) WHERE session_id IS NOT NULL;
CREATE INDEX run_by_swept_at ON run (project_id, swept_at) WHERE swept_at IS NOT NULL;
CREATE INDEX run_failed
    ON run (
        project_id,
        (CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END), root_plan_id)
    WHERE deleted_at IS NULL AND (status = 'failed' OR whole_status = 'failed');
CREATE INDEX run_of_heads
    ON run (
        project_id,
        (CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END), root_plan_id)
    WHERE deleted_at IS NULL AND is_agent_work AND continues_run_id IS NULL;
CREATE INDEX run_of_agents
    ON run (
        project_id,
        (CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END), root_plan_id)
    WHERE deleted_at IS NULL AND is_agent_work;
CREATE INDEX run_open
    ON run (
        project_id,
        (CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END), root_plan_id)
    WHERE deleted_at IS NULL
        AND (status < 'cancelled' OR whole_status IN ('running', 'abandoned'));
CREATE INDEX run_open_below_root ON run (open_at) WHERE open_at IS NOT NULL;
CREATE INDEX run_by_change ON run (project_id, changed_at, root_plan_id);
CREATE INDEX run_to_link ON run (project_id, root_plan_id) WHERE NOT is_linked;
CREATE INDEX run_by_head ON run (project_id, head_id) WHERE head_id IS NOT NULL;
CREATE INDEX run_of_claims
    ON run (project_id, (session_id::name))
    WHERE session_id IS NOT NULL
        AND (follows_keys IS NOT NULL OR work_keys IS NOT NULL OR is_bare
            OR prompt_sequence IS NOT NULL);
CREATE INDEX run_to_purge
    ON run (project_id, root_plan_id) WHERE deleted_at IS NOT NULL AND swept_at IS NULL;
CREATE INDEX run_to_settle ON run (settle_at) WHERE settle_at IS NOT NULL;
CREATE INDEX run_to_sum_up ON run (project_id, recorded_at, root_plan_id) WHERE NOT is_summed;

CREATE TABLE plan_execution_record (
    project_id integer NOT NULL DEFAULT current_setting('tracer.project_id')::integer,
    root_plan_id uuid NOT NULL,
    plan_id uuid NOT NULL,
    parent_plan_id uuid,
    tool_call_id uuid,
    opened_by_step_id uuid,
    position integer,
    depth integer,
    status record_status NOT NULL,
    reason text,
    started_at timestamptz,
    finished_at timestamptz,
    recorder_id uuid,
    recorded_at timestamptz NOT NULL,
    revision bigint NOT NULL,
    title text,
    user_request text,
    agent_name text,
    template text,
    template_version text,
    summary text,
    error_type text,
    error_message text,
    error_stack text,
    inferred boolean NOT NULL DEFAULT false,
    inferred_from text,
    masked text[],
    digest bigint,
    clock_shift_us bigint,
    handle_key text COLLATE "C"
        GENERATED ALWAYS AS (reverse(right(plan_id::text, 10))) STORED,
    PRIMARY KEY (plan_id, root_plan_id, project_id),
    CONSTRAINT root_plan_id_refers_to_run
        FOREIGN KEY (project_id, root_plan_id)
        REFERENCES run (project_id, root_plan_id) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT parent_plan_id_refers_to_plan_execution_record
        FOREIGN KEY (project_id, root_plan_id, parent_plan_id)
        REFERENCES plan_execution_record (project_id, root_plan_id, plan_id)
            DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT plan_started_has_links CHECK (
        started_at IS NULL OR plan_id = root_plan_id OR (parent_plan_id IS NOT NULL AND
        (tool_call_id IS NOT NULL OR opened_by_step_id IS NOT NULL))),
    CONSTRAINT plan_at_the_root_has_no_parent CHECK (
        plan_id <> root_plan_id OR (parent_plan_id IS NULL AND tool_call_id IS NULL AND
        opened_by_step_id IS NULL)),
    CONSTRAINT plan_is_not_its_own_parent CHECK (parent_plan_id <> plan_id),
    CONSTRAINT plan_has_counts CHECK (position >= 0 AND depth >= 0)
);
CREATE INDEX plan_execution_record_by_handle ON plan_execution_record (handle_key, project_id);
CREATE INDEX plan_execution_record_by_opened_by_step_id
    ON plan_execution_record (opened_by_step_id, root_plan_id)
    WHERE opened_by_step_id IS NOT NULL;
CREATE INDEX plan_execution_record_by_parent_plan_id
    ON plan_execution_record (parent_plan_id, root_plan_id) WHERE parent_plan_id IS NOT NULL;
CREATE INDEX plan_execution_record_by_run ON plan_execution_record (root_plan_id, revision);
CREATE INDEX plan_execution_record_by_start
    ON plan_execution_record (
        project_id,
        (CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END))
    WHERE tool_call_id IS NOT NULL;
CREATE INDEX plan_execution_record_by_tool_call_id
    ON plan_execution_record (tool_call_id, root_plan_id) WHERE tool_call_id IS NOT NULL;
CREATE INDEX plan_execution_record_failed_by_run
    ON plan_execution_record (root_plan_id) WHERE status = 'failed';

CREATE TABLE agent_execution_record (
    project_id integer NOT NULL DEFAULT current_setting('tracer.project_id')::integer,
    root_plan_id uuid NOT NULL,
    step_id uuid NOT NULL,
    plan_id uuid,
    position integer,
    status record_status NOT NULL,
    reason text,
    started_at timestamptz,
    finished_at timestamptz,
    recorder_id uuid,
    recorded_at timestamptz NOT NULL,
    revision bigint NOT NULL,
    agent_name text,
    request text,
    result text,
    error_type text,
    error_message text,
    error_stack text,
    masked text[],
    digest bigint,
    clock_shift_us bigint,
    handle_key text COLLATE "C"
        GENERATED ALWAYS AS (reverse(right(step_id::text, 10))) STORED,
    PRIMARY KEY (step_id, root_plan_id, project_id),
    CONSTRAINT plan_id_refers_to_plan_execution_record
        FOREIGN KEY (project_id, root_plan_id, plan_id)
        REFERENCES plan_execution_record (project_id, root_plan_id, plan_id)
            DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT step_has_links CHECK (status = 'unknown' OR plan_id IS NOT NULL),
    CONSTRAINT step_has_counts CHECK (position >= 0)
);
CREATE INDEX agent_execution_record_by_handle ON agent_execution_record (handle_key, project_id);
CREATE INDEX agent_execution_record_by_plan_id ON agent_execution_record (plan_id, root_plan_id);
CREATE INDEX agent_execution_record_by_run
    ON agent_execution_record (project_id, root_plan_id, revision)
    WHERE recorded_at > '-infinity';
CREATE INDEX agent_execution_record_failed_by_run
    ON agent_execution_record (root_plan_id) WHERE status = 'failed';

CREATE TABLE think_act_record (
    project_id integer NOT NULL DEFAULT current_setting('tracer.project_id')::integer,
    root_plan_id uuid NOT NULL,
    think_act_id uuid NOT NULL,
    step_id uuid,
    position integer,
    status record_status NOT NULL,
    reason text,
    started_at timestamptz,
    finished_at timestamptz,
    recorder_id uuid,
    recorded_at timestamptz NOT NULL,
    revision bigint NOT NULL,
    thought text,
    requested_model text,
    model text,
    messages text,
    input_tokens bigint,
    output_tokens bigint,
    cost_usd numeric,
    error_type text,
    error_message text,
    error_stack text,
    masked text[],
    digest bigint,
    provider text,
    parameters text,
    offered_tools text,
    offered_tools_from uuid,
    node text,
    finish_reasons text[],
    cache_read_tokens bigint,
    cache_written_tokens bigint,
    reasoning_tokens bigint,
    first_token_at timestamptz,
    inferred boolean NOT NULL DEFAULT false,
    inferred_from text,
    clock_shift_us bigint,
    handle_key text COLLATE "C"
        GENERATED ALWAYS AS (reverse(right(think_act_id::text, 10))) STORED,
    PRIMARY KEY (think_act_id, root_plan_id, project_id),
    CONSTRAINT step_id_refers_to_agent_execution_record
        FOREIGN KEY (project_id, root_plan_id, step_id)
        REFERENCES agent_execution_record (project_id, root_plan_id, step_id)
            DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT think_act_has_links CHECK (status = 'unknown' OR step_id IS NOT NULL),
    CONSTRAINT think_act_has_counts CHECK (
        position >= 0 AND input_tokens >= 0 AND output_tokens >= 0 AND cost_usd >= 0)
);
CREATE INDEX think_act_record_by_handle ON think_act_record (handle_key, project_id);
CREATE INDEX think_act_record_by_run
    ON think_act_record (project_id, root_plan_id, revision) WHERE recorded_at > '-infinity';
CREATE INDEX think_act_record_by_step_id ON think_act_record (step_id, root_plan_id);
CREATE INDEX think_act_record_failed_by_run
    ON think_act_record (root_plan_id) WHERE status = 'failed';

CREATE TABLE act_tool_info (
    project_id integer NOT NULL DEFAULT current_setting('tracer.project_id')::integer,
    root_plan_id uuid NOT NULL,
    tool_call_id uuid NOT NULL,
    step_id uuid,
    think_act_id uuid,
    parent_tool_call_id uuid,
    position integer,
    status record_status NOT NULL,
    reason text,
    started_at timestamptz,
    finished_at timestamptz,
    recorder_id uuid,
    recorded_at timestamptz NOT NULL,
    revision bigint NOT NULL,
    provider_call_id text,
    name text,
    tool_type text,
    attempt integer,
    arguments text,
    result text,
    error_type text,
    error_message text,
    error_stack text,
    effective_arguments text,
    forged_arguments text[],
    short_circuited_by text,
    state_changes text,
    still_running boolean,
    inferred boolean NOT NULL DEFAULT false,
    inferred_from text,
    masked text[],
    digest bigint,
    continued_plan_id uuid,
    clock_shift_us bigint,
    agent_key text,
    agent_end_sequence bigint,
    handle_key text COLLATE "C"
        GENERATED ALWAYS AS (reverse(right(tool_call_id::text, 10))) STORED,
    PRIMARY KEY (tool_call_id, root_plan_id, project_id),
    CONSTRAINT step_id_refers_to_agent_execution_record
        FOREIGN KEY (project_id, root_plan_id, step_id)
        REFERENCES agent_execution_record (project_id, root_plan_id, step_id)
            DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT think_act_id_refers_to_think_act_record
        FOREIGN KEY (project_id, root_plan_id, think_act_id)
        REFERENCES think_act_record (project_id, root_plan_id, think_act_id)
            DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT parent_tool_call_id_refers_to_act_tool_info
        FOREIGN KEY (project_id, root_plan_id, parent_tool_call_id)
        REFERENCES act_tool_info (project_id, root_plan_id, tool_call_id)
            DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT tool_call_has_links CHECK (status = 'unknown' OR step_id IS NOT NULL),
    CONSTRAINT tool_call_is_not_its_own_parent CHECK (parent_tool_call_id <> tool_call_id),
    CONSTRAINT tool_call_has_counts CHECK (position >= 0 AND attempt >= 1)
);
CREATE INDEX act_tool_info_by_handle ON act_tool_info (handle_key, project_id);
CREATE INDEX act_tool_info_by_name
    ON act_tool_info (
        project_id, (name::name),
        (CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END), tool_call_id)
    WHERE name IS NOT NULL;
CREATE INDEX act_tool_info_by_parent_tool_call_id
    ON act_tool_info (parent_tool_call_id, root_plan_id) WHERE parent_tool_call_id IS NOT NULL;
CREATE INDEX act_tool_info_by_provider_call_id
    ON act_tool_info (project_id, (provider_call_id::name)) WHERE provider_call_id IS NOT NULL;
CREATE INDEX act_tool_info_by_agent_key
    ON act_tool_info (project_id, (agent_key::name)) WHERE agent_key IS NOT NULL;
CREATE INDEX act_tool_info_with_ended_agent
    ON act_tool_info (project_id, root_plan_id) WHERE agent_end_sequence IS NOT NULL;
CREATE INDEX act_tool_info_by_run
    ON act_tool_info (project_id, root_plan_id, revision) WHERE recorded_at > '-infinity';
CREATE INDEX act_tool_info_by_start
    ON act_tool_info (
        project_id,
        (CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END), tool_call_id);
CREATE INDEX act_tool_info_by_step_id ON act_tool_info (step_id, root_plan_id);
CREATE INDEX act_tool_info_by_think_act_id
    ON act_tool_info (think_act_id, root_plan_id) WHERE think_act_id IS NOT NULL;
CREATE INDEX act_tool_info_failed
    ON act_tool_info (
        project_id,
        (CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END), tool_call_id)
    WHERE status = 'failed';
CREATE INDEX act_tool_info_failed_by_name
    ON act_tool_info (
        project_id, (name::name),
        (CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END), tool_call_id)
    WHERE name IS NOT NULL AND status = 'failed';
CREATE INDEX act_tool_info_failed_by_run ON act_tool_info (root_plan_id) WHERE status = 'failed';
CREATE INDEX act_tool_info_open
    ON act_tool_info (
        project_id,
        (CASE WHEN started_at IS NOT NULL THEN started_at ELSE recorded_at END), tool_call_id)
    WHERE status < 'cancelled';

CREATE TABLE recorder_lease (
    project_id integer NOT NULL,
    recorder_id uuid NOT NULL,
    seen_at timestamptz NOT NULL,
    length interval NOT NULL,
    lag interval,
    PRIMARY KEY (recorder_id, project_id),
    CONSTRAINT lease_has_a_length CHECK (length > '0')
);

CREATE TABLE lease_check (
    is_only boolean NOT NULL,
    served_at timestamptz,
    served_since timestamptz,
    due_checked_at timestamptz,
    PRIMARY KEY (is_only),
    CONSTRAINT lease_check_is_one_row CHECK (is_only)
);
INSERT INTO lease_check VALUES (true);

CREATE TABLE session_state (
    project_id integer NOT NULL,
    session_id text NOT NULL,
    state JSON NOT NULL,
    revision bigint NOT NULL,
    updated_at timestamptz NOT NULL,
    run_ids uuid[] NOT NULL DEFAULT '{}',
    session text GENERATED ALWAYS AS (regexp_replace(session_id, '@[0-9a-f]*$', '')) STORED,
    PRIMARY KEY (session_id, project_id)
);
CREATE INDEX session_state_by_session ON session_state (project_id, (session::name));

CREATE TABLE conversation (
    project_id integer NOT NULL,
    session_key uuid NOT NULL,
    session_id text NOT NULL,
    question text,
    answer text,
    status text NOT NULL,
    statuses text[] NOT NULL,
    turns bigint NOT NULL,
    open_turns bigint NOT NULL,
    failed_turns bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost_usd numeric NOT NULL,
    unpriced_calls bigint NOT NULL,
    tool_calls bigint NOT NULL,
    failed_calls bigint NOT NULL,
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    subjects text[] NOT NULL,
    agents text[] NOT NULL,
    moved_at timestamptz NOT NULL,
    moves timestamptz[] NOT NULL,
    PRIMARY KEY (session_key, project_id)
);
CREATE INDEX conversation_by_last_at ON conversation (project_id, last_at, session_key);
CREATE INDEX conversation_by_moved_at ON conversation (project_id, moved_at);

CREATE TABLE tool_hour (
    project_id integer NOT NULL,
    hour timestamptz NOT NULL,
    number integer NOT NULL,
    tool_name text NOT NULL,
    tool_type text,
    calls bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    failed_below bigint NOT NULL,
    cancelled bigint NOT NULL,
    abandoned bigint NOT NULL,
    running bigint NOT NULL,
    sub_plans bigint NOT NULL,
    latest_at timestamptz NOT NULL,
    greatest_ms FLOAT,
    failed_at timestamptz,
    buckets SMALLINT[] NOT NULL,
    bucket_counts bigint[] NOT NULL,
    own_buckets SMALLINT[],
    own_bucket_counts bigint[],
    PRIMARY KEY (project_id, hour, number)
);
CREATE INDEX tool_hour_by_name ON tool_hour (project_id, (tool_name::name), hour);

CREATE TABLE analyst (
    role_name text NOT NULL,
    project_id integer NOT NULL,
    was_made boolean NOT NULL,
    PRIMARY KEY (role_name),
    CONSTRAINT analyst_of_project FOREIGN KEY (project_id) REFERENCES project (project_id)
);

CREATE TABLE api_key (
    key_id uuid NOT NULL,
    project_id integer NOT NULL,
    name text NOT NULL,
    scopes text[] NOT NULL,
    digest bytea NOT NULL,
    created_at timestamptz NOT NULL,
    last_used_at timestamptz,
    revoked_at timestamptz,
    PRIMARY KEY (key_id),
    CONSTRAINT api_key_is_nobody_elses UNIQUE (digest),
    CONSTRAINT api_key_of_project FOREIGN KEY (project_id) REFERENCES project (project_id),
    CONSTRAINT api_key_has_a_name CHECK (length(name) BETWEEN 1 AND 100),
    CONSTRAINT api_key_allows_something CHECK (
        scopes <@ '{record,read,admin}' AND cardinality(scopes) > 0),
    CONSTRAINT api_key_has_a_digest CHECK (octet_length(digest) = 32)
);

CREATE TABLE model_price (
    project_id integer NOT NULL,
    model text NOT NULL,
    provider text NOT NULL,
    valid_from date NOT NULL,
    input_usd numeric NOT NULL,
    output_usd numeric NOT NULL,
    cache_read_usd numeric,
    cache_write_usd numeric,
    reasoning_usd numeric,
    PRIMARY KEY (project_id, model, provider, valid_from),
    CONSTRAINT model_price_of_project FOREIGN KEY (project_id) REFERENCES project (project_id),
    CONSTRAINT model_price_names_a_model CHECK (length(model) BETWEEN 1 AND 200),
    CONSTRAINT model_price_has_rates CHECK (
        input_usd BETWEEN 0 AND 1000000 AND output_usd BETWEEN 0 AND 1000000 AND
        cache_read_usd BETWEEN 0 AND 1000000 AND cache_write_usd BETWEEN 0 AND 1000000 AND
        reasoning_usd BETWEEN 0 AND 1000000)
);

CREATE TABLE otel_block (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    key bytea NOT NULL,
    spans integer NOT NULL,
    size bigint NOT NULL,
    recorded_at timestamptz NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (root_plan_id, key, project_id),
    CONSTRAINT block_refers_to_run
        FOREIGN KEY (project_id, root_plan_id)
        REFERENCES run (project_id, root_plan_id) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT block_has_a_key CHECK (octet_length(key) = 16),
    CONSTRAINT block_holds_spans CHECK (spans > 0 AND size > 0)
);
ALTER TABLE otel_block ALTER body SET STORAGE EXTERNAL;

CREATE TABLE otel_session (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    session_run_id uuid NOT NULL,
    PRIMARY KEY (root_plan_id, session_run_id, project_id),
    CONSTRAINT otel_session_refers_to_run
        FOREIGN KEY (project_id, root_plan_id)
        REFERENCES run (project_id, root_plan_id) DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX otel_session_by_session ON otel_session (project_id, session_run_id);

CREATE TABLE pending_run (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    arrived bigint NOT NULL,
    spans bigint NOT NULL,
    size bigint NOT NULL,
    since timestamptz NOT NULL,
    seen_at timestamptz,
    due_at timestamptz NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    attempted_at timestamptz,
    with_prices boolean NOT NULL DEFAULT false,
    failure text,
    PRIMARY KEY (root_plan_id, project_id),
    CONSTRAINT pending_run_refers_to_run
        FOREIGN KEY (project_id, root_plan_id)
        REFERENCES run (project_id, root_plan_id) DEFERRABLE INITIALLY DEFERRED
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 1000
);

CREATE TABLE recorder_run (
    project_id integer NOT NULL,
    recorder_id uuid NOT NULL,
    root_plan_id uuid NOT NULL,
    abandoned_at timestamptz,
    PRIMARY KEY (recorder_id, root_plan_id, project_id),
    CONSTRAINT recorder_run_refers_to_run
        FOREIGN KEY (project_id, root_plan_id)
        REFERENCES run (project_id, root_plan_id) DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX recorder_run_by_root_plan_id ON recorder_run (root_plan_id, project_id);
CREATE INDEX recorder_run_abandoned ON recorder_run (recorder_id, project_id)
    WHERE abandoned_at IS NOT NULL;

CREATE TABLE removed_record (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    record_id uuid NOT NULL,
    kind text NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (root_plan_id, record_id, project_id),
    CONSTRAINT removed_record_refers_to_run
        FOREIGN KEY (project_id, root_plan_id)
        REFERENCES run (project_id, root_plan_id) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT removed_record_has_a_kind CHECK (
        kind IN ('plan', 'step', 'thinkAct', 'toolCall'))
);

CREATE TABLE run_link (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    number integer NOT NULL,
    tool_call_id uuid,
    continued_run_id uuid,
    is_link boolean NOT NULL,
    inferred_from text,
    PRIMARY KEY (root_plan_id, number, project_id),
    CONSTRAINT run_link_refers_to_run
        FOREIGN KEY (project_id, root_plan_id)
        REFERENCES run (project_id, root_plan_id) DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX run_link_by_continued_run ON run_link (project_id, continued_run_id);
CREATE INDEX run_link_by_call
    ON run_link (project_id, tool_call_id) WHERE tool_call_id IS NOT NULL;

CREATE TABLE run_group (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    hour timestamptz NOT NULL,
    number integer NOT NULL,
    tool_name text NOT NULL,
    tool_type text,
    calls bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    failed_below bigint NOT NULL,
    cancelled bigint NOT NULL,
    abandoned bigint NOT NULL,
    running bigint NOT NULL,
    sub_plans bigint NOT NULL,
    latest_at timestamptz NOT NULL,
    greatest_ms FLOAT,
    failed_at timestamptz,
    buckets SMALLINT[] NOT NULL,
    bucket_counts bigint[] NOT NULL,
    own_buckets SMALLINT[],
    own_bucket_counts bigint[],
    PRIMARY KEY (root_plan_id, hour, number, project_id),
    CONSTRAINT group_refers_to_run
        FOREIGN KEY (project_id, root_plan_id)
        REFERENCES run (project_id, root_plan_id) DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX run_group_by_hour ON run_group (project_id, hour);

CREATE TABLE run_part_of_day (
    project_id integer NOT NULL,
    root_plan_id uuid NOT NULL,
    day date NOT NULL,
    number integer NOT NULL,
    service_name text,
    deployment_environment text,
    agents text[] NOT NULL,
    models text[] NOT NULL,
    origin_kind text,
    origin_name text,
    error_type text,
    runs bigint NOT NULL,
    failed bigint NOT NULL,
    abandoned bigint NOT NULL,
    running bigint NOT NULL,
    calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost_usd numeric NOT NULL,
    unpriced_calls bigint NOT NULL,
    duration_ms FLOAT,
    PRIMARY KEY (root_plan_id, number, project_id),
    CONSTRAINT part_refers_to_run
        FOREIGN KEY (project_id, root_plan_id)
        REFERENCES run (project_id, root_plan_id) DEFERRABLE INITIALLY DEFERRED
);
CREATE INDEX run_part_of_day_by_day ON run_part_of_day (project_id, day);

CREATE TABLE run_day (
    project_id integer NOT NULL,
    day date NOT NULL,
    number integer NOT NULL,
    service_name text,
    deployment_environment text,
    agents text[] NOT NULL,
    models text[] NOT NULL,
    origin_kind text,
    origin_name text,
    error_type text,
    runs bigint NOT NULL,
    failed bigint NOT NULL,
    abandoned bigint NOT NULL,
    running bigint NOT NULL,
    calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost_usd numeric NOT NULL,
    unpriced_calls bigint NOT NULL,
    sample_run_id uuid NOT NULL,
    buckets SMALLINT[] NOT NULL,
    bucket_counts bigint[] NOT NULL,
    PRIMARY KEY (project_id, day, number)
);

CREATE TABLE sign_in (
    digest bytea NOT NULL,
    key_id uuid NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (digest),
    CONSTRAINT sign_in_with_key FOREIGN KEY (key_id) REFERENCES api_key (key_id),
    CONSTRAINT sign_in_has_a_digest CHECK (octet_length(digest) = 32)
);
ALTER TABLE plan_execution_record
    ADD CONSTRAINT tool_call_id_refers_to_act_tool_info
    FOREIGN KEY (project_id, root_plan_id, tool_call_id)
    REFERENCES act_tool_info (project_id, root_plan_id, tool_call_id)
    DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE plan_execution_record
    ADD CONSTRAINT opened_by_step_id_refers_to_agent_execution_record
    FOREIGN KEY (project_id, root_plan_id, opened_by_step_id)
    REFERENCES agent_execution_record (project_id, root_plan_id, step_id)
    DEFERRABLE INITIALLY DEFERRED;

INSERT INTO project (project_id, name, created_at) VALUES (1, 'default', now())"""


def upgrade() -> None:
    for statement in TABLES.split(";"):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP SCHEMA trace CASCADE")
    for name in re.findall(r"CREATE TABLE (\w+)", TABLES):
        op.execute(f"DROP TABLE {name} CASCADE")
    op.execute("DROP TYPE record_status")
