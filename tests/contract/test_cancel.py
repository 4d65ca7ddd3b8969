"""The wish to cancel a run is kept for whichever process runs it."""

from __future__ import annotations

import pytest

from tests.contract.moments import Moments
from tests.contract.stores import Store, content
from tracer.errors import RecordNotFound, RunNotActive
from tracer.records.ids import new_id
from tracer.records.status import Status


async def test_a_wish_is_recorded_once_and_found(store: Store) -> None:
    run, other = Moments(), Moments()
    await store.record(run.plan_started(), other.plan_started())
    first = await store.writer.request_cancel(run.root)
    again = await store.writer.request_cancel(run.root)
    assert first.cancel_requested_at is not None
    shown = await store.reader.read_run(run.root)
    assert again == first
    assert content(first).items() <= content(shown).items()
    assert (first.revision, first.recorded_at) == (shown.revision, shown.recorded_at)
    asked = [run.root, other.root, new_id()]
    assert await store.reader.find_cancel_requests(asked) == {run.root}
    assert await store.reader.find_cancel_requests([]) == set()


async def test_a_run_that_has_ended_cannot_be_cancelled(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started(), run.plan_finished(status=Status.FAILED))
    with pytest.raises(RunNotActive):
        await store.writer.request_cancel(run.root)
    assert (await store.reader.read_run(run.root)).cancel_requested_at is None


async def test_a_run_that_is_not_there_cannot_be_cancelled(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started())
    await store.writer.delete_run(run.root)
    for root in (run.root, new_id()):
        with pytest.raises(RecordNotFound):
            await store.writer.request_cancel(root)


async def test_a_deleted_run_counts_as_one_to_cancel(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started())
    await store.writer.delete_run(run.root)
    assert await store.reader.find_cancel_requests([run.root]) == {run.root}


async def test_cancel_request_survives_later_events(store: Store) -> None:
    run = Moments()
    await store.record(run.call_started())
    wish = await store.writer.request_cancel(run.root)
    await store.record(run.plan_started(), run.plan_finished(status=Status.CANCELLED))
    shown = await store.reader.read_run(run.root)
    assert shown.cancel_requested_at == wish.cancel_requested_at
    assert shown.status is Status.CANCELLED
