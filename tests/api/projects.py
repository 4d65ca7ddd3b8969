"""Two projects behind one server, and everything that one may ask of the other's records."""

from __future__ import annotations

import asyncio
import json as json_library
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import psycopg
from psycopg import sql

from api.app import create_app
from api.openapi import openapi_document
from api.parts import Parts
from tests.otel.made_logs import logs_as_traces, made_log
from tests.otel.made_traces import TRACE_ID, body_of, make_span, spans_from
from tests.otel.sent import traces_of
from tests.projecting import DatabaseProjection, project_in, projecting, roll_up
from tests.sample_runs import SampleRun, sample_run
from tests.searching import index_of
from tracer.questions import QUESTIONS, handle
from tracer.recorder import Recorder, Spool
from tracer.records import DEFAULT_PROJECT_ID, LeaseTerms, new_id
from tracer.records.access import Scope
from tracer.records.events import EVENT, event_json
from tracer.records.prices import ALWAYS, ModelPrice
from tracer.runtime import Agent, Application, RunLauncher
from tracer.runtime.launcher import ServedApplication
from tracer.runtime.scripted_model import ScriptedModel
from tracer.search import SearchIndex
from tracer.storage.postgres import (
    METADATA,
    Pool,
    ProjectPool,
    RunWatch,
    connection_options,
    open_pool,
    postgres_writer,
)
from tracer.storage.postgres.keys import Authenticator
from tracer.storage.postgres.pool import pooled_connection
from tracer.storage.postgres.project_stores import PostgresSessions, ProjectStores
from tracer.storage.postgres.projects import ensure_project

WORDS = ("Weekly review", "How was my week?", "Review", "measure", "check", "at once", "nurse")
"""What a sample run says; each becomes a canary."""

CALL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "canary"}

LASTING = LeaseTerms(lease=timedelta(hours=1))
"""Else a recorder would renew its lease while the rows are compared."""

ProjectPools = Callable[[Pool, int], ProjectPool]


@dataclass
class Project:
    """A project with records, and a key for everything."""

    project_id: int
    canary: str
    secret: str
    key_id: UUID
    run: SampleRun
    recorder_id: UUID = field(default_factory=new_id)

    def parameter(self, name: str) -> str:
        """Return what a path's parameter is for one of its records. A new one needs a line."""
        return str(
            {
                "rootPlanId": self.run.root,
                "run": self.run.root,
                "id": self.run.think_act,
                "q": self.canary,
                "a": self.run.root,
                "b": self.run.root,
                "planId": self.run.sub_plans[0],
                "stepId": self.run.step,
                "thinkActId": self.run.think_act,
                "toolCallId": self.run.opening_calls[0],
                "recorderId": self.recorder_id,
                "recordId": self.run.think_act,
                "keyId": self.key_id,
                "name": f"{self.canary}-measure",
                "subject": self.canary,
                "sessionId": f"{self.canary}-session",
                "model": f"~{self.canary}",
            }[name]
        )

    def queries(self, parameters: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
        """Yield the queries that ask for something of it, each by itself, and none."""
        yield {name: self.parameter(name) for name in _required(parameters)}
        words = {"q": self.canary, "tool": f"{self.canary}-measure", "agent": self.canary}
        for each in parameters:
            name = each["name"]
            for choice in each["schema"].get("enum", ()) if name == "by" else ():
                yield {name: choice, "from": "1969-12-31T00:00:00Z", "to": "1970-01-20T00:00:00Z"}
                yield {name: choice, "from": "2025-12-31T00:00:00Z", "to": "2026-01-20T00:00:00Z"}
            if each["in"] == "query" and name in ("run", "rootPlanId", "recordId", "name", *words):
                yield {name: words.get(name) or self.parameter(name)}

    def bodies(self, operation: str) -> list[tuple[bytes, str]]:
        """Return what to send in an operation's body. A new one needs a line."""
        json = "application/json"
        return {
            "record_events": [
                (b"\n".join(map(event_json, self.run.events)), "application/x-ndjson")
            ],
            "record_traces": [(body_of(make_span(1, "a tool", CALL)), json)],
            "record_logs": [
                (
                    b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"%s"}]}]}]}'
                    % TRACE_ID.encode(),
                    json,
                )
            ],
            "drop_metrics": [(b"{}", json)],
            "start_run": [(b'{"request":"Measure"}', json)],
            "chat": [(b'{"message":"Measure"}', json)],
            "sign_in": [(b'{"key":"tracer_nobody"}', json)],
            "create_key": [(b'{"name":"another","scopes":["read"]}', json)],
            "change_project": [(b'{"keepDays":1}', json)],
            "call_mcp": [(each, json) for each in self.tool_calls()],
            "set_price": [(b'{"model":"any","inputUsd":1,"outputUsd":1}', json)],
        }[operation]

    def tool_calls(self) -> Iterator[bytes]:
        """Yield a call of each MCP tool with each of its records, by id and by handle."""
        ids = (self.run.root, self.run.sub_plans[0], self.run.think_act, self.run.opening_calls[0])
        for name, question in QUESTIONS.items():
            for reference in (*map(str, ids), *map(handle, ids)):
                words = dict.fromkeys(
                    question.model_fields.keys() & {"run", "id", "a", "b"}, reference
                )
                words |= dict.fromkeys(question.model_fields.keys() & {"q"}, self.canary)
                words |= dict.fromkeys(question.model_fields.keys() & {"since"}, "3000d")
                call = {"name": name, "arguments": words}
                yield json_library.dumps(
                    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
                ).encode()

    def _lines(self) -> bytes:
        return b"\n".join(event_json(each) for each in self.run.events)


