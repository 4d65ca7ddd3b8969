"""An exported run is restored unchanged by every store that can import."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.generated_runs import Batches, forests, retold_forests
from tests.contract.moments import START, Moments
from tests.contract.stores import RECORDED, all_records
from tests.contract.transfers import (
    NewRestorable,
    Restorable,
    export_of,
    exports_of,
    import_into,
    memory_restorables,
    postgres_restorables,
)
from tests.otel.captured import NAMES, spans_of
from tests.otel.made_logs import logs_as_traces, made_log
from tests.otel.made_traces import agent, made, spans_from
from tests.profiles import scaled
from tests.sample_runs import sample_run
from tracer.errors import RecordNotFound
from tracer.otel.otlp.blocks import TraceSpans
from tracer.otel.otlp.encode import encode_protobuf
from tracer.otel.otlp.spans import Span
from tracer.otel.projection.project import place_spans
from tracer.records.events import ChosenToolCall, Event, ThoughtRecorded
from tracer.records.ids import new_id, sequential_ids, span_id
from tracer.records.record_classes import Kind
from tracer.records.record_json import read_record
from tracer.records.status import Status
from tracer.storage.memory.store import MemoryStore
from tracer.storage.postgres.connection.pool import open_pool
from tracer.store import WriteAnswer
from tracer.transfer.exporting import Format


@pytest.fixture(params=["memory", "postgres"])
async def new_store(request: pytest.FixtureRequest) -> AsyncIterator[NewRestorable]:
    if request.param == "memory":
        yield memory_restorables()
    else:
        async with open_pool(request.getfixturevalue("database_url")) as pool:
            yield postgres_restorables(pool)


@pytest.fixture
def store(new_store: NewRestorable) -> Restorable:
    return new_store()


def _span_of(run_id: UUID, **fields: Any) -> Span:
    [span] = spans_from({**made(1, "SELECT"), "traceId": run_id.hex, **fields})
    return span


@settings(max_examples=scaled(100))
@given(forest=retold_forests())
async def test_importing_an_export_restores_the_run_byte_for_byte(
    new_store: NewRestorable, forest: tuple[list[Event], Batches]
) -> None:
    here, there = new_store(), new_store()
    for batch in forest[1]:
        await here.record(*batch)
    files = await exports_of(here)

    imported = await import_into(there.writer, *files.values())

    assert imported.reasons == []
    assert await exports_of(there) == files
    assert await all_records(there) == await all_records(here)


@settings(max_examples=scaled(60))
@given(events=forests(), seed=st.integers(0, 1000))
async def test_import_of_shuffled_and_repeated_lines_gives_the_same_records(
    new_store: NewRestorable, events: list[Event], seed: int
) -> None:
    here, there = new_store(), new_store()
    chance = random.Random(seed)
    await here.record(*events)
    files = await exports_of(here)
    await there.record(*chance.sample(events, len(events) // 2))
    for file in files.values():
        first, *rest = file.splitlines(keepends=True)
        chance.shuffle(rest)
        await import_into(there.writer, b"".join([first, *rest, *rest[:3]]), batch_bytes=500)

    assert await all_records(there) == await all_records(here)


FEW = ["logfire-pending-single", "pydantic-ai-default-single"]


# A format is written and read by pure functions, and a store restores all captures alike. So the
# quick profile restores every capture once, and a few with the other format and the other store.
@pytest.mark.parametrize(
    ("new_store", "wanted", "names"),
    [
        pytest.param("memory", Format.OTLP, NAMES, id="memory-otlp"),
        pytest.param("memory", Format.OTLP_JSON, FEW, id="memory-otlp-json-few"),
        pytest.param("postgres", Format.JSONL, FEW, id="postgres-jsonl-few"),
        *(
            pytest.param(store, wanted, NAMES, id=f"{store}-{wanted}", marks=pytest.mark.thorough)
            for store in ("memory", "postgres")
            for wanted in Format
            if (store, wanted) != ("memory", Format.OTLP)
        ),
    ],
    indirect=["new_store"],
)
async def test_importing_an_export_of_captured_spans_restores_it_byte_for_byte(
    new_store: NewRestorable, wanted: Format, names: list[str]
) -> None:
    for name in names:
        here, there = new_store(), new_store()
        await here.record_spans(spans_of(name))
        files = await exports_of(here, wanted)

        imported = await import_into(there.writer, *files.values())

        assert imported.reasons == [], name
        assert await exports_of(there, wanted) == files, name
        assert await all_records(there) == await all_records(here), name


@pytest.mark.parametrize("wanted", Format)
async def test_importing_an_export_restores_log_records(
    new_store: NewRestorable, wanted: Format
) -> None:
    here, there = new_store(), new_store()
    await here.record_spans(spans_from(agent(1, "planner")))
    await here.writer.write_spans(logs_as_traces(made_log("a", 2, span_id=1), made_log("b\0", 1)))
    files = await exports_of(here, wanted)

    imported = await import_into(there.writer, *files.values())

    assert (imported.reasons, imported.spans) == ([], 3)
    assert await exports_of(there, wanted) == files
    [run] = files
    assert [each.name for each in await there.reader.read_logs(run)] == ["b\0", "a"]


@settings(max_examples=scaled(40))
@given(events=forests())
async def test_run_exported_as_otlp_has_the_same_records_after_import(
    new_store: NewRestorable, events: list[Event]
) -> None:
    here, there = new_store(), new_store()
    await here.record(*events)
    for wanted in (Format.OTLP, Format.OTLP_JSON):
        files = await exports_of(here, wanted)

        await import_into(there.writer, *files.values())

        assert await exports_of(there, wanted) == files
        assert await all_records(there) == await all_records(here)


async def test_every_store_exports_the_same_file(database_url: str) -> None:
    run = sample_run(ids=sequential_ids())
    async with open_pool(database_url) as pool:
        stores = [memory_restorables()(), postgres_restorables(pool)()]
        for store in stores:
            await store.record(*run.events)
        for wanted in Format:
            first, second = [await export_of(each.reader, run.root, wanted) for each in stores]
            assert first == second


async def test_export_and_import_keep_hostile_text_numbers_and_cancel_requests(
    new_store: NewRestorable,
) -> None:
    here, there = new_store(), new_store()
    run = Moments()
    hostile = "\0 \ud800 \u241b0000 \u2028 \r\n \x1f 字 🧪 " + "ä" * 200_000
    await here.record(
        run.plan_started(title=hostile, session_id=hostile, tags=("字", "a", "\0")),
        run.thought_started(messages=json.dumps([hostile])),
        ThoughtRecorded(
            at=START,
            root_plan_id=run.root,
            plan_id=run.root,
            step_id=run.step,
            think_act_id=run.think_act,
            status=Status.SUCCEEDED,
            cost_usd=Decimal("123456789.123456789012"),
            input_tokens=2**40 - 1,
            tool_calls=tuple(
                ChosenToolCall(tool_call_id=new_id(), name=hostile, provider_call_id="call_0")
                for _ in range(3)
            ),
        ),
        run.call_finished(forged_arguments=("token", hostile), result=hostile, still_running=True),
    )
    await here.writer.request_cancel(run.root)
    file = await export_of(here.reader, run.root)

    imported = await import_into(there.writer, file)

    assert imported.reasons == []
    assert await export_of(there.reader, run.root) == file
    assert (await there.reader.read_run(run.root)).cancel_requested_at is not None


async def test_export_contains_the_spans_of_a_tool_server(new_store: NewRestorable) -> None:
    here, there, of_spans = new_store(), new_store(), new_store()
    run = sample_run()
    await here.record(*run.events)
    told = _span_of(run.root, parentSpanId=span_id(run.failed_call))
    await here.record_spans([told])
    file = await export_of(here.reader, run.root)
    as_spans = await export_of(here.reader, run.root, Format.OTLP)

    await import_into(there.writer, file)
    await import_into(of_spans.writer, as_spans)

    assert await export_of(there.reader, run.root) == file
    assert await export_of(there.reader, run.root, Format.OTLP) == as_spans
    assert await all_records(of_spans) == await all_records(here)
    spans = await of_spans.reader.read_spans(run.root)
    places = place_spans([encode_protobuf(spans)])
    assert places[told.span_id] == (Kind.TOOL_CALL, run.failed_call.bytes)


async def test_restoring_records_of_a_deleted_run_or_a_run_of_spans_is_rejected(
    new_store: NewRestorable,
) -> None:
    here, deleted, of_spans = new_store(), new_store(), new_store()
    run = sample_run()
    await here.record(*run.events)
    file = await export_of(here.reader, run.root)
    await deleted.record(*run.events)
    await deleted.writer.delete_run(run.root)
    await of_spans.record_spans([_span_of(run.root)])
    records = [read_record(json.loads(line)) for line in file.splitlines()]

    for store, code in ((deleted, "run_deleted"), (of_spans, "run_of_spans")):
        answer = await store.writer.restore(records)
        assert answer.stored == 0
        assert {refusal.code for refusal in answer.refused} == {code}
        assert [refusal.index for refusal in answer.refused] == list(range(len(records)))


async def test_restored_records_without_parents_get_placeholders(
    store: Restorable,
) -> None:
    run = Moments()
    line = {
        "kind": "toolCall",
        "rootPlanId": str(run.root),
        "toolCallId": str(run.call),
        "stepId": str(run.step),
        "thinkActId": str(run.think_act),
        "status": "running",
        "name": "measure",
    }

    answer = await store.writer.restore([read_record(line)])

    assert (answer.stored, answer.refused) == (1, [])
    found = await store.reader.read_tool_call(run.call)
    assert [type(each).__name__ for each in found.lineage] == ["ThinkActRecord", "ActToolInfo"]
    whole = await store.reader.read_whole_run(run.root)
    assert [len(part) for part in whole.records.values()] == [1, 1, 1, 1]
    assert whole.run.status is Status.UNKNOWN


async def test_restore_keeps_the_earliest_recorded_at_and_an_end_clears_abandoned_at(
    store: Restorable,
) -> None:
    run = Moments()
    line = {
        "kind": "plan",
        "rootPlanId": str(run.root),
        "planId": str(run.root),
        "status": "running",
    }
    times = [RECORDED - timedelta(days=days) for days in (1, 3, 2)]
    for time in times:
        dated = line | {"recordedAt": time.isoformat(), "abandonedAt": time.isoformat()}
        await store.writer.restore([read_record(dated)])

    shown = await store.reader.read_run(run.root)
    assert (shown.recorded_at, shown.abandoned_at) == (times[1], times[1])
    assert shown.shown_status == "abandoned"
    await store.record(run.plan_finished())
    await store.writer.restore([read_record(line | {"abandonedAt": RECORDED.isoformat()})])

    shown = await store.reader.read_run(run.root)
    assert (shown.recorded_at, shown.abandoned_at, shown.status) == (times[1], None, "succeeded")


async def test_restoring_the_same_records_twice_changes_nothing(store: Restorable) -> None:
    run = sample_run()
    await store.record(*run.events)
    before = await store.reader.read_whole_run(run.root)
    file = await export_of(store.reader, run.root)

    await import_into(store.writer, file)
    await import_into(store.writer, file, batch_bytes=1)

    assert await export_of(store.reader, run.root) == file
    after = await store.reader.read_whole_run(run.root)
    assert after.run.revision > before.run.revision


async def test_import_doubles_the_batch_size_of_a_large_run_of_spans() -> None:
    batches: list[int] = []

    class Counting(MemoryStore):
        async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
            batches.append(sum(trace.count for trace in traces))
            return await super().write_spans(traces)

    spans = spans_from(*(made(number, "x") for number in range(1, 65)))
    of_another_run = replace(spans[0], trace_id=b"another trace 16")
    file = encode_protobuf([*spans[:40], of_another_run, *spans[40:]])

    imported = await import_into(Counting(), file, batch_bytes=1)

    assert imported.spans == 65
    assert batches[:6] == [1, 1, 2, 4, 8, 16]
    assert len(batches) == 8


async def test_reading_all_records_of_a_missing_run_raises_not_found(store: Restorable) -> None:
    run = sample_run()
    await store.record(*run.events)
    await store.writer.delete_run(run.root)
    for run_id in (run.root, new_id()):
        for read in (store.reader.read_whole_run, store.reader.read_spans):
            with pytest.raises(RecordNotFound):
                await read(run_id)
