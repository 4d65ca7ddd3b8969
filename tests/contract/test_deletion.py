"""A deleted run leaves a tombstone, which rejects late events; other events are stored."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from tests.contract.moments import Moments
from tests.contract.stores import NewStore, Store
from tests.otel.made_traces import make_span, spans_from
from tests.otel.sent import traces_of
from tests.sample_runs import sample_run
from tests.stored import read_spans
from tests.trees import read_tree
from tracer.errors import BadRequest, RecordNotFound
from tracer.lineage import Payloads
from tracer.otel.otlp.spans import root_plan_id
from tracer.records import new_id
from tracer.records.spans import Span
from tracer.store import Erasure, RunFilter, ToolCallFilter

CHAT = {"gen_ai.operation.name": "chat", "user.id": "p-1"}


def run_of(spans: Sequence[Span]) -> UUID:
    return root_plan_id(spans[0].trace_id)


async def test_deleting_a_run_deletes_all_its_records(store: Store) -> None:
    run, other = sample_run(), sample_run()
    await store.record(*run.events, *other.events)
    await store.writer.delete_run(run.root)
    for read in (
        store.reader.read_run(run.root),
        store.reader.read_plan(run.root),
        store.reader.read_plan(run.sub_plans[0]),
        read_tree(store.reader, run.root, Payloads.NONE),
        store.reader.read_think_act(run.think_act),
        store.reader.read_tool_call(run.failed_call),
    ):
        with pytest.raises(RecordNotFound):
            await read
    listed = (await store.reader.list_runs(RunFilter(), 10, None)).items
    assert [each.root_plan_id for each in listed] == [other.root]
    calls = (await store.reader.list_tool_calls(ToolCallFilter(), 10, None)).items
    assert {call.root_plan_id for call in calls} == {other.root}


async def test_events_of_a_deleted_run_are_rejected_and_other_events_stored(
    store: Store,
) -> None:
    deleted, other = Moments(), Moments()
    await store.record(deleted.plan_started())
    await store.writer.delete_run(deleted.root)
    answer = await store.writer.write(
        [deleted.call_started(), other.plan_started(), deleted.plan_finished()]
    )
    assert answer.stored == 1
    assert [(refusal.index, refusal.code) for refusal in answer.refused] == [
        (0, "run_deleted"),
        (2, "run_deleted"),
    ]
    assert answer.refused[0].detail.endswith(".")
    assert (await store.reader.read_run(other.root)).status == "running"
    with pytest.raises(RecordNotFound):
        await store.reader.read_tool_call(deleted.call)


async def test_deleting_a_deleted_or_missing_run_raises_not_found(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started())
    await store.writer.delete_run(run.root)
    with pytest.raises(RecordNotFound):
        await store.writer.delete_run(run.root)
    with pytest.raises(RecordNotFound):
        await store.writer.delete_run(new_id())


async def test_records_of_other_projects_cannot_be_read_or_deleted(new_store: NewStore) -> None:
    mine, theirs = new_store(), new_store()
    run = sample_run()
    await theirs.record(*run.events)
    with pytest.raises(RecordNotFound):
        await mine.reader.read_run(run.root)
    with pytest.raises(RecordNotFound):
        await read_tree(mine.reader, run.sub_plans[0], Payloads.NONE)
    with pytest.raises(RecordNotFound):
        await mine.writer.delete_run(run.root)
    await mine.record(*run.events[:3])
    await mine.writer.delete_run(run.root)
    assert (await theirs.reader.read_run(run.root)).tool_calls == 3


async def test_erasing_a_subject_deletes_only_its_runs(store: Store) -> None:
    mine, more, others, nobodys = (Moments() for _ in range(4))
    subject = "p/1 ü\\u0000\0\ud800?"
    await store.record(mine.plan_started(subject=subject), mine.step_started(), mine.call_started())
    await store.record(more.plan_started(subject=subject), more.plan_finished())
    await store.record(others.plan_started(subject="p"), others.call_started())
    await store.record(nobodys.plan_started())

    done = await store.writer.delete_subject(subject)

    assert (done.runs, done.spans, done.left) == (2, 0, 0)
    assert done.records == 4
    left = {run.root_plan_id for run in (await store.reader.list_runs(RunFilter(), 9, None)).items}
    assert left == {others.root, nobodys.root}
    assert (await store.reader.read_tool_call(others.call)).call.step_id == others.step
    with pytest.raises(RecordNotFound):
        await store.reader.read_tool_call(mine.call)
    assert await store.writer.delete_subject(subject) == Erasure()
    assert await store.writer.delete_subject("nobody") == Erasure()


async def test_late_events_of_a_deleted_subject_are_rejected(store: Store) -> None:
    spans = spans_from(make_span(1, "chat m", CHAT))
    run, other = Moments(), Moments()
    await store.record(run.plan_started(subject="p-1"))
    await store.record_spans(spans)
    assert (await store.reader.read_run(run_of(spans))).subject == "p-1"

    done = await store.writer.delete_subject("p-1")

    assert (done.runs, done.spans, done.left) == (2, 1, 0)
    late = await store.writer.write([run.plan_started(subject="p-1"), other.plan_started()])
    assert [(each.index, each.code) for each in late.refused] == [(0, "run_deleted")]
    again = await store.writer.write_spans(traces_of(spans))
    assert [each.code for each in again.refused] == ["run_deleted"]
    with pytest.raises(RecordNotFound):
        await read_spans(store.reader, run_of(spans))


async def test_same_subject_in_another_project_is_not_deleted(new_store: NewStore) -> None:
    mine, theirs = new_store(), new_store()
    run = Moments()
    await theirs.record(run.plan_started(subject="p-1"))
    assert await mine.writer.delete_subject("p-1") == Erasure()
    assert (await theirs.reader.read_run(run.root)).subject == "p-1"


async def test_erasing_a_subject_that_would_be_masked_is_rejected(store: Store) -> None:
    with pytest.raises(BadRequest, match="card_number"):
        await store.writer.delete_subject("4111 1111 1111 1111")