def _required(parameters: list[dict[str, Any]]) -> list[str]:
    return [each["name"] for each in parameters if each["in"] == "query" and each.get("required")]


@dataclass
class Doors:
    """A server in this process, and the two projects behind it."""

    client: httpx2.AsyncClient
    database_url: str
    home: Project
    other: Project
    watch: RunWatch
    """Who watches runs of the home project."""


async def _leave_pending(pool: Pool, project: Project, span: int) -> None:
    traces = traces_of(spans_from(make_span(span, project.canary)))
    await postgres_writer(ProjectPool(pool, project.project_id)).write_spans(traces)


@asynccontextmanager
async def two_projects(
    database_url: str,
    folder: Path,
    project_pool: ProjectPools = ProjectPool,
    known_seconds: float = 0,
) -> AsyncIterator[Doors]:
    """Give a server with two projects, each of which has records of its own.

    Args:
        database_url: A migrated database.
        folder: For the recorder's spool.
        project_pool: How a project sees the database.
        known_seconds: For how many seconds the server caches callers.
    """
    agent = Agent("nobody", "Wait.")
    idle = Application(name="idle", agents=(agent,), model=ScriptedModel([]))
    index = index_of(database_url)
    async with (
        open_pool(database_url) as pool,
        ProjectStores(pool) as truthful,
        ProjectStores(
            pool, LASTING, project_pool=project_pool, search=SearchIndex(index.directory)
        ) as stores,
    ):
        home = await planted(pool, truthful, DEFAULT_PROJECT_ID, "canary-home")
        other_id = await ensure_project(pool, "other")
        other = await planted(pool, truthful, other_id, "canary-other")
        for project in (home, other):
            await _leave_pending(pool, project, 2)
        await asyncio.to_thread(index.follow)
        store = await stores.of(DEFAULT_PROJECT_ID)
        async with (
            Recorder(store.writer, Spool(folder / "spool.sqlite3")) as recorder,
            RunLauncher(idle, recorder, store.reader) as launcher,
        ):
            parts = Parts(
                store.reader,
                store.writer,
                ServedApplication(launcher),
                store.watch,
                stores=stores,
                authenticator=Authenticator(pool, known_seconds=known_seconds),
            )
            transport = httpx2.ASGITransport(create_app(parts), raise_app_exceptions=False)
            async with httpx2.AsyncClient(transport=transport, base_url="http://tracer") as client:
                yield Doors(client, database_url, home, other, store.watch)


async def planted(pool: Pool, stores: ProjectStores, project_id: int, canary: str) -> Project:
    """Return a project that has a run of events, one of spans, a lease and a key."""
    run = sample_run(finished=False)
    run.events = [EVENT.validate_json(_marked(event_json(each), canary)) for each in run.events]
    run.events[0] = run.events[0].model_copy(
        update={"subject": canary, "session_id": f"{canary}-session"}
    )
    writer = postgres_writer(ProjectPool(pool, project_id))
    answer = await writer.write(run.events)
    assert answer.refused == []
    called = CALL | {"gen_ai.tool.call.arguments": canary, "gen_ai.tool.name": f"{canary}-tool"}
    trace = spans_from(make_span(1, "a tool", called, failed="No"))
    named = made_log("asked", 1, conversation__id="c-1", prompt=canary)
    logs = logs_as_traces(named, scope="codex_otel")
    assert (await writer.write_spans([*traces_of(trace), *logs])).refused == []
    await project_in(pool)
    await DatabaseProjection(pool.kwargs).link()
    await roll_up(pool, project_id)
    new = await (await stores.of(project_id)).keys.create(f"{canary}-key", [Scope.ADMIN])
    await (await stores.of(project_id)).prices.set_price(
        ModelPrice(f"~{canary}", None, ALWAYS, Decimal(1), Decimal(1))
    )
    project = Project(project_id, canary, new.secret, new.key.key_id, run)
    await writer.renew(project.recorder_id)
    await PostgresSessions(ProjectPool(pool, project_id)).change_state("s-1", {"said": canary}, [])
    async with pooled_connection(pool) as connection:
        await connection.execute(
            "INSERT INTO removed_record VALUES (%s, %s, %s, 'step', 1)",
            [project_id, run.root, new_id()],
        )
        await connection.execute(
            "INSERT INTO run_link (project_id, root_plan_id, number, continued_run_id, is_link)"
            " VALUES (%s, %s, 0, %s, false)",
            [project_id, run.root, new_id()],
        )
        await connection.execute(
            "INSERT INTO analyst (role_name, project_id, was_made) VALUES (%s, %s, false)",
            [f"{canary}-analyst", project_id],
        )
    return project


