"""Pages of conversations, with 100,000 of them and a million runs, and with a tenth of these."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from uuid import UUID

import psycopg

from benchmarks.figures import Figure, at_most
from benchmarks.http_load import get, send
from benchmarks.surroundings import WARM_UP, Bench
from tracer.storage.postgres.conversations import key_of

_LONG = 0
"""The number of the conversation with 200 turns."""
_AT_ONCE = 5
"""How many requests each server gets in turn."""

READS = {
    "a page of 50": "/api/sessions?limit=50",
    "a page of 50 of one user": "/api/sessions?limit=50&subject=user-7",
    "a conversation of 200 turns": f"/api/sessions/conv-{_LONG}?limit=50",
    "a run's turn of 200": "/api/runs/{run}/turn",
}

_MADE = """
CREATE TEMP TABLE made AS SELECT *, md5(number || '.' || turn)::uuid AS id,
    'conv-' || number AS session,
    'user-' || CASE WHEN number BETWEEN 1 AND 100 THEN 7 ELSE 100 + number / 10 END AS subject,
    now() - make_interval(mins => number) + make_interval(secs => turn) AS at
FROM generate_series(%(first)s::integer, %(last)s) AS number,
    generate_series(0, CASE WHEN number = 0 THEN 199 ELSE 9 END) AS turn"""

_FILLS = (
    """INSERT INTO run (project_id, root_plan_id, status, started_at, finished_at, recorded_at,
        revision, linked_revision, summed_revision, title, agent_name, session_id, subject, source,
        input_tokens, output_tokens, cost_usd, tool_calls, failed_calls)
    SELECT 1, id, 'succeeded', at, at + interval '1 second', at, 1, 1, 1, 'Review', 'planner',
        session, subject, 'events', 2000, 200, 0.01, 0, 0
    FROM made""",
    """INSERT INTO plan_execution_record (project_id, root_plan_id, plan_id, title, user_request,
        agent_name, summary, depth, status, started_at, recorded_at, revision)
    SELECT 1, id, id, 'Review', 'How was week ' || turn || '?', 'planner',
        'All values are within the bounds.', 0, 'succeeded', at, at, 1
    FROM made""",
    """INSERT INTO conversation (project_id, session_key, session_id, question, answer, status,
        statuses, turns, open_turns, failed_turns, input_tokens, output_tokens, cost_usd,
        unpriced_calls, tool_calls, failed_calls, first_at, last_at, subjects, agents, moved_at,
        moves)
    SELECT 1, session_key, session, 'How was week 0?', 'All values are within the bounds.',
        'succeeded', '{succeeded}', count(*), 0, 0, 2000 * count(*), 200 * count(*),
        0.01 * count(*), 0, 0, 0, min(at), max(at) + interval '1 second',
        array_agg(DISTINCT subject), '{planner}', max(at), '{}'
    FROM made JOIN named USING (session) GROUP BY session, session_key""",
)


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure each read with a tenth of the conversations and with all, in turn."""
    times, full = bench.sized(100, 10), bench.sized(100_000, 1_000)
    with ExitStack() as stack:
        servers = []
        for size in (full // 10, full):
            url = stack.enter_context(bench.database())
            run = _fill(url, size)
            starting = bench.server(url, settings={"TRACER_PROJECTORS": "0"})
            servers.append(stack.enter_context(starting))
        for name, path in READS.items():
            requests = [get(path.format(run=run))] * _AT_ONCE
            found: list[list[float]] = [[], []]
            for _ in range(WARM_UP + times // _AT_ONCE):
                for server, latencies in zip(servers, found, strict=True):
                    latencies += send(server.address, [requests], 1).latencies
            small, large = (median(each[WARM_UP * _AT_ONCE :]) for each in found)
            yield Figure(
                name=f"{name} of {full:,} conversations, p50",
                value=large,
                unit="ms",
                yardstick="the same with a tenth of them",
                ratio=large / small,
                goal=at_most(1.3),
            )


def _fill(url: str, size: int) -> UUID:
    """Make the conversations from 0 to `size`, and return a turn of the long one."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role TO 'replica'")
        connection.execute(_MADE.encode(), {"first": _LONG, "last": size})
        connection.execute("CREATE TEMP TABLE named (session text, session_key uuid)")
        with connection.cursor().copy("COPY named FROM STDIN") as rows:
            for session in (f"conv-{number}" for number in range(_LONG, size + 1)):
                rows.write_row((session, key_of(session)))
        for fill in _FILLS:
            connection.execute(fill.encode())
        connection.execute("VACUUM ANALYZE")
        [(run,)] = connection.execute("SELECT md5('0.100')::uuid").fetchall()
        assert isinstance(run, UUID)
        return run
