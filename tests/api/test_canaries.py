"""Secrets sent by every way in, in every field, are found nowhere: kept, said or exported."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.api.conftest import Api, client_of, serving_parts
from tests.api.test_running import ended
from tests.canary_events import EVERYTHING, VALUES, canary_events, found_in, run_of
from tests.recorder.stores import CommandedStore
from tests.store_contract.transfers import export_of, import_into
from tracer.errors import ToolError
from tracer.events import Event, ToolCallStarted, event_json
from tracer.logs import configure_logs
from tracer.otel.decode import decode_protobuf
from tracer.otel.encode import encode_json
from tracer.recorder.recorder import Recorder
from tracer.recorder.spool import Spool
from tracer.redaction import Redaction
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.storage.admission import Admission
from tracer.storage.memory_store import MemoryStore
from tracer.storage.postgres_writer import PostgresWriter
from tracer.tools.definition import tool
from tracer.tools.session_state import SessionState
from tracer.transfer.exporting import Format


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure_logs("DEBUG", stream)
    try:
        yield stream
    finally:
        logging.getLogger().handlers.clear()


@pytest.fixture
async def leaks(events: list[Event]) -> MemoryStore:
    """A store that masks nothing: what is exported of it is full of secrets."""
    store = MemoryStore(admission=Admission(Redaction.off()))
    answer = await store.write(events)
    assert answer.refused == []
    return store


@pytest.fixture
def events() -> list[Event]:
    return canary_events()


def files_in(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


async def kept_in(database_url: str) -> bytes:
    """Return everything that the database holds, as text."""
    kept = []
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        cursor = await connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = 'public'"
        )
        for name in await cursor.fetchall():
            rows = sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier(*name))
            kept += [row for (row,) in await (await connection.execute(rows)).fetchall()]
    return "\n".join(kept).encode()


async def said_of(api: Api, events: list[Event]) -> bytes:
    """Return what the API says of the events' run, in every form."""
    run = run_of(events)
    call_id = next(each.tool_call_id for each in events if isinstance(each, ToolCallStarted))
    paths = [f"/api/runs/{run}/export?format={each}" for each in ("jsonl", "otlp")]
    paths += [f"/api/plans/{run}/tree?payloads={each}" for each in ("full", "preview")]
    paths += ["/api/runs", f"/api/tool-calls/{call_id}", f"/api/runs/{run}/spans"]
    said = []
    for path in paths:
        answer = await api.client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        said.append(answer.content)
    return b"\n".join(said)


async def test_none_of_the_events_of_a_client(
    api: Api, database_url: str, events: list[Event], log: io.StringIO
) -> None:
    body = b'{"events":[' + b",".join(map(event_json, events)) + b"]}"
    assert len(found_in(body.replace(b'\\"', b'"'))) > 15  # they were sent
    answer = await api.client.post(
        "/api/events", content=body, headers={"Content-Type": "application/json"}
    )
    said = await said_of(api, events)

    assert answer.json() == {"stored": len(events), "refused": []}
    assert found_in(await kept_in(database_url)) == []
    assert found_in(said + log.getvalue().encode()) == []


@pytest.mark.parametrize("as_json", [False, True])
async def test_none_of_spans(
    api: Api,
    database_url: str,
    leaks: MemoryStore,
    events: list[Event],
    log: io.StringIO,
    as_json: bool,
) -> None:
    body = await export_of(leaks, run_of(events), Format.OTLP)
    kind = "application/x-protobuf"
    if as_json:
        body, kind = encode_json(decode_protobuf(body).spans), "application/json"
    assert len(found_in(body)) > 10  # they were sent
    answer = await api.client.post("/v1/traces", content=body, headers={"Content-Type": kind})
    said = await said_of(api, events)

    assert answer.status_code == 200
    assert found_in(await kept_in(database_url)) == []
    assert found_in(said + log.getvalue().encode()) == []


async def test_none_of_what_is_imported(
    api: Api, database_url: str, leaks: MemoryStore, events: list[Event]
) -> None:
    exported = await export_of(leaks, run_of(events))
    assert len(found_in(exported)) > 10  # they were sent
    assert isinstance(api.writer, PostgresWriter)
    await import_into(api.writer, exported)

    assert found_in(await kept_in(database_url)) == []
    assert found_in(await said_of(api, events)) == []


async def test_none_in_the_spool_of_a_recorder(tmp_path: Path, events: list[Event]) -> None:
    store = CommandedStore()
    store.down = True
    async with Recorder(store, Spool(tmp_path / "spool")) as recorder:
        await recorder.record(*events)
        spooled = files_in(tmp_path)

    assert b"[masked: " in spooled
    assert found_in(spooled) == []


@tool
async def hand_over(state: SessionState, key: str) -> str:
    """Hand a key over, and keep it."""
    state.set("kept", {"api_key": key, "all": VALUES})
    return EVERYTHING


@tool
async def break_down() -> str:
    """Break."""
    raise ToolError(EVERYTHING)


@pytest.mark.parametrize("is_chat", [False, True])
async def test_none_of_what_the_server_runs_itself(
    database_url: str, tmp_path: Path, log: io.StringIO, is_chat: bool
) -> None:
    chosen = [call("hand_over", {"key": EVERYTHING}), call("break_down")]
    model = ScriptedModel([Script([Turn(EVERYTHING, chosen), Turn(EVERYTHING)])])
    async with (
        serving_parts(database_url, tmp_path, model, [hand_over, break_down]) as parts,
        client_of(parts) as client,
    ):
        if is_chat:
            asked = {"message": EVERYTHING, "agent": "nurse", "sessionId": VALUES, "userId": "u"}
            await client.post("/api/v1/chat", json=asked)
        else:
            asked = {"request": EVERYTHING, "agent": "nurse", "sessionId": VALUES}
            await client.post("/api/runs", json=asked)
        [started] = (await client.get("/api/runs")).json()["items"]
        run = await ended(client, started["rootPlanId"])
        said = await client.get(f"/api/plans/{run['rootPlanId']}/tree?payloads=full")

    assert (run["status"], run["toolCalls"]) == ("succeeded", 2)
    assert found_in(await kept_in(database_url)) == []
    assert found_in(said.content + log.getvalue().encode()) == []
    assert found_in(files_in(tmp_path)) == []
