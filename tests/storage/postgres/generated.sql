-- event_rows.LOCK_RUNS: events of runs arrive
    INSERT INTO run AS stored (project_id, root_plan_id, status, recorded_at, revision, source,
        input_tokens, output_tokens, cost_usd, tool_calls, failed_calls, session_id, subject,
            traceparent, run_metadata, service_name, service_version, deployment_environment, tags,
            follows_calls, follows_runs, follows_keys, work_keys, masked)
    SELECT $1, root_plan_id, 'unknown', $2, 1, 'events', 0, 0, 0, 0, 0, incoming.session_id,
        incoming.subject, incoming.traceparent, incoming.run_metadata, incoming.service_name,
            incoming.service_version, incoming.deployment_environment, incoming.tags,
            incoming.follows_calls, incoming.follows_runs, incoming.follows_keys,
            incoming.work_keys, incoming.masked
    FROM json_to_recordset($3) AS incoming (root_plan_id UUID, session_id TEXT, subject TEXT,
        traceparent TEXT, run_metadata TEXT, service_name TEXT, service_version TEXT,
        deployment_environment TEXT, tags TEXT[], follows_calls UUID[], follows_runs UUID[],
        follows_keys TEXT[], work_keys TEXT[], masked TEXT[])
    ORDER BY root_plan_id
    ON CONFLICT (project_id, root_plan_id) DO UPDATE SET revision = stored.revision + 1,
        changed_at = excluded.changed_at, session_id = greatest(stored.session_id,
            excluded.session_id COLLATE "C"), subject = greatest(stored.subject,
            excluded.subject COLLATE "C"), traceparent = greatest(stored.traceparent,
            excluded.traceparent COLLATE "C"), run_metadata = greatest(stored.run_metadata,
            excluded.run_metadata COLLATE "C"), service_name = greatest(stored.service_name,
            excluded.service_name COLLATE "C"), service_version = greatest(stored.service_version,
            excluded.service_version COLLATE "C"),
            deployment_environment = greatest(stored.deployment_environment,
            excluded.deployment_environment COLLATE "C"),
            tags = CASE WHEN excluded.tags IS NULL OR excluded.tags <@ stored.tags THEN stored.tags
                ELSE ARRAY(SELECT DISTINCT item COLLATE "C" FROM unnest(stored.tags ||
                excluded.tags) AS item ORDER BY 1) END,
            follows_calls = CASE WHEN excluded.follows_calls IS NULL OR excluded.follows_calls <@
                stored.follows_calls THEN stored.follows_calls ELSE ARRAY(SELECT DISTINCT item FROM
                unnest(stored.follows_calls || excluded.follows_calls) AS item ORDER BY 1) END,
            follows_runs = CASE WHEN excluded.follows_runs IS NULL OR excluded.follows_runs <@
                stored.follows_runs THEN stored.follows_runs ELSE ARRAY(SELECT DISTINCT item FROM
                unnest(stored.follows_runs || excluded.follows_runs) AS item ORDER BY 1) END,
            follows_keys = CASE WHEN excluded.follows_keys IS NULL OR excluded.follows_keys <@
                stored.follows_keys THEN stored.follows_keys ELSE ARRAY(SELECT DISTINCT item COLLATE
                "C" FROM unnest(stored.follows_keys || excluded.follows_keys) AS item ORDER BY 1)
                END,
            work_keys = CASE WHEN excluded.work_keys IS NULL OR excluded.work_keys <@
                stored.work_keys THEN stored.work_keys ELSE ARRAY(SELECT DISTINCT item COLLATE "C"
                FROM unnest(stored.work_keys || excluded.work_keys) AS item ORDER BY 1) END,
            masked = CASE WHEN excluded.masked IS NULL OR excluded.masked <@ stored.masked THEN
                stored.masked ELSE ARRAY(SELECT DISTINCT item COLLATE "C" FROM unnest(stored.masked
                || excluded.masked) AS item ORDER BY 1) END
    WHERE stored.deleted_at IS NULL AND stored.source = 'events';

