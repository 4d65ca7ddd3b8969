"""What stores keep: secrets masked with their places, and payloads as the project wants them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations

import pytest

from tests.canary_events import EVERYTHING, canary_events, found_in, run_of
from tests.otel.made_traces import made, spans_from
from tests.store_contract.transfers import export_of
from tests.trees import read_tree
from tracer.events import Event, PlanStarted, ToolCallFinished, ToolCallStarted
from tracer.lineage import Payloads
from tracer.otel.decode import decode_protobuf
from tracer.otel.span_fields import root_plan_id
from tracer.payloads import kept_of, size_of
from tracer.project_settings import PayloadPolicy
from tracer.record_json import read_record, record_json
from tracer.records import ActToolInfo, Kind
from tracer.redaction import Redaction
from tracer.storage.admission import Admission
from tracer.storage.engine import open_pool
from tracer.storage.memory_store import MemoryStore
from tracer.storage.postgres_reader import PostgresReader
from tracer.storage.postgres_writer import PostgresWriter
from tracer.storage.project_pool import ProjectPool
from tracer.storage.projects import SettingsOfProject
from tracer.store import TraceReader
from tracer.transfer.exporting import Format

LONG = json.dumps({"password": "hunter2", "text": "é" * 5000}, ensure_ascii=False)


def conflicting() -> list[Event]:
    """Return a call that two recorders tell of, each with a secret of its own."""
    events = canary_events()
    started = next(each for each in events if isinstance(each, ToolCallStarted))
    given = ('{"password": "hunter2"}', '{"a/b": {"api-key": "abc"}}', "token=abc")
    return [started.model_copy(update={"arguments": each}) for each in given]


async def call_in(reader: TraceReader, events: Sequence[Event]) -> ActToolInfo:
    call_id = next(each.tool_call_id for each in events if isinstance(each, ToolCallStarted))
    return (await reader.read_tool_call(call_id)).call


async def test_the_places_of_all_versions_are_kept_in_whatever_order_they_come() -> None:
    found = []
    for order in permutations(conflicting()):
        store = MemoryStore()
        for event in order:
            await store.write([event])
        found.append((await call_in(store, order)).masked)
    wanted = ["arguments", "arguments:/a~1b/api-key", "arguments:/password"]

    assert [[each for each in masked if each in wanted] for masked in found] == [wanted] * 6


async def test_postgres_keeps_the_places_that_memory_keeps(database_url: str) -> None:
    events = canary_events()
    memory = MemoryStore()
    await memory.write(events)
    async with open_pool(database_url) as pool:
        project = ProjectPool(pool)
        for event in events:
            await PostgresWriter(project).write([event])
        reader = PostgresReader(project)
        run_id = run_of(events)
        trees = [await read_tree(each, run_id, Payloads.FULL) for each in (memory, reader)]
        runs = [await each.read_run(run_id) for each in (memory, reader)]

    for kept in ("plans", "steps", "think_acts", "tool_calls"):
        one, other = ([row["masked"] for row in getattr(tree, kept)] for tree in trees)
        assert one == other
        assert any(one)
    assert runs[0].masked == runs[1].masked
    assert {"sessionId:/0", "subject:/0", "tags", "traceparent:/0"} <= set(runs[1].masked)


def _long_call() -> list[Event]:
    events = canary_events()
    return [
        each.model_copy(update={"arguments": LONG, "effective_arguments": None})
        if isinstance(each, ToolCallStarted)
        else each
        for each in events
        if isinstance(each, (PlanStarted, ToolCallStarted, ToolCallFinished))
    ]


@pytest.mark.parametrize("policy", [PayloadPolicy.PREVIEW, PayloadPolicy.DROP])
async def test_a_project_keeps_of_payloads_what_it_wants(
    database_url: str, policy: PayloadPolicy
) -> None:
    events = _long_call()
    size = len(Redaction().text(LONG).encode())
    async with open_pool(database_url) as pool:
        project = ProjectPool(pool)
        settings = SettingsOfProject(project)
        await settings.change(payloads=policy)
        writer, reader = PostgresWriter(project, settings=settings), PostgresReader(project)
        for _ in range(2):  # again, which changes nothing
            await writer.write(events)
        call = await call_in(reader, events)
        tree = await read_tree(reader, run_of(events), Payloads.PREVIEW)

    assert call.arguments is not None
    if policy is PayloadPolicy.DROP:
        assert call.arguments == f"[masked: payload of {size} bytes]"
        assert str(call.result).startswith("[masked: payload of ")
    else:
        assert call.arguments.endswith(f"é[masked: rest of {size} bytes]")
        assert len(call.arguments.encode()) < 2200
    assert "arguments" in call.masked
    assert [row["argumentsBytes"] for row in tree.tool_calls] == [size]


def test_a_long_payload_that_only_ends_as_if_it_had_been_cut_is_cut() -> None:
    long = f"{'x' * 5000}[masked: rest of 7 bytes]"
    cut = kept_of(long, PayloadPolicy.PREVIEW)
    assert cut == f"{'x' * 2048}[masked: rest of {len(long)} bytes]"
    assert kept_of(cut, PayloadPolicy.PREVIEW) == cut


def test_a_beginning_that_is_kept_ends_before_a_mask_and_tells_the_size_for_ever() -> None:
    redaction = Redaction()
    start = '{"a": "'
    for before in range(2_000, 2_060):
        space = "x" * (before - len(start))
        masked = redaction.text(f'{start}{space}", "password": "hunter2", "b": "{"y" * 3000}"}}')

        kept = kept_of(masked, PayloadPolicy.PREVIEW)
        again = kept_of(redaction.text(kept), PayloadPolicy.PREVIEW)

        assert again == kept
        assert kept.count("[masked: ") == 1 + ("[masked: password]" in kept)
        assert size_of(kept) == len(masked.encode())


@pytest.mark.parametrize("policy", PayloadPolicy)
async def test_spans_are_kept_as_the_project_wants_them(policy: PayloadPolicy) -> None:
    open_store = MemoryStore(admission=Admission(Redaction.off()))
    events = canary_events()
    await open_store.write(events)
    spans = decode_protobuf(await export_of(open_store, run_of(events), Format.OTLP)).spans
    admission = Admission()
    kept = admission.spans(spans, policy)

    assert admission.spans(kept, policy) == kept
    assert [span.key for span in kept] == [span.key for span in spans]
    assert found_in(b"".join(span.body for span in kept)) == []
    is_dropped = [b"[masked: payload of " in span.body for span in kept]
    assert any(is_dropped) is (policy is PayloadPolicy.DROP)


async def test_what_an_export_says_of_the_records_of_spans_is_masked(database_url: str) -> None:
    spans = spans_from(made(1, "a tool"))
    async with open_pool(database_url) as pool:
        writer, reader = PostgresWriter(ProjectPool(pool)), PostgresReader(ProjectPool(pool))
        await writer.write_spans(spans)
        run_id = root_plan_id(spans[0].trace_id)
        plan = (await reader.read_plan(run_id)).plan
        line = {**json.loads(record_json(Kind.PLAN, plan)), "inferredFrom": f"ghp_{'a' * 30}"}
        await writer.restore_spans(spans, [read_record(line)])
        restored = (await reader.read_plan(run_id)).plan
        assert restored.inferred_from == "[masked: github_token]"


async def test_nothing_is_masked_where_that_is_off() -> None:
    store = MemoryStore(admission=Admission(Redaction.off()))
    events = canary_events()
    await store.write(events)
    assert EVERYTHING in [event.arguments for event in events if isinstance(event, ToolCallStarted)]
    assert (await call_in(store, events)).arguments == EVERYTHING
