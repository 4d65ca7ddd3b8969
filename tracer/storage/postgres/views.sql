-- The views for analysts. `make data` adds new fields of records, and brings the comments of fields
-- up to date with the docstrings in tracer/records/record_classes.py and tracer/storage/*tables.py. Columns keep
-- their names and meanings; new ones come at the end.
--
-- Conditions are spelled as the indexes spell them. No condition may keep an analyst's condition from
-- an index, or reach beyond one run: on Citus that would be beyond one shard. `recorded_at >
-- '-infinity'` is always true; it lets a join use the index of the records of a run.

-- A condition would not be pushed into a recursive query over all runs, and Citus supports such a
-- query only if its own conditions name the run.
CREATE FUNCTION trace.lineage_of(run uuid) RETURNS TABLE (
    project_id integer, root_plan_id uuid, plan_id uuid, depth integer, titles text[],
    agents text[], tools text[], plan_ids uuid[], tool_call_ids uuid[]
) LANGUAGE sql STABLE BEGIN ATOMIC
    WITH RECURSIVE walk AS (
        SELECT plan.project_id, plan.plan_id, 0 AS depth, ARRAY[plan.title] AS titles,
            ARRAY[plan.agent_name] AS agents, '{}'::text[] AS tools,
            ARRAY[plan.plan_id] AS plan_ids, '{}'::uuid[] AS tool_call_ids
        FROM plan_execution_record AS plan
        WHERE plan.root_plan_id = lineage_of.run AND plan.plan_id = lineage_of.run
        UNION ALL
        SELECT plan.project_id, plan.plan_id, walk.depth + 1, walk.titles || plan.title,
            walk.agents || plan.agent_name, walk.tools || call.name,
            walk.plan_ids || plan.plan_id, walk.tool_call_ids || plan.tool_call_id
        FROM walk
        JOIN plan_execution_record AS plan ON plan.root_plan_id = lineage_of.run
            AND plan.project_id = walk.project_id AND plan.parent_plan_id = walk.plan_id
        LEFT JOIN act_tool_info AS call ON call.root_plan_id = lineage_of.run
            AND call.project_id = plan.project_id AND call.tool_call_id = plan.tool_call_id
    )
    SELECT project_id, lineage_of.run, plan_id, depth, titles, agents, tools, plan_ids,
        tool_call_ids
    FROM walk;
END;
COMMENT ON FUNCTION trace.lineage_of(uuid) IS
    'The plans of one run with their paths from the root: `trace.lineage` for one run.';
COMMENT ON SCHEMA trace IS 'Views for analysts. Their column names are stable.';

CREATE VIEW trace.runs WITH (security_invoker) AS
SELECT
    run.project_id,
    run.root_plan_id,
    run.title,
    run.agent_name,
    run.session_id,
    run.subject,
    coalesce(run.tags, '{}') AS tags,
    run.traceparent,
    (CASE WHEN run.started_at IS NOT NULL THEN run.started_at ELSE run.recorded_at END) AS began_at,
    CASE WHEN CASE WHEN run.status IN ('pending', 'running') THEN (SELECT recorder.abandoned_at FROM run AS its_run JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id AND recorder.root_plan_id = its_run.root_plan_id AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN coalesce(run.recorder_id, run.root_plan_id) ELSE run.root_plan_id END WHERE its_run.project_id = run.project_id AND its_run.root_plan_id = run.root_plan_id) END IS NOT NULL THEN 'abandoned' ELSE run.status::text END AS status,
    run.status < 'cancelled' AS is_open,
    run.status = 'failed' AS is_failed,
    run.reason,
    run.started_at,
    run.finished_at,
    (extract(epoch FROM run.finished_at - run.started_at) * 1000)::float8 AS duration_ms,
    CASE WHEN run.status IN ('pending', 'running') THEN (SELECT recorder.abandoned_at FROM run AS its_run JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id AND recorder.root_plan_id = its_run.root_plan_id AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN coalesce(run.recorder_id, run.root_plan_id) ELSE run.root_plan_id END WHERE its_run.project_id = run.project_id AND its_run.root_plan_id = run.root_plan_id) END AS abandoned_at,
    run.recorder_id,
    run.recorded_at,
    coalesce(run.masked, '{}') AS masked,
    run.input_tokens,
    run.output_tokens,
    CASE WHEN run.cost_usd <> 0 OR run.unpriced_calls = 0 THEN run.cost_usd END AS cost_usd,
    run.tool_calls,
    run.failed_calls,
    run.cancel_requested_at,
    run.source,
    run.is_agent_work,
    run.run_metadata,
    run.service_name,
    run.service_version,
    run.deployment_environment,
    run.unpriced_calls,
    run.unread_spans,
    coalesce(run.unread_scopes, '{}') AS unread_scopes,
    run.prompt_sequence,
    run.prompt_number,
    coalesce(run.follows_calls, '{}') AS follows_calls,
    coalesce(run.follows_runs, '{}') AS follows_runs,
    coalesce(run.follows_keys, '{}') AS follows_keys,
    coalesce(run.work_keys, '{}') AS work_keys,
    run.continues_run_id,
    coalesce(run.head_id, run.root_plan_id) AS head_id,
    run.is_inside,
    run.whole_status,
    run.refused_spans,
    run.beginning_deleted
FROM run WHERE run.deleted_at IS NULL;
COMMENT ON VIEW trace.runs IS 'Runs: one row for each root plan, with totals over all records of the run.';
COMMENT ON COLUMN trace.runs.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.runs.root_plan_id IS 'The id of the run, which is the id of its root plan.';
COMMENT ON COLUMN trace.runs.title IS 'The title of the root plan; if none was recorded, the first line of the request.';
COMMENT ON COLUMN trace.runs.agent_name IS 'The agent that runs the root plan.';
COMMENT ON COLUMN trace.runs.session_id IS 'The conversation that the run belongs to.';
COMMENT ON COLUMN trace.runs.subject IS 'The person whose data the run contains.';
COMMENT ON COLUMN trace.runs.tags IS 'The labels of the run, sorted.';
COMMENT ON COLUMN trace.runs.traceparent IS 'The W3C trace context of the request that started the run.';
COMMENT ON COLUMN trace.runs.began_at IS 'The start time, or the time of recording if the start is unknown. An index supports ranges of it.';
COMMENT ON COLUMN trace.runs.status IS 'The status: `unknown` (a placeholder that another record referenced), `pending`, `running`, `cancelled`, `failed`, `succeeded`, or `abandoned` (open, and its recorder''s lease has expired).';
COMMENT ON COLUMN trace.runs.is_open IS 'True if it has not ended. A condition on this column uses an index.';
COMMENT ON COLUMN trace.runs.is_failed IS 'True if it failed. A condition on this column uses an index.';
COMMENT ON COLUMN trace.runs.reason IS 'The kind of ending, such as `timed_out` or `round_limit`.';
COMMENT ON COLUMN trace.runs.started_at IS 'The start time, by the recording process''s clock.';
COMMENT ON COLUMN trace.runs.finished_at IS 'The end time, by the recording process''s clock.';
COMMENT ON COLUMN trace.runs.duration_ms IS 'The duration in milliseconds; null if it has not ended.';
COMMENT ON COLUMN trace.runs.abandoned_at IS 'When its recorder''s lease expired while the record was open.';
COMMENT ON COLUMN trace.runs.recorder_id IS 'The recorder that wrote it; if there were several, the one with the greatest id.';
COMMENT ON COLUMN trace.runs.recorded_at IS 'When the server stored the first version of it.';
COMMENT ON COLUMN trace.runs.masked IS 'JSON pointers to values that were masked or not stored, such as `arguments:/password`, sorted.';
COMMENT ON COLUMN trace.runs.input_tokens IS 'The input tokens of all models.';
COMMENT ON COLUMN trace.runs.output_tokens IS 'The output tokens of all models.';
COMMENT ON COLUMN trace.runs.cost_usd IS 'The sum of the known costs of model calls in US dollars; null if some are unknown and the others are zero.';
COMMENT ON COLUMN trace.runs.tool_calls IS 'The number of tool calls, including the items of batches.';
COMMENT ON COLUMN trace.runs.failed_calls IS 'The number of think-acts and tool calls that failed.';
COMMENT ON COLUMN trace.runs.cancel_requested_at IS 'When cancellation of the run was requested.';
COMMENT ON COLUMN trace.runs.source IS 'The source of the records: `events`, or `spans` (a projection).';
COMMENT ON COLUMN trace.runs.is_agent_work IS 'False for a trace without agents, models and tools. It is listed only on request.';
COMMENT ON COLUMN trace.runs.run_metadata IS 'The metadata of the run, as the text of a JSON object.';
COMMENT ON COLUMN trace.runs.service_name IS 'The service that executed the run: the resource attribute `service.name`.';
COMMENT ON COLUMN trace.runs.service_version IS 'The version of the service: `service.version`.';
COMMENT ON COLUMN trace.runs.deployment_environment IS 'The environment of the service, such as `production`: `deployment.environment.name`.';
COMMENT ON COLUMN trace.runs.unpriced_calls IS 'The number of model calls that succeeded or used tokens, but have an unknown cost.';
COMMENT ON COLUMN trace.runs.unread_spans IS 'The number of spans with token counts that no rule could read. Their costs are unknown.';
COMMENT ON COLUMN trace.runs.unread_scopes IS 'The instrumentation scopes of these spans, sorted; at most ten.';
COMMENT ON COLUMN trace.runs.prompt_sequence IS 'The emitter''s number of the event that started the run, among the events of its session; null if the text of the run''s prompt is known.';
COMMENT ON COLUMN trace.runs.prompt_number IS 'The emitter''s number of the run''s prompt, among the prompts of its session and process.';
COMMENT ON COLUMN trace.runs.follows_calls IS 'The tool calls of other runs whose work the run continues, sorted.';
COMMENT ON COLUMN trace.runs.follows_runs IS 'The runs whose work the run continues, sorted.';
COMMENT ON COLUMN trace.runs.follows_keys IS 'The provider ids of the tool calls whose work the run continues, or the ids of their agents, sorted; at most a hundred if they come from spans.';
COMMENT ON COLUMN trace.runs.work_keys IS 'Ids that the emitter gave to the whole piece of work, sorted. Runs that share one are parts of the same work.';
COMMENT ON COLUMN trace.runs.continues_run_id IS 'The earlier run whose work the run continues; null if it begins a piece of work.';
COMMENT ON COLUMN trace.runs.head_id IS 'The first run of the piece of work: the run itself if it continues none.';
COMMENT ON COLUMN trace.runs.is_inside IS 'Whether the run began before the call or run that it continues had ended.';
COMMENT ON COLUMN trace.runs.whole_status IS 'The status of the whole piece of work, as shown; null if no other run continues the run.';
COMMENT ON COLUMN trace.runs.refused_spans IS 'The number of spans and log records that were rejected with `run_too_large`.';
COMMENT ON COLUMN trace.runs.beginning_deleted IS 'Whether the run that it continued was deleted, so that it is the first one of the rest.';

CREATE VIEW trace.work WITH (security_invoker) AS
SELECT
    run.project_id,
    run.head_id AS root_plan_id,
    min(run.title) FILTER (WHERE run.root_plan_id = run.head_id) AS title,
    min(run.agent_name) FILTER (WHERE run.root_plan_id = run.head_id) AS agent_name,
    min(run.session_id) FILTER (WHERE run.root_plan_id = run.head_id) AS session_id,
    min(run.subject) FILTER (WHERE run.root_plan_id = run.head_id) AS subject,
    min(run.began_at) FILTER (WHERE run.root_plan_id = run.head_id) AS began_at,
    min(coalesce(run.whole_status, run.status)) FILTER (WHERE run.root_plan_id = run.head_id) AS status,
    count(*) AS parts,
    min(run.started_at) AS started_at,
    CASE WHEN bool_and(run.finished_at IS NOT NULL) THEN max(run.finished_at) END AS finished_at,
    CASE WHEN bool_and(run.finished_at IS NOT NULL) THEN (extract(epoch FROM max(run.finished_at) - min(run.started_at)) * 1000)::float8 END AS duration_ms,
    sum(run.input_tokens)::bigint AS input_tokens,
    sum(run.output_tokens)::bigint AS output_tokens,
    CASE WHEN sum(run.cost_usd) <> 0 OR sum(run.unpriced_calls) = 0 THEN coalesce(sum(run.cost_usd), 0) END AS cost_usd,
    sum(run.unpriced_calls)::bigint AS unpriced_calls,
    sum(run.tool_calls)::bigint AS tool_calls,
    sum(run.failed_calls)::bigint AS failed_calls
FROM trace.runs AS run GROUP BY run.project_id, run.head_id
HAVING count(*) FILTER (WHERE run.root_plan_id = run.head_id) > 0;
COMMENT ON VIEW trace.work IS 'Pieces of work: one row for each run that continues no other, with totals over the runs that continue it. A query reads all runs.';
COMMENT ON COLUMN trace.work.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.work.root_plan_id IS 'The first run of the piece of work, which is `head_id` of all its runs in trace.runs.';
COMMENT ON COLUMN trace.work.title IS 'The title of the first run.';
COMMENT ON COLUMN trace.work.agent_name IS 'The agent of the first run.';
COMMENT ON COLUMN trace.work.session_id IS 'The conversation of the first run.';
COMMENT ON COLUMN trace.work.subject IS 'The person whose data the first run contains.';
COMMENT ON COLUMN trace.work.began_at IS 'The start of the first run, or the time of recording if the start is unknown.';
COMMENT ON COLUMN trace.work.status IS 'The status of the whole piece of work; see trace.runs.';
COMMENT ON COLUMN trace.work.parts IS 'The number of its runs.';
COMMENT ON COLUMN trace.work.started_at IS 'The earliest start of a run.';
COMMENT ON COLUMN trace.work.finished_at IS 'The latest end of a run; null until all have ended.';
COMMENT ON COLUMN trace.work.duration_ms IS 'The time from the first start to the last end in milliseconds, pauses between the runs included.';
COMMENT ON COLUMN trace.work.input_tokens IS 'The input tokens of all models.';
COMMENT ON COLUMN trace.work.output_tokens IS 'The output tokens of all models.';
COMMENT ON COLUMN trace.work.cost_usd IS 'The sum of the known costs of model calls in US dollars; null if some are unknown and the others are zero.';
COMMENT ON COLUMN trace.work.unpriced_calls IS 'The number of model calls that succeeded or used tokens, but have an unknown cost.';
COMMENT ON COLUMN trace.work.tool_calls IS 'The number of tool calls.';
COMMENT ON COLUMN trace.work.failed_calls IS 'The number of these calls that failed.';

CREATE VIEW trace.plans WITH (security_invoker) AS
SELECT
    plan.project_id,
    plan.root_plan_id,
    plan.plan_id,
    plan.parent_plan_id,
    plan.tool_call_id,
    plan.opened_by_step_id,
    plan.position,
    plan.depth,
    plan.title,
    plan.agent_name,
    plan.user_request,
    plan.summary,
    plan.template,
    plan.template_version,
    (CASE WHEN plan.started_at IS NOT NULL THEN plan.started_at ELSE plan.recorded_at END) AS began_at,
    CASE WHEN CASE WHEN plan.status IN ('pending', 'running') THEN (SELECT recorder.abandoned_at FROM run AS its_run JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id AND recorder.root_plan_id = its_run.root_plan_id AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN coalesce(plan.recorder_id, plan.root_plan_id) ELSE plan.root_plan_id END WHERE its_run.project_id = plan.project_id AND its_run.root_plan_id = plan.root_plan_id) END IS NOT NULL THEN 'abandoned' ELSE plan.status::text END AS status,
    plan.status < 'cancelled' AS is_open,
    plan.status = 'failed' AS is_failed,
    plan.reason,
    plan.started_at,
    plan.finished_at,
    (extract(epoch FROM plan.finished_at - plan.started_at) * 1000)::float8 AS duration_ms,
    CASE WHEN plan.status IN ('pending', 'running') THEN (SELECT recorder.abandoned_at FROM run AS its_run JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id AND recorder.root_plan_id = its_run.root_plan_id AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN coalesce(plan.recorder_id, plan.root_plan_id) ELSE plan.root_plan_id END WHERE its_run.project_id = plan.project_id AND its_run.root_plan_id = plan.root_plan_id) END AS abandoned_at,
    plan.recorder_id,
    plan.recorded_at,
    coalesce(plan.masked, '{}') AS masked,
    plan.error_type,
    plan.error_message,
    plan.error_stack,
    plan.inferred,
    plan.inferred_from,
    run.session_id,
    run.subject,
    plan.clock_shift_us
FROM plan_execution_record AS plan
JOIN run ON run.project_id = plan.project_id
    AND run.root_plan_id = plan.root_plan_id
    AND run.deleted_at IS NULL
    AND plan.recorded_at > '-infinity';
COMMENT ON VIEW trace.plans IS 'Plans: root plans and sub-plans.';
COMMENT ON COLUMN trace.plans.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.plans.root_plan_id IS 'The id of the run, which is the id of its root plan.';
COMMENT ON COLUMN trace.plans.plan_id IS 'The plan''s id. The id of a root plan is also the id of the run.';
COMMENT ON COLUMN trace.plans.parent_plan_id IS 'The plan whose tool call or step opened this one; null for the root plan.';
COMMENT ON COLUMN trace.plans.tool_call_id IS 'The tool call that opened this sub-plan.';
COMMENT ON COLUMN trace.plans.opened_by_step_id IS 'The step that opened this sub-plan without a tool call: a hand-off.';
COMMENT ON COLUMN trace.plans.position IS 'The position among the sub-plans of one tool call or step, from 0.';
COMMENT ON COLUMN trace.plans.depth IS 'The number of plans above this one: 0 for the root plan.';
COMMENT ON COLUMN trace.plans.title IS 'The title; if none was recorded, the first line of the request.';
COMMENT ON COLUMN trace.plans.agent_name IS 'The agent that runs the plan.';
COMMENT ON COLUMN trace.plans.user_request IS 'The request, word for word.';
COMMENT ON COLUMN trace.plans.summary IS 'The outcome of the plan, as text.';
COMMENT ON COLUMN trace.plans.template IS 'The plan template that the plan was created from.';
COMMENT ON COLUMN trace.plans.template_version IS 'The version of the template.';
COMMENT ON COLUMN trace.plans.began_at IS 'The start time, or the time of recording if the start is unknown. An index supports ranges of it together with `tool_call_id IS NOT NULL`.';
COMMENT ON COLUMN trace.plans.status IS 'The status: `unknown` (a placeholder that another record referenced), `pending`, `running`, `cancelled`, `failed`, `succeeded`, or `abandoned` (open, and its recorder''s lease has expired).';
COMMENT ON COLUMN trace.plans.is_open IS 'True if it has not ended. A condition on this column uses an index.';
COMMENT ON COLUMN trace.plans.is_failed IS 'True if it failed. A condition on this column uses an index.';
COMMENT ON COLUMN trace.plans.reason IS 'The kind of ending, such as `timed_out` or `round_limit`.';
COMMENT ON COLUMN trace.plans.started_at IS 'The start time, by the recording process''s clock.';
COMMENT ON COLUMN trace.plans.finished_at IS 'The end time, by the recording process''s clock.';
COMMENT ON COLUMN trace.plans.duration_ms IS 'The duration in milliseconds; null if it has not ended.';
COMMENT ON COLUMN trace.plans.abandoned_at IS 'When its recorder''s lease expired while the record was open.';
COMMENT ON COLUMN trace.plans.recorder_id IS 'The recorder that wrote it; if there were several, the one with the greatest id.';
COMMENT ON COLUMN trace.plans.recorded_at IS 'When the server stored the first version of it.';
COMMENT ON COLUMN trace.plans.masked IS 'JSON pointers to values that were masked or not stored, such as `arguments:/password`, sorted.';
COMMENT ON COLUMN trace.plans.error_type IS 'The class or code of the error.';
COMMENT ON COLUMN trace.plans.error_message IS 'The message of the error.';
COMMENT ON COLUMN trace.plans.error_stack IS 'The stack trace of the error; null if none was recorded.';
COMMENT ON COLUMN trace.plans.inferred IS 'True if it, or the link to its parent, was reconstructed rather than recorded.';
COMMENT ON COLUMN trace.plans.inferred_from IS 'The evidence for the reconstruction.';
COMMENT ON COLUMN trace.plans.session_id IS 'The conversation that the run belongs to.';
COMMENT ON COLUMN trace.plans.subject IS 'The person whose data the run contains.';
COMMENT ON COLUMN trace.plans.clock_shift_us IS 'The microseconds added to its recorded times to correct its process''s clock; null if none.';

CREATE VIEW trace.sub_plans WITH (security_invoker) AS
SELECT
    plan.project_id,
    plan.root_plan_id,
    plan.plan_id,
    plan.parent_plan_id,
    plan.tool_call_id,
    plan.opened_by_step_id,
    plan.position,
    plan.depth,
    plan.title,
    plan.agent_name,
    plan.user_request,
    plan.summary,
    plan.template,
    plan.template_version,
    (CASE WHEN plan.started_at IS NOT NULL THEN plan.started_at ELSE plan.recorded_at END) AS began_at,
    CASE WHEN CASE WHEN plan.status IN ('pending', 'running') THEN (SELECT recorder.abandoned_at FROM run AS its_run JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id AND recorder.root_plan_id = its_run.root_plan_id AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN coalesce(plan.recorder_id, plan.root_plan_id) ELSE plan.root_plan_id END WHERE its_run.project_id = plan.project_id AND its_run.root_plan_id = plan.root_plan_id) END IS NOT NULL THEN 'abandoned' ELSE plan.status::text END AS status,
    plan.status < 'cancelled' AS is_open,
    plan.status = 'failed' AS is_failed,
    plan.reason,
    plan.started_at,
    plan.finished_at,
    (extract(epoch FROM plan.finished_at - plan.started_at) * 1000)::float8 AS duration_ms,
    CASE WHEN plan.status IN ('pending', 'running') THEN (SELECT recorder.abandoned_at FROM run AS its_run JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id AND recorder.root_plan_id = its_run.root_plan_id AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN coalesce(plan.recorder_id, plan.root_plan_id) ELSE plan.root_plan_id END WHERE its_run.project_id = plan.project_id AND its_run.root_plan_id = plan.root_plan_id) END AS abandoned_at,
    plan.recorder_id,
    plan.recorded_at,
    coalesce(plan.masked, '{}') AS masked,
    plan.error_type,
    plan.error_message,
    plan.error_stack,
    plan.inferred,
    plan.inferred_from,
    run.session_id,
    run.subject,
    CASE WHEN plan.tool_call_id IS NOT NULL THEN 'tool call' WHEN plan.opened_by_step_id IS NOT NULL THEN 'hand-off' END AS opened_by,
    call.name AS tool_name,
    call.arguments AS tool_arguments,
    CASE WHEN CASE WHEN call.status IN ('pending', 'running') THEN (SELECT recorder.abandoned_at FROM run AS its_run JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id AND recorder.root_plan_id = its_run.root_plan_id AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN coalesce(call.recorder_id, call.root_plan_id) ELSE call.root_plan_id END WHERE its_run.project_id = call.project_id AND its_run.root_plan_id = call.root_plan_id) END IS NOT NULL THEN 'abandoned' ELSE call.status::text END AS tool_status,
    (extract(epoch FROM call.finished_at - call.started_at) * 1000)::float8 AS tool_duration_ms,
    step.agent_name AS opener_agent_name,
    plan.clock_shift_us
FROM plan_execution_record AS plan
JOIN run ON run.project_id = plan.project_id
    AND run.root_plan_id = plan.root_plan_id
    AND run.deleted_at IS NULL
    AND plan.recorded_at > '-infinity'
LEFT JOIN act_tool_info AS call ON call.project_id = plan.project_id
    AND call.root_plan_id = plan.root_plan_id
    AND call.tool_call_id = plan.tool_call_id
LEFT JOIN agent_execution_record AS step ON step.project_id = plan.project_id
    AND step.root_plan_id = plan.root_plan_id
    AND step.step_id = coalesce(call.step_id, plan.opened_by_step_id)
WHERE plan.plan_id <> plan.root_plan_id;
COMMENT ON VIEW trace.sub_plans IS 'Sub-plans: one row for each plan that a tool call or a hand-off opened, with the tool call.';
COMMENT ON COLUMN trace.sub_plans.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.sub_plans.root_plan_id IS 'The id of the run, which is the id of its root plan.';
COMMENT ON COLUMN trace.sub_plans.plan_id IS 'The plan''s id. The id of a root plan is also the id of the run.';
COMMENT ON COLUMN trace.sub_plans.parent_plan_id IS 'The plan whose tool call or step opened this one; null for the root plan.';
COMMENT ON COLUMN trace.sub_plans.tool_call_id IS 'The tool call that opened this sub-plan.';
COMMENT ON COLUMN trace.sub_plans.opened_by_step_id IS 'The step that opened this sub-plan without a tool call: a hand-off.';
COMMENT ON COLUMN trace.sub_plans.position IS 'The position among the sub-plans of one tool call or step, from 0.';
COMMENT ON COLUMN trace.sub_plans.depth IS 'The number of plans above this one: 0 for the root plan.';
COMMENT ON COLUMN trace.sub_plans.title IS 'The title; if none was recorded, the first line of the request.';
COMMENT ON COLUMN trace.sub_plans.agent_name IS 'The agent that runs the plan.';
COMMENT ON COLUMN trace.sub_plans.user_request IS 'The request, word for word.';
COMMENT ON COLUMN trace.sub_plans.summary IS 'The outcome of the plan, as text.';
COMMENT ON COLUMN trace.sub_plans.template IS 'The plan template that the plan was created from.';
COMMENT ON COLUMN trace.sub_plans.template_version IS 'The version of the template.';
COMMENT ON COLUMN trace.sub_plans.began_at IS 'The start time, or the time of recording if the start is unknown. An index supports ranges of it together with `tool_call_id IS NOT NULL`.';
COMMENT ON COLUMN trace.sub_plans.status IS 'The status: `unknown` (a placeholder that another record referenced), `pending`, `running`, `cancelled`, `failed`, `succeeded`, or `abandoned` (open, and its recorder''s lease has expired).';
COMMENT ON COLUMN trace.sub_plans.is_open IS 'True if it has not ended. A condition on this column uses an index.';
COMMENT ON COLUMN trace.sub_plans.is_failed IS 'True if it failed. A condition on this column uses an index.';
COMMENT ON COLUMN trace.sub_plans.reason IS 'The kind of ending, such as `timed_out` or `round_limit`.';
COMMENT ON COLUMN trace.sub_plans.started_at IS 'The start time, by the recording process''s clock.';
COMMENT ON COLUMN trace.sub_plans.finished_at IS 'The end time, by the recording process''s clock.';
COMMENT ON COLUMN trace.sub_plans.duration_ms IS 'The duration in milliseconds; null if it has not ended.';
COMMENT ON COLUMN trace.sub_plans.abandoned_at IS 'When its recorder''s lease expired while the record was open.';
COMMENT ON COLUMN trace.sub_plans.recorder_id IS 'The recorder that wrote it; if there were several, the one with the greatest id.';
COMMENT ON COLUMN trace.sub_plans.recorded_at IS 'When the server stored the first version of it.';
COMMENT ON COLUMN trace.sub_plans.masked IS 'JSON pointers to values that were masked or not stored, such as `arguments:/password`, sorted.';
COMMENT ON COLUMN trace.sub_plans.error_type IS 'The class or code of the error.';
COMMENT ON COLUMN trace.sub_plans.error_message IS 'The message of the error.';
COMMENT ON COLUMN trace.sub_plans.error_stack IS 'The stack trace of the error; null if none was recorded.';
COMMENT ON COLUMN trace.sub_plans.inferred IS 'True if it, or the link to its parent, was reconstructed rather than recorded.';
COMMENT ON COLUMN trace.sub_plans.inferred_from IS 'The evidence for the reconstruction.';
COMMENT ON COLUMN trace.sub_plans.session_id IS 'The conversation that the run belongs to.';
COMMENT ON COLUMN trace.sub_plans.subject IS 'The person whose data the run contains.';
COMMENT ON COLUMN trace.sub_plans.opened_by IS 'How it was opened: `tool call`, or `hand-off` by a step.';
COMMENT ON COLUMN trace.sub_plans.tool_name IS 'The name of the tool whose call opened it.';
COMMENT ON COLUMN trace.sub_plans.tool_arguments IS 'The arguments of that call, as text.';
COMMENT ON COLUMN trace.sub_plans.tool_status IS 'The status of that call.';
COMMENT ON COLUMN trace.sub_plans.tool_duration_ms IS 'The duration of that call in milliseconds.';
COMMENT ON COLUMN trace.sub_plans.opener_agent_name IS 'The agent that made the call or handed over.';
COMMENT ON COLUMN trace.sub_plans.clock_shift_us IS 'The microseconds added to its recorded times to correct its process''s clock; null if none.';

CREATE VIEW trace.steps WITH (security_invoker) AS
SELECT
    step.project_id,
    step.root_plan_id,
    step.step_id,
    step.plan_id,
    step.position,
    step.agent_name,
    step.request,
    step.result,
    CASE WHEN CASE WHEN step.status IN ('pending', 'running') THEN (SELECT recorder.abandoned_at FROM run AS its_run JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id AND recorder.root_plan_id = its_run.root_plan_id AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN coalesce(step.recorder_id, step.root_plan_id) ELSE step.root_plan_id END WHERE its_run.project_id = step.project_id AND its_run.root_plan_id = step.root_plan_id) END IS NOT NULL THEN 'abandoned' ELSE step.status::text END AS status,
    step.status < 'cancelled' AS is_open,
    step.status = 'failed' AS is_failed,
    step.reason,
    step.started_at,
    step.finished_at,
    (extract(epoch FROM step.finished_at - step.started_at) * 1000)::float8 AS duration_ms,
    CASE WHEN step.status IN ('pending', 'running') THEN (SELECT recorder.abandoned_at FROM run AS its_run JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id AND recorder.root_plan_id = its_run.root_plan_id AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN coalesce(step.recorder_id, step.root_plan_id) ELSE step.root_plan_id END WHERE its_run.project_id = step.project_id AND its_run.root_plan_id = step.root_plan_id) END AS abandoned_at,
    step.recorder_id,
    step.recorded_at,
    coalesce(step.masked, '{}') AS masked,
    step.error_type,
    step.error_message,
    step.error_stack,
    plan.depth,
    run.session_id,
    run.subject,
    step.clock_shift_us
FROM agent_execution_record AS step
JOIN run ON run.project_id = step.project_id
    AND run.root_plan_id = step.root_plan_id
    AND run.deleted_at IS NULL
    AND step.recorded_at > '-infinity'
LEFT JOIN plan_execution_record AS plan ON plan.project_id = step.project_id
    AND plan.root_plan_id = step.root_plan_id
    AND plan.plan_id = step.plan_id;
COMMENT ON VIEW trace.steps IS 'Steps: the items of plans, each executed by one agent.';
COMMENT ON COLUMN trace.steps.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.steps.root_plan_id IS 'The id of the run, which is the id of its root plan.';
COMMENT ON COLUMN trace.steps.step_id IS 'The step''s id.';
COMMENT ON COLUMN trace.steps.plan_id IS 'The plan of the step; null if only the step''s id is known.';
COMMENT ON COLUMN trace.steps.position IS 'The position among the plan''s steps, from 0.';
COMMENT ON COLUMN trace.steps.agent_name IS 'The agent that executes the step.';
COMMENT ON COLUMN trace.steps.request IS 'The request to the agent.';
COMMENT ON COLUMN trace.steps.result IS 'The agent''s final answer.';
COMMENT ON COLUMN trace.steps.status IS 'The status: `unknown` (a placeholder that another record referenced), `pending`, `running`, `cancelled`, `failed`, `succeeded`, or `abandoned` (open, and its recorder''s lease has expired).';
COMMENT ON COLUMN trace.steps.is_open IS 'True if it has not ended. A condition on this column uses an index.';
COMMENT ON COLUMN trace.steps.is_failed IS 'True if it failed. A condition on this column uses an index.';
COMMENT ON COLUMN trace.steps.reason IS 'The kind of ending, such as `timed_out` or `round_limit`.';
COMMENT ON COLUMN trace.steps.started_at IS 'The start time, by the recording process''s clock.';
COMMENT ON COLUMN trace.steps.finished_at IS 'The end time, by the recording process''s clock.';
COMMENT ON COLUMN trace.steps.duration_ms IS 'The duration in milliseconds; null if it has not ended.';
COMMENT ON COLUMN trace.steps.abandoned_at IS 'When its recorder''s lease expired while the record was open.';
COMMENT ON COLUMN trace.steps.recorder_id IS 'The recorder that wrote it; if there were several, the one with the greatest id.';
COMMENT ON COLUMN trace.steps.recorded_at IS 'When the server stored the first version of it.';
COMMENT ON COLUMN trace.steps.masked IS 'JSON pointers to values that were masked or not stored, such as `arguments:/password`, sorted.';
COMMENT ON COLUMN trace.steps.error_type IS 'The class or code of the error.';
COMMENT ON COLUMN trace.steps.error_message IS 'The message of the error.';
COMMENT ON COLUMN trace.steps.error_stack IS 'The stack trace of the error; null if none was recorded.';
COMMENT ON COLUMN trace.steps.depth IS 'The number of plans above its plan: 0 in the root plan.';
COMMENT ON COLUMN trace.steps.session_id IS 'The conversation that the run belongs to.';
COMMENT ON COLUMN trace.steps.subject IS 'The person whose data the run contains.';
COMMENT ON COLUMN trace.steps.clock_shift_us IS 'The microseconds added to its recorded times to correct its process''s clock; null if none.';

CREATE VIEW trace.think_acts WITH (security_invoker) AS
SELECT
    round.project_id,
    round.root_plan_id,
    round.think_act_id,
    round.step_id,
    round.position,
    round.requested_model,
    round.model,
    round.thought,
    round.messages,
    round.input_tokens,
    round.output_tokens,
    round.cost_usd,
    CASE WHEN CASE WHEN round.status IN ('pending', 'running') THEN (SELECT recorder.abandoned_at FROM run AS its_run JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id AND recorder.root_plan_id = its_run.root_plan_id AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN coalesce(round.recorder_id, round.root_plan_id) ELSE round.root_plan_id END WHERE its_run.project_id = round.project_id AND its_run.root_plan_id = round.root_plan_id) END IS NOT NULL THEN 'abandoned' ELSE round.status::text END AS status,
    round.status < 'cancelled' AS is_open,
    round.status = 'failed' AS is_failed,
    round.reason,
    round.started_at,
    round.finished_at,
    (extract(epoch FROM round.finished_at - round.started_at) * 1000)::float8 AS duration_ms,
    CASE WHEN round.status IN ('pending', 'running') THEN (SELECT recorder.abandoned_at FROM run AS its_run JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id AND recorder.root_plan_id = its_run.root_plan_id AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN coalesce(round.recorder_id, round.root_plan_id) ELSE round.root_plan_id END WHERE its_run.project_id = round.project_id AND its_run.root_plan_id = round.root_plan_id) END AS abandoned_at,
    round.recorder_id,
    round.recorded_at,
    coalesce(round.masked, '{}') AS masked,
    round.error_type,
    round.error_message,
    round.error_stack,
    step.agent_name,
    step.plan_id,
    plan.depth,
    run.session_id,
    run.subject,
    round.provider,
    round.parameters,
    round.offered_tools,
    round.offered_tools_from,
    round.node,
    round.finish_reasons,
    round.cache_read_tokens,
    round.cache_written_tokens,
    round.reasoning_tokens,
    round.first_token_at,
    round.inferred,
    round.inferred_from,
    round.clock_shift_us
FROM think_act_record AS round
JOIN run ON run.project_id = round.project_id
    AND run.root_plan_id = round.root_plan_id
    AND run.deleted_at IS NULL
    AND round.recorded_at > '-infinity'
LEFT JOIN agent_execution_record AS step ON step.project_id = round.project_id
    AND step.root_plan_id = round.root_plan_id
    AND step.step_id = round.step_id
LEFT JOIN plan_execution_record AS plan ON plan.project_id = step.project_id
    AND plan.root_plan_id = step.root_plan_id
    AND plan.plan_id = step.plan_id;
COMMENT ON VIEW trace.think_acts IS 'Think-acts: one row for each request to a model and its answer. The answer can request tool calls.';
COMMENT ON COLUMN trace.think_acts.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.think_acts.root_plan_id IS 'The id of the run, which is the id of its root plan.';
COMMENT ON COLUMN trace.think_acts.think_act_id IS 'The think-act''s id.';
COMMENT ON COLUMN trace.think_acts.step_id IS 'The step of the think-act; null if only the think-act''s id is known.';
COMMENT ON COLUMN trace.think_acts.position IS 'The number of the think-act within the step, from 0.';
COMMENT ON COLUMN trace.think_acts.requested_model IS 'The name of the requested model.';
COMMENT ON COLUMN trace.think_acts.model IS 'The name of the model that answered, as the provider reports it.';
COMMENT ON COLUMN trace.think_acts.thought IS 'The text of the model''s answer.';
COMMENT ON COLUMN trace.think_acts.messages IS 'The messages to the model, as the text of a JSON array.';
COMMENT ON COLUMN trace.think_acts.input_tokens IS 'The number of input tokens.';
COMMENT ON COLUMN trace.think_acts.output_tokens IS 'The number of output tokens.';
COMMENT ON COLUMN trace.think_acts.cost_usd IS 'The cost in US dollars: by the project''s prices, else as reported, else by the price list.';
COMMENT ON COLUMN trace.think_acts.status IS 'The status: `unknown` (a placeholder that another record referenced), `pending`, `running`, `cancelled`, `failed`, `succeeded`, or `abandoned` (open, and its recorder''s lease has expired).';
COMMENT ON COLUMN trace.think_acts.is_open IS 'True if it has not ended. A condition on this column uses an index.';
COMMENT ON COLUMN trace.think_acts.is_failed IS 'True if it failed. A condition on this column uses an index.';
COMMENT ON COLUMN trace.think_acts.reason IS 'The kind of ending, such as `timed_out` or `round_limit`.';
COMMENT ON COLUMN trace.think_acts.started_at IS 'The start time, by the recording process''s clock.';
COMMENT ON COLUMN trace.think_acts.finished_at IS 'The end time, by the recording process''s clock.';
COMMENT ON COLUMN trace.think_acts.duration_ms IS 'The duration in milliseconds; null if it has not ended.';
COMMENT ON COLUMN trace.think_acts.abandoned_at IS 'When its recorder''s lease expired while the record was open.';
COMMENT ON COLUMN trace.think_acts.recorder_id IS 'The recorder that wrote it; if there were several, the one with the greatest id.';
COMMENT ON COLUMN trace.think_acts.recorded_at IS 'When the server stored the first version of it.';
COMMENT ON COLUMN trace.think_acts.masked IS 'JSON pointers to values that were masked or not stored, such as `arguments:/password`, sorted.';
COMMENT ON COLUMN trace.think_acts.error_type IS 'The class or code of the error.';
COMMENT ON COLUMN trace.think_acts.error_message IS 'The message of the error.';
COMMENT ON COLUMN trace.think_acts.error_stack IS 'The stack trace of the error; null if none was recorded.';
COMMENT ON COLUMN trace.think_acts.agent_name IS 'The agent of its step.';
COMMENT ON COLUMN trace.think_acts.plan_id IS 'The plan of its step.';
COMMENT ON COLUMN trace.think_acts.depth IS 'The number of plans above its plan: 0 in the root plan.';
COMMENT ON COLUMN trace.think_acts.session_id IS 'The conversation that the run belongs to.';
COMMENT ON COLUMN trace.think_acts.subject IS 'The person whose data the run contains.';
COMMENT ON COLUMN trace.think_acts.provider IS 'The provider of the model, such as `openai`.';
COMMENT ON COLUMN trace.think_acts.parameters IS 'The parameters of the request, such as `temperature`, as the text of a JSON object.';
COMMENT ON COLUMN trace.think_acts.offered_tools IS 'The tools that the model could choose, as the text of a JSON array.';
COMMENT ON COLUMN trace.think_acts.offered_tools_from IS 'An earlier think-act of the run that has the same offered tools and stores the list.';
COMMENT ON COLUMN trace.think_acts.node IS 'The node of the agent''s graph that called the model.';
COMMENT ON COLUMN trace.think_acts.finish_reasons IS 'Why the model stopped, such as `stop` or `tool_calls`, sorted.';
COMMENT ON COLUMN trace.think_acts.cache_read_tokens IS 'The input tokens that the provider read from its cache.';
COMMENT ON COLUMN trace.think_acts.cache_written_tokens IS 'The input tokens that the provider wrote to its cache.';
COMMENT ON COLUMN trace.think_acts.reasoning_tokens IS 'The output tokens that the model spent on reasoning.';
COMMENT ON COLUMN trace.think_acts.first_token_at IS 'When the first token of the answer arrived.';
COMMENT ON COLUMN trace.think_acts.inferred IS 'True if it, or the link to its parent, was reconstructed rather than recorded.';
COMMENT ON COLUMN trace.think_acts.inferred_from IS 'The evidence for the reconstruction.';
COMMENT ON COLUMN trace.think_acts.clock_shift_us IS 'The microseconds added to its recorded times to correct its process''s clock; null if none.';

CREATE VIEW trace.tool_calls WITH (security_invoker) AS
SELECT
    call.project_id,
    call.root_plan_id,
    call.tool_call_id,
    call.step_id,
    call.think_act_id,
    call.parent_tool_call_id,
    call.position,
    call.name,
    call.tool_type,
    call.provider_call_id,
    call.arguments,
    CASE WHEN pg_input_is_valid(call.arguments, 'jsonb') THEN call.arguments::jsonb END AS arguments_json,
    call.effective_arguments,
    call.result,
    CASE WHEN pg_input_is_valid(call.result, 'jsonb') THEN call.result::jsonb END AS result_json,
    (CASE WHEN call.started_at IS NOT NULL THEN call.started_at ELSE call.recorded_at END) AS began_at,
    CASE WHEN CASE WHEN call.status IN ('pending', 'running') THEN (SELECT recorder.abandoned_at FROM run AS its_run JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id AND recorder.root_plan_id = its_run.root_plan_id AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN coalesce(call.recorder_id, call.root_plan_id) ELSE call.root_plan_id END WHERE its_run.project_id = call.project_id AND its_run.root_plan_id = call.root_plan_id) END IS NOT NULL THEN 'abandoned' ELSE call.status::text END AS status,
    call.status < 'cancelled' AS is_open,
    call.status = 'failed' AS is_failed,
    call.reason,
    call.started_at,
    call.finished_at,
    (extract(epoch FROM call.finished_at - call.started_at) * 1000)::float8 AS duration_ms,
    CASE WHEN call.status IN ('pending', 'running') THEN (SELECT recorder.abandoned_at FROM run AS its_run JOIN recorder_run AS recorder ON recorder.project_id = its_run.project_id AND recorder.root_plan_id = its_run.root_plan_id AND recorder.recorder_id = CASE its_run.source WHEN 'events' THEN coalesce(call.recorder_id, call.root_plan_id) ELSE call.root_plan_id END WHERE its_run.project_id = call.project_id AND its_run.root_plan_id = call.root_plan_id) END AS abandoned_at,
    call.recorder_id,
    call.recorded_at,
    coalesce(call.masked, '{}') AS masked,
    call.error_type,
    call.error_message,
    call.error_stack,
    call.attempt AS attempts,
    greatest(coalesce(call.attempt, 1) - 1, 0) AS retries,
    coalesce(call.forged_arguments, '{}') AS forged_arguments,
    call.short_circuited_by,
    call.state_changes,
    call.still_running,
    call.inferred,
    call.inferred_from,
    step.agent_name,
    step.plan_id,
    plan.depth,
    run.session_id,
    run.subject,
    call.continued_plan_id,
    call.clock_shift_us,
    call.agent_key,
    call.agent_end_sequence
FROM act_tool_info AS call
JOIN run ON run.project_id = call.project_id
    AND run.root_plan_id = call.root_plan_id
    AND run.deleted_at IS NULL
    AND call.recorded_at > '-infinity'
LEFT JOIN agent_execution_record AS step ON step.project_id = call.project_id
    AND step.root_plan_id = call.root_plan_id
    AND step.step_id = call.step_id
LEFT JOIN plan_execution_record AS plan ON plan.project_id = step.project_id
    AND plan.root_plan_id = step.root_plan_id
    AND plan.plan_id = step.plan_id;
COMMENT ON VIEW trace.tool_calls IS 'Tool calls: one row for each call, however often it was retried. The items of a batch tool are calls of their own.';
COMMENT ON COLUMN trace.tool_calls.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.tool_calls.root_plan_id IS 'The id of the run, which is the id of its root plan.';
COMMENT ON COLUMN trace.tool_calls.tool_call_id IS 'The tool call''s id.';
COMMENT ON COLUMN trace.tool_calls.step_id IS 'The step that made the call; null if only the call''s id is known.';
COMMENT ON COLUMN trace.tool_calls.think_act_id IS 'The think-act that requested the call; null for a call outside of any think-act.';
COMMENT ON COLUMN trace.tool_calls.parent_tool_call_id IS 'The batch call that contains this call, or the call whose tool made it.';
COMMENT ON COLUMN trace.tool_calls.position IS 'The position in the think-act or in the batch, from 0.';
COMMENT ON COLUMN trace.tool_calls.name IS 'The tool''s name as the model called it.';
COMMENT ON COLUMN trace.tool_calls.tool_type IS 'The kind of tool, such as `STATELESS` or `SUBPLAN`.';
COMMENT ON COLUMN trace.tool_calls.provider_call_id IS 'The id that the model provider assigned. It may repeat or be empty.';
COMMENT ON COLUMN trace.tool_calls.arguments IS 'The arguments as the received text, usually JSON.';
COMMENT ON COLUMN trace.tool_calls.arguments_json IS 'The arguments as `jsonb`; null if Postgres cannot cast them.';
COMMENT ON COLUMN trace.tool_calls.effective_arguments IS 'The arguments of the latest attempt, if hooks changed them.';
COMMENT ON COLUMN trace.tool_calls.result IS 'The result as the received text, usually JSON.';
COMMENT ON COLUMN trace.tool_calls.result_json IS 'The result as `jsonb`; null if Postgres cannot cast it.';
COMMENT ON COLUMN trace.tool_calls.began_at IS 'The start time, or the time of recording if the start is unknown. An index supports ranges of it.';
COMMENT ON COLUMN trace.tool_calls.status IS 'The status: `unknown` (a placeholder that another record referenced), `pending`, `running`, `cancelled`, `failed`, `succeeded`, or `abandoned` (open, and its recorder''s lease has expired).';
COMMENT ON COLUMN trace.tool_calls.is_open IS 'True if it has not ended. A condition on this column uses an index.';
COMMENT ON COLUMN trace.tool_calls.is_failed IS 'True if it failed. A condition on this column uses an index.';
COMMENT ON COLUMN trace.tool_calls.reason IS 'The kind of ending, such as `timed_out` or `round_limit`.';
COMMENT ON COLUMN trace.tool_calls.started_at IS 'The start time, by the recording process''s clock.';
COMMENT ON COLUMN trace.tool_calls.finished_at IS 'The end time, by the recording process''s clock.';
COMMENT ON COLUMN trace.tool_calls.duration_ms IS 'The duration in milliseconds; null if it has not ended.';
COMMENT ON COLUMN trace.tool_calls.abandoned_at IS 'When its recorder''s lease expired while the record was open.';
COMMENT ON COLUMN trace.tool_calls.recorder_id IS 'The recorder that wrote it; if there were several, the one with the greatest id.';
COMMENT ON COLUMN trace.tool_calls.recorded_at IS 'When the server stored the first version of it.';
COMMENT ON COLUMN trace.tool_calls.masked IS 'JSON pointers to values that were masked or not stored, such as `arguments:/password`, sorted.';
COMMENT ON COLUMN trace.tool_calls.error_type IS 'The class or code of the error.';
COMMENT ON COLUMN trace.tool_calls.error_message IS 'The message of the error.';
COMMENT ON COLUMN trace.tool_calls.error_stack IS 'The stack trace of the error; null if none was recorded.';
COMMENT ON COLUMN trace.tool_calls.attempts IS 'The number of attempts, at least 1.';
COMMENT ON COLUMN trace.tool_calls.retries IS 'The number of retries.';
COMMENT ON COLUMN trace.tool_calls.forged_arguments IS 'The names of hidden parameters that the model or a hook supplied, sorted. Their values were discarded.';
COMMENT ON COLUMN trace.tool_calls.short_circuited_by IS 'The hook that returned the result instead of the tool.';
COMMENT ON COLUMN trace.tool_calls.state_changes IS 'The call''s changes of the session state, as the text of a JSON array.';
COMMENT ON COLUMN trace.tool_calls.still_running IS 'True if the call ended while its tool continued to run, after a timeout for example.';
COMMENT ON COLUMN trace.tool_calls.inferred IS 'True if it, or the link to its parent, was reconstructed rather than recorded.';
COMMENT ON COLUMN trace.tool_calls.inferred_from IS 'The evidence for the reconstruction.';
COMMENT ON COLUMN trace.tool_calls.agent_name IS 'The agent of its step.';
COMMENT ON COLUMN trace.tool_calls.plan_id IS 'The plan of its step.';
COMMENT ON COLUMN trace.tool_calls.depth IS 'The number of plans above its plan: 0 in the root plan.';
COMMENT ON COLUMN trace.tool_calls.session_id IS 'The conversation that the run belongs to.';
COMMENT ON COLUMN trace.tool_calls.subject IS 'The person whose data the run contains.';
COMMENT ON COLUMN trace.tool_calls.continued_plan_id IS 'The sub-plan that this call continued. An earlier tool call opened the sub-plan.';
COMMENT ON COLUMN trace.tool_calls.clock_shift_us IS 'The microseconds added to its recorded times to correct its process''s clock; null if none.';
COMMENT ON COLUMN trace.tool_calls.agent_key IS 'The emitter''s id of the agent that the call set to work.';
COMMENT ON COLUMN trace.tool_calls.agent_end_sequence IS 'The emitter''s number of the event with which this agent ended in the background.';

CREATE VIEW trace.lineage WITH (security_invoker) AS
SELECT
    run.project_id,
    run.root_plan_id,
    walk.plan_id,
    walk.depth,
    walk.titles,
    walk.agents,
    walk.tools,
    walk.plan_ids,
    walk.tool_call_ids
FROM run JOIN LATERAL trace.lineage_of(run.root_plan_id) AS walk ON walk.project_id = run.project_id
WHERE run.deleted_at IS NULL;
COMMENT ON VIEW trace.lineage IS 'The path from the root plan to each plan of a run. A query traverses each run separately, so select one or a few values of root_plan_id. On Citus, use the function trace.lineage_of(''…'') instead.';
COMMENT ON COLUMN trace.lineage.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.lineage.root_plan_id IS 'The id of the run, which is the id of its root plan.';
COMMENT ON COLUMN trace.lineage.plan_id IS 'The last plan of the path.';
COMMENT ON COLUMN trace.lineage.depth IS 'The number of plans above it in the path: 0 for the root.';
COMMENT ON COLUMN trace.lineage.titles IS 'The titles of the plans in the path, starting at the root.';
COMMENT ON COLUMN trace.lineage.agents IS 'The agents of these plans.';
COMMENT ON COLUMN trace.lineage.tools IS 'The tools that opened the sub-plans in the path, so one fewer than plans; null for a hand-off.';
COMMENT ON COLUMN trace.lineage.plan_ids IS 'The ids of the plans in the path, including this plan.';
COMMENT ON COLUMN trace.lineage.tool_call_ids IS 'The ids of the tool calls that opened them, in the order of `tools`.';

CREATE VIEW trace.plan_costs WITH (security_invoker) AS
SELECT
    part.project_id,
    part.root_plan_id,
    part.plan_id,
    sum(part.think_acts)::bigint AS think_acts,
    sum(part.tool_calls)::bigint AS tool_calls,
    sum(part.failed_calls)::bigint AS failed_calls,
    sum(part.input_tokens)::bigint AS input_tokens,
    sum(part.output_tokens)::bigint AS output_tokens,
    CASE WHEN sum(part.cost_usd) <> 0 OR sum(part.unpriced_calls) = 0 THEN sum(part.cost_usd) END AS cost_usd,
    sum(part.model_ms) AS model_ms,
    sum(part.tool_ms) AS tool_ms,
    sum(part.unpriced_calls)::bigint AS unpriced_calls
FROM (
    SELECT each.project_id, each.root_plan_id, step.plan_id, 1 AS think_acts, 0 AS tool_calls,
        CASE WHEN each.status = 'failed' THEN 1 ELSE 0 END AS failed_calls,
        coalesce(each.input_tokens, 0) AS input_tokens,
        coalesce(each.output_tokens, 0) AS output_tokens,
        coalesce(each.cost_usd, 0) AS cost_usd,
        coalesce((extract(epoch FROM each.finished_at - each.started_at) * 1000)::float8, 0) AS model_ms,
        0::float8 AS tool_ms,
        CASE WHEN each.cost_usd IS NULL AND (each.status = 'succeeded' OR coalesce(each.input_tokens, 0) + coalesce(each.output_tokens, 0) > 0) THEN 1 ELSE 0 END AS unpriced_calls
    FROM think_act_record AS each
    JOIN run ON run.project_id = each.project_id
        AND run.root_plan_id = each.root_plan_id
        AND run.deleted_at IS NULL
        AND each.recorded_at > '-infinity'
    LEFT JOIN agent_execution_record AS step ON step.project_id = each.project_id
        AND step.root_plan_id = each.root_plan_id
        AND step.step_id = each.step_id
    UNION ALL
    SELECT each.project_id, each.root_plan_id, step.plan_id, 0, 1,
        CASE WHEN each.status = 'failed' THEN 1 ELSE 0 END, 0, 0, 0, 0,
        coalesce((extract(epoch FROM each.finished_at - each.started_at) * 1000)::float8, 0), 0
    FROM act_tool_info AS each
    JOIN run ON run.project_id = each.project_id
        AND run.root_plan_id = each.root_plan_id
        AND run.deleted_at IS NULL
        AND each.recorded_at > '-infinity'
    LEFT JOIN agent_execution_record AS step ON step.project_id = each.project_id
        AND step.root_plan_id = each.root_plan_id
        AND step.step_id = each.step_id
) AS part GROUP BY part.project_id, part.root_plan_id, part.plan_id;
COMMENT ON VIEW trace.plan_costs IS 'Tokens, cost and time of each plan, without its sub-plans. The view trace.runs has the totals of whole runs.';
COMMENT ON COLUMN trace.plan_costs.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.plan_costs.root_plan_id IS 'The id of the run, which is the id of its root plan.';
COMMENT ON COLUMN trace.plan_costs.plan_id IS 'The plan; null for records without a known plan.';
COMMENT ON COLUMN trace.plan_costs.think_acts IS 'The number of rounds.';
COMMENT ON COLUMN trace.plan_costs.tool_calls IS 'The number of tool calls.';
COMMENT ON COLUMN trace.plan_costs.failed_calls IS 'The number of these rounds and calls that failed.';
COMMENT ON COLUMN trace.plan_costs.input_tokens IS 'The input tokens of all models.';
COMMENT ON COLUMN trace.plan_costs.output_tokens IS 'The output tokens of all models.';
COMMENT ON COLUMN trace.plan_costs.cost_usd IS 'The sum of the known costs of model calls in US dollars; null if some are unknown and the others are zero.';
COMMENT ON COLUMN trace.plan_costs.model_ms IS 'The sum of the durations of model requests in milliseconds.';
COMMENT ON COLUMN trace.plan_costs.tool_ms IS 'The sum of the durations of tool calls in milliseconds. Parallel calls and the time of sub-plans inside a call count in full.';
COMMENT ON COLUMN trace.plan_costs.unpriced_calls IS 'The number of model calls that succeeded or used tokens, but have an unknown cost.';

CREATE VIEW trace.agent_costs WITH (security_invoker) AS
SELECT
    part.project_id,
    part.root_plan_id,
    part.agent_name,
    sum(part.think_acts)::bigint AS think_acts,
    sum(part.tool_calls)::bigint AS tool_calls,
    sum(part.failed_calls)::bigint AS failed_calls,
    sum(part.input_tokens)::bigint AS input_tokens,
    sum(part.output_tokens)::bigint AS output_tokens,
    CASE WHEN sum(part.cost_usd) <> 0 OR sum(part.unpriced_calls) = 0 THEN sum(part.cost_usd) END AS cost_usd,
    sum(part.model_ms) AS model_ms,
    sum(part.tool_ms) AS tool_ms,
    sum(part.unpriced_calls)::bigint AS unpriced_calls
FROM (
    SELECT each.project_id, each.root_plan_id, step.agent_name, 1 AS think_acts, 0 AS tool_calls,
        CASE WHEN each.status = 'failed' THEN 1 ELSE 0 END AS failed_calls,
        coalesce(each.input_tokens, 0) AS input_tokens,
        coalesce(each.output_tokens, 0) AS output_tokens,
        coalesce(each.cost_usd, 0) AS cost_usd,
        coalesce((extract(epoch FROM each.finished_at - each.started_at) * 1000)::float8, 0) AS model_ms,
        0::float8 AS tool_ms,
        CASE WHEN each.cost_usd IS NULL AND (each.status = 'succeeded' OR coalesce(each.input_tokens, 0) + coalesce(each.output_tokens, 0) > 0) THEN 1 ELSE 0 END AS unpriced_calls
    FROM think_act_record AS each
    JOIN run ON run.project_id = each.project_id
        AND run.root_plan_id = each.root_plan_id
        AND run.deleted_at IS NULL
        AND each.recorded_at > '-infinity'
    LEFT JOIN agent_execution_record AS step ON step.project_id = each.project_id
        AND step.root_plan_id = each.root_plan_id
        AND step.step_id = each.step_id
    UNION ALL
    SELECT each.project_id, each.root_plan_id, step.agent_name, 0, 1,
        CASE WHEN each.status = 'failed' THEN 1 ELSE 0 END, 0, 0, 0, 0,
        coalesce((extract(epoch FROM each.finished_at - each.started_at) * 1000)::float8, 0), 0
    FROM act_tool_info AS each
    JOIN run ON run.project_id = each.project_id
        AND run.root_plan_id = each.root_plan_id
        AND run.deleted_at IS NULL
        AND each.recorded_at > '-infinity'
    LEFT JOIN agent_execution_record AS step ON step.project_id = each.project_id
        AND step.root_plan_id = each.root_plan_id
        AND step.step_id = each.step_id
) AS part GROUP BY part.project_id, part.root_plan_id, part.agent_name;
COMMENT ON VIEW trace.agent_costs IS 'Tokens, cost and time of each agent in each run. Work that an agent delegates to another agent counts for the other one.';
COMMENT ON COLUMN trace.agent_costs.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.agent_costs.root_plan_id IS 'The id of the run, which is the id of its root plan.';
COMMENT ON COLUMN trace.agent_costs.agent_name IS 'The agent; null for records without a known agent.';
COMMENT ON COLUMN trace.agent_costs.think_acts IS 'The number of rounds.';
COMMENT ON COLUMN trace.agent_costs.tool_calls IS 'The number of tool calls.';
COMMENT ON COLUMN trace.agent_costs.failed_calls IS 'The number of these rounds and calls that failed.';
COMMENT ON COLUMN trace.agent_costs.input_tokens IS 'The input tokens of all models.';
COMMENT ON COLUMN trace.agent_costs.output_tokens IS 'The output tokens of all models.';
COMMENT ON COLUMN trace.agent_costs.cost_usd IS 'The sum of the known costs of model calls in US dollars; null if some are unknown and the others are zero.';
COMMENT ON COLUMN trace.agent_costs.model_ms IS 'The sum of the durations of model requests in milliseconds.';
COMMENT ON COLUMN trace.agent_costs.tool_ms IS 'The sum of the durations of tool calls in milliseconds. Parallel calls and the time of sub-plans inside a call count in full.';
COMMENT ON COLUMN trace.agent_costs.unpriced_calls IS 'The number of model calls that succeeded or used tokens, but have an unknown cost.';

CREATE VIEW trace.tool_stats WITH (security_invoker) AS
SELECT
    call.project_id,
    call.name,
    count(*) AS calls,
    count(*) FILTER (WHERE call.status = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE call.status = 'failed') AS failed,
    count(*) FILTER (WHERE call.status = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE call.status = 'abandoned') AS abandoned,
    count(*) FILTER (WHERE call.retries > 0) AS retried,
    percentile_disc(0.5) WITHIN GROUP (ORDER BY call.duration_ms) AS p50_ms,
    percentile_disc(0.95) WITHIN GROUP (ORDER BY call.duration_ms) AS p95_ms,
    percentile_disc(0.99) WITHIN GROUP (ORDER BY call.duration_ms) AS p99_ms,
    sum(call.duration_ms) AS total_ms,
    min(call.began_at) AS first_at,
    max(call.began_at) AS latest_at
FROM trace.tool_calls AS call GROUP BY call.project_id, call.name;
COMMENT ON VIEW trace.tool_stats IS 'Statistics of each tool over all time. docs/guides/queries.md shows how to limit them to a range of time.';
COMMENT ON COLUMN trace.tool_stats.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.tool_stats.name IS 'The tool.';
COMMENT ON COLUMN trace.tool_stats.calls IS 'The number of calls.';
COMMENT ON COLUMN trace.tool_stats.succeeded IS 'The number of succeeded calls.';
COMMENT ON COLUMN trace.tool_stats.failed IS 'The number of failed calls.';
COMMENT ON COLUMN trace.tool_stats.cancelled IS 'The number of cancelled calls.';
COMMENT ON COLUMN trace.tool_stats.abandoned IS 'The number of abandoned calls.';
COMMENT ON COLUMN trace.tool_stats.retried IS 'The number of calls that were retried.';
COMMENT ON COLUMN trace.tool_stats.p50_ms IS 'The median duration of ended calls in milliseconds.';
COMMENT ON COLUMN trace.tool_stats.p95_ms IS 'The 95th percentile of the durations of ended calls in milliseconds.';
COMMENT ON COLUMN trace.tool_stats.p99_ms IS 'The 99th percentile of the durations of ended calls in milliseconds.';
COMMENT ON COLUMN trace.tool_stats.total_ms IS 'The sum of their durations in milliseconds.';
COMMENT ON COLUMN trace.tool_stats.first_at IS 'The start of the first call.';
COMMENT ON COLUMN trace.tool_stats.latest_at IS 'The start of the latest call.';

CREATE VIEW trace.conversations WITH (security_invoker) AS
SELECT
    conversation.project_id,
    conversation.session_id,
    conversation.question,
    conversation.answer,
    conversation.status,
    conversation.statuses,
    conversation.turns,
    conversation.open_turns,
    conversation.failed_turns,
    conversation.first_at,
    conversation.last_at,
    conversation.subjects,
    conversation.agents,
    conversation.input_tokens,
    conversation.output_tokens,
    CASE WHEN conversation.cost_usd <> 0 OR conversation.unpriced_calls = 0 THEN conversation.cost_usd END AS cost_usd,
    conversation.unpriced_calls,
    conversation.tool_calls,
    conversation.failed_calls
FROM conversation;
COMMENT ON VIEW trace.conversations IS 'Conversations: one row for each session with a turn. A turn is a row of `trace.work` with this `session_id` and agent work.';
COMMENT ON COLUMN trace.conversations.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.conversations.session_id IS 'The session''s id.';
COMMENT ON COLUMN trace.conversations.question IS 'The beginning of the first turn''s request; if it has none, of its title.';
COMMENT ON COLUMN trace.conversations.answer IS 'The beginning of the last turn''s answer; null if it has none.';
COMMENT ON COLUMN trace.conversations.status IS 'The status of the last turn, as shown.';
COMMENT ON COLUMN trace.conversations.statuses IS 'The statuses that turns have, as shown, sorted.';
COMMENT ON COLUMN trace.conversations.turns IS 'The number of turns.';
COMMENT ON COLUMN trace.conversations.open_turns IS 'The number of turns that are in progress.';
COMMENT ON COLUMN trace.conversations.failed_turns IS 'The number of turns that failed.';
COMMENT ON COLUMN trace.conversations.first_at IS 'When the first turn started, or was recorded if it has no start.';
COMMENT ON COLUMN trace.conversations.last_at IS 'When a run of the conversation last started or ended.';
COMMENT ON COLUMN trace.conversations.subjects IS 'The subjects of the runs, sorted.';
COMMENT ON COLUMN trace.conversations.agents IS 'The agents that run the root plans, sorted.';
COMMENT ON COLUMN trace.conversations.input_tokens IS 'The input tokens of all models.';
COMMENT ON COLUMN trace.conversations.output_tokens IS 'The output tokens of all models.';
COMMENT ON COLUMN trace.conversations.cost_usd IS 'The sum of the known costs of model calls in US dollars; null if some are unknown and the others are zero.';
COMMENT ON COLUMN trace.conversations.unpriced_calls IS 'The number of model calls that succeeded or used tokens, but have an unknown cost.';
COMMENT ON COLUMN trace.conversations.tool_calls IS 'The number of tool calls, including the items of batches.';
COMMENT ON COLUMN trace.conversations.failed_calls IS 'The number of think-acts and tool calls that failed.';

CREATE VIEW trace.blocks WITH (security_invoker) AS
SELECT
    block.project_id,
    block.root_plan_id,
    block.spans,
    block.size AS bytes,
    octet_length(block.body)::bigint AS stored_bytes,
    block.recorded_at AS arrived_at
FROM otel_block AS block
JOIN run ON run.project_id = block.project_id
    AND run.root_plan_id = block.root_plan_id
    AND run.deleted_at IS NULL;
COMMENT ON VIEW trace.blocks IS 'Blocks: each contains OpenTelemetry spans of one run that arrived in the same request, compressed. `GET /api/runs/{id}/spans` returns single spans.';
COMMENT ON COLUMN trace.blocks.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.blocks.root_plan_id IS 'The id of the run, which is the id of its root plan.';
COMMENT ON COLUMN trace.blocks.spans IS 'The number of spans and log records in the message. A span may occur in several blocks.';
COMMENT ON COLUMN trace.blocks.bytes IS 'Their uncompressed size in bytes.';
COMMENT ON COLUMN trace.blocks.stored_bytes IS 'Their compressed size in bytes.';
COMMENT ON COLUMN trace.blocks.arrived_at IS 'When the server stored the first of them.';

CREATE VIEW trace.behind WITH (security_invoker) AS
SELECT
    pending.project_id,
    pending.root_plan_id,
    pending.spans,
    pending.size AS bytes,
    pending.since,
    greatest(pending.due_at, pending.since) AS due_at,
    pending.attempts,
    coalesce(run.projection_error, pending.failure) AS error
FROM pending_run AS pending
JOIN run ON run.project_id = pending.project_id
    AND run.root_plan_id = pending.root_plan_id
    AND run.deleted_at IS NULL;
COMMENT ON VIEW trace.behind IS 'Runs with spans from which no records were computed yet. The records of these runs lack the data of these spans.';
COMMENT ON COLUMN trace.behind.project_id IS 'The project that the record belongs to.';
COMMENT ON COLUMN trace.behind.root_plan_id IS 'The id of the run, which is the id of its root plan.';
COMMENT ON COLUMN trace.behind.spans IS 'The number of spans in the blocks that are pending.';
COMMENT ON COLUMN trace.behind.bytes IS 'The uncompressed size of the blocks that are pending, in bytes.';
COMMENT ON COLUMN trace.behind.since IS 'When the first of the pending blocks arrived.';
COMMENT ON COLUMN trace.behind.due_at IS 'When to project the run. `infinity` if its projection failed too often.';
COMMENT ON COLUMN trace.behind.attempts IS 'How many projections of the run have begun since the last one that was committed.';
COMMENT ON COLUMN trace.behind.error IS 'The error of the last failed projection; null if none failed or the projector was killed.';
