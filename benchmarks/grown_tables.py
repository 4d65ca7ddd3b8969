"""Tables as after years of use: Postgres makes the rows itself, without checking references.

A run has 50 tool calls in twenty rounds of five agents, four of them sub-agents. Half of the runs
arrived as spans, one for each call, in one block. Their ids begin like those of their traces, which
are spread evenly. The ids of the others are ordered by time. Their days are the last ninety; one
run in ten thousand called a rare tool, and one in five thousand is running.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from psycopg import sql

from tracer.otel.projection import PROJECTION_VERSION

CALLS_A_RUN = 50
RARE_TOOL = "rarely_called"
RARE_TEXT = "needle in a haystack"
RARE_RUNS = 10_000
_RUNS_AT_ONCE = 2_000
_MAX_WAL = "8GB"

# An id that is ordered by time, or spread, of the thing `number` of run `i`.
_FUNCTIONS = """
CREATE FUNCTION pg_temp.id_of(kind int, i bigint, number int) RETURNS uuid IMMUTABLE LANGUAGE sql
RETURN CASE WHEN i % 2 = 1 THEN (left(md5(i::text), 12)
    || substr(md5(kind || ':' || i || ':' || number), 13))::uuid ELSE
    (lpad(to_hex(1790000000000 + i), 12, '0') || '7' || lpad(to_hex(kind), 3, '0') || '8000'
     || lpad(to_hex(i * 64 + number), 12, '0'))::uuid END;
CREATE FUNCTION pg_temp.begun(i bigint, of_all bigint) RETURNS timestamptz STABLE LANGUAGE sql
RETURN now() - interval '90 days' * (1 - i::float8 / of_all) - interval '1 hour';
CREATE FUNCTION pg_temp.ended(i bigint, number int) RETURNS record_status IMMUTABLE LANGUAGE sql
RETURN (CASE WHEN i % 5000 = 3 THEN 'running' WHEN (i * 31 + number * 17) % 50 = 7 THEN 'failed'
    WHEN (i * 31 + number * 17) % 200 = 11 THEN 'cancelled' ELSE 'succeeded' END)::record_status;
"""

_RUNS = """
INSERT INTO run (project_id, root_plan_id, status, started_at, finished_at, recorded_at, revision,
    title, agent_name, session_id, subject, tags, source, input_tokens, output_tokens, cost_usd,
    tool_calls, failed_calls, projection_version)
SELECT 1, pg_temp.id_of(0, i, 0), pg_temp.ended(i, 0), at, at + interval '9 minutes', at, 90,
    'Review of week ' || i % 52 || ' for patient p-' || i % 9973, 'planner_' || i % 5,
    'conversation-' || i / 4, 'p-' || i % 9973, '{}',
    CASE WHEN i % 2 = 1 THEN 'spans' ELSE 'events' END, 20000, 2000, 0.012, 50, 1,
    %(version)s
FROM generate_series(%(first)s::bigint, %(last)s) AS i, pg_temp.begun(i, %(runs)s) AS at"""

_PLANS = """
INSERT INTO plan_execution_record (project_id, root_plan_id, plan_id, parent_plan_id, tool_call_id,
    position, depth, title, user_request, agent_name, summary, status, started_at, finished_at,
    recorded_at, revision)
SELECT 1, pg_temp.id_of(0, i, 0), pg_temp.id_of(0, i, number),
    CASE WHEN number > 0 THEN pg_temp.id_of(0, i, 0) END,
    CASE WHEN number > 0 THEN pg_temp.id_of(3, i, 2 * number) END, number, sign(number),
    'Review of week ' || i % 52, 'How is the patient p-' || i % 9973 || ' doing?',
    CASE number WHEN 0 THEN 'planner_' || i % 5 ELSE 'specialist_' || (i + number) % 12 END,
    'All values are within what was agreed.', pg_temp.ended(i, number), at,
    at + interval '9 minutes', at, number + 1
FROM generate_series(%(first)s::bigint, %(last)s) AS i, pg_temp.begun(i, %(runs)s) AS at,
    generate_series(0, 4) AS number"""

_STEPS = """
INSERT INTO agent_execution_record (project_id, root_plan_id, step_id, plan_id, position,
    agent_name, request, result, status, started_at, finished_at, recorded_at, revision)
SELECT 1, pg_temp.id_of(0, i, 0), pg_temp.id_of(1, i, number), pg_temp.id_of(0, i, number), 0,
    CASE number WHEN 0 THEN 'planner_' || i % 5 ELSE 'specialist_' || (i + number) % 12 END,
    'How is the patient p-' || i % 9973 || ' doing?', 'All is well.', pg_temp.ended(i, number),
    at, at + interval '9 minutes', at, number + 6
FROM generate_series(%(first)s::bigint, %(last)s) AS i, pg_temp.begun(i, %(runs)s) AS at,
    generate_series(0, 4) AS number"""

_THOUGHTS = """
INSERT INTO think_act_record (project_id, root_plan_id, think_act_id, step_id, position, thought,
    model, messages, input_tokens, output_tokens, cost_usd, status, started_at, finished_at,
    recorded_at, revision)