def _marked(event: bytes, canary: str) -> bytes:
    for word in WORDS:
        event = event.replace(word.encode(), f"{canary}-{word}".encode())
    return event


@dataclass
class Attack:
    """What came of asking for another project's records in every way that there is."""

    operations: int = 0
    requests: int = 0
    leaks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.operations} operations, {self.requests} requests, {len(self.leaks)} leaks"


WITHOUT_RECORDS = {"renew_lease", "read_tool_history", "delete_subject", "delete_session"}
"""What may succeed with the other's ids: a lease of one's own, the numbers of a tool's name, and
none of the runs of a subject or session."""

WRITING = ("record_events", "record_traces")
"""Last, since whoever names the other's ids makes records of their own by them."""


async def attack(doors: Doors, attacker: Project, victim: Project, timeout: float = 30) -> Attack:
    """Request all records of the victim with every operation of the OpenAPI document.

    The home project must be the victim before it attacks: its chat starts a recorder, whose lease
    and endings are written in the background and would change the victim's rows.
    """
    done = Attack()
    await DatabaseProjection(connection_options(doors.database_url)).link()
    before = fingerprint(doors.database_url, victim)
    empty = {table for table, rows in before.items() if not rows}
    assert not empty, f"a project with nothing in a table: {empty}"
    doors.client.headers["Authorization"] = f"Bearer {attacker.secret}"
    operations = [
        (method, path, operation)
        for path, item in openapi_document()["paths"].items()
        for method, operation in item.items()
    ]
    # What is deleted, or made by the same id, could not be read any more.
    operations.sort(key=lambda each: (each[2]["operationId"] in WRITING, each[0] != "get"))
    async with projecting(doors.database_url, attacker.project_id):  # an erasure waits for it
        for method, path, operation in operations:
            done.operations += 1
            await _try_operation(doors.client, done, victim, (method, path, operation), timeout)
    async with open_pool(doors.database_url) as pool:
        await _leave_pending(pool, attacker, 3)  # it may be the next victim
    if fingerprint(doors.database_url, victim) != before:
        done.leaks.append("the victim's rows changed")
    return done


async def _try_operation(
    client: httpx2.AsyncClient,
    done: Attack,
    victim: Project,
    asked: tuple[str, str, dict[str, Any]],
    timeout: float,
) -> None:
    method, path, operation = asked
    name, parameters = operation["operationId"], operation.get("parameters", [])
    placed = [each["name"] for each in parameters if each["in"] == "path"]
    path = path.format(**{each: victim.parameter(each) for each in placed})
    bodies: list[tuple[bytes, str] | None] = [None]
    if "requestBody" in operation:
        bodies = [*victim.bodies(name)]
    for query in victim.queries(parameters):
        for body in bodies:
            done.requests += 1
            content, media_type = body or (None, "application/json")
            try:
                async with asyncio.timeout(timeout):
                    response = await client.request(
                        method,
                        path,
                        params=query,
                        content=content,
                        headers={"Content-Type": media_type},
                    )
            except TimeoutError:
                done.leaks.append(f"{name}: a stream that does not end")
                continue
            text = response.text
            for sent in (*query.values(), *(victim.parameter(each) for each in placed)):
                text = text.replace(sent, "")
            if victim.canary in text:
                done.leaks.append(f"{name} {query}: {response.status_code} tells of the victim")
            elif placed and response.is_success and name not in WITHOUT_RECORDS:
                done.leaks.append(f"{name} {query}: {response.status_code} for the victim's id")


def fingerprint(database_url: str, project: Project) -> dict[str, list[Any]]:
    """Return all that a project has in the database, by table."""
    found = {}
    with psycopg.connect(database_url) as connection:
        for table in METADATA.sorted_tables:
            if "project_id" in table.columns:
                query = sql.SQL("SELECT row::text FROM {} row WHERE project_id = %s ORDER BY 1")
                found[table.name] = connection.execute(
                    query.format(sql.Identifier(table.name)), [project.project_id]
                ).fetchall()
    return found
