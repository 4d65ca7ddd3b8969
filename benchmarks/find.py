"""Searching: pages of found runs over HTTP compared with a page of the plain list, and the index.

The words of arguments, results and answers follow Zipf's law: a call has about a hundred different
ones, of a vocabulary of fifty thousand. One run in eight hundred has ten thousand records, so a
million calls are in eighty thousand runs.
The index is built by a follower in this process, whose processor time is measured. Then two
servers, one without an index, accept the same spans in turns at full speed, and one accepts 500
spans a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from random import Random  # noqa: TID251 -- seeded: the same words each time
from statistics import median
from urllib.parse import urlencode
from uuid import UUID

import psutil
import psycopg

from benchmarks.figures import Figure, at_least, at_most, p95
from benchmarks.http_load import connected, load_process, otlp
from benchmarks.ingest import wait_until_projected
from benchmarks.mixed import BATCH, write
from benchmarks.mixed import RECORDS as SPANS
from benchmarks.surroundings import Bench, milliseconds, processor_seconds
from benchmarks.workload import bodies, trace
from tracer.clock import utc_now
from tracer.search import Follower, SearchDirectory
from tracer.storage.postgres import connection_options, sync_connection
from tracer.storage.postgres.search_source import SearchSource

_CALLS, _CALLS_OF_LARGE = 3, 7_500
_LARGE = 800
"""One run in so many is large: with its rounds it has ten thousand records."""
_WORDS = 50_000
_A_CALL = 100
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
            directory = source.directory(folder)
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
    yield from _followed(bench)


def _followed(bench: Bench) -> Iterator[Figure]:
    rounds, runs = bench.sized(5, 1), bench.sized(30, 3)
    rates: list[list[float]] = []
    shares = []
    with load_process() as sender, ExitStack() as stack:
        servers = []
        for name in ("off", str(bench.folder / "followed")):
            url = stack.enter_context(bench.database())
            started = bench.server(url, settings={"TRACER_SEARCH_DIR": name})
            servers.append((url, stack.enter_context(started)))
        for number in range(rounds):
            bench.say(f"ingest without and with the index, round {number + 1} of {rounds}")
            first = (bench.seed * 20 + number) * 1_000
            spans = [trace(first + each, SPANS) for each in range(runs)]
            seconds, worked = [], []
            rates.append([])
            for url, server in servers:
                process = psutil.Process(server.process.pid)
                before, began = processor_seconds(process), time.monotonic()
                rates[-1].append(write(sender, server.address, spans).result().rate)
                wait_until_projected(url)
                seconds.append(time.monotonic() - began)
                worked.append(processor_seconds(process) - before)
            shares.append((worked[1] - worked[0]) / seconds[1])
        yield Figure(
            name="acknowledged ingest with the index",
            value=median(rate for _, rate in rates) * BATCH,
            unit="spans/s",
            yardstick="without an index",
            ratio=median(rate / without for without, rate in rates),
            goal=at_least(0.95),
        )
        yield Figure(
            name="the follower meanwhile",
            value=median(shares),
            unit="cores",
            goal=at_most(0.25, "value"),
        )
        bench.say("500 spans a second")
        [path] = (bench.folder / "followed").iterdir()
        directory = SearchDirectory(path)
        while _lag(directory) > 5:  # the follower still indexes the spans of the rounds above
            time.sleep(0.5)
        lags = asyncio.run(_lags(bench, directory, servers[1][1].address))
        for name, value in (("p50", median(lags)), ("greatest", max(lags))):
            goal = at_most(5, "value")
            yield Figure(name=f"lag at 500 spans/s, {name}", value=value, unit="s", goal=goal)


async def _lags(bench: Bench, directory: SearchDirectory, address: str) -> list[float]:
    """Send a trace of 50 spans every tenth of a second, and return how far the index was behind."""
    lags = []
    async with connected(address) as connection:
        for number in range(bench.sized(300, 50)):
            began = time.monotonic()
            [body] = bodies(trace(bench.seed * 1_000 + 500_000 + number, 50))
            assert await connection.ask(otlp(body)) == 200, connection.body[:300]
            lags.append(_lag(directory))
            await asyncio.sleep(began + 0.1 - time.monotonic())
    return lags[len(lags) // 4 :]


def _lag(directory: SearchDirectory) -> float:
    """Return how many seconds the index is behind."""
    state = directory.state()
    assert state is not None
    return (utc_now() - state.up_to).total_seconds()


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
    is_built = False
    while not is_built:
        if not follower.step():
            time.sleep(0.1)  # until it commits
            state = directory.state()
            is_built = state is not None and bool(state.projects) and state.is_complete
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
                wanted = _CALLS if number % _LARGE else _CALLS_OF_LARGE
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
