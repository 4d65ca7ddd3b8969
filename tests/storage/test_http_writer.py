"""Writing over HTTP: the requests, and the writer's handling of each response."""

from __future__ import annotations

import base64
import os
import socket
import traceback
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.sample_runs import sample_run
from tests.servers import tracer_server
from tests.tools.http_servers import Received, http_server, reply
from tracer.errors import SchemaOutOfDate, StoreUnavailable
from tracer.records import new_id
from tracer.records.events import Event, PlanStarted
from tracer.storage.http import PACKED_BYTES, HttpWriter
from tracer.store import Refusal, WriteAnswer

MEGABYTE = 2**20


def plan_started(title: str = "Weekly review") -> PlanStarted:
    root = new_id()
    return PlanStarted(at=sample_run().events[0].at, root_plan_id=root, plan_id=root, title=title)


def stored(request: Received) -> bytes:
    return reply(json={"stored": 1, "refused": []})


async def test_write_is_one_request_compressed_if_large() -> None:
    small, large = plan_started(), plan_started("x" * PACKED_BYTES)
    async with http_server(stored) as server, aclosing(HttpWriter(server.url, "k3y")) as writer:
        await writer.write([small])
        await writer.write([large, small])
        await writer.write([])

    first, second = server.received
    assert first.body.decode() == small.model_dump_json(by_alias=True, exclude_none=True)
    assert "content-encoding" not in first.headers
    assert second.headers["content-encoding"] == "gzip"
    assert len(second.body) < PACKED_BYTES / 10
    for request in server.received:
        assert (request.method, request.path) == ("POST", "/api/events")
        assert request.headers["content-type"] == "application/x-ndjson"
        assert request.headers["authorization"] == "Bearer k3y"


async def test_http_writer_works_with_a_url_path_and_without_a_key() -> None:
    async with http_server(stored) as server, aclosing(HttpWriter(f"{server.url}/t")) as writer:
        await writer.write([plan_started()])

    assert server.received[0].path == "/t/api/events"
    assert "authorization" not in server.received[0].headers


async def test_http_writer_ignores_proxy_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with http_server(stored) as server, aclosing(HttpWriter(server.url)) as writer:
        answer = await writer.write([plan_started()])

    assert answer == WriteAnswer(1)


def problem(status: int, code: str) -> bytes:
    return reply(
        status, json={"status": status, "code": code}, content_type="application/problem+json"
    )


@pytest.mark.parametrize(
    "answer",
    [
        problem(503, "store_unavailable"),
        problem(500, "internal_error"),
        problem(400, "bad_request"),
        problem(401, "unauthorized"),
        problem(422, "invalid_request"),
        reply(422, "<h1>Unprocessable</h1>"),
        reply(403, "<h1>No</h1>"),
        reply(404, "<h1>Nothing here</h1>"),
        reply(429, "Later", retry_after="7"),
        reply(302, location="http://127.0.0.1:1/"),
        reply(200, "<h1>Welcome</h1>"),
        reply(200, json={"stored": 1, "refused": [{"index": 9, "code": "c", "detail": "d"}]}),
        reply(200, json=["stored"]),
        b"nonsense\r\n\r\n",
        b"",
    ],
)
async def test_unexpected_response_is_an_error_and_events_are_kept(answer: bytes) -> None:
    async with (
        http_server(lambda request: answer) as server,
        aclosing(HttpWriter(server.url)) as writer,
    ):
        with pytest.raises(StoreUnavailable):
            await writer.write([plan_started()])
        with pytest.raises(StoreUnavailable):
            await writer.request_cancel(new_id())
        with pytest.raises(StoreUnavailable):
            await writer.find_cancel_requests([new_id()])
        with pytest.raises(StoreUnavailable):
            await writer.list_exchanges([new_id()])
        with pytest.raises(StoreUnavailable):
            await writer.delete_run(new_id())


async def test_server_without_migrations_raises_schema_out_of_date() -> None:
    async with (
        http_server(lambda request: problem(503, "schema_out_of_date")) as server,
        aclosing(HttpWriter(server.url)) as writer,
    ):
        with pytest.raises(SchemaOutOfDate):
            await writer.write([plan_started()])


async def test_error_for_an_unreachable_server_does_not_contain_the_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with aclosing(HttpWriter(f"http://127.0.0.1:{port}", "s3cret")) as writer:
        with pytest.raises(StoreUnavailable, match="TRACER_URL") as refusal:
            await writer.write([plan_started()])

    assert "s3cret" not in "".join(traceback.format_exception(refusal.value))
    assert "s3cret" not in repr(writer)


async def test_rejected_key_is_reported() -> None:
    async with (
        http_server(lambda request: problem(401, "unauthorized")) as server,
        aclosing(HttpWriter(server.url, "k3y")) as writer,
    ):
        with pytest.raises(StoreUnavailable, match="TRACER_API_KEY"):
            await writer.write([plan_started()])


async def test_request_rejected_as_too_large_is_split() -> None:
    def answer(request: Received) -> bytes:
        if request.body.count(b"\n") >= 2 or b"huge" in request.body:
            return reply(413, "<h1>Too large</h1>")
        return stored(request)

    events: list[Event] = [plan_started(title) for title in ("a", "b", "huge", "c", "d")]
    async with http_server(answer) as server, aclosing(HttpWriter(server.url)) as writer:
        written = await writer.write(events)

    assert written.stored == 4
    assert [(each.index, each.code) for each in written.refused] == [(2, "too_large")]


async def test_events_with_too_many_secrets_are_sent_in_parts() -> None:
    def answer(request: Received) -> bytes:
        if request.body.count(b"\n") >= 2 or b"secrets" in request.body:
            return problem(422, "too_many_secrets")
        return stored(request)

    events: list[Event] = [plan_started(title) for title in ("a", "b", "secrets", "c", "d")]
    async with http_server(answer) as server, aclosing(HttpWriter(server.url)) as writer:
        written = await writer.write(events)

    assert written.stored == 4
    assert [(each.index, each.code) for each in written.refused] == [(2, "too_many_secrets")]


async def test_only_the_event_that_is_not_json_is_rejected() -> None:
    broken = plan_started().model_copy(update={"title": object()})
    async with http_server(stored) as server, aclosing(HttpWriter(server.url)) as writer:
        written = await writer.write([broken, plan_started()])

    assert written.stored == 1
    assert [(each.index, each.code) for each in written.refused] == [(0, "not_storable")]


@pytest.mark.thorough
async def test_real_server_accepts_a_write_of_many_megabytes_in_parts(
    database_url: str, tmp_path: Path
) -> None:
    # Random, so that it is as large on its way as it is unpacked.
    noise = new_noise(33 * MEGABYTE)
    events: list[Event] = [
        *(plan_started(f"{number} {noise[: 11 * MEGABYTE]}") for number in range(3)),
        plan_started(noise),
    ]
    with tracer_server(database_url, tmp_path) as url:
        async with aclosing(HttpWriter(url)) as writer:
            written = await writer.write(events)

    assert written == WriteAnswer(3, [Refusal(3, "too_large", written.refused[0].detail)])
    with psycopg.connect(database_url) as connection:
        lengths: Any = connection.execute(
            "SELECT length(title) FROM plan_execution_record"
        ).fetchall()
    assert lengths == [(11 * MEGABYTE + 2,)] * 3


def new_noise(size: int) -> str:
    # Of letters and digits alone: what has no beginning in it can look like no secret.
    return base64.b64encode(os.urandom(size), altchars=b"ab").decode()[:size]
