"""Exports of runs: their events give the same records in another store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from uuid import UUID

import httpx2
import orjson
import pytest

from tests.contract.moments import START, Moments
from tests.contract.stores import NewStore, Store, all_records, postgres_stores, serving
from tests.contract.transfers import export_of
from tests.otel.made_logs import logs_as_traces, made_log
from tests.otel.made_traces import agent, spans_from
from tests.sample_runs import sample_run
from tracer.records import Status, new_id
from tracer.records.events import ChosenToolCall, ThoughtRecorded
from tracer.storage.postgres import open_pool
from tracer.transfer import Format


@pytest.fixture
async def new_store(database_url: str) -> AsyncIterator[NewStore]:
    async with open_pool(database_url) as pool:
        yield postgres_stores(pool)


async def post_events(store: Store, file: bytes) -> None:
    """Send a file to the server of a store, which accepts every line."""
    async with httpx2.AsyncClient(transport=serving(store), base_url="http://tracer") as client:
        kind = {"Content-Type": "application/x-ndjson"}
        answer = await client.post("/api/events", content=file, headers=kind)
    assert answer.json() == {"stored": file.count(b"\n") - 1, "refused": []}
    assert orjson.loads(file.splitlines()[-1]) == {"end": True, "unreadableBlocks": 0}


async def test_export_keeps_calls_that_wait_hostile_text_and_exact_costs(
    new_store: NewStore,
) -> None:
    here, there = new_store(), new_store()
    run = Moments()
    hostile = "\0 \ud800 \u241b0000 \u2028 \r\n \x1f 字 🧪 " + "ä" * 200_000
    chosen = [
        ChosenToolCall(tool_call_id=new_id(), name=hostile, provider_call_id="call_0", status=each)
        for each in (Status.PENDING, Status.RUNNING, Status.PENDING)
    ]
    await here.record(
        run.plan_started(title=hostile, session_id=hostile, tags=("字", "a", "\0")),
        run.thought_started(),
        ThoughtRecorded(
            at=START,
            root_plan_id=run.root,
            plan_id=run.root,
            step_id=run.step,
            think_act_id=run.think_act,
            status=Status.SUCCEEDED,
            cost_usd=Decimal("123456789.123456789012"),
            tool_calls=tuple(chosen),
        ),
        run.call_finished(forged_arguments=("token", hostile), result=hostile, still_running=True),
    )

    await post_events(there, await export_of(here.reader, run.root))

    assert await all_records(there) == await all_records(here)


@pytest.mark.parametrize("finished", [True, False])
async def test_posting_an_exported_run_gives_the_same_records(
    new_store: NewStore, finished: bool
) -> None:
    here, there, run = new_store(), new_store(), sample_run(finished=finished)
    await here.record(*run.events)
    file = await export_of(here.reader, run.root)

    await post_events(there, file)

    assert await all_records(there) == await all_records(here)
    assert await export_of(there.reader, run.root) == file


@pytest.mark.parametrize("wanted", [Format.OTLP, Format.OTLP_JSON])
async def test_otlp_export_contains_spans_and_log_records(
    new_store: NewStore, wanted: Format
) -> None:
    store = new_store()
    spans = spans_from(agent(1, "planner"))
    await store.record_spans(spans)
    await store.writer.write_spans(logs_as_traces(made_log("asked", 2, span_id=1)))

    file = await export_of(store.reader, UUID(bytes=spans[0].trace_id), wanted)

    assert b"planner" in file
    assert b"asked" in file