-- event_rows.MERGE: events of tool calls arrive
    WITH locked AS (SELECT root_plan_id, revision + $3 AS revision FROM run
        WHERE project_id = $1 AND root_plan_id = ANY($4::uuid[])
            AND deleted_at IS NULL AND source = 'events' ORDER BY root_plan_id FOR NO KEY UPDATE),
                changed_act_tool_info AS (
        INSERT INTO act_tool_info AS stored
            (project_id, root_plan_id, tool_call_id, recorded_at, revision, step_id, think_act_id,
                parent_tool_call_id, continued_plan_id, position, provider_call_id, name, tool_type,
                arguments, recorder_id, started_at, status, finished_at, reason, result, error_type,
                error_message, error_stack, short_circuited_by, state_changes, still_running,
                attempt, effective_arguments, forged_arguments, masked)
        SELECT $1, locked.root_plan_id, incoming.tool_call_id, $2, locked.revision,
            incoming.step_id, incoming.think_act_id, incoming.parent_tool_call_id,
                incoming.continued_plan_id, incoming.position, incoming.provider_call_id,
                incoming.name, incoming.tool_type, incoming.arguments, incoming.recorder_id,
                incoming.started_at, incoming.status, incoming.finished_at, incoming.reason,
                incoming.result, incoming.error_type, incoming.error_message, incoming.error_stack,
                incoming.short_circuited_by, incoming.state_changes, incoming.still_running,
                incoming.attempt, incoming.effective_arguments, incoming.forged_arguments,
                incoming.masked
        FROM json_to_recordset($5) AS incoming (root_plan_id UUID, tool_call_id UUID, step_id UUID,
            think_act_id UUID, parent_tool_call_id UUID, continued_plan_id UUID, position INTEGER,
            provider_call_id TEXT, name TEXT, tool_type TEXT, arguments TEXT, recorder_id UUID,
            started_at TIMESTAMP WITH TIME ZONE, status record_status,
            finished_at TIMESTAMP WITH TIME ZONE, reason TEXT, result TEXT, error_type TEXT,
            error_message TEXT, error_stack TEXT, short_circuited_by TEXT, state_changes TEXT,
            still_running BOOLEAN, attempt INTEGER, effective_arguments TEXT,
            forged_arguments TEXT[], masked TEXT[])
        JOIN locked ON locked.root_plan_id = incoming.root_plan_id
        ORDER BY incoming.root_plan_id, incoming.tool_call_id
        ON CONFLICT (project_id, root_plan_id, tool_call_id) DO UPDATE
        SET step_id = greatest(stored.step_id, excluded.step_id),
            think_act_id = greatest(stored.think_act_id, excluded.think_act_id),
            parent_tool_call_id = greatest(stored.parent_tool_call_id,
            excluded.parent_tool_call_id), continued_plan_id = greatest(stored.continued_plan_id,
            excluded.continued_plan_id), position = greatest(stored.position, excluded.position),
            provider_call_id = greatest(stored.provider_call_id,
            excluded.provider_call_id COLLATE "C"), name = greatest(stored.name,
            excluded.name COLLATE "C"), tool_type = greatest(stored.tool_type,
            excluded.tool_type COLLATE "C"), arguments = greatest(stored.arguments,
            excluded.arguments COLLATE "C"), recorder_id = greatest(stored.recorder_id,
            excluded.recorder_id), started_at = least(stored.started_at, excluded.started_at),
            forged_arguments = CASE WHEN excluded.forged_arguments IS NULL OR
                excluded.forged_arguments <@ stored.forged_arguments THEN stored.forged_arguments
                ELSE ARRAY(SELECT DISTINCT item COLLATE "C" FROM unnest(stored.forged_arguments ||
                excluded.forged_arguments) AS item ORDER BY 1) END,
            masked = CASE WHEN excluded.masked IS NULL OR excluded.masked <@ stored.masked THEN
                stored.masked ELSE ARRAY(SELECT DISTINCT item COLLATE "C" FROM unnest(stored.masked
                || excluded.masked) AS item ORDER BY 1) END,
            revision = excluded.revision, (status, finished_at, reason, result, error_type,
            error_message, error_stack, short_circuited_by, state_changes, still_running) = (
                SELECT CASE WHEN it.is_greater THEN excluded.status ELSE stored.status END,
                    CASE WHEN it.is_greater THEN excluded.finished_at ELSE stored.finished_at END,
                    CASE WHEN it.is_greater THEN excluded.reason ELSE stored.reason END,
                    CASE WHEN it.is_greater THEN excluded.result ELSE stored.result END,
                    CASE WHEN it.is_greater THEN excluded.error_type ELSE stored.error_type END,
                    CASE WHEN it.is_greater THEN excluded.error_message ELSE stored.error_message
                        END,
                    CASE WHEN it.is_greater THEN excluded.error_stack ELSE stored.error_stack END,
                    CASE WHEN it.is_greater THEN excluded.short_circuited_by ELSE
                        stored.short_circuited_by END,
                    CASE WHEN it.is_greater THEN excluded.state_changes ELSE stored.state_changes
                        END,
                    CASE WHEN it.is_greater THEN excluded.still_running ELSE stored.still_running
                        END
                FROM (SELECT (coalesce(excluded.status, 'unknown'), coalesce(excluded.finished_at,
                    '-infinity'), excluded.reason IS NOT NULL, coalesce(excluded.reason,
                    '') COLLATE "C", excluded.result IS NOT NULL, coalesce(excluded.result,
                    '') COLLATE "C", excluded.error_type IS NOT NULL, coalesce(excluded.error_type,
                    '') COLLATE "C", excluded.error_message IS NOT NULL,
                    coalesce(excluded.error_message, '') COLLATE "C",
                    excluded.error_stack IS NOT NULL, coalesce(excluded.error_stack,
                    '') COLLATE "C", excluded.short_circuited_by IS NOT NULL,
                    coalesce(excluded.short_circuited_by, '') COLLATE "C",
                    excluded.state_changes IS NOT NULL, coalesce(excluded.state_changes,
                    '') COLLATE "C", excluded.still_running IS NOT NULL,
                    coalesce(excluded.still_running, false)) > (coalesce(stored.status, 'unknown'),
                    coalesce(stored.finished_at, '-infinity'), stored.reason IS NOT NULL,
                    coalesce(stored.reason, '') COLLATE "C", stored.result IS NOT NULL,
                    coalesce(stored.result, '') COLLATE "C", stored.error_type IS NOT NULL,
                    coalesce(stored.error_type, '') COLLATE "C", stored.error_message IS NOT NULL,
                    coalesce(stored.error_message, '') COLLATE "C", stored.error_stack IS NOT NULL,
                    coalesce(stored.error_stack, '') COLLATE "C",
                    stored.short_circuited_by IS NOT NULL, coalesce(stored.short_circuited_by,
                    '') COLLATE "C", stored.state_changes IS NOT NULL,
                    coalesce(stored.state_changes, '') COLLATE "C",
                    stored.still_running IS NOT NULL, coalesce(stored.still_running,
                    false)) AS is_greater OFFSET 0) AS it), (attempt, effective_arguments) = (
                SELECT CASE WHEN it.is_greater THEN excluded.attempt ELSE stored.attempt END,
                    CASE WHEN it.is_greater THEN excluded.effective_arguments ELSE
                        stored.effective_arguments END
                FROM (SELECT (coalesce(excluded.attempt, -1),
                    excluded.effective_arguments IS NOT NULL, coalesce(excluded.effective_arguments,
                    '') COLLATE "C") > (coalesce(stored.attempt, -1),
                    stored.effective_arguments IS NOT NULL, coalesce(stored.effective_arguments,
                    '') COLLATE "C") AS is_greater OFFSET 0) AS it)
        WHERE (stored.step_id, stored.think_act_id, stored.parent_tool_call_id,
            stored.continued_plan_id, stored.position, stored.provider_call_id, stored.name,
            stored.tool_type, stored.arguments, stored.recorder_id, stored.started_at,
            stored.forged_arguments, stored.masked) IS DISTINCT FROM (greatest(stored.step_id,
            excluded.step_id), greatest(stored.think_act_id, excluded.think_act_id),
            greatest(stored.parent_tool_call_id, excluded.parent_tool_call_id),
            greatest(stored.continued_plan_id, excluded.continued_plan_id),
            greatest(stored.position, excluded.position), greatest(stored.provider_call_id,
            excluded.provider_call_id COLLATE "C"), greatest(stored.name,
            excluded.name COLLATE "C"), greatest(stored.tool_type, excluded.tool_type COLLATE "C"),
            greatest(stored.arguments, excluded.arguments COLLATE "C"), greatest(stored.recorder_id,
            excluded.recorder_id), least(stored.started_at, excluded.started_at),
            CASE WHEN excluded.forged_arguments IS NULL OR excluded.forged_arguments <@
                stored.forged_arguments THEN stored.forged_arguments ELSE ARRAY(SELECT DISTINCT item
                COLLATE "C" FROM unnest(stored.forged_arguments || excluded.forged_arguments) AS
                item ORDER BY 1) END,
            CASE WHEN excluded.masked IS NULL OR excluded.masked <@ stored.masked THEN stored.masked
                ELSE ARRAY(SELECT DISTINCT item COLLATE "C" FROM unnest(stored.masked ||
                excluded.masked) AS item ORDER BY 1) END) OR (coalesce(excluded.status,
            'unknown'), coalesce(excluded.finished_at, '-infinity'), excluded.reason IS NOT NULL,
            coalesce(excluded.reason, '') COLLATE "C", excluded.result IS NOT NULL,
            coalesce(excluded.result, '') COLLATE "C", excluded.error_type IS NOT NULL,
            coalesce(excluded.error_type, '') COLLATE "C", excluded.error_message IS NOT NULL,
            coalesce(excluded.error_message, '') COLLATE "C", excluded.error_stack IS NOT NULL,
            coalesce(excluded.error_stack, '') COLLATE "C", excluded.short_circuited_by IS NOT NULL,
            coalesce(excluded.short_circuited_by, '') COLLATE "C",
            excluded.state_changes IS NOT NULL, coalesce(excluded.state_changes, '') COLLATE "C",
            excluded.still_running IS NOT NULL, coalesce(excluded.still_running,
            false)) > (coalesce(stored.status, 'unknown'), coalesce(stored.finished_at,
            '-infinity'), stored.reason IS NOT NULL, coalesce(stored.reason, '') COLLATE "C",
            stored.result IS NOT NULL, coalesce(stored.result, '') COLLATE "C",
            stored.error_type IS NOT NULL, coalesce(stored.error_type, '') COLLATE "C",
            stored.error_message IS NOT NULL, coalesce(stored.error_message, '') COLLATE "C",
            stored.error_stack IS NOT NULL, coalesce(stored.error_stack, '') COLLATE "C",
            stored.short_circuited_by IS NOT NULL, coalesce(stored.short_circuited_by,
            '') COLLATE "C", stored.state_changes IS NOT NULL, coalesce(stored.state_changes,
            '') COLLATE "C", stored.still_running IS NOT NULL, coalesce(stored.still_running,
            false)) OR (coalesce(excluded.attempt, -1), excluded.effective_arguments IS NOT NULL,
            coalesce(excluded.effective_arguments, '') COLLATE "C") > (coalesce(stored.attempt, -1),
            stored.effective_arguments IS NOT NULL, coalesce(stored.effective_arguments,
            '') COLLATE "C")
        RETURNING new.root_plan_id, (old.tool_call_id IS NULL)::int AS tool_calls,
            (new.status = 'failed')::int - coalesce(old.status = 'failed',
            false)::int AS failed_calls
    )
    UPDATE run SET revision = locked.revision, changed_at = statement_timestamp(),
        open_at = CASE WHEN run.open_at IS NOT NULL THEN $2::timestamptz END,
        tool_calls = run.tool_calls + coalesce(more_changed_act_tool_info.tool_calls, 0),
        failed_calls = run.failed_calls + coalesce(more_changed_act_tool_info.failed_calls, 0)
    FROM locked LEFT JOIN
        (SELECT root_plan_id, sum(tool_calls) AS tool_calls,
            sum(failed_calls) AS failed_calls FROM changed_act_tool_info GROUP BY root_plan_id)
        AS more_changed_act_tool_info ON more_changed_act_tool_info.root_plan_id =
            locked.root_plan_id
    WHERE run.project_id = $1 AND run.root_plan_id = locked.root_plan_id
        AND run.root_plan_id = ANY($4::uuid[])
    RETURNING run.root_plan_id;

