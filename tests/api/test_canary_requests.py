"""Secrets in requests are not stored or logged, for every operation, JSON field and header.

The client is an administrator. So the search also covers operations that `test_canaries` cannot
call: keys, projects and the metrics of the server, which are partly in memory.
"""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID

import httpx2

from api.openapi import openapi_document
from tests.api.conftest import Api, client_of, measure, serving_parts
from tests.api.test_running import ended
from tests.api.ways_out import files_in, kept_in, said_of
from tests.canaries import SECRETS
from tests.canary_events import EVERYTHING, VALUES, found_in
from tests.schema_examples import TextOf, example_of
from tracer.records.access import Scope
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn
from tracer.storage.postgres import open_pool
from tracer.storage.postgres.keys import Authenticator
from tracer.storage.postgres.project_stores import ProjectStores

ELSEWHERE = {"record_events", "record_traces"}
"""Operations that `test_canaries` covers."""

BY_FORM = {"sessionId", "session_id", "name"}
"""Fields in which secrets are found by their form only, not by a key."""


def _long(shape: dict[str, Any], name: str) -> str:
    if name == "agent":
        return "nurse"
    text = VALUES if name in BY_FORM else EVERYTHING
    return text if len(text) <= shape.get("maxLength", len(text)) else SECRETS[0].text


def _no_agent(shape: dict[str, Any], name: str) -> str:
    return VALUES if name == "agent" else _long(shape, name)


def _short(secret: str) -> TextOf:
    return lambda shape, name: "nurse" if name == "agent" else secret


def _bodies(definitions: dict[str, Any], shape: dict[str, Any]) -> Iterator[Any]:
    """Yield the bodies to send: all secrets in each field, or one if the field is short."""
    if "$ref" in shape:
        shape = definitions[shape["$ref"].rsplit("/", 1)[1]]
    yield example_of(definitions, shape, _long)
    if "agent" in shape["properties"]:
        yield example_of(definitions, shape, _no_agent)
    if any("maxLength" in field for field in shape["properties"].values()):
        for secret in SECRETS:
            yield example_of(definitions, shape, _short(secret.text))


def requests() -> Iterator[tuple[str, str, Any, dict[str, str]]]:
    """Yield method, path, body and headers of every request that contains text."""
    document = openapi_document()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            content = operation.get("requestBody", {}).get("content", {})
            if operation["operationId"] in ELSEWHERE or "application/json" not in content:
                continue
            headers = {
                each["name"]: VALUES
                for each in operation.get("parameters", [])
                if each["in"] == "header"
            }
            shape = content["application/json"]["schema"]
            for body in _bodies(document["components"]["schemas"], shape):
                yield method, path, body, headers


@asynccontextmanager
async def administered(database_url: str, home: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Provide an administrator's client of a server with keys and projects."""
    model = ScriptedModel([Script([Turn(EVERYTHING)], times=100)])
    async with (
        serving_parts(database_url, home, model, [measure]) as parts,
        open_pool(database_url) as pool,
        ProjectStores(pool) as stores,
    ):
        store = await stores.of(parts.project_id)
        key = await store.keys.create("all", [Scope.ADMIN])
        async with client_of(
            replace(parts, stores=stores, authenticator=Authenticator(pool))
        ) as client:
            client.headers["Authorization"] = f"Bearer {key.secret}"
            yield client


async def test_secrets_in_request_bodies_are_not_stored_or_logged(
    database_url: str, tmp_path: Path, log: io.StringIO
) -> None:
    sent = list(requests())
    assert len(found_in(json.dumps(sent).encode())) > 15  # the canaries are in them
    statuses: dict[str, list[int]] = {}
    async with administered(database_url, tmp_path) as client:
        for method, path, body, headers in sent:
            answer = await client.request(method, path, json=body, headers=headers)
            statuses.setdefault(path, []).append(answer.status_code)
        runs = (await client.get("/api/runs")).json()["items"]
        for run in runs:
            await ended(client, run["rootPlanId"])
        read = await said_of(client, UUID(runs[0]["rootPlanId"]))

    assert statuses["/api/runs"] == [202, 400]
    assert statuses["/api/v1/chat"] == [200, 400]
    assert set(statuses["/api/keys"]) == {201}
    assert set(statuses["/api/sign-in"]) == {401}
    assert len(runs) == 2
    assert found_in(read) == []
    assert found_in(await kept_in(database_url)) == []
    assert found_in(log.getvalue().encode()) == []
    assert found_in(files_in(tmp_path)) == []


async def test_secrets_in_headers_and_urls_are_not_logged(api: Api, log: io.StringIO) -> None:
    templates = ("/api/runs?q={}", "/api/tool-calls?name={}", "/api/stats/tools/{}", "/nowhere/{}")
    names = ("User-Agent", "Referer", "X-Request-Id", "Authorization", "Cookie", "traceparent")
    for secret in SECRETS:
        await api.client.delete("/api/subjects", params={"subject": secret.text})
        for template in templates:
            headers = dict.fromkeys(names, secret.text)
            await api.client.get(template.format(quote(secret.text, safe="")), headers=headers)
    logged = log.getvalue()

    assert logged.count("/api/stats/tools/{name}") == len(SECRETS)
    assert found_in(logged.encode() + unquote(logged).encode()) == []
