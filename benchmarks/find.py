"""Searching: pages of found runs over HTTP compared with a page of the plain list, and the index.

The words of arguments, results and answers follow Zipf's law: a call has about a hundred different
ones, of a vocabulary of fifty thousand. One run in eight hundred has a hundred times as many calls.
The index is built by a follower in this process, whose processor time is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from random import Random  # noqa: TID251 -- seeded: the same words each time
from urllib.parse import urlencode
from uuid import UUID

import psycopg

from benchmarks.figures import Figure, at_most, p95
from benchmarks.surroundings import Bench, milliseconds
from tracer.search import Follower, SearchDirectory
from tracer.storage.postgres import connection_options, sync_connection
from tracer.storage.postgres.search_source import SearchSource, directory_of

CALLS_A_RUN = 12
_WORDS = 50_000
_A_CALL = 100
_LARGE = 800
_USERS = 2_000

QUERIES = {
    "rare word": {"q": "w49990 "},
    "middle word": {"q": "w2000 "},
    "frequent word": {"q": "w1 "},
    "two frequent words that never meet": {"q": "left right "},
    "frequent word of a rare user": {"q": "w1 ", "subject": "u7"},
    "phrase of frequent words": {"q": '"w1 w2"'},
    "no hit": {"q": "nothing-is-called-so "},
    "prefix of three characters": {"q": "w49"},
    "one Chinese character": {"q": "款"},
}


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure the building, the size and each class of queries."""
    calls = min(bench.tool_calls, bench.sized(1_000_000, 12_000))
    folder = bench.folder / "search"
    with bench.database() as url:
        before = _size(url)
        bench.say(f"{calls:,} calls")
        _fill(url, calls, Random(bench.seed))
        stored = _size(url) - before
        bench.say("the index")
        with sync_connection(connection_options(url)) as connection:
            source = SearchSource(connection)
            directory = directory_of(folder, source.identity())
            yield from _built(source, directory, calls)
        yield Figure(
            name="size of the index",
            value=directory.size() / 2**20,
            unit="MB",
            yardstick="the runs in Postgres",
            ratio=directory.size() / stored,
            goal=at_most(0.3),
        )
        yield from _pages(bench, url, folder)


def _pages(bench: Bench, url: str, folder: Path) -> Iterator[Figure]:
    times = bench.sized(100, 10)
    settings = {"TRACER_SEARCH_DIR": str(folder), "TRACER_PROJECTORS": "0"}
    with bench.server(url, settings=settings) as server:
        plain = p95(milliseconds(server.address, "/api/runs?limit=50", times))
        yield Figure(name="plain list, p95", value=plain, unit="ms")
        for name, parameters in QUERIES.items():
            path = f"/api/runs?{urlencode({'limit': 50, **parameters})}"
            taken = p95(milliseconds(server.address, path, times))
            yield Figure(
                name=f"{name}, p95",
                value=taken,
                unit="ms",
                yardstick="the plain list",
                ratio=taken / plain,
                goal=at_most(4),
            )


def _built(source: SearchSource, directory: SearchDirectory, calls: int) -> Iterator[Figure]:
    follower = Follower(source, directory)
    began, worked = time.monotonic(), time.process_time()
    while follower.step():
        pass
    follower.close()
    taken, worked = time.monotonic() - began, time.process_time() - worked
    yield Figure(name="building the index", value=calls / taken, unit="calls/s")
    yield Figure(name="its processor time", value=1e3 * worked / calls, unit="ms/call")


def _size(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    return int(row[0])


_RUN = """COPY run (project_id, root_plan_id, status, started_at, finished_at, recorded_at,
    revision, title, agent_name, subject, source, input_tokens, output_tokens, cost_usd, tool_calls,
    failed_calls) FROM STDIN"""
_PLAN = """COPY plan_execution_record (project_id, root_plan_id, plan_id, title, user_request,
    agent_name, summary, depth, status, started_at, recorded_at, revision) FROM STDIN"""
_STEP = """COPY agent_execution_record (project_id, root_plan_id, step_id, plan_id, position,
    agent_name, result, status, started_at, recorded_at, revision) FROM STDIN"""
_THOUGHT = """COPY think_act_record (project_id, root_plan_id, think_act_id, step_id, position,
    thought, model, status, started_at, recorded_at, revision) FROM STDIN"""
_CALL = """COPY act_tool_info (project_id, root_plan_id, tool_call_id, step_id, think_act_id,
    position, name, arguments, result, attempt, status, started_at, recorded_at, revision)
    FROM STDIN"""


def _fill(url: str, calls: int, chance: Random) -> None:
    vocabulary = [f"w{number}" for number in range(_WORDS)]
    weights = [*accumulate(1 / (number + 1) for number in range(_WORDS))]
    began = datetime(2026, 9, 1, tzinfo=UTC)
    made = number = 0
    with psycopg.connect(url) as connection:
        connection.execute("SET session_replication_role TO 'replica'")
        while made < calls:
            rows: dict[str, list[tuple[object, ...]]] = {
                each: [] for each in (_RUN, _PLAN, _STEP, _THOUGHT, _CALL)
            }
            while made < calls and len(rows[_CALL]) < 20_000:
                number += 1
                wanted = CALLS_A_RUN * (100 if number % _LARGE == 0 else 1)
                at = began + timedelta(seconds=number)
                run = UUID(int=(number << 80) + (7 << 76))
                words = chance.choices(
                    vocabulary, cum_weights=weights, k=wanted * (_A_CALL + 10) + 40
                )
                _add(rows, run, at, wanted, words, number)
                made += wanted
            for statement, each in rows.items():
                with connection.cursor().copy(statement) as copy:
                    for row in each:
                        copy.write_row(row)
            connection.commit()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _add(
    rows: dict[str, list[tuple[object, ...]]],
    run: UUID,
    at: datetime,
    calls: int,
    words: list[str],
    number: int,
) -> None:
    side = "left" if number % 2 else "right"
    answer = " ".join([*words[:30], side, *(["退款单已完成"] if number % 20 == 0 else [])])
    request = " ".join(words[30:40])
    rows[_RUN].append(
        (
            *(1, run, "succeeded", at, at, at, 1, request[:50], "planner"),
            *(f"u{number % _USERS}", "events", 0, 0, 0, calls, 0),
        )
    )
    rows[_PLAN].append(
        (1, run, run, request[:50], request, "planner", answer, 0, "succeeded", at, at, 1)
    )
    step = UUID(int=run.int + 1)
    rows[_STEP].append((1, run, step, run, 0, "planner", answer, "succeeded", at, at, 1))
    for each in range(calls):
        if each % 3 == 0:
            thought = UUID(int=run.int + 2 + each * 2)
            rows[_THOUGHT].append(
                (1, run, thought, step, each // 3, "I look.", "m", "succeeded", at, at, 1)
            )
        begin = 40 + each * (_A_CALL + 10)
        given, got = words[begin : begin + 10], words[begin + 10 : begin + _A_CALL + 10]
        rows[_CALL].append(
            (
                *(1, run, UUID(int=run.int + 3 + each * 2), step, thought, each % 3),
                *(f"tool_{number % 40}", f'{{"query": "{" ".join(given)}"}}', " ".join(got)),
                *(1, "succeeded", at, at, 1),
            )
        )
