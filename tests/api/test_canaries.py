"""Secrets sent by every way in, in every field, are found nowhere: kept, said or exported."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from uuid import UUID

import pytest

from tests.api.conftest import Api, client_of, serving_parts
from tests.api.test_running import ended
from tests.api.ways_out import files_in, kept_in, said_of, streamed_of
from tests.canary_events import EVERYTHING, HIDDEN, VALUES, canary_events, found_in, run_of
from tests.otel.canary_spans import places, request_with
from tests.recorder.stores import CommandedStore
from tests.store_contract.transfers import export_of, import_into
from tracer.errors import ToolError
from tracer.events import Event, event_json
from tracer.ids import new_id
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

MOST = len(HIDDEN) + 1
"""How many canaries there are, the code included."""


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


async def left_of(api: Api, database_url: str, run: UUID) -> list[str]:
    """Return the canaries that are kept of a run, or said of it in any way."""
    ways = {
        "kept": await kept_in(database_url),
        "said": await said_of(api.client, run),
        "streamed": await streamed_of(database_url, run),
    }
    assert b"[masked: " in ways["said"]
    assert str(run).encode() in ways["kept"]
    assert b"toolCallId" in ways["streamed"]
    return [f"{way}: {each}" for way, data in ways.items() for each in found_in(data)]


async def test_none_of_the_events_of_a_client(
    api: Api, database_url: str, events: list[Event], log: io.StringIO
) -> None:
    body = b'{"events":[' + b",".join(map(event_json, events)) + b"]}"
    assert len(found_in(body)) == MOST  # they were sent
    answer = await api.client.post(
        "/api/events", content=body, headers={"Content-Type": "application/json"}
    )

    assert answer.json() == {"stored": len(events), "refused": []}
    assert await left_of(api, database_url, run_of(events)) == []
    assert found_in(log.getvalue().encode()) == []


async def _send_spans(api: Api, body: bytes, kind: str, packing: str) -> None:
    if kind == "json":
        body = encode_json(decode_protobuf(body).spans)
    assert len(found_in(body)) >= MOST - 1  # they were sent: all but the code
    kinds = {"protobuf": "application/x-protobuf", "json": "application/json"}
    headers = {"Content-Type": kinds[kind]}
    if packing:
        body, headers["Content-Encoding"] = gzip.compress(body), packing
    answer = await api.client.post("/v1/traces", content=body, headers=headers)
    assert (answer.status_code, b"rejected" in answer.content) == (200, False)


@pytest.mark.parametrize(("kind", "packing"), [("protobuf", "gzip"), ("json", "")])
async def test_none_of_spans(
    api: Api,
    database_url: str,
    leaks: MemoryStore,
    events: list[Event],
    log: io.StringIO,
    kind: str,
    packing: str,
) -> None:
    body = await export_of(leaks, run_of(events), Format.OTLP)
    await _send_spans(api, body, kind, packing)

    assert await left_of(api, database_url, run_of(events)) == []
    assert found_in(log.getvalue().encode()) == []


@pytest.mark.parametrize(("kind", "packing"), [("protobuf", ""), ("json", "gzip")])
async def test_none_at_any_place_of_spans(
    api: Api, database_url: str, log: io.StringIO, kind: str, packing: str
) -> None:
    trace_id = new_id()
    found = list(places())
    assert len(found) > 60
    body = request_with(trace_id.bytes, found).SerializeToString()
    await _send_spans(api, body, kind, packing)

    assert await left_of(api, database_url, trace_id) == []
    assert found_in(log.getvalue().encode()) == []


@pytest.mark.parametrize("form", Format)
async def test_none_of_what_is_imported(
    api: Api,
    database_url: str,
    leaks: MemoryStore,
    events: list[Event],
    log: io.StringIO,
    form: Format,
) -> None:
    exported = await export_of(leaks, run_of(events), form)
    assert len(found_in(exported)) >= MOST - 1  # they were sent
    assert isinstance(api.writer, PostgresWriter)
    await import_into(api.writer, exported)

    assert await left_of(api, database_url, run_of(events)) == []
    assert found_in(log.getvalue().encode()) == []


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
