"""All outputs of a server: the database, its views, and the API's responses about a run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

import httpx2
import psycopg
from psycopg import sql

from api.middleware.authentication import nothing_to_check
from api.openapi import openapi_document
from api.run_events import run_events
from tests.api.run_stream import flattened
from tests.citus_databases import workers_of
from tests.databases import stored_spans
from tests.trees import complete
from tracer.storage.postgres import ProjectPool, RunWatch, open_pool
from tracer.storage.postgres.reader import PostgresReader

_ENDLESS = "watch_run"
_IDS = {"step": "stepId", "thinkAct": "thinkActId", "toolCall": "toolCallId"}


def files_in(folder: Path) -> bytes:
    """Return everything in the files of a folder, such as a recorder's spool."""
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


async def kept_in(database_url: str) -> bytes:
    """Return everything that the database holds: tables, the views of `trace`, unpacked blocks."""
    kept = []
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        cursor = await connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = 'public'"
            " UNION ALL SELECT schemaname, viewname FROM pg_views WHERE schemaname = 'trace'"
        )
        names = await cursor.fetchall()
        assert {schema for schema, _ in names} == {"public", "trace"}
        if workers_of(database_url):  # which plans no function for each run
            names.remove(("trace", "lineage"))
        for name in names:
            rows = sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier(*name))
            kept += [row for (row,) in await (await connection.execute(rows)).fetchall()]
    return b"\n".join(["\n".join(kept).encode(), stored_spans(database_url)])


async def said_of(client: httpx2.AsyncClient, run: UUID) -> bytes:
    """Return the API's responses about a run, from every read operation of the OpenAPI document.

    A new one is asked by itself, each choice of its parameters included; a new parameter in a path
    needs a line in `_given`.
    """
    answer = await client.get(f"/api/plans/{run}/tree")
    tree = complete(answer.raise_for_status().json())
    given = _given(run, tree)
    shown = (await client.get(f"/api/runs/{run}")).json()
    if shown["sessionId"] is not None:
        given["sessionId"] = shown["sessionId"]
    start = datetime.fromisoformat(shown["startedAt"])
    given |= {"fromDay": start.isoformat(), "toDay": (start + timedelta(days=1)).isoformat()}
    said = []
    document = _document()
    for path, item in document["paths"].items():
        operation = item.get("get")
        if operation is None or operation["operationId"] == _ENDLESS:
            continue
        parameters = operation.get("parameters", [])
        placed = {each["name"]: given.get(each["name"]) for each in parameters if _is_path(each)}
        if None in placed.values():
            continue  # the run has no such record
        url = path.format(**{name: quote(str(value)) for name, value in placed.items()})
        for query in _queries(document, parameters, given):
            for media_type in operation["responses"]["200"].get("content", {}):
                answer = await client.get(
                    f"{url}?{urlencode(query)}", headers={"Accept": media_type}
                )
                # The failed run or the keys may be missing.
                is_absent = not placed and answer.status_code in (404, 503)
                assert answer.is_success or is_absent, (url, query, answer.text)
                said.append(answer.content)
    return b"\n".join(said)


@cache
def _document() -> dict[str, Any]:
    return openapi_document()


def _given(run: UUID, tree: dict[str, Any]) -> dict[str, str]:
    """Return what parameters are for a run and one record of each kind of it."""
    given = dict.fromkeys(("rootPlanId", "planId", "a", "b", "run", "id"), str(run))
    for (kind, record_id), node in flattened(tree).items():
        if kind in _IDS:
            given.setdefault(_IDS[kind], record_id)
        if kind == "toolCall":
            given.setdefault("name", node["name"])
            given.setdefault("recordId", record_id)
    return given | {"q": "host"}  # next to a secret


def _is_path(parameter: dict[str, Any]) -> bool:
    return bool(parameter["in"] == "path")


def _queries(
    document: dict[str, Any], parameters: list[dict[str, Any]], given: dict[str, str]
) -> Iterator[dict[str, str]]:
    """Yield the queries of an operation: only what is required, and each choice by itself."""
    asked = [each for each in parameters if each["in"] == "query"]
    least = {each["name"]: given[each["name"]] for each in asked if each.get("required")}
    yield least
    for each in asked:
        name, shape = each["name"], each["schema"]
        if "$ref" in shape:
            shape = document["components"]["schemas"][shape["$ref"].rsplit("/", 1)[1]]
        values = chain([given[name]] if name in given else [], shape.get("enum", ()))
        # Spend by user needs a period.
        edges = ({"from", "to"} if name == "by" else set()) & {each["name"] for each in asked}
        period = {edge: given[f"{edge}Day"] for edge in edges}
        yield from (least | period | {name: value} for value in values)


async def streamed_of(database_url: str, run: UUID) -> bytes:
    """Return what somebody who watches a run is told first: all of it."""
    async with open_pool(database_url) as pool:
        reader = PostgresReader(ProjectPool(pool))
        stream = run_events(reader, RunWatch(reader), asyncio.Event(), run, 0, nothing_to_check)
        async with aclosing(stream) as events:
            return b"".join([await anext(events) for _ in range(2)])
