"""A recorder renews its lease at its own interval, independent of its events."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from tests.recorder.plans import plan_started
from tests.recorder.stores import PLENTY_SECONDS, CommandedStore
from tracer.client import Tracing
from tracer.recorder import Recorder, Spool
from tracer.records import Lease
from tracer.store import TraceWriter


async def test_a_recorder_that_recorded_nothing_has_no_lease(
    store: CommandedStore, spool: Spool
) -> None:
    async with Recorder(store, spool):
        await asyncio.sleep(0)

    assert store.renewals == []


async def test_recorder_renews_its_lease_at_the_interval_of_the_store(
    store: CommandedStore, spool: Spool
) -> None:
    store.lease = timedelta(milliseconds=30)
    async with Recorder(store, spool) as recorder:
        await recorder.record(plan_started(recorder))
        await store.renewed(5)

    assert set(store.renewals) == {recorder.recorder_id}
    assert [each for each in asyncio.all_tasks() if each.get_name() == "tracer-lease"] == []


async def test_lease_renewal_is_retried_at_the_next_interval(
    store: CommandedStore, spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    store.lease = timedelta(milliseconds=30)
    async with Recorder(store, spool) as recorder:
        await recorder.record(plan_started(recorder))
        await store.renewed(1)
        store.down = True
        await store.renewed(len(store.renewals) + 3)
        store.down = False
        await store.renewed(len(store.renewals) + 3)

    assert [each.split()[0] for each in caplog.messages] == [
        "store_unavailable",
        "store_available_again",
    ]
    assert (recorder.counts.write_failures, recorder.counts.dropped) == (0, 0)


async def test_hanging_lease_renewal_does_not_delay_events(spool: Spool) -> None:
    class Hanging(CommandedStore):
        async def renew(self, recorder_id: UUID) -> Lease:
            await asyncio.Event().wait()
            return await super().renew(recorder_id)

    store = Hanging()
    async with Recorder(store, spool) as recorder:
        events = [plan_started(recorder) for _ in range(3)]
        for event in events:
            await recorder.record(event)

    assert store.events == events


async def test_connection_renews_its_lease_while_the_program_is_busy(
    store: CommandedStore, tmp_path: Path
) -> None:
    store.lease = timedelta(milliseconds=30)
    loop, enough = asyncio.get_running_loop(), asyncio.Event()

    class Told(CommandedStore):
        async def renew(self, recorder_id: UUID) -> Lease:
            if len(store.renewals) == 4:
                loop.call_soon_threadsafe(enough.set)
            return await store.renew(recorder_id)

    def open_writer() -> AbstractAsyncContextManager[TraceWriter]:
        return nullcontext(Told())

    tracing = Tracing(open_writer, lambda: Spool(tmp_path / "spool.db"))
    with tracing, tracing.plan("one"), tracing.tool_call("long"):
        async with asyncio.timeout(PLENTY_SECONDS):
            await enough.wait()

    assert len(set(store.renewals)) == 1
