"""A server without keys accepts only requests of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from api.app import create_app
from api.main import server_parts
from api.middleware.authentication import Access, is_loopback
from tests.api import ward
from tests.api.conftest import serving_parts
from tracer.runtime.scripted_model import ScriptedModel
from tracer.settings import read_settings
from tracer.storage.postgres import open_pool
from tracer.storage.postgres.keys import Authenticator


@pytest.fixture
async def client(database_url: str, tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        serving_parts(database_url, tmp_path, ScriptedModel([])) as parts,
        open_pool(database_url) as pool,
    ):
        access = Access(
            Authenticator(pool), frozenset({"traces.example"}), frozenset({"https://app.example"})
        )
        transport = httpx2.ASGITransport(create_app(parts, access=access))
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8420"
        ) as client:
            yield client


HOSTS = {
    "127.0.0.1:8420": 200,
    "localhost": 200,
    "[::1]:8420": 200,
    "tracer.localhost:1": 200,
    "traces.example": 200,
    "evil.example": 421,
    "127.0.0.1.evil.example": 421,
    "localhost.evil.example:8420": 421,
    "192.168.0.1": 421,
    "[": 421,
    "": 421,
}


async def test_server_without_keys_accepts_only_local_and_configured_hosts(
    client: httpx2.AsyncClient,
) -> None:
    statuses = {
        host: (await client.get("/api/runs", headers={"Host": host})).status_code for host in HOSTS
    }

    assert statuses == HOSTS


async def test_write_from_another_site_gets_403_on_a_server_without_keys(
    client: httpx2.AsyncClient,
) -> None:
    events: dict[str, list[object]] = {"events": []}
    assert (await client.post("/api/events", json=events)).status_code == 200
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
        answer = await client.post("/api/events", json=events, headers=headers)
        assert answer.status_code == 403


async def test_pages_of_configured_origins_may_send_otlp(client: httpx2.AsyncClient) -> None:
    preflight = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    page = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
    other = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}

    answer = await client.options("/v1/traces", headers={**page, **preflight})
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
    assert "authorization" in answer.headers["Access-Control-Allow-Headers"]
    sent = await client.post("/v1/traces", json={}, headers=page)
    assert sent.status_code == 200
    assert sent.headers["Access-Control-Allow-Origin"] == "https://app.example"

    refused = await client.options("/v1/traces", headers={**other, **preflight})
    assert refused.status_code == 400
    assert "Access-Control-Allow-Origin" not in refused.headers
    assert (await client.post("/v1/traces", json={}, headers=other)).status_code == 403
    events = await client.post("/api/events", json={"events": []}, headers=page)
    assert events.status_code == 403
    assert "Access-Control-Allow-Origin" not in events.headers


async def test_creating_the_first_key_over_http_gets_403(database_url: str, tmp_path: Path) -> None:
    async with server_parts(read_settings(home=tmp_path), database_url, ward.application) as made:
        transport = httpx2.ASGITransport(create_app(made))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            wanted = {"name": "mine", "scopes": ["admin"]}
            assert (await client.post("/api/keys", json=wanted)).status_code == 403
            assert (await client.get("/api/sign-in")).json()["keyId"] is None


def test_is_loopback_accepts_only_loopback_addresses_and_names() -> None:
    loopback = ["127.0.0.1", "127.9.9.9", "::1", "localhost", "a.localhost"]
    others = ["0.0.0.0", "::", "10.0.0.1", "example", "localhost.example", ""]

    assert [host for host in (*loopback, *others) if is_loopback(host)] == loopback
