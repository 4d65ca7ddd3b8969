"""Two servers behind PgBouncer act as one for recorders and live clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
from pydantic import SecretStr

import tracer
from tests.api.run_stream import Folded, flattened, watching
from tests.recorder.test_dead_processes import until
from tests.sample_runs import sample_run
from tests.storage.postgres.pending_runs import until_projected
from tests.torture.forked_server import forked_server
from tests.torture.lengths import EVENTS, say
from tests.torture.load import WRITERS, Difference, deliver, difference, load_of
from tests.torture.pgbouncer import pgbouncer
from tests.trees import complete
from tracer.clock import utc_now
from tracer.records import new_id
from tracer.records.events import PlanStarted
from tracer.storage.http import HttpWriter
from tracer.storage.postgres import ProjectPool, open_pool
from tracer.storage.postgres.reader import PostgresReader

PATIENCE = 60.0
LEASE_SECONDS = 6


@pytest.fixture
def two_servers(database_url: str, tmp_path: Path) -> Iterator[list[str]]:
    """The addresses of two servers that work with one database through a pooler."""
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    with pgbouncer(database_url) as pooled:
        given = {
            "direct_database_url": SecretStr(database_url),
            "lease_seconds": LEASE_SECONDS,
            "projectors": 1,
        }
        with (
            forked_server(pooled, tmp_path / "one", **given) as one,
            forked_server(pooled, tmp_path / "other", **given) as other,
        ):
            yield [one.address, other.address]


async def test_both_servers_show_all_records_once(
    two_servers: list[str], database_url: str
) -> None:
    load = load_of(EVENTS)
    watched = load.runs[0]
    root = watched[0].root_plan_id
    pages = [Folded(), Folded()]
    async with AsyncExitStack() as programs:
        writers = [
            await programs.enter_async_context(aclosing(HttpWriter(address)))
            for address in two_servers * WRITERS
        ]
        await writers[0].write(watched[:1])
        clients = [
            await programs.enter_async_context(client_of(address)) for address in two_servers
        ]
        streams = [await programs.enter_async_context(watching(client, root)) for client in clients]
        await deliver(load, writers)
        trees = [await tree_of(client, root) for client in clients]
        async with asyncio.timeout(PATIENCE):
            for page, stream in zip(pages, streams, strict=True):
                await page.until(stream, trees[0]["revision"])
    await until_projected(database_url)
    async with open_pool(database_url) as pool:
        found = await difference(load, PostgresReader(ProjectPool(pool)))

    say("two servers behind PgBouncer", **load.figures(load.seconds), **found.figures())
    assert trees[0] == trees[1]
    assert pages == [Folded(tree["revision"], flattened(tree)) for tree in trees]
    assert found == Difference(lost=0, duplicated=0)


async def test_servers_share_cancel_requests_and_expired_leases(
    two_servers: list[str],
) -> None:
    run, recorder_id = sample_run(sub_plans=1, finished=False), new_id()
    started = PlanStarted(
        at=utc_now(), root_plan_id=run.root, plan_id=run.root, recorder_id=recorder_id
    )
    async with (
        client_of(two_servers[0]) as one,
        client_of(two_servers[1]) as other,
        aclosing(HttpWriter(two_servers[0])) as writer,
    ):
        await writer.write([started])
        await other.post(f"/api/runs/{run.root}/cancel")
        wished = await one.get("/api/cancel-requests", params={"rootPlanId": str(run.root)})
        await until(lambda: _is_shown_as(other, run.root, "abandoned"))
        revision = (await tree_of(one, run.root))["revision"]

        async def lives() -> bool:
            await asyncio.gather(
                *(client.post(f"/api/recorders/{recorder_id}/lease") for client in (one, other))
            )
            return await _is_shown_as(one, run.root, "running")

        await until(lives)
        after = (await tree_of(other, run.root))["revision"]

    assert wished.json() == {"rootPlanIds": [str(run.root)]}
    assert after == revision + 1, "both reapers cleared it"


async def test_programs_write_concurrently_through_the_pooler(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    programs, plans = 6, 15

    def record(program: int) -> None:
        with tracer.connect() as tracing:
            for number in range(plans):
                with tracing.plan(f"{program}.{number}"):
                    pass

    monkeypatch.delenv("TRACER_URL", raising=False)
    monkeypatch.setenv("TRACER_HOME", str(tmp_path))
    monkeypatch.setenv("TRACER_DIRECT_DATABASE_URL", database_url)
    with pgbouncer(database_url) as pooled:
        monkeypatch.setenv("TRACER_DATABASE_URL", pooled)
        await asyncio.gather(*(asyncio.to_thread(record, each) for each in range(programs)))

    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


def client_of(address: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=address, timeout=PATIENCE)


async def tree_of(client: httpx2.AsyncClient, root: UUID) -> dict[str, Any]:
    answer = await client.get(f"/api/plans/{root}/tree")
    return complete(answer.raise_for_status().json())


async def _is_shown_as(client: httpx2.AsyncClient, root: UUID, status: str) -> bool:
    return bool((await tree_of(client, root))["status"] == status)
