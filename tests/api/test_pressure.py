"""Limits of the concurrency and the memory of requests that write, and of slow uploads."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from api.app import create_app
from api.http.intake import Intake
from tests.api.conftest import parts_without_database
from tests.recorder.stores import CommandedStore
from tests.tools.short_times import long_enough
from tracer.assembly import Parts
from tracer.errors import TooBusy
from tracer.records.access import Caller, Scope
from tracer.records.ids import new_id
from tracer.storage.postgres.projects.authentication import EVERYBODY

NDJSON = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}
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


async def test_body_above_the_memory_limit_is_not_read(tmp_path: Path) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield event(60 * KIB)

    async with busy(tmp_path, Intake(max_bytes=100 * KIB)) as server:
        server.store.may_write.clear()
        waiting = await server.posting(event(60 * KIB))

        large = await server.post(body(), **NDJSON, **{"Content-Length": str(60 * KIB)})
        small = await server.posting(event(1 * KIB))
        server.store.may_write.set()
        answers = await asyncio.gather(*waiting, *small)

    assert is_refused(large)
    assert read == 0
    assert not any(map(is_refused, answers))


@pytest.mark.parametrize("is_packed", [True, False])
async def test_body_without_length_is_rejected_when_it_grows_too_large(
    tmp_path: Path, is_packed: bool
) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield gzip.compress(event(60 * KIB)) if is_packed else event(60 * KIB)

    headers = {**NDJSON, "Content-Encoding": "gzip" if is_packed else "identity"}
    async with busy(tmp_path, Intake(max_bytes=100 * KIB)) as server:
        server.store.may_write.clear()
        waiting = await server.posting(event(60 * KIB))

        refused = await server.post(body(), **headers)
        server.store.may_write.set()
        answers = await asyncio.gather(*waiting)
        later = await server.post(body(), **headers)

    assert is_refused(refused)
    assert not any(map(is_refused, [*answers, later]))


async def test_memory_limit_counts_the_decoded_values_of_an_event_list(tmp_path: Path) -> None:
    crowd = b'{"events": [' + event() + b', {"type": [' + b"[]," * 1000 + b"[]]}]}"

    async with busy(tmp_path, Intake(max_bytes=50 * KIB)) as server:
        server.store.may_write.clear()
        waiting = await server.posting(event())

        refused = await server.post(crowd, **JSON)
        server.store.may_write.set()
        answers = await asyncio.gather(*waiting)
        later = await server.post(crowd, **JSON)

    assert is_refused(refused)
    assert not any(map(is_refused, [*answers, later]))


async def test_single_request_above_the_memory_limit_is_accepted(tmp_path: Path) -> None:
    async with busy(tmp_path, Intake(max_bytes=1, max_requests=1)) as server:
        first = await server.post(event(60 * KIB))
        second = await server.post(event(60 * KIB))

    assert not any(map(is_refused, [first, second]))


async def test_failed_request_frees_its_memory_and_slot(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield event(60 * KIB)
        raise OSError("the client is gone")

    async with busy(tmp_path, Intake(max_bytes=100 * KIB, max_requests=1)) as server:
        with pytest.raises(OSError, match="gone"):
            await server.post(broken(), **NDJSON)
        refused = await server.post(b"\xff", "/v1/traces", **PROTOBUF)
        answer = await server.post(event(60 * KIB))

    assert refused.status_code == 400
    assert not is_refused(answer)


@pytest.mark.parametrize("path", ["/api/events", "/v1/traces"])
async def test_stalled_upload_is_rejected_and_frees_its_slot(tmp_path: Path, path: str) -> None:
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


def caller(project_id: int) -> Caller:
    """Return a caller with a key of its own."""
    return Caller(project_id, f"project {project_id}", frozenset({Scope.RECORD}), new_id())


def test_oldest_request_may_exceed_the_memory_limit() -> None:
    intake = Intake(max_bytes=10, max_requests=3)

    with intake.share(EVERYBODY, 4) as oldest, intake.share(EVERYBODY, 0) as other:
        oldest.hold(8)
        other.hold(2)
        with pytest.raises(TooBusy):
            other.hold(3)
        oldest.hold(20)
        with pytest.raises(TooBusy), intake.share(EVERYBODY, 1):
            pass
    with intake.share(EVERYBODY, 0) as alone:
        alone.hold(100)


def test_content_length_reserves_no_memory() -> None:
    intake = Intake(max_bytes=10)

    with intake.share(EVERYBODY, 100), intake.share(EVERYBODY, 10) as other:
        other.hold(10)


def test_key_or_project_at_its_limit_does_not_block_others() -> None:
    intake = Intake(max_bytes=1_600, max_requests=16)
    one, other = caller(1), caller(1)
    others = Caller(1, other.project, other.scopes, new_id())

    with intake.share(one, 0) as first, intake.share(one, 0) as second, intake.share(one, 0):
        first.hold(200)
        second.hold(100)
        with pytest.raises(TooBusy, match="The key"):
            second.hold(101)
        with pytest.raises(TooBusy, match="The key"), intake.share(one, 0):
            pass
        with intake.share(other, 100) as third:
            third.hold(100)
            with pytest.raises(TooBusy, match="The project"):
                third.hold(101)
            with pytest.raises(TooBusy, match="The project"), intake.share(others, 0):
                pass
            with intake.share(caller(2), 400) as elsewhere:
                elsewhere.hold(400)
    with intake.share(others, 400) as later:
        later.hold(400)


def test_oldest_request_of_a_key_leaves_memory_for_other_keys() -> None:
    intake = Intake(max_bytes=1_600, max_requests=160)
    one, other = caller(1), caller(2)

    with intake.share(one, 0) as large, intake.share(other, 0) as small:
        large.hold(5_000)
        small.hold(400)
        with pytest.raises(TooBusy, match="The server"):
            small.hold(5_000)
        for project_id in (3, 4):
            with intake.share(caller(project_id), 400) as elsewhere:
                elsewhere.hold(400)
    with intake.share(other, 0) as alone:
        alone.hold(5_000)


def test_requests_that_end_or_fail_release_their_memory() -> None:
    intake = Intake(max_bytes=1_600, max_requests=16)
    one, other = caller(1), caller(2)
    for _ in range(3):
        with suppress(RuntimeError), intake.share(one, 0) as large:
            large.hold(5_000)
            raise RuntimeError
        with pytest.raises(TooBusy), intake.share(one, 0), intake.share(one, 0) as second:
            second.hold(301)

    with intake.share(EVERYBODY, 0) as first, intake.share(EVERYBODY, 1_600) as second:
        second.hold(1_600)
        assert first.size == 0
    with intake.share(other, 0) as alone:
        alone.hold(5_000)


@pytest.mark.parametrize(
    ("received", "waited", "seconds"),
    [(0, 0.0, 5.0), (1, 4.0, 1.0), (16 * KIB, 1.0, 5.0), (16 * KIB, 4.0, 2.0), (2**20, 1.0, 5.0)],
)
def test_patience_with_a_slow_body_grows_with_received_bytes(
    received: int, waited: float, seconds: float
) -> None:
    assert Intake().patience(received, waited) == pytest.approx(seconds, abs=0.01)