-- projection_rows.UPDATE_RUNS: runs are projected
UPDATE run SET session_id = incoming.session_id, subject = incoming.subject, tags = incoming.tags,
    masked = incoming.masked, traceparent = incoming.traceparent,
    cancel_requested_at = least(run.cancel_requested_at, incoming.cancel_requested_at),
    run_metadata = incoming.run_metadata, service_name = incoming.service_name,
    service_version = incoming.service_version,
    deployment_environment = incoming.deployment_environment,
    is_agent_work = incoming.is_agent_work, title = incoming.title,
    agent_name = incoming.agent_name, status = incoming.status, reason = incoming.reason,
    started_at = incoming.started_at, finished_at = incoming.finished_at,
    recorder_id = incoming.recorder_id, input_tokens = incoming.input_tokens,
    output_tokens = incoming.output_tokens, cost_usd = incoming.cost_usd,
    unpriced_calls = incoming.unpriced_calls, tool_calls = incoming.tool_calls,
    failed_calls = incoming.failed_calls, unread_spans = incoming.unread_spans,
    unread_scopes = incoming.unread_scopes, is_bare = incoming.is_bare,
    follows_calls = incoming.follows_calls, follows_runs = incoming.follows_runs,
    follows_keys = incoming.follows_keys, work_keys = incoming.work_keys,
    prompt_sequence = incoming.prompt_sequence, prompt_number = incoming.prompt_number,
    revision = incoming.revision,
    changed_at = CASE WHEN incoming.revision > run.revision THEN $2::timestamptz ELSE run.changed_at
        END,
    projected = incoming.projected, projection_version = incoming.projection_version,
    projection_error = NULL,
    next_projection_at = ($2::timestamptz AT TIME ZONE 'UTC' + incoming.seconds * 10 * interval '1
        second') AT TIME ZONE 'UTC',
    span_bytes = incoming.span_bytes, span_count = incoming.span_count,
    span_records = incoming.span_records,
    settle_at = ($2::timestamptz AT TIME ZONE 'UTC' + incoming.settle_seconds * interval '1 second')
        AT TIME ZONE 'UTC'
FROM json_to_recordset($3) AS incoming (root_plan_id uuid, session_id TEXT, subject TEXT,
    tags TEXT[], masked TEXT[], traceparent TEXT, cancel_requested_at TIMESTAMP WITH TIME ZONE,
    run_metadata TEXT, service_name TEXT, service_version TEXT, deployment_environment TEXT,
    is_agent_work BOOLEAN, title TEXT, agent_name TEXT, status record_status, reason TEXT,
    started_at TIMESTAMP WITH TIME ZONE, finished_at TIMESTAMP WITH TIME ZONE, recorder_id UUID,
    input_tokens BIGINT, output_tokens BIGINT, cost_usd NUMERIC, unpriced_calls BIGINT,
    tool_calls BIGINT, failed_calls BIGINT, unread_spans BIGINT, unread_scopes TEXT[],
    is_bare BOOLEAN, follows_calls UUID[], follows_runs UUID[], follows_keys TEXT[],
    work_keys TEXT[], prompt_sequence BIGINT, prompt_number BIGINT, revision bigint,
    projected bigint, projection_version integer, seconds float8, span_bytes bigint,
    span_count bigint, span_records bytea, settle_seconds float8)
WHERE run.project_id = $1 AND run.root_plan_id = incoming.root_plan_id
    AND run.root_plan_id = ANY($4::uuid[]);

-- projection_rows.replacing: steps of projected runs
    INSERT INTO agent_execution_record AS stored (project_id, root_plan_id, step_id, revision,
        plan_id, position, agent_name, request, recorder_id, started_at, status, finished_at,
        reason, result, error_type, error_message, error_stack, masked, clock_shift_us, recorded_at,
        digest)
    SELECT run.project_id, run.root_plan_id, incoming.step_id, run.revision, incoming.plan_id,
        incoming.position, incoming.agent_name, incoming.request, incoming.recorder_id,
            incoming.started_at, incoming.status, incoming.finished_at, incoming.reason,
            incoming.result, incoming.error_type, incoming.error_message, incoming.error_stack,
            incoming.masked, incoming.clock_shift_us, incoming.recorded_at, incoming.digest
    FROM json_to_recordset($2) AS incoming (
        root_plan_id uuid, step_id UUID, plan_id UUID, position INTEGER, agent_name TEXT,
            request TEXT, recorder_id UUID, started_at TIMESTAMP WITH TIME ZONE,
            status record_status, finished_at TIMESTAMP WITH TIME ZONE, reason TEXT, result TEXT,
            error_type TEXT, error_message TEXT, error_stack TEXT, masked TEXT[],
            clock_shift_us BIGINT, digest bigint, recorded_at timestamptz)
    JOIN run ON run.project_id = $1 AND run.root_plan_id = incoming.root_plan_id
        AND run.root_plan_id = ANY($3::uuid[])
    ORDER BY incoming.root_plan_id, incoming.step_id
    ON CONFLICT (project_id, root_plan_id, step_id) DO UPDATE
    SET revision = excluded.revision, plan_id = excluded.plan_id, position = excluded.position,
        agent_name = excluded.agent_name, request = excluded.request,
        recorder_id = excluded.recorder_id, started_at = excluded.started_at,
        status = excluded.status, finished_at = excluded.finished_at, reason = excluded.reason,
        result = excluded.result, error_type = excluded.error_type,
        error_message = excluded.error_message, error_stack = excluded.error_stack,
        masked = excluded.masked, clock_shift_us = excluded.clock_shift_us,
        digest = excluded.digest;

-- projection_rows.removing: steps of projected runs
    INSERT INTO removed_record (project_id, root_plan_id, record_id, kind, revision)
    SELECT run.project_id, run.root_plan_id, stored.step_id, 'step', run.revision
    FROM agent_execution_record AS stored
    JOIN run ON run.project_id = $1 AND run.root_plan_id = stored.root_plan_id
        AND run.root_plan_id = ANY($2::uuid[])
    WHERE stored.project_id = $1 AND stored.root_plan_id = ANY($2::uuid[])
        AND stored.step_id = ANY($3::uuid[])
    ON CONFLICT (root_plan_id, record_id, project_id) DO UPDATE
    SET kind = excluded.kind, revision = excluded.revision;

-- projection.FIND_PENDING: a tool call is read
SELECT run.root_plan_id, pending.arrived, pending.spans, pending.since, run.projected,
    run.projection_error
FROM pending_run AS pending
JOIN run ON run.project_id = pending.project_id AND run.root_plan_id = pending.root_plan_id
WHERE pending.project_id = %(project_id)s AND run.deleted_at IS NULL AND (
    pending.root_plan_id >= %(first)s AND pending.root_plan_id <= %(last)s
    OR pending.root_plan_id = ANY (ARRAY(
        SELECT root_plan_id FROM act_tool_info
        WHERE tool_call_id = %(id)s AND project_id = %(project_id)s)))
ORDER BY pending.root_plan_id LIMIT 10;

-- leases.MARKS: recorders are dead
WITH lease AS (
    SELECT project_id, recorder_id, seen_at + length AS ends_at,
        greatest(seen_at, (SELECT served_since FROM lease_check)) + length AS dead_at
    FROM recorder_lease
)
UPDATE recorder_run AS part SET abandoned_at = lease.ends_at
FROM lease, unnest($2::integer[], $3::uuid[]) AS taken (project_id, root_plan_id)
WHERE part.project_id = taken.project_id AND part.root_plan_id = taken.root_plan_id
    AND part.recorder_id = lease.recorder_id AND part.project_id = lease.project_id AND
        lease.dead_at <= $1 AND part.abandoned_at IS DISTINCT FROM lease.ends_at
RETURNING part.project_id, part.recorder_id, part.root_plan_id;

-- leases.RAISE: steps of these recorders
    UPDATE agent_execution_record AS stored SET revision = run.revision + 1
    FROM unnest($1::integer[], $2::uuid[], $3::uuid[])
    AS incoming (project_id, recorder_id, root_plan_id)
    JOIN run ON run.project_id = incoming.project_id AND run.root_plan_id = incoming.root_plan_id
    WHERE stored.project_id = incoming.project_id AND stored.root_plan_id = incoming.root_plan_id
        AND stored.recorded_at > '-infinity' AND stored.status IN ('pending', 'running')
        AND CASE run.source WHEN 'events' THEN coalesce(stored.recorder_id,
            stored.root_plan_id) ELSE stored.root_plan_id END = incoming.recorder_id
    RETURNING stored.project_id, incoming.recorder_id, stored.root_plan_id;

-- lists.page_query: runs of a session that called a tool
SELECT * FROM (
            SELECT *, (
CASE
    WHEN started_at IS NOT NULL THEN started_at
    ELSE recorded_at
END) AS at FROM (SELECT * FROM run WHERE (project_id = %(project_id)s AND session_id::name =
    %(session_id)s::text::name AND session_id = %(session_id)s) OFFSET 0) AS run WHERE (project_id =
    %(project_id)s) AND (deleted_at IS NULL) AND (continues_run_id IS NULL) AND (is_agent_work)
            ORDER BY (
CASE
    WHEN started_at IS NOT NULL THEN started_at
    ELSE recorded_at
END) DESC, root_plan_id DESC LIMIT 500
        ) AS run WHERE ((EXISTS (SELECT FROM act_tool_info AS part WHERE part.project_id =
            run.project_id AND part.root_plan_id = run.root_plan_id AND part.recorded_at >
            '-infinity' AND (name = %(tool)s) OFFSET 0) OR whole_status IS NOT NULL AND EXISTS
            (SELECT FROM act_tool_info AS part WHERE part.project_id = run.project_id AND
            part.root_plan_id = ANY(ARRAY(SELECT other.root_plan_id FROM run AS other WHERE
            other.project_id = run.project_id
        AND other.head_id = run.root_plan_id AND other.deleted_at IS NULL)) AND part.recorded_at >
            '-infinity' AND (name = %(tool)s) OFFSET 0)))
        ORDER BY at DESC, root_plan_id DESC LIMIT %(limit)s;

-- lists.FAILED_RECORDS: the run list shows failures
SELECT root_plan_id, 'plan' AS kind, status = 'failed' AS has_failed, started_at, finished_at,
    reason, error_type, left(error_message, 301) AS error_message,
    plan_id AS record_id, agent_name AS name, NULL::text AS arguments,
    tool_call_id AS tool_call, NULL::uuid AS think_act, opened_by_step_id AS step,
    parent_plan_id AS plan
FROM plan_execution_record
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND status = 'failed' UNION ALL
SELECT root_plan_id, 'step' AS kind, status = 'failed' AS has_failed, started_at, finished_at,
    reason, error_type, left(error_message, 301) AS error_message,
    step_id AS record_id, agent_name AS name, NULL::text AS arguments,
    NULL::uuid AS tool_call, NULL::uuid AS think_act, NULL::uuid AS step, plan_id AS plan
FROM agent_execution_record
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND status = 'failed' UNION ALL
SELECT root_plan_id, 'thinkAct' AS kind, status = 'failed' AS has_failed, started_at, finished_at,
    reason, error_type, left(error_message, 301) AS error_message,
    think_act_id AS record_id, coalesce(model, requested_model) AS name,
    NULL::text AS arguments, NULL::uuid AS tool_call, NULL::uuid AS think_act, step_id AS step,
    NULL::uuid AS plan
FROM think_act_record
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND status = 'failed' UNION ALL
SELECT root_plan_id, 'toolCall' AS kind, status = 'failed' AS has_failed, started_at, finished_at,
    reason, error_type, left(error_message, 301) AS error_message,
    tool_call_id AS record_id, name, left(arguments, 301) AS arguments,
    parent_tool_call_id AS tool_call, think_act_id AS think_act, step_id AS step,
    NULL::uuid AS plan
FROM act_tool_info
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND status = 'failed';

-- tree.rows_query: steps of a run
SELECT CASE WHEN CASE WHEN agent_execution_record.status IN ('pending', 'running') THEN (
        SELECT coalesce(its_run.left_open_at, recorder.abandoned_at) FROM run AS its_run
        LEFT JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id
            AND recorder.root_plan_id = its_run.root_plan_id AND recorder.root_plan_id = %(run)s
            AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN
                coalesce(agent_execution_record.recorder_id,
                agent_execution_record.root_plan_id) ELSE agent_execution_record.root_plan_id END
        WHERE its_run.project_id = agent_execution_record.project_id AND its_run.root_plan_id =
            agent_execution_record.root_plan_id
            AND its_run.root_plan_id = %(run)s
    ) END IS NOT NULL THEN 'abandoned' ELSE agent_execution_record.status::text END AS "status",
        reason AS "reason", started_at AS "started_at", finished_at AS "finished_at",
        CASE WHEN agent_execution_record.status IN ('pending', 'running') THEN (
        SELECT coalesce(its_run.left_open_at, recorder.abandoned_at) FROM run AS its_run
        LEFT JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id
            AND recorder.root_plan_id = its_run.root_plan_id AND recorder.root_plan_id = %(run)s
            AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN
                coalesce(agent_execution_record.recorder_id,
                agent_execution_record.root_plan_id) ELSE agent_execution_record.root_plan_id END
        WHERE its_run.project_id = agent_execution_record.project_id AND its_run.root_plan_id =
            agent_execution_record.root_plan_id
            AND its_run.root_plan_id = %(run)s
    ) END AS "abandoned_at", round(date_part('epoch',
        finished_at - started_at) * 1e6) / 1e3 AS "duration_ms", clock_shift_us AS "clock_shift_us",
        position AS "position", nullif(masked, '{}') AS "masked", CASE WHEN num_nonnulls(error_type,
        error_message, error_stack) > 0 THEN json_build_object('type', error_type, 'message',
        CASE WHEN octet_length(error_message) <= 2048 THEN error_message ELSE left(error_message,
        2048) END, 'stack',
        CASE WHEN octet_length(error_stack) <= 2048 THEN error_stack ELSE left(error_stack,
        2048) END) END AS "error", step_id::text AS "step_id", plan_id::text AS "plan_id",
        agent_name AS "agent_name",
        CASE WHEN octet_length(request) <= 2048 THEN request ELSE left(request,
        2048) END AS "request",
        CASE WHEN request IS NULL THEN NULL WHEN coalesce(cardinality(masked),
        0) = 0 THEN octet_length(request) ELSE coalesce(substring(right(request,
        60) from '\[masked: (?:payload|rest) of ([0-9]{1,15}) bytes\]\Z')::bigint,
        octet_length(request)) END AS "request_bytes", coalesce(octet_length(request) > 2048,
        false) AS "request_truncated",
        CASE WHEN octet_length(result) <= 2048 THEN result ELSE left(result, 2048) END AS "result",
        CASE WHEN result IS NULL THEN NULL WHEN coalesce(cardinality(masked),
        0) = 0 THEN octet_length(result) ELSE coalesce(substring(right(result,
        60) from '\[masked: (?:payload|rest) of ([0-9]{1,15}) bytes\]\Z')::bigint,
        octet_length(result)) END AS "result_bytes", coalesce(octet_length(result) > 2048,
        false) AS "result_truncated" FROM agent_execution_record WHERE project_id = %(project_id)s
            AND root_plan_id = %(run)s AND recorded_at > '-infinity' AND true;

-- rollups.COMPUTED_GROUPS: calls of runs by tool and hour
SELECT root_plan_id, at::text, name, calls, succeeded, failed, failed_below, cancelled, abandoned,
    running, sub_plans, tool_type, latest_at::text, greatest_ms, failed_at::text, buckets::text,
    bucket_counts::text, own_buckets::text, own_bucket_counts::text
FROM (
    SELECT root_plan_id, at, name, calls, succeeded, failed, failed_below, cancelled, abandoned,
        running, sub_plans, tool_type, latest_at, greatest_ms, failed_at, coalesce(buckets,
        '{}') AS buckets, coalesce(bucket_counts, '{}') AS bucket_counts,
        CASE WHEN sub_plans > 0 THEN own_buckets END AS own_buckets,
        CASE WHEN sub_plans > 0 THEN own_bucket_counts END AS own_bucket_counts FROM (
        SELECT root_plan_id, at, name, (sum(calls) FILTER (WHERE NOT is_own))::bigint AS calls,
            (sum(succeeded) FILTER (WHERE NOT is_own))::bigint AS succeeded,
            (sum(failed) FILTER (WHERE NOT is_own))::bigint AS failed,
            (sum(failed_below) FILTER (WHERE NOT is_own))::bigint AS failed_below,
            (sum(cancelled) FILTER (WHERE NOT is_own))::bigint AS cancelled,
            (sum(abandoned) FILTER (WHERE NOT is_own))::bigint AS abandoned,
            (sum(running) FILTER (WHERE NOT is_own))::bigint AS running,
            (sum(sub_plans) FILTER (WHERE NOT is_own))::bigint AS sub_plans,
            max(tool_type COLLATE "C") FILTER (WHERE NOT is_own) AS tool_type,
            max(latest_at) FILTER (WHERE NOT is_own) AS latest_at,
            max(greatest_ms) FILTER (WHERE NOT is_own) AS greatest_ms,
            max(failed_at) FILTER (WHERE NOT is_own) AS failed_at,
            coalesce(array_agg(bucket ORDER BY bucket) FILTER (WHERE bucket IS NOT NULL AND NOT
                is_own),
            '{}') AS buckets,
        coalesce(array_agg(calls ORDER BY bucket) FILTER (WHERE bucket IS NOT NULL AND NOT is_own),
            '{}') AS bucket_counts,
        coalesce(array_agg(bucket ORDER BY bucket) FILTER (WHERE bucket IS NOT NULL AND is_own),
            '{}') AS own_buckets,
        coalesce(array_agg(calls ORDER BY bucket) FILTER (WHERE bucket IS NOT NULL AND is_own),
            '{}') AS own_bucket_counts
        FROM (
            SELECT root_plan_id, at, name, is_own, bucket, count(*) AS calls,
    count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE status = 'failed') AS failed,
    count(*) FILTER (WHERE status = 'failed' AND has_failed_below) AS failed_below,
    count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE status < 'cancelled' AND abandoned_at IS NOT NULL) AS abandoned,
    count(*) FILTER (WHERE status < 'cancelled' AND abandoned_at IS NULL) AS running,
    coalesce(sum(sub_plans), 0)::bigint AS sub_plans, max(tool_type COLLATE "C") AS tool_type,
                max(latest_at) AS latest_at, max(duration_ms) AS greatest_ms,
                max(failed_at) AS failed_at
            FROM (
    SELECT call.*, coalesce(opened.sub_plans, 0) AS sub_plans,
        coalesce(opened.has_failed, false) AS has_failed_below,
        CASE WHEN opened.times IS NOT NULL AND call.duration_ms > 0 THEN ((
    extract(epoch FROM call.finished_at - call.started_at) - coalesce((
        SELECT sum(extract(epoch FROM upper(part) - lower(part)))
        FROM unnest(
            opened.times * tstzmultirange(tstzrange(call.started_at, call.finished_at))
        ) AS part
    ), 0)
) * 1000)::float8
            ELSE call.duration_ms END AS own_ms
    FROM (
        SELECT root_plan_id, tool_call_id, name COLLATE "C" AS name, tool_type, status,
            CASE WHEN act_tool_info.status IN ('pending', 'running') THEN (
        SELECT coalesce(its_run.left_open_at, recorder.abandoned_at) FROM run AS its_run
        LEFT JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id
            AND recorder.root_plan_id = its_run.root_plan_id
            AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN
                coalesce(act_tool_info.recorder_id,
                act_tool_info.root_plan_id) ELSE act_tool_info.root_plan_id END
        WHERE its_run.project_id = act_tool_info.project_id AND its_run.root_plan_id =
            act_tool_info.root_plan_id
    ) END AS abandoned_at, (
CASE
    WHEN started_at IS NOT NULL THEN started_at
    ELSE recorded_at
END) AS latest_at, date_bin('1 hour', (
CASE
    WHEN started_at IS NOT NULL THEN started_at
    ELSE recorded_at
END), 'epoch') AS at, started_at, finished_at,
            (extract(epoch FROM finished_at - started_at) * 1000)::float8 AS duration_ms,
            CASE WHEN status = 'failed' THEN coalesce(finished_at, (
CASE
    WHEN started_at IS NOT NULL THEN started_at
    ELSE recorded_at
END)) END AS failed_at
        FROM act_tool_info WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(open)s) AND
            recorded_at > '-infinity' AND name IS NOT NULL
    ) AS call LEFT JOIN LATERAL (
        SELECT root_plan_id, count(*) AS sub_plans, bool_or(status = 'failed') AS has_failed,
            range_agg(tstzrange(started_at, finished_at))
                FILTER (WHERE started_at <= coalesce(finished_at, 'infinity')) AS times
        FROM plan_execution_record AS plan
        WHERE plan.tool_call_id = call.tool_call_id AND plan.root_plan_id = call.root_plan_id
            AND plan.project_id = %(project_id)s
        GROUP BY plan.root_plan_id
    ) AS opened ON true) AS call CROSS JOIN LATERAL (VALUES
                (false,
                    CASE WHEN call.duration_ms > 0 THEN (ceil(64 / ln(2::float8) *
                        ln(abs(call.duration_ms) * 1000)) + 1)::smallint WHEN call.duration_ms < 0
                        THEN -(ceil(64 / ln(2::float8) * ln(abs(call.duration_ms) * 1000)) +
                        1)::smallint WHEN call.duration_ms = 0 THEN 0 END),
                    (true,
                    CASE WHEN call.own_ms > 0 THEN (ceil(64 / ln(2::float8) * ln(abs(call.own_ms) *
                        1000)) + 1)::smallint WHEN call.own_ms < 0 THEN -(ceil(64 / ln(2::float8) *
                        ln(abs(call.own_ms) * 1000)) + 1)::smallint WHEN call.own_ms = 0 THEN 0 END)
            ) AS counted (is_own, bucket)
            GROUP BY root_plan_id, at, name, is_own, bucket
        ) AS by_bucket GROUP BY root_plan_id, at, name
    ) AS added) AS found;

