"""Stores mask secrets, store their paths, and shorten payloads by the project's policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest

from tests.canary_events import EVERYTHING, canary_events, found_in, run_of
from tests.otel.decoded import redacted_spans
from tests.otel.made_traces import make_span, spans_from
from tests.otel.sent import traces_of
from tests.projecting import project_in
from tests.recordings import run_of as recorded_run
from tests.recordings import spans_of_events
from tests.trees import read_tree
from tracer.lineage import Payloads
from tracer.otel.otlp.spans import root_plan_id
from tracer.recorder import Recorder, Spool
from tracer.records import Kind
from tracer.records.events import Event, PlanStarted, ToolCallFinished, ToolCallStarted
from tracer.records.masks import PayloadPolicy, size_of, stored_payload
from tracer.records.record_classes import ActToolInfo
from tracer.redaction import Redaction
from tracer.storage.memory import recording_in_memory
from tracer.storage.postgres import ProjectPool, WriterOptions, open_pool, postgres_writer
from tracer.storage.postgres.projects import SettingsOfProject
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import TraceReader

LONG = json.dumps({"password": "hunter2", "text": "é" * 5000}, ensure_ascii=False)


def conflicting() -> list[Event]:
    """Return three starts of one call, each with a different secret in its arguments."""
    events = canary_events()
    started = next(each for each in events if isinstance(each, ToolCallStarted))
    versions = ('{"password": "hunter2"}', '{"a/b": {"api-key": "abc"}}', "token=abc")
    return [started.model_copy(update={"arguments": each}) for each in versions]


async def call_in(reader: TraceReader, events: Sequence[Event]) -> ActToolInfo:
    call_id = next(each.tool_call_id for each in events if isinstance(each, ToolCallStarted))
    return (await reader.read_tool_call(call_id)).call


async def test_paths_of_redacted_values_are_the_same_in_any_event_order() -> None:
    found = []
    for order in permutations(conflicting()):
        recording = recording_in_memory()
        for event in order:
            await recording.write([event])
        [call] = recording.records(Kind.TOOL_CALL, order[0].root_plan_id)
        found.append(call.masked)
    wanted = ["arguments", "arguments:/a~1b/api-key", "arguments:/password"]

    assert [[each for each in masked if each in wanted] for masked in found] == [wanted] * 6


async def test_postgres_stores_the_paths_of_redacted_values(database_url: str) -> None:
    events = canary_events()
    run_id = run_of(events)
    memory = recording_in_memory()
    await memory.write(events)
    async with open_pool(database_url) as pool:
        project = ProjectPool(pool)
        for event in events:
            await postgres_writer(project).write([event])
        reader = PostgresReader(project)
        trees = [await read_tree(each, run_id, Payloads.FULL) for each in (memory, reader)]
        run = await reader.read_run(run_id)

    for kept in ("plans", "steps", "think_acts", "tool_calls"):
        one, other = ([row["masked"] for row in getattr(tree, kept)] for tree in trees)
        assert one == other
        assert any(one)
    assert run.masked == recorded_run(memory, run_id).masked
    assert {"sessionId:/0", "subject:/0", "tags", "traceparent:/0"} <= set(run.masked)


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
async def test_payloads_are_stored_by_the_policy_of_the_project(
    database_url: str, policy: PayloadPolicy
) -> None:
    events = _long_call()
    size = len(Redaction().text(LONG).encode())
    async with open_pool(database_url) as pool:
        project = ProjectPool(pool)
        settings = SettingsOfProject(project)
        await settings.change(payloads=policy)
        writer, reader = (
            postgres_writer(project, WriterOptions(settings=settings)),
            PostgresReader(project),
        )
        for _ in range(2):  # the repetition changes nothing
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


def test_long_payload_with_a_forged_size_marker_is_truncated() -> None:
    long = f"{'x' * 5000}[masked: rest of 7 bytes]"
    cut = stored_payload(long, PayloadPolicy.PREVIEW)
    assert cut == f"{'x' * 2048}[masked: rest of {len(long)} bytes]"
    assert stored_payload(cut, PayloadPolicy.PREVIEW) == cut


def test_truncation_never_splits_a_redaction_marker() -> None:
    redaction = Redaction()
    start = '{"a": "'
    for before in range(2_000, 2_060):
        space = "x" * (before - len(start))
        masked = redaction.text(f'{start}{space}", "password": "hunter2", "b": "{"y" * 3000}"}}')

        kept = stored_payload(masked, PayloadPolicy.PREVIEW)
        again = stored_payload(redaction.text(kept), PayloadPolicy.PREVIEW)

        assert again == kept
        assert kept.count("[masked: ") == 1 + ("[masked: password]" in kept)
        assert size_of(kept) == len(masked.encode())


def test_spans_are_stored_by_the_policy_of_the_project() -> None:
    spans = spans_of_events(canary_events())
    redaction = Redaction()
    with_dropped_payloads, failures = [], []
    for policy in PayloadPolicy:
        stored = redacted_spans(redaction, spans, policy)
        body = b"".join(span.body for span in stored)
        if redacted_spans(redaction, stored, policy) != stored:
            failures.append(f"{policy}: admitting the admitted spans changes them")
        if [span.key for span in stored] != [span.key for span in spans]:
            failures.append(f"{policy}: the ids of the spans changed")
        if found := found_in(body):
            failures.append(f"{policy}: {found} is stored")
        if b"[masked: payload of " in body:
            with_dropped_payloads.append(policy)

    assert failures == []
    assert with_dropped_payloads == [PayloadPolicy.DROP]


async def test_events_of_a_recorder_in_the_same_process_are_redacted_once(
    database_url: str, tmp_path: Path
) -> None:
    """The store would mask what the recorder, whose redaction is off, left."""
    events = canary_events()
    async with open_pool(database_url) as pool:
        writer, reader = postgres_writer(ProjectPool(pool)), PostgresReader(ProjectPool(pool))
        spool = Spool(tmp_path / "spool")
        async with Recorder(writer.for_recorder(), spool, redaction=Redaction.off()) as recorder:
            await recorder.record(*events)
        assert (await call_in(reader, events)).arguments == EVERYTHING
        spans = spans_from(make_span(1, "execute_tool", {"gen_ai.tool.call.arguments": EVERYTHING}))
        await writer.for_recorder().write_spans(traces_of(spans))
        await project_in(pool)
        stored = await reader.read_tree(root_plan_id(spans[0].trace_id), Payloads.FULL)
    assert found_in(repr(stored).encode()) == []


async def test_redaction_can_be_turned_off(database_url: str) -> None:
    events = canary_events()
    assert EVERYTHING in [event.arguments for event in events if isinstance(event, ToolCallStarted)]
    async with open_pool(database_url) as pool:
        await postgres_writer(ProjectPool(pool), WriterOptions(redaction=Redaction.off())).write(
            events
        )
        call = await call_in(PostgresReader(ProjectPool(pool)), events)
    assert call.arguments == EVERYTHING