SELECT 1, pg_temp.id_of(0, i, 0), pg_temp.id_of(2, i, number), pg_temp.id_of(1, i, number / 4),
    number % 4, 'I look at the readings of the week, one after the other.', 'gpt-4o-mini',
    '[{"role":"user","content":"' || repeat('How is the patient doing? ', 6) || '"}]',
    1000, 100, 0.0006, 'succeeded', at, at + interval '2 seconds', at, number + 11
FROM generate_series(%(first)s::bigint, %(last)s) AS i, pg_temp.begun(i, %(runs)s) AS at,
    generate_series(0, 19) AS number"""

_CALLS = f"""
INSERT INTO act_tool_info (project_id, root_plan_id, tool_call_id, step_id, think_act_id, position,
    provider_call_id, name, tool_type, arguments, result, attempt,
    error_type, error_message, status, reason, started_at, finished_at, recorded_at, revision)
SELECT 1, pg_temp.id_of(0, i, 0), pg_temp.id_of(3, i, number), pg_temp.id_of(1, i, number / 10),
    pg_temp.id_of(2, i, number / 10 * 4 + number % 10 / 3), number % 3,
    'call_' || i || '_' || number,
    CASE WHEN i % {RARE_RUNS} = 17 AND number = 0 THEN '{RARE_TOOL}'
        ELSE 'look_up_' || floor(40 * power(((i * 7919 + number * 104729) % 1000) / 1000.0, 3)) END,
    'function', given, got, 1,
    CASE WHEN status = 'failed' THEN 'ValueError' END,
    CASE WHEN status <> 'failed' THEN NULL
        WHEN i % {RARE_RUNS} = 17 THEN 'a {RARE_TEXT}'
        ELSE 'the cuff of arm ' || i || ' is loose' END,
    status, CASE WHEN status = 'failed' THEN 'tool_error' END, at + number * interval '1 second',
    at + number * interval '1.3 seconds', at, number + 40
FROM generate_series(%(first)s::bigint, %(last)s) AS i, pg_temp.begun(i, %(runs)s) AS at,
    generate_series(0, {CALLS_A_RUN - 1}) AS number, pg_temp.ended(i, number) AS status,
    concat('{{"patient": "p-', i % 9973, '", "week": ', number, '}}') AS given,
    concat('{{"readings": [', repeat('152, 95, 78, ', 12), number, ']}}') AS got"""

# The benchmarks never read the spans of these runs. Their blocks have the usual size, no content.
_BLOCKS = f"""
INSERT INTO otel_block (project_id, root_plan_id, key, spans, size, recorded_at, body)
SELECT 1, pg_temp.id_of(0, i, 0), decode(md5(i::text), 'hex'), {CALLS_A_RUN}, {1150 * CALLS_A_RUN},
    at, decode(repeat('0123456789abcdef', {12 * CALLS_A_RUN}), 'hex')
FROM generate_series(%(first)s::bigint, %(last)s) AS i, pg_temp.begun(i, %(runs)s) AS at
WHERE i %% 2 = 1"""

_FILLS = {
    "run": _RUNS,
    "plan_execution_record": _PLANS,
    "agent_execution_record": _STEPS,
    "think_act_record": _THOUGHTS,
    "act_tool_info": _CALLS,
    "otel_block": _BLOCKS,
}
BIG_TABLES = tuple(_FILLS)
"""The tables that grow with the number of records."""

_INDEXES = """
SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
WHERE indrelid = ANY(%s::text[]::regclass[]) AND NOT EXISTS (
    SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u')
)"""


def grow(url: str, tool_calls: int, say: Callable[[str], None]) -> None:
    """Fill an empty database's tables.

    Args:
        url: The database; its user has to be a superuser.
        tool_calls: How many tool calls to make, about.
        say: Receives the progress.
    """
    runs = max(1, tool_calls // CALLS_A_RUN)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET max_wal_size = '{_MAX_WAL}'")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("SET session_replication_role = replica")  # no checks of references
        connection.execute("SET synchronous_commit = off")
        connection.execute("SET maintenance_work_mem = '512MB'")
        connection.execute(_FUNCTIONS.encode())
        indexes = connection.execute(_INDEXES, [list(BIG_TABLES)]).fetchall()
        for name, _ in indexes:
            connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))
        for first in range(1, runs + 1, _RUNS_AT_ONCE):
            last = min(first + _RUNS_AT_ONCE - 1, runs)
            for fill in _FILLS.values():
                query = fill.replace("%%", "%").replace(" % ", " %% ")
                values = {"first": first, "last": last, "runs": runs, "version": PROJECTION_VERSION}
                connection.execute(query.encode(), values)
            if last % (5 * _RUNS_AT_ONCE) == 0:
                say(f"{last * CALLS_A_RUN:,} of {tool_calls:,} tool calls")
        for name, definition in indexes:
            say(f"the index {name}")
            connection.execute(definition.encode())
        say("statistics")
        for table in BIG_TABLES:
            connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(table)))
        connection.execute("CHECKPOINT")
