"""Secrets that clients send through any input, in any field, are never stored or returned.

Each test sends canaries (known secrets) through one input and searches the database and the log.
Tests of client events and protobuf spans also search every output: the read operations of the API
and the stream of a run. For other inputs the database suffices: a read returns only stored data.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import re
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from tests.api.conftest import Api, client_of, serving_parts
from tests.api.test_running import ended
from tests.api.ways_out import files_in, kept_in, said_of, streamed_of
from tests.canary_events import EVERYTHING, HIDDEN, VALUES, canary_events, found_in, run_of
from tests.otel.canary_spans import field_paths, request_with
from tests.otel.decoded import spans_in
from tests.otel.sent import encode_json
from tests.projecting import roll_up
from tests.recorder.stores import CommandedStore
from tests.recordings import spans_of_events
from tests.searching import index_of, words_in
from tracer.errors import ToolError
from tracer.otel.otlp import decode_protobuf
from tracer.otel.otlp.blocks import block_key, pack_block
from tracer.otel.otlp.spans import encode_protobuf
from tracer.recorder import Recorder, Spool
from tracer.records import DEFAULT_PROJECT_ID, new_id
from tracer.records.events import Event, PlanStarted, event_json
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.tools import SessionState, tool

MOST = len(HIDDEN) + 1
"""The number of canaries, including the code."""


@pytest.fixture
def events() -> list[Event]:
    return canary_events()


async def test_database_search_finds_an_unmasked_secret_in_a_span_block(
    database_url: str, events: list[Event]
) -> None:
    plan = next(each for each in events if isinstance(each, PlanStarted))
    run_id = new_id()
    async with open_pool(database_url) as pool:
        start = plan.model_copy(update={"root_plan_id": run_id, "plan_id": run_id})
        await postgres_writer(ProjectPool(pool)).write([start])
    message = request_with(run_id.bytes, list(field_paths())).SerializeToString()
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await connection.execute(
            "INSERT INTO otel_block (project_id, root_plan_id, key, spans, size, recorded_at, body)"
            " VALUES (%s, %s, %s, 1, %s, now(), %s)",
            [DEFAULT_PROJECT_ID, run_id, block_key(message), len(message), pack_block(message)],
        )

    assert found_in(message) != []
    assert found_in(await kept_in(database_url)) == found_in(message)


async def test_search_of_all_outputs_finds_unmasked_secrets(
    api: Api, database_url: str, events: list[Event]
) -> None:
    async with open_pool(database_url) as pool:
        unmasked = postgres_writer(ProjectPool(pool)).for_recorder()
        assert (await unmasked.write(events)).refused == []
    run = run_of(events)

    found = await shown_canaries(api, database_url, run)

    assert {"index", "reads", "stream"} <= {line.partition(":")[0] for line in found}
    for path in ("overview", "spend?by=agent", "runs/facets", f"find?id={run}"):
        answer = await api.client.get(f"/api/{path}")
        assert found_in(answer.content) != [], (path, answer.text)


async def stored_canaries(database_url: str, run: UUID, log: io.StringIO) -> list[str]:
    """Return the canaries in the database and in the log, after a run was received."""
    stored = await kept_in(database_url)
    expected = ("[masked: ", str(run))
    return [
        *canaries_in(database=stored, log=log.getvalue().encode()),
        *(f"database: no {text}" for text in expected if text.encode() not in stored),
    ]


async def shown_canaries(
    api: Api, database_url: str, run: UUID, *, has_texts: bool = True
) -> list[str]:
    """Return the canaries that leave by any way out, after a run was received.

    Args:
        api: The server.
        database_url: Its database.
        run: The run.
        has_texts: Whether texts and the agent's name contain masks, so that searches find them.
    """
    async with open_pool(database_url) as pool:  # the overview, spend and facets read the sums
        await roll_up(pool)
    read = await said_of(api.client, run)
    streamed = await streamed_of(database_url, run)
    index = index_of(database_url)
    await asyncio.to_thread(index.follow)
    assert index.directory is not None
    indexed = {*words_in(index.directory)}
    secret = {word for each in HIDDEN for word in re.findall("[a-z0-9]{8,60}", each.lower())}
    secret -= {"password"}
    return [
        *(f"index: {word}" for word in indexed & secret),
        *(["index: no words"] if has_texts and "host" not in indexed else []),
        *(["reads: no snippet"] if has_texts and b'"isMatch":true' not in read else []),
        *(["facets: no agent"] if has_texts and b'"agent":[{"value":"[' not in read else []),
        *canaries_in(reads=read, stream=streamed),
        *(["reads: no mask"] if b"[masked: " not in read else []),
        *(["stream: no tool call"] if b"toolCallId" not in streamed else []),
    ]


def canaries_in(**found: bytes) -> list[str]:
    """Return a line for each canary in the named data."""
    return [f"{path}: {canary}" for path, data in found.items() for canary in found_in(data)]


async def test_secrets_in_client_events_are_not_stored_or_logged(
    api: Api, database_url: str, events: list[Event], log: io.StringIO
) -> None:
    body = b'{"events":[' + b",".join(map(event_json, events)) + b"]}"
    assert len(found_in(body)) == MOST - 1  # they were sent: all but the number
    answer = await api.client.post(
        "/api/events", content=body, headers={"Content-Type": "application/json"}
    )

    assert answer.json() == {"stored": len(events), "refused": []}
    assert await stored_canaries(database_url, run_of(events), log) == []
    assert await shown_canaries(api, database_url, run_of(events)) == []


async def _send_spans(api: Api, body: bytes, kind: str, packing: str) -> None:
    if kind == "json":
        body = encode_json(spans_in(decode_protobuf(body)))
    assert len(found_in(body)) >= MOST - 1  # they were sent: all but the code
    kinds = {"protobuf": "application/x-protobuf", "json": "application/json"}
    headers = {"Content-Type": kinds[kind]}
    if packing:
        body, headers["Content-Encoding"] = gzip.compress(body), packing
    answer = await api.client.post("/v1/traces", content=body, headers=headers)
    assert (answer.status_code, b"rejected" in answer.content) == (200, False)
    await api.project()


async def test_secrets_in_protobuf_spans_are_not_stored_or_logged(
    api: Api, database_url: str, events: list[Event], log: io.StringIO
) -> None:
    body = encode_protobuf(spans_of_events(events))
    await _send_spans(api, body, "protobuf", "gzip")

    assert await stored_canaries(database_url, run_of(events), log) == []
    assert await shown_canaries(api, database_url, run_of(events)) == []


async def test_secrets_in_json_spans_are_not_stored_or_logged(
    api: Api, database_url: str, events: list[Event], log: io.StringIO
) -> None:
    body = encode_protobuf(spans_of_events(events))
    await _send_spans(api, body, "json", "")

    assert await stored_canaries(database_url, run_of(events), log) == []


# `tests/otel/test_canary_spans.py` proves the same of each place without a server.
@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "packing"), [("protobuf", ""), ("json", "gzip")])
async def test_secrets_in_any_field_of_a_span_are_not_stored_or_logged(
    api: Api, database_url: str, log: io.StringIO, kind: str, packing: str
) -> None:
    trace_id = new_id()
    found = list(field_paths())
    assert len(found) > 60
    body = request_with(trace_id.bytes, found).SerializeToString()
    await _send_spans(api, body, kind, packing)

    assert await stored_canaries(database_url, trace_id, log) == []
    assert await shown_canaries(api, database_url, trace_id, has_texts=False) == []


async def test_spool_contains_no_secret(tmp_path: Path, events: list[Event]) -> None:
    store = CommandedStore()
    store.down = True
    async with Recorder(store, Spool(tmp_path / "spool")) as recorder:
        await recorder.record(*events)
        spooled = files_in(tmp_path)

    assert b"[masked: " in spooled
    assert found_in(spooled) == []


@tool
async def hand_over(state: SessionState, key: str) -> str:
    """Return a key and put it into the state of the session."""
    state.set("kept", {"api_key": key, "all": VALUES})
    return EVERYTHING


@tool
async def break_down() -> str:
    """Break."""
    raise ToolError(EVERYTHING)


@pytest.mark.parametrize("is_chat", [False, True])
async def test_secrets_in_runs_started_by_the_server_are_not_stored_or_logged(
    database_url: str, tmp_path: Path, log: io.StringIO, is_chat: bool
) -> None:
    chosen = [call("hand_over", {"key": EVERYTHING}), call("break_down")]
    model = ScriptedModel([Script([Turn(EVERYTHING, chosen), Turn(EVERYTHING)])])
    async with (
        serving_parts(database_url, tmp_path, model, [hand_over, break_down]) as parts,
        client_of(parts) as client,
    ):
        if is_chat:
            body = {"message": EVERYTHING, "agent": "nurse", "sessionId": VALUES, "userId": "u"}
            await client.post("/api/v1/chat", json=body)
        else:
            body = {"request": EVERYTHING, "agent": "nurse", "sessionId": VALUES}
            await client.post("/api/runs", json=body)
        [started] = (await client.get("/api/runs")).json()["items"]
        run = await ended(client, started["rootPlanId"])
        tree = await client.get(f"/api/plans/{run['rootPlanId']}/tree?payloads=full")

    assert (run["status"], run["toolCalls"]) == ("succeeded", 2)
    assert await stored_canaries(database_url, run["rootPlanId"], log) == []
    assert canaries_in(tree=tree.content, spool=files_in(tmp_path)) == []
