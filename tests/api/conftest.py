"""The API over a real Postgres, asked in the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2
import pytest

from api.app import create_app
from tests.sample_runs import SampleRun
from tracer.assembly import Parts
from tracer.storage.engine import open_pool
from tracer.storage.postgres_reader import PostgresReader
from tracer.storage.postgres_writer import PostgresWriter
from tracer.store import TraceWriter


@dataclass(frozen=True)
class Api:
    """A client of the API, and the store behind it."""

    client: httpx2.AsyncClient
    writer: TraceWriter

    async def record(self, run: SampleRun) -> SampleRun:
        answer = await self.writer.write(run.events)
        assert len(run.events) == answer.stored
        return run

    async def get(self, path: str, **parameters: str | int) -> httpx2.Response:
        return await self.client.get(path, params=parameters or None)

    async def read(self, path: str, **parameters: str | int) -> dict[str, object]:
        response = await self.get(path, **parameters)
        assert response.status_code == 200, response.text
        body = response.json()
        assert isinstance(body, dict)
        return body


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[Api]:
    async with open_pool(database_url) as pool:
        writer = PostgresWriter(pool)
        app = create_app(Parts(PostgresReader(pool), writer, launcher=None))
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://tracer") as client:
            yield Api(client, writer)
