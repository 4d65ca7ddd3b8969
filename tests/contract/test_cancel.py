"""A request to cancel a run is stored until the process that runs it reads it."""

from __future__ import annotations

import pytest

from tests.contract.moments import Moments
from tests.contract.stores import Store, content
from tracer.errors import RecordNotFound, RunNotActive
from tracer.records import Status, new_id


async def test_repeated_cancel_request_keeps_the_first(store: Store) -> None:
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


async def test_cancelling_an_ended_run_is_rejected(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started(), run.plan_finished(status=Status.FAILED))
    with pytest.raises(RunNotActive):
        await store.writer.request_cancel(run.root)
    assert (await store.reader.read_run(run.root)).cancel_requested_at is None


async def test_cancelling_a_missing_run_raises_not_found(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started())
    await store.writer.delete_run(run.root)
    for root in (run.root, new_id()):
        with pytest.raises(RecordNotFound):
            await store.writer.request_cancel(root)


async def test_cancel_requests_include_deleted_runs(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started())
    await store.writer.delete_run(run.root)
    assert await store.reader.find_cancel_requests([run.root]) == {run.root}


async def test_cancel_request_is_kept_after_later_events(store: Store) -> None:
    run = Moments()
    await store.record(run.call_started())
    wish = await store.writer.request_cancel(run.root)
    await store.record(run.plan_started(), run.plan_finished(status=Status.CANCELLED))
    shown = await store.reader.read_run(run.root)
    assert shown.cancel_requested_at == wish.cancel_requested_at
    assert shown.status is Status.CANCELLED
