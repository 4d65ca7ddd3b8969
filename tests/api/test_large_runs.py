"""Runs with many spans, and runs with damaged blocks: reads go through them block by block."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import orjson
import psycopg
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tests.api.conftest import Api, on_loopback, serving_parts
from tests.otel.made_traces import TRACE_ID, agent, make_span, spans_from, tool
from tests.otel.sent import traces_of
from tests.storage.postgres.lock_waits import PLENTY_SECONDS
from tracer.otel.otlp.spans import encode_protobuf
from tracer.records.spans import Contents
from tracer.runtime.scripted_model import ScriptedModel
from tracer.storage.postgres import ProjectPool, open_pool
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import MAX_RUN_SPANS, SpanPart

RUN = UUID(TRACE_ID)
PROTOBUF = {"Content-Type": "application/x-protobuf"}
START = 1_763_763_712 * 10**9
MANY = 9_000
"""How many tiny spans take three blocks."""


def tiny_spans(count: int, first: int = 1) -> bytes:
    """Return a request with the smallest spans of one trace, each of which starts later."""
    request = TracesData()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in range(first, first + count):
        spans.add(
            trace_id=RUN.bytes,
            span_id=number.to_bytes(8),
            start_time_unix_nano=START + number,
            end_time_unix_nano=START + number + 1,
        )
    return request.SerializeToString()


async def send(api: Api, body: bytes) -> httpx2.Response:
    answer = await api.client.post("/v1/traces", content=body, headers=PROTOBUF)
    assert answer.status_code == 200, answer.text
    return answer


async def pages(api: Api, **parameters: Any) -> list[Any]:
    """Return all pages of the spans of the run."""
    found: list[Any] = []
    cursor: dict[str, str] = {}
    while not found or found[-1]["nextCursor"] is not None:
        found.append(await api.read(f"/api/runs/{RUN}/spans", limit=500, **parameters, **cursor))
        cursor = {"cursor": found[-1]["nextCursor"]}
    return found


async def exported(api: Api) -> list[Any]:
    answer = await api.get(f"/api/runs/{RUN}/export")
    assert answer.status_code == 200, answer.text
    return [orjson.loads(line) for line in answer.content.splitlines()]


async def test_spans_of_many_blocks_are_listed_and_exported_once(api: Api) -> None:
    await send(api, tiny_spans(MANY))
    await api.project()

    listed = [int(each["spanId"], 16) for page in await pages(api) for each in page["items"]]
    of_plan = [each for page in await pages(api, recordId=str(RUN)) for each in page["items"]]
    lines = await exported(api)

    assert sorted(listed) == list(range(1, MANY + 1))
    assert [int(each["spanId"], 16) for each in of_plan] == sorted(listed)
    assert {each["record"]["id"] for each in of_plan} == {str(RUN)}
    assert len(lines) == MANY + 1
    assert lines[-1] == {"end": True, "unreadableBlocks": 0}


async def test_requests_with_many_spans_are_stored_in_several_blocks(
    api: Api, database_url: str
) -> None:
    await send(api, tiny_spans(MANY))
    await send(api, tiny_spans(MANY))  # a repetition

    with psycopg.connect(database_url) as connection:
        sizes = connection.execute("SELECT spans FROM otel_block ORDER BY spans DESC").fetchall()
    assert len(sizes) == 3
    assert sum(spans for (spans,) in sizes) == MANY


async def test_spans_of_a_record_in_several_blocks_are_sorted_by_start(api: Api) -> None:
    calls = [tool(number, "x", parent=1, at=(10 - number, 20)) for number in range(2, 6)]
    await api.record_spans(spans_from(agent(1, "a", at=(0, 30)), *calls))
    await send(api, tiny_spans(MANY, first=100))
    await api.project()
    [step] = [
        each["record"]["id"]
        for page in await pages(api)
        for each in page["items"]
        if each["name"] == "invoke_agent a"
    ]

    [page] = await pages(api, recordId=step)

    assert [each["name"] for each in page["items"]] == ["invoke_agent a"]


@pytest.mark.parametrize("of_record", [False, True])
async def test_page_of_large_spans_ends_at_eight_megabytes(api: Api, *, of_record: bool) -> None:
    """A page of 500 spans of 400 kB took 640 MB of memory."""
    texts = {"gen_ai.input.messages": "x" * 3 * 2**20}
    for number in range(1, 6):
        made = spans_from(make_span(number, "chat", texts, at=(number, number + 1)))
        await api.record_spans(made)

    found = await pages(api, **({"recordId": str(RUN)} if of_record else {}))

    assert [len(page["items"]) for page in found] == [3, 2]
    assert sorted(each["spanId"][-1] for page in found for each in page["items"]) == [*"12345"]


class CountingReader(PostgresReader):
    """Counts the parts of runs that it reads."""

    parts = 0

    async def read_span_part(
        self, part: SpanPart, span_ids: Collection[bytes] | None = None
    ) -> Contents | None:
        self.parts += 1
        return await super().read_span_part(part, span_ids)


async def test_export_ends_when_its_client_leaves(database_url: str, tmp_path: Path) -> None:
    texts = {"gen_ai.input.messages": "x" * 2**20}
    async with (
        asyncio.timeout(PLENTY_SECONDS),
        open_pool(database_url) as pool,
        serving_parts(database_url, tmp_path, ScriptedModel([])) as parts,
    ):
        reader = CountingReader(ProjectPool(pool))
        for number in range(1, 25):
            made = spans_from(make_span(number, "chat", texts))
            await parts.writer.write_spans(traces_of(made))
        every = len(await reader.list_span_parts(RUN))
        async with (
            on_loopback(replace(parts, reader=reader)) as address,
            httpx2.AsyncClient(base_url=address, timeout=PLENTY_SECONDS) as client,
            client.stream("GET", f"/api/runs/{RUN}/export") as answer,
        ):
            await anext(answer.aiter_bytes())
        # The server ended after its requests.

    assert 1 <= reader.parts < every


async def test_damaged_block_is_skipped_and_counted(api: Api, database_url: str) -> None:
    for number in (1, 2, 3):
        await send(api, encode_protobuf(spans_from(agent(number, f"agent {number}"))))
    await api.project()
    with psycopg.connect(database_url) as connection:
        for key, body in (("min", b"\0"), ("max", b"not zstd at all")):
            connection.execute(
                "UPDATE otel_block SET body = %s"
                f" WHERE key = (SELECT {key}(key::text)::bytea FROM otel_block)",
                [body],
            )

    [listed] = await pages(api)
    [of_record] = await pages(api, recordId=str(RUN))
    lines = await exported(api)
    as_json = await api.client.get(
        f"/api/runs/{RUN}/export", params={"format": "otlp"}, headers={"Accept": "application/json"}
    )

    assert (len(listed["items"]), listed["unreadableBlocks"]) == (1, 2)
    assert of_record["unreadableBlocks"] == 2
    assert lines[-1] == {"end": True, "unreadableBlocks": 2}
    assert len(lines) == 2
    assert as_json.json()["unreadableBlocks"] == 2


async def test_damaged_records_of_spans_get_a_problem_code(api: Api, database_url: str) -> None:
    await send(api, tiny_spans(1))
    await api.project()
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE run SET span_records = '\\x00'")

    answer = await api.get(f"/api/runs/{RUN}/spans")

    assert (answer.status_code, answer.json()["code"]) == (500, "unreadable_data")


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json"])
async def test_last_line_of_an_export_is_accepted_and_not_stored(api: Api, kind: str) -> None:
    end = b'{"end": true, "unreadableBlocks": 7}'
    body = b'{"events": [%b]}' % end if kind == "application/json" else end + b"\n"

    events = await api.client.post("/api/events", content=body, headers={"Content-Type": kind})
    otlp = [
        await api.client.post(
            f"/v1/{signal}", content=end, headers={"Content-Type": "application/json"}
        )
        for signal in ("traces", "logs")
    ]

    assert events.json() == {"stored": 0, "refused": []}
    assert [(each.status_code, each.json()) for each in otlp] == [(200, {}), (200, {})]


@pytest.mark.thorough
async def test_request_beyond_the_span_limit_is_accepted_in_part(api: Api) -> None:
    half = MAX_RUN_SPANS // 2
    await send(api, tiny_spans(half))
    answer = await send(api, tiny_spans(half + 2, first=half + 1))

    success = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert success.rejected_spans == 2
    assert success.error_message.startswith("run_too_large: A run receives at most 400,000 spans")
    run = await api.read(f"/api/runs/{RUN}")
    assert run["refusedSpans"] == 2
    await api.project()
    assert (await api.read(f"/api/runs/{RUN}"))["projectionError"] is None
