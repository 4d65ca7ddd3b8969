"""The same work with millions of tool calls in the tables, and with few, to see what grows.

Both databases have the same latest runs, which writing and reading by id are about; the lists, the
search and the statistics are about everything. Hours are summed up first. Then each endpoint is
asked once more, with the plans of its statements logged: no big table may be read from end to end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from statistics import median
from time import perf_counter
from urllib.parse import urlencode
from uuid import UUID

import psycopg

from benchmarks.endpoint_plans import explain_statements, plans_of
from benchmarks.figures import Figure, at_least, at_most
from benchmarks.grown_tables import RARE_TEXT, RARE_TOOL, grow
from benchmarks.http_load import get, load_process, otlp, send
from benchmarks.ingest import Ingest, Rates, load_of, otlp_requests, wait_until_projected
from benchmarks.other_forms import exporters
from benchmarks.surroundings import Bench, milliseconds
from benchmarks.workload import bodies, trace
from tracer.clock import utc_now
from tracer.records import DEFAULT_PROJECT_ID
from tracer.storage.postgres import connection_options, sync_connection
from tracer.storage.postgres.rollups import roll_up

FEW = 50_000
"""The number of tool calls in the small database: as many as a page of a list examines."""

MANY_BLOCKS = 500
"""Up to how many blocks it does not matter whether it grows."""

MOST_GROWTH = 1.5
"""How many times as many blocks it may be, if it is more."""

GIVEN_UP = 30_000.0
"""The number of blocks counted for a read that the server gave up."""

LATEST = 1_000


@dataclass(frozen=True)
class Endpoint:
    """Something that can be read."""

    name: str
    path: str

    @property
    def is_bounded(self) -> bool:
        """Whether it should take no more with many: statistics are of each call of a day."""
        return "/stats/" not in self.path


def measured(bench: Bench) -> Iterator[Figure]:
    """Fill the tables of one database, and compare it with another."""
    tool_calls = bench.sized(bench.tool_calls, 20_000)
    with bench.database() as few, bench.database() as many:
        grow(few, FEW, lambda _: None)
        grow(many, tool_calls, bench.say)
        _summed_up(few)
        bench.say("hours are summed up")
        yield Figure(
            name="calls summed up",
            value=tool_calls / _summed_up(many),
            unit="calls/s",
        )
        with bench.server(few) as small, bench.server(many) as large, load_process() as sender:
            sides = [
                Ingest(bench, sender, url, server) for url, server in ((few, small), (many, large))
            ]
            rates = [Rates(), Rates()]
            for number in range(bench.sized(5, 1)):
                bench.say(f"ingest, round {number + 1}")
                sent = exporters(bench.seed + 70 + number, 1_000, bench.sized(10_000, 1_000))
                load = load_of(sent, otlp_requests)
                for side, noted in zip(sides, rates, strict=True):
                    side.take(load, noted)
            ratios = [b / a for a, b in zip(rates[0].a_second, rates[1].a_second, strict=True)]
            yield Figure(
                name="OTLP with many: acknowledged",
                value=median(rates[1].a_second),
                unit="spans/s",
                yardstick="with few",
                ratio=median(ratios),
                goal=at_least(0.8),
            )
            ratios = [b / a for a, b in zip(rates[0].projected, rates[1].projected, strict=True)]
            yield Figure(
                name="OTLP with many: projected",
                value=median(rates[1].projected),
                unit="spans/s",
                yardstick="with few",
                ratio=median(ratios),
                goal=at_least(0.8),
            )
            worked = [median(each.postgres) for each in rates]
            yield Figure(
                name="OTLP with many: Postgres worked",
                value=worked[1],
                unit="µs/span",
                yardstick="with few",
                ratio=worked[1] / worked[0],
            )
            latest = trace(bench.seed + 80, LATEST)
            for address in (small.address, large.address):
                send(address, [[otlp(body) for body in bodies(latest)]], 1)
            for url in (few, many):
                wait_until_projected(url)
            endpoints = _endpoints(few, UUID(bytes=latest[0].trace_id))
            for each in endpoints:
                bench.say(each.name)
                yield _read(bench, each, small.address, large.address)
        yield from _explained(bench, few, many, endpoints)


def _summed_up(url: str) -> float:
    """Sum up all hours as a projector does, and return the seconds."""
    with sync_connection(connection_options(url)) as connection:
        began = perf_counter()
        for _ in roll_up(connection, DEFAULT_PROJECT_ID):
            pass
        return perf_counter() - began


def _read(bench: Bench, endpoint: Endpoint, small: str, large: str) -> Figure:
    """Return how long reading takes with many; the two take turns."""
    one: list[float] = []
    other: list[float] = []
    for _ in range(bench.sized(4, 1)):
        for address, taken in ((small, one), (large, other)):
            taken += _milliseconds(address, endpoint.path)
    return Figure(
        name=endpoint.name,
        value=median(other),
        unit="ms",
        yardstick="with few",
        ratio=median(other) / median(one),
        goal=at_most(1.5) if endpoint.is_bounded else None,
    )


def _milliseconds(address: str, path: str) -> list[float]:
    try:
        return milliseconds(address, path, 4)
    except ExceptionGroup:  # the server gave up
        return [GIVEN_UP]


def _explained(bench: Bench, few: str, many: str, endpoints: list[Endpoint]) -> Iterator[Figure]:
    """Return how much of the tables each endpoint read, and print those that read more."""
    for url in (few, many):
        explain_statements(url)
    with bench.server(few) as small, bench.server(many) as large:
        for each in endpoints:
            try:
                one, other = (
                    plans_of(url, partial(send, server.address, [[get(each.path)]], 1, 0))
                    for url, server in ((few, small), (many, large))
                )
            except ExceptionGroup:
                bench.say(f"{each.name}: the server gave up")
                continue
            growth = other.blocks / max(MANY_BLOCKS, one.blocks)
            if (each.is_bounded and growth > MOST_GROWTH) or other.big_scans:
                bench.say(f"{each.name}:\n{other.outline()}")
            yield Figure(
                name=f"{each.name}: blocks read",
                value=other.blocks,
                unit="",
                yardstick=f"with few, or {MANY_BLOCKS}",
                ratio=growth,
                goal=at_most(MOST_GROWTH) if each.is_bounded else None,
            )
            yield Figure(
                name=f"{each.name}: big tables read from end to end",
                value=len(other.big_scans),
                unit="",
                goal=at_most(0, "value"),
            )


def _endpoints(url: str, run_id: UUID) -> list[Endpoint]:
    """Return the endpoints for a run that both databases have, and for all data."""
    with psycopg.connect(url) as connection:

        def one(query: str) -> UUID:
            row = connection.execute(query.encode(), {"run": run_id}).fetchone()
            assert row is not None
            result: UUID = row[0]
            return result

        of_run = "WHERE root_plan_id = %(run)s"
        call = one(f"SELECT tool_call_id FROM act_tool_info {of_run} LIMIT 1")
        thought = one(f"SELECT think_act_id FROM think_act_record {of_run} LIMIT 1")
        sub_plan = one(f"SELECT plan_id FROM plan_execution_record {of_run} AND depth = 1 LIMIT 1")
        other = one("SELECT root_plan_id FROM run WHERE title LIKE 'Review%%' LIMIT 1")
    day = (utc_now() - timedelta(days=1)).isoformat()
    month = (utc_now() - timedelta(days=30)).isoformat()
    ever = (utc_now() - timedelta(days=100)).isoformat()
    long_ago = (utc_now() - timedelta(days=89)).isoformat()
    by_id = {
        "a run": f"/api/runs/{run_id}",
        "a plan": f"/api/plans/{sub_plan}",
        "a run's tree": f"/api/plans/{run_id}/tree",
        "a sub-plan's tree": f"/api/plans/{sub_plan}/tree",
        "a tool call": f"/api/tool-calls/{call}",
        "a round": f"/api/think-acts/{thought}",
        "a run's spans": f"/api/runs/{run_id}/spans",
        "an export": f"/api/runs/{run_id}/export",
        "a diff": f"/api/runs/{run_id}/diff/{run_id}",
    }
    lists: dict[tuple[str, str], list[dict[str, str]]] = {
        ("runs", "/api/runs"): [
            {},
            {"status": "failed"},
            {"status": "running"},
            {"agent": "planner_1"},
            {"agent": "specialist_3"},
            {"agent": "nobody"},
            {"tool": "look_up_3"},
            {"tool": RARE_TOOL},
            {"tool": "no such tool"},
            {"session": "conversation-17"},
            {"subject": "p-17"},
            {"tag": "no such tag"},
            {"q": "week"},
            {"q": RARE_TEXT},
            {"q": "no such text"},
            {"from": day},
            {"to": long_ago},
            {"otherTraces": "true"},
        ],
        ("tool calls", "/api/tool-calls"): [
            {},
            {"name": "look_up_3"},
            {"name": RARE_TOOL},
            {"status": "failed"},
            {"status": "running"},
            {"name": "look_up_3", "status": "failed"},
            {"rootPlanId": str(other)},
            {"providerCallId": "call_17_3"},
            {"from": day},
            {"to": long_ago},
        ],
        ("statistics", "/api/stats/tools"): [
            {"from": month},
            {"from": month, "name": "look_up_3"},
            {"from": day},
        ],
        ("the overview", "/api/overview"): [{"from": month}],
        ("spend", "/api/spend"): [{"from": month, "by": by} for by in ("model", "user")],
        ("facets", "/api/runs/facets"): [{}],
        ("a tool's history", "/api/stats/tools/look_up_3"): [{"from": month}, {"from": day}],
        ("a rare tool's history", f"/api/stats/tools/{RARE_TOOL}"): [{"from": ever}],
    }
    found = [Endpoint(name, path) for name, path in by_id.items()]
    for (name, path), filters in lists.items():
        for each in filters:
            parameters = ", ".join(
                key if key in ("from", "to") else f"{key}={value}" for key, value in each.items()
            )
            if "rootPlanId" in each:
                parameters = "of a run"
            found.append(
                Endpoint(
                    f"{name}: {parameters}" if parameters else name, f"{path}?{urlencode(each)}"
                )
            )
    return found
