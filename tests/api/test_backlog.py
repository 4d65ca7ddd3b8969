"""A server without projectors, or whose projectors are slower than the arriving spans."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from api.main import server_parts
from tests.api import ward
from tests.api.conftest import client_of
from tests.otel.made_traces import body_of, make_span
from tests.storage.postgres.lock_waits import until
from tests.storage.postgres.pending_runs import accept, small_trace, until_living
from tracer.settings import Settings, read_settings

HERE = {"Host": "localhost"}
JSON = HERE | {"Content-Type": "application/json"}
BODY = body_of(make_span(1, "a tool", {}))


@asynccontextmanager
async def server(database_url: str, settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        server_parts(settings, database_url, ward.application) as made_parts,
        client_of(made_parts) as client,
    ):
        yield client


async def test_spans_above_the_backlog_limit_are_rejected_before_they_are_decoded(
    database_url: str, tmp_path: Path
) -> None:
    await accept(database_url, small_trace())
    settings = read_settings(home=tmp_path, projectors=0, backlog_bytes=4)
    async with server(database_url, settings) as client:

        async def is_rejected() -> bool:
            answer = await client.post("/v1/traces", content=b"no JSON", headers=JSON)
            return answer.status_code == 503

        await until(is_rejected)  # after the server has read the backlog
        answer = await client.post("/v1/traces", content=b"no JSON", headers=JSON)
        readiness = await client.get("/readyz", headers=HERE)

    assert int(answer.headers["retry-after"]) >= 1
    assert "not projected yet" in answer.text
    assert readiness.status_code == 200


async def test_server_without_projectors_accepts_spans_and_is_ready(
    database_url: str, tmp_path: Path
) -> None:
    async with server(database_url, read_settings(home=tmp_path, projectors=0)) as client:
        answer = await client.post("/v1/traces", content=BODY, headers=JSON)
        readiness = await client.get("/readyz", headers=HERE)

    assert answer.status_code == 200
    assert readiness.json()["projectors"] == 0


@pytest.mark.thorough  # it starts a process; other tests see that no projector is counted
async def test_readiness_reports_the_number_of_projectors(
    database_url: str, tmp_path: Path
) -> None:
    async with server(database_url, read_settings(home=tmp_path, projectors=1)) as client:
        await until_living(database_url, 1)
        assert (await client.get("/readyz", headers=HERE)).json()["projectors"] == 1