-- deletion.DELETE_ROWS: blocks of deleted runs
WITH deleted AS (DELETE FROM otel_block WHERE project_id = %(project_id)s AND root_plan_id =
    ANY(%(runs)s) AND ctid IN (SELECT ctid FROM otel_block WHERE project_id = %(project_id)s AND
    root_plan_id = ANY(%(runs)s) LIMIT %(most)s) RETURNING spans AS spans) SELECT count(*),
    0::bigint, coalesce(sum(spans), 0)::bigint FROM deleted;

-- deletion.COUNT_REMAINING: rows of deleted runs
SELECT count(*) FROM act_tool_info WHERE project_id = %(project_id)s AND root_plan_id =
    ANY(%(runs)s) AND recorded_at > '-infinity' UNION ALL SELECT count(*) FROM think_act_record
    WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND recorded_at > '-infinity'
    UNION ALL SELECT count(*) FROM agent_execution_record WHERE project_id = %(project_id)s AND
    root_plan_id = ANY(%(runs)s) AND recorded_at > '-infinity' UNION ALL SELECT count(*) FROM
    run_part_of_day WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) UNION ALL
    SELECT count(*) FROM run_link WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s)
    UNION ALL SELECT count(*) FROM run_group WHERE project_id = %(project_id)s AND root_plan_id =
    ANY(%(runs)s) UNION ALL SELECT count(*) FROM removed_record WHERE project_id = %(project_id)s
    AND root_plan_id = ANY(%(runs)s) UNION ALL SELECT count(*) FROM recorder_run WHERE project_id =
    %(project_id)s AND root_plan_id = ANY(%(runs)s) UNION ALL SELECT count(*) FROM
    plan_execution_record WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND
    recorded_at > '-infinity' UNION ALL SELECT count(*) FROM pending_run WHERE project_id =
    %(project_id)s AND root_plan_id = ANY(%(runs)s) UNION ALL SELECT count(*) FROM otel_session
    WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) UNION ALL SELECT count(*)
    FROM otel_block WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) UNION ALL
    SELECT count(*) FROM run WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND
    swept_at IS NULL;
