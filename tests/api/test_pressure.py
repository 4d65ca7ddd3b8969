"""Limits of the concurrency of requests that write, and of slow uploads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from api.app import create_app
from api.parts import Parts
from api.requests import Intake
from tests.api.conftest import parts_without_database
from tests.recorder.stores import CommandedStore
from tests.tools.short_times import long_enough
from tracer.errors import TooBusy
from tracer.records import new_id

NDJSON = {"Content-Type": "application/x-ndjson"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
KIB = 2**10


@dataclass
class Busy:
    """A server whose store is held back."""

    client: httpx2.AsyncClient
    store: CommandedStore

    async def post(
        self, body: bytes | AsyncIterator[bytes], path: str = "/api/events", **headers: str
    ) -> httpx2.Response:
        return await self.client.post(path, content=body, headers=headers or NDJSON)

    async def posting(self, *bodies: bytes) -> list[asyncio.Task[httpx2.Response]]:
        """Send bodies one after the other, and return when the store has been reached with each."""
        tasks = []
        for body in bodies:
            self.store.reached.clear()
            tasks.append(asyncio.create_task(self.post(body)))
            async with asyncio.timeout(60):
                await self.store.reached.wait()
        return tasks


@asynccontextmanager
async def busy(home: Path, intake: Intake) -> AsyncIterator[Busy]:
    store = CommandedStore()
    async with parts_without_database(home) as parts:
        app = create_app(Parts(parts.reader, store, parts.application, parts.watch), intake)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://tracer") as client:
            yield Busy(client, store)


def event(size: int = 0) -> bytes:
    root = str(new_id())
    said = {"type": "plan_started", "at": "2026-11-21T22:21:52Z", "rootPlanId": root}
    return json.dumps({**said, "planId": root, "title": "x" * size}).encode()


def is_refused(response: httpx2.Response) -> bool:
    if response.status_code == 200:
        return False
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    return True


def is_too_slow(response: httpx2.Response) -> bool:
    return is_refused(response) and b"too slowly" in response.content


async def test_ninth_concurrent_request_is_rejected_until_others_end(tmp_path: Path) -> None:
    async with busy(tmp_path, Intake(max_requests=8)) as server:
        server.store.may_write.clear()
        waiting = await server.posting(*(event() for _ in range(8)))

        ninth = await server.post(event())
        spans = await server.post(b"", "/v1/traces", **PROTOBUF)
        server.store.may_write.set()
        answers = await asyncio.gather(*waiting)
        tenth = await server.post(event())

    assert is_refused(ninth)
    assert ninth.json()["code"] == "too_busy"
    assert is_refused(spans)
    assert b"Send the request again later" in spans.content
    assert not any(map(is_refused, [*answers, tenth]))


async def test_failed_request_frees_its_place(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield event(60 * KIB)
        raise OSError("the client is gone")

    async with busy(tmp_path, Intake(max_requests=1)) as server:
        with pytest.raises(OSError, match="gone"):
            await server.post(broken(), **NDJSON)
        refused = await server.post(b"\xff", "/v1/traces", **PROTOBUF)
        answer = await server.post(event(60 * KIB))

    assert refused.status_code == 400
    assert not is_refused(answer)


@pytest.mark.parametrize("path", ["/api/events", "/v1/traces"])
async def test_stalled_upload_is_rejected_and_frees_its_place(tmp_path: Path, path: str) -> None:
    async def stopped() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    headers = NDJSON if path == "/api/events" else PROTOBUF
    async with (
        asyncio.timeout(60),
        busy(tmp_path, Intake(max_requests=1, patience_seconds=0.1)) as server,
    ):
        waiting = await server.post(stopped(), path, **headers)
        while is_too_slow(next_one := await server.post(event())):
            pass  # the machine is busy

    assert is_too_slow(waiting)
    assert not is_refused(next_one)


@pytest.mark.thorough
async def test_slow_body_that_keeps_arriving_is_accepted(tmp_path: Path) -> None:
    answer: httpx2.Response | None = None

    async def slow(pause: float) -> AsyncIterator[bytes]:
        for _ in range(8):
            yield b" " * 960 * KIB
            await asyncio.sleep(pause)
        yield event()

    async def send(pause: float) -> None:
        nonlocal answer
        async with busy(tmp_path, Intake(patience_seconds=4 * pause)) as server:
            answer = await server.post(slow(pause))

    await long_enough(send, lambda: answer is not None and not is_too_slow(answer))

    assert answer is not None
    assert not is_refused(answer)


async def test_project_at_its_limit_does_not_block_another_project() -> None:
    intake = Intake(max_requests=3, max_project_requests=2)
    async with intake.slot(1), intake.slot(1):
        with pytest.raises(TooBusy, match="The project"):
            async with intake.slot(1):
                pass
        async with intake.slot(2):
            with pytest.raises(TooBusy, match="The server"):
                async with intake.slot(3):
                    pass
    async with intake.slot(1), intake.slot(1), intake.slot(3):
        pass


@pytest.mark.parametrize(
    ("received", "waited", "seconds"),
    [(0, 0.0, 5.0), (1, 4.0, 1.0), (16 * KIB, 1.0, 5.0), (16 * KIB, 4.0, 2.0), (2**20, 1.0, 5.0)],
)
def test_patience_with_a_slow_body_grows_with_received_bytes(
    received: int, waited: float, seconds: float
) -> None:
    assert Intake().patience(received, waited) == pytest.approx(seconds, abs=0.01)
