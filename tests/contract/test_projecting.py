"""Spans that a store has accepted and not yet projected."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import suppress
from copy import deepcopy
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.living import Living, postgres_living
from tests.contract.moments import Moments
from tests.contract.stores import (
    NewStore,
    Projecting,
    Store,
    all_records,
    postgres_stores,
)
from tests.contract.test_changes import Watched, read_rows
from tests.otel.captured import moved, spans_of
from tests.otel.made_traces import TRACE_ID, agent, chat, make_span, spans_from, tool
from tests.otel.sent import traces_of
from tests.profiles import scaled
from tests.projecting import project_in
from tests.stored import read_spans
from tracer.errors import RecordNotFound, RunNotActive
from tracer.records import Kind, Status, new_id
from tracer.records.spans import Span
from tracer.storage.postgres import ProjectPool, WriterOptions, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import RunFilter

RUN = UUID(TRACE_ID)
ONE_RUN = "pydantic-ai-default-single"


@pytest.fixture
async def new_store(database_url: str) -> AsyncIterator[NewStore]:
    async with open_pool(database_url) as pool:
        yield postgres_stores(pool, Projecting.ON_DEMAND)


async def revision_of(store: Store, run_id: UUID = RUN) -> int:
    return (await store.reader.read_revision(Kind.RUN, run_id)).number


async def listed(store: Store, *, other_traces: bool) -> list[UUID]:
    page = await store.reader.list_runs(RunFilter(other_traces=other_traces), 10, None)
    return [run.root_plan_id for run in page.items]


async def test_new_run_of_spans_is_listed_after_its_first_projection(store: Store) -> None:
    await store.record_spans(spans_from(agent(1, "planner")))

    run = await store.reader.read_run(RUN)
    assert (run.status, run.title, run.revision) == (Status.UNKNOWN, None, 1)
    assert await listed(store, other_traces=False) == []
    assert await listed(store, other_traces=True) == [RUN]

    assert await store.project() == 1
    run = await store.reader.read_run(RUN)
    assert (run.status, run.revision) == (Status.SUCCEEDED, 2)
    assert await listed(store, other_traces=False) == [RUN]


async def test_spans_can_be_read_before_their_projection(store: Store) -> None:
    spans = spans_from(agent(1, "planner"), tool(2, "measure", parent=1))
    await store.record_spans(spans[1:], spans[:1])

    assert {span.span_id for span in await read_spans(store.reader, RUN)} == {
        span.span_id for span in spans
    }


async def test_accepting_spans_changes_no_record_before_the_projection(store: Store) -> None:
    await store.record_spans(spans_from(agent(1, "planner")))
    await store.project()
    before, records = await revision_of(store), await all_records(store)

    await store.record_spans(spans_from(tool(2, "measure", parent=1)))

    assert await revision_of(store) == before
    assert await all_records(store) == records
    assert await store.project() == 1
    assert await revision_of(store) == before + 1
    assert await all_records(store) != records


async def test_projection_that_changes_no_record_keeps_the_revision(store: Store) -> None:
    await store.record_spans(spans_from(agent(1, "planner"), tool(2, "measure", parent=1)))
    await store.project()
    before = await revision_of(store)

    await store.record_spans(spans_from(make_span(3, "SELECT", parent=2, at=(1, 2))))

    assert await store.project() == 1
    assert await revision_of(store) == before
    assert len(await read_spans(store.reader, RUN)) == 3


async def test_repeated_spans_leave_no_run_pending(store: Store) -> None:
    spans = spans_of(ONE_RUN)
    run_id = UUID(bytes=spans[0].trace_id)
    await store.record_spans(spans)
    assert await store.project() == 1
    before = await revision_of(store, run_id)

    await store.record_spans(spans, spans)

    assert await store.project() == 0
    assert await revision_of(store, run_id) == before


@pytest.fixture
async def living(database_url: str) -> AsyncIterator[Living]:
    async with open_pool(database_url) as pool:
        yield await postgres_living(pool, when=Projecting.ON_DEMAND)


async def test_run_is_due_for_projection_100_ms_after_its_last_span(living: Living) -> None:
    for number in (1, 2):
        await living.record_spans(spans_from(agent(number, "planner")))
        living.clock.move(0.09)
    assert await living.projection.project_due(living.clock.now) == 0

    living.clock.move(0.01)

    assert await living.projection.project_due(living.clock.now) == 1


async def test_run_is_due_for_projection_once_a_span_has_waited_1_s(living: Living) -> None:
    for number in range(1, 12):
        assert await living.projection.project_due(living.clock.now) == 0
        await living.record_spans(spans_from(agent(number, "planner")))
        living.clock.move(0.09)

    living.clock.move(0.01)

    assert await living.projection.project_due(living.clock.now) == 1


@settings(max_examples=scaled(60))
@given(
    steps=st.lists(st.sampled_from(["accept", "project", "cancel", "look"]), max_size=40),
    seed=st.integers(0, 2**16),
)
async def test_changes_since_any_revision_applied_to_old_records_give_the_tree(
    new_store: NewStore, steps: list[str], seed: int
) -> None:
    store, chance, run_id = new_store(), random.Random(seed), new_id()
    spans = [moved(span, run_id.bytes) for span in spans_of("langgraph-openinference-single")]
    chance.shuffle(spans)
    watched, earlier = Watched(run_id), list[Watched]()
    await store.record_spans(_some_of(spans, chance))
    for step in steps:
        match step:
            case "accept" if spans:
                await store.record_spans(_some_of(spans, chance))
            case "project":
                await store.project()
            case "cancel":
                with suppress(RunNotActive):
                    await store.writer.request_cancel(run_id)
            case "look":
                await watched.catch_up(store)
                earlier.append(deepcopy(watched))
    await store.record_spans(spans)
    await store.project()

    expected = await read_rows(store, run_id)
    for each in (watched, *earlier, Watched(run_id)):
        await each.catch_up(store)
        assert each.rows == expected
        assert each.revision == await revision_of(store, run_id)


def _some_of(spans: list[Span], chance: random.Random) -> list[Span]:
    return [spans.pop() for _ in range(min(len(spans), chance.randint(1, 8)))]


async def test_recorded_at_is_the_time_of_the_first_request_with_the_record(
    new_store: NewStore,
) -> None:
    requests = [
        spans_from(agent(1, "planner", at=(0, None)), chat(2, parent=1, at=(1, 2))),
        spans_from(tool(3, "measure", parent=1, at=(3, None))),
        spans_from(agent(1, "planner", at=(0, 9)), tool(3, "measure", parent=1, at=(3, 4))),
    ]
    early, late = new_store(), new_store()
    for request in requests:
        for store in (early, late):
            await store.record_spans(request)
        await early.project()
    await late.project()

    for store in (early, late):
        times = await _recorded_at(store)
        assert times[Kind.PLAN] == times[Kind.STEP] == times[Kind.THINK_ACT] == times[Kind.RUN]
        assert times[Kind.TOOL_CALL] > times[Kind.PLAN]
    assert await _recorded_at(early) == await _recorded_at(late)


async def _recorded_at(store: Store) -> dict[Kind, Any]:
    """Return when a run with one record of each kind was recorded, and its records."""
    whole = await store.reader.read_whole_run(RUN)
    found = {kind: record.recorded_at for kind, [record] in whole.records.items()}
    return found | {Kind.RUN: whole.run.recorded_at}


async def test_projection_keeps_the_cancel_request_of_a_run(store: Store) -> None:
    await store.record_spans(spans_from(agent(1, "planner", at=(0, None))))
    requested = (await store.writer.request_cancel(RUN)).cancel_requested_at
    before = await revision_of(store)

    await store.project()

    run = await store.reader.read_run(RUN)
    assert run.cancel_requested_at == requested is not None
    assert (run.status, run.revision) == (Status.RUNNING, before + 1)


async def test_spans_of_a_run_of_events_are_stored_and_never_projected(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started(), run.call_started())
    before, records = await revision_of(store, run.root), await all_records(store)
    spans = [moved(span, run.root.bytes) for span in spans_of(ONE_RUN)]

    await store.record_spans(spans)

    assert await store.project() == 0
    assert len(await read_spans(store.reader, run.root)) == len(spans)
    assert await revision_of(store, run.root) == before
    assert await all_records(store) == records


async def test_events_for_a_pending_run_of_spans_are_rejected(store: Store) -> None:
    run = Moments(root=RUN)
    await store.record_spans(spans_from(agent(1, "planner")))

    answer = await store.writer.write([run.plan_started()])

    assert [refusal.code for refusal in answer.refused] == ["run_of_spans"]


async def test_run_deleted_before_its_projection_leaves_no_records(store: Store) -> None:
    spans = spans_from(agent(1, "planner"), tool(2, "measure", parent=1))
    await store.record_spans(spans[:1])
    await store.writer.delete_run(RUN)

    answer = await store.writer.write_spans(traces_of(spans))

    assert [(each.index, each.code) for each in answer.refused] == [
        (0, "run_deleted"),
        (1, "run_deleted"),
    ]
    assert await store.project() == 0
    assert await listed(store, other_traces=True) == []
    for read in (store.reader.read_run, store.reader.list_span_parts):
        with pytest.raises(RecordNotFound):
            await read(RUN)


async def test_erasing_a_subject_deletes_pending_runs(store: Store) -> None:
    subject = {"gen_ai.operation.name": "chat", "user.id": "p-1"}
    await store.record_spans(spans_from(make_span(1, "chat m", subject)))

    erased = await store.writer.delete_subject("p-1")

    assert (erased.runs, erased.spans, erased.left) == (1, 1, 0)
    assert await listed(store, other_traces=True) == []


async def test_spans_that_exceed_the_size_limit_of_a_run_are_rejected(database_url: str) -> None:
    first, second = traces_of(spans_from(agent(1, "a"))), traces_of(spans_from(agent(2, "a")))
    other = traces_of(moved(span, b"\7" * 16) for span in spans_from(agent(1, "a")))
    most = len(first[0].message)
    async with open_pool(database_url) as pool:
        writer = postgres_writer(ProjectPool(pool), WriterOptions(max_run_bytes=most))
        reader = PostgresReader(ProjectPool(pool))

        assert (await writer.write_spans(first)).refused == []
        assert (await writer.write_spans(first)).refused == []  # a repetition is safe
        answer = await writer.write_spans([*other, *second])

        assert [(each.index, each.code) for each in answer.refused] == [(1, "run_too_large")]
        assert answer.stored == 1
        assert len(await read_spans(reader, RUN)) == 1


async def test_items_beyond_the_span_limit_of_a_run_are_rejected_one_by_one(
    database_url: str,
) -> None:
    spans = spans_from(*(make_span(number, "x") for number in range(1, 8)))
    before, request = traces_of(spans[:2]), traces_of(spans[2:])
    async with open_pool(database_url) as pool:
        writer = postgres_writer(ProjectPool(pool), WriterOptions(max_run_spans=4))
        reader = PostgresReader(ProjectPool(pool))
        assert (await writer.write_spans(before)).refused == []

        answer = await writer.write_spans(request)
        late = await writer.write_spans(traces_of(spans[6:]))

        assert answer.stored == 2
        assert [(each.index, each.code) for each in answer.refused] == [
            (2, "run_too_large"),
            (3, "run_too_large"),
            (4, "run_too_large"),
        ]
        assert (late.stored, len(late.refused)) == (0, 1)
        assert await read_spans(reader, RUN) == spans[:4]
        assert (await reader.read_run(RUN)).refused_spans == 4
        await project_in(pool)
        assert (await writer.write_spans(traces_of(spans[5:]))).stored == 0
        assert (await writer.write_spans(before)).refused == []  # a repetition is safe
        assert (await reader.read_run(RUN)).refused_spans == 6
