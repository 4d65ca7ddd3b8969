"""Pages of the list, by each filter: rows that are pieces of work, and that are single runs.

There are 100,000 runs in 30,000 pieces of work: a third of these consist of eight runs. They belong
to 1,000 sessions and 2,000 users, and each calls one of forty tools.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import psycopg

from benchmarks.figures import Figure, at_most
from benchmarks.http_load import get, send
from benchmarks.surroundings import WARM_UP, Bench
from tracer.search import Follower
from tracer.storage.postgres import connection_options, sync_connection
from tracer.storage.postgres.search_source import SearchSource

FILTERS = (
    "",
    *("&status=succeeded", "&status=failed", "&status=running", "&agent=planner"),
    *("&session=s-7", "&subject=u-7", "&tool=look_up", "&tool=tool_7", "&q=week", "&q=w-77"),
)

_MADE = """
CREATE TEMP TABLE made AS SELECT *, md5(work || '.' || part)::uuid AS id,
    md5(work || '.0')::uuid AS head, now() - make_interval(mins => 40000 - work + 60 * part) AS at,
    (CASE WHEN work % 100 = 3 AND part = parts - 1 THEN 'running' WHEN work % 10 = 6
        AND part = parts - 1 THEN 'failed' ELSE 'succeeded' END)::record_status AS status
FROM (
    SELECT work, part, CASE WHEN work % 3 = 0 THEN 8 ELSE 1 END AS parts
    FROM generate_series(1, %(works)s) AS work, generate_series(0, 7) AS part
) AS each WHERE part < parts"""

_FILLS = (
    """INSERT INTO run (project_id, root_plan_id, status, started_at, finished_at, recorded_at,
        revision, linked_revision, summed_revision, title, agent_name, source, input_tokens,
        output_tokens, cost_usd, tool_calls, failed_calls, head_id, continues_run_id, is_inside,
        whole_status, session_id, subject)
    SELECT 1, id, status, at, CASE WHEN status <> 'running' THEN at + interval '1 minute' END, at,
        1, 1, 1, 'Review of week ' || work % 52, 'planner', 'events', 2000, 200, 0.01, 2,
        (work % 10 = 6)::int, CASE WHEN part > 0 THEN head END, CASE WHEN part > 0 THEN head END,
        part = 1, CASE WHEN part = 0 AND parts > 1 THEN CASE WHEN work % 100 = 3 THEN 'running'
            WHEN work % 10 = 6 THEN 'failed' ELSE 'succeeded' END END,
        's-' || work % 1000, 'u-' || work % 2000
    FROM made""",
    """INSERT INTO plan_execution_record (project_id, root_plan_id, plan_id, title, user_request,
        agent_name, summary, depth, status, started_at, recorded_at, revision)
    SELECT 1, id, id, 'Review', 'How was week ' || work % 52 || ' of w-' || work || '?', 'planner',
        CASE WHEN status <> 'running' THEN repeat('All values are within the bounds. ', 20) END, 0,
        status, at, at, 1
    FROM made""",
    """INSERT INTO act_tool_info (project_id, root_plan_id, tool_call_id, step_id, position, name,
        arguments, attempt, status, started_at, recorded_at, revision)
    SELECT 1, id, md5(id::text || number)::uuid, id, number,
        CASE WHEN number = 0 THEN 'look_up' ELSE 'tool_' || work % 40 END, '{}', 1,
        CASE WHEN number = 1 THEN status ELSE 'succeeded' END, at, at, 1
    FROM made, generate_series(0, 1) AS number""",
)


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure pages of each filter, both kinds in turn."""
    folder = bench.folder / "search"
    times = bench.sized(100, 10)
    with bench.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET session_replication_role TO 'replica'")
            works = bench.sized(30_000, 300)
            connection.execute(_MADE.replace(" % ", " %% ").encode(), {"works": works})
            for fill in _FILLS:
                connection.execute(fill.encode())
            connection.execute("VACUUM ANALYZE")
        _index(url, folder)
        settings = {"TRACER_SEARCH_DIR": str(folder), "TRACER_PROJECTORS": "0"}
        plain = 0.0
        with bench.server(url, settings=settings) as server:
            for each in FILTERS:
                path = f"/api/runs?limit=50{each}"
                pair = [get(path), get(f"{path}&parts=all")]
                sent = send(server.address, [pair * (WARM_UP + times)], 1).latencies[2 * WARM_UP :]
                whole, single = median(sent[::2]), median(sent[1::2])
                plain = plain or single
                name = each.replace("&", ", ")
                yield Figure(
                    name=f"page of single runs{name}, p50",
                    value=single,
                    unit="ms",
                    yardstick="that without a filter",
                    ratio=single / plain,
                )
                yield Figure(
                    name=f"page of pieces of work{name}, p50",
                    value=whole,
                    unit="ms",
                    yardstick="that of single runs",
                    ratio=whole / single,
                    goal=at_most(1.7),
                )


def _index(url: str, folder: Path) -> None:
    with sync_connection(connection_options(url)) as connection:
        source = SearchSource(connection)
        follower = Follower(source, source.directory(folder))
        while follower.step():
            pass
        follower.close()
