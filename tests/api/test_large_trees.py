"""Trees over HTTP are compressed on request, and their query stops if the client disconnects."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import httpx2
import psycopg

from tests.api.conftest import Api, on_loopback, serving_parts
from tests.sample_runs import sample_run
from tests.storage.postgres.lock_waits import PLENTY_SECONDS, until_waiting
from tracer.runtime.scripted_model import ScriptedModel


async def test_tree_is_compressed_if_the_client_accepts_gzip(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=30))
    path = f"/api/plans/{run.root}/tree"

    plain = await api.client.get(path, headers={"Accept-Encoding": "identity"})
    async with api.client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as packed:
        body = b"".join([part async for part in packed.aiter_raw()])

    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert packed.headers["Vary"] == "Accept-Encoding"
    assert packed.headers["ETag"] == plain.headers["ETag"]
    assert len(body) == int(packed.headers["Content-Length"]) < len(plain.content) / 4
    assert gzip.decompress(body) == plain.content


async def test_small_response_is_not_compressed(api: Api) -> None:
    answer = await api.client.get("/healthz", headers={"Accept-Encoding": "gzip"})

    assert "Content-Encoding" not in answer.headers


async def test_disconnecting_client_cancels_the_query_of_its_tree(
    database_url: str, tmp_path: Path
) -> None:
    run = sample_run()
    async with (
        asyncio.timeout(PLENTY_SECONDS),
        serving_parts(database_url, tmp_path, ScriptedModel([])) as parts,
        on_loopback(parts) as address,
    ):
        await parts.writer.write(run.events)
        with psycopg.connect(database_url) as connection:
            connection.execute("LOCK TABLE act_tool_info IN ACCESS EXCLUSIVE MODE")
            async with httpx2.AsyncClient(base_url=address, timeout=PLENTY_SECONDS) as client:
                reading = asyncio.create_task(client.get(f"/api/plans/{run.root}/tree"))
                await until_waiting(database_url, 1)
                reading.cancel()
            await until_waiting(database_url, 0)
        async with httpx2.AsyncClient(base_url=address, timeout=PLENTY_SECONDS) as client:
            answer = await client.get(f"/api/plans/{run.root}/tree")
    assert answer.status_code == 200
