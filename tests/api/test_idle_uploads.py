"""Uploads of one key that stall, while another project records on the same server."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from api.commands.database import key_ring
from tests.servers import tracer_server
from tests.storage.postgres.lock_waits import until
from tracer.records import new_id
from tracer.records.access import Scope

MIB = 2**20
ADDRESS_SPACE = 3 * 2**29
WRITES = 40


@dataclass(frozen=True)
class Upload:
    """A request to `/v1/traces` that stops before its body ends."""

    body: bytes
    content_length: int
    encoding: str = "identity"


@dataclass(frozen=True)
class Uploading:
    """Uploads that one key keeps open."""

    responses: list[asyncio.Task[bytes]]

    @property
    def waiting(self) -> int:
        """The number of uploads that the server has not answered yet."""
        return sum(not each.done() for each in self.responses)


LARGE, SMALL = [Upload(b"\n", 64 * MIB)] * 5, [Upload(b"\n", 1_000)] * 140
ATTACKS = {
    "5_announce_64_MiB": LARGE,
    "140_announce_1000_bytes": SMALL,
    "both": [*LARGE, *SMALL],
    "5_decompress_to_64_MiB": [Upload(gzip.compress(bytes(64 * MIB)), MIB, "gzip")] * 5,
}


@asynccontextmanager
async def uploading(address: str, key: str, uploads: list[Upload]) -> AsyncIterator[Uploading]:
    """Open uploads and keep them open while inside."""
    host, port = urlsplit(address).hostname, urlsplit(address).port
    async with AsyncExitStack() as stack:
        responses = []
        for upload in uploads:
            head = (
                f"POST /v1/traces HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
                f"Content-Type: application/x-protobuf\r\nContent-Encoding: {upload.encoding}\r\n"
                f"Content-Length: {upload.content_length}\r\n\r\n"
            )
            reader, writer = await asyncio.open_connection(host, port)
            stack.callback(writer.close)
            writer.write(head.encode() + upload.body)
            await writer.drain()
            response = asyncio.create_task(reader.readline())
            stack.callback(response.cancel)
            responses.append(response)
        yield Uploading(responses)


async def in_progress(client: httpx2.AsyncClient, reading: dict[str, str]) -> int:
    """Return how many requests the server has in progress, without this one."""
    metrics = (await client.get("/metrics", headers=reading)).text
    [line] = [each for each in metrics.splitlines() if each.startswith("tracer_http_requests_in_p")]
    return int(float(line.split()[-1])) - 1


@pytest.mark.thorough  # test_pressure.py has the same property without a process
@pytest.mark.parametrize("attack", ATTACKS)
async def test_stalled_uploads_of_one_key_do_not_block_another_project(
    database_url: str, tmp_path: Path, attack: str
) -> None:
    async with key_ring(database_url) as ring:
        operator = await (await ring.made("default")).create("operator", [Scope.READ])
        attacker = await (await ring.made("attacker")).create("attacker", [Scope.RECORD])
        victim = await (await ring.made("victim")).create("victim", [Scope.RECORD])
    reading, recording = ({"Authorization": f"Bearer {each.secret}"} for each in (operator, victim))
    with tracer_server(database_url, tmp_path, address_space=ADDRESS_SPACE) as address:
        async with (
            asyncio.timeout(120),
            httpx2.AsyncClient(base_url=address, timeout=60) as client,
            uploading(address, attacker.secret, ATTACKS[attack]) as uploads,
        ):

            async def all_arrived() -> bool:
                return await in_progress(client, reading) >= uploads.waiting

            await until(all_arrived)
            assert uploads.waiting > 0
            statuses = []
            for _ in range(WRITES):
                root = str(new_id())
                event = {"type": "plan_started", "at": "2026-11-21T22:21:52Z"}
                body = json.dumps({"events": [{**event, "rootPlanId": root, "planId": root}]})
                headers = {**recording, "Content-Type": "application/json"}
                answer = await client.post("/api/events", content=body, headers=headers)
                statuses.append(answer.status_code)

    assert statuses == [200] * WRITES
