"""Recording while the store is down, hangs or breaks: the agent continues, and no event is lost."""

import asyncio

import pytest

from tests.recorder.plans import plan_started, plans_started
from tests.recorder.stores import PLENTY_SECONDS, CommandedStore
from tracer.errors import SchemaOutOfDate
from tracer.recorder import Recorder, RecorderCounts, Spool
from tracer.recorder.delivery import Drainer, LateWrite


async def spooled(spool: Spool) -> list[object]:
    return [event for _, event in await spool.oldest(10_000)]


async def test_events_are_spooled_during_an_outage_and_then_drained(
    store: CommandedStore, spool: Spool
) -> None:
    async with Recorder(store, spool) as recorder:
        store.down = True
        events = plans_started(recorder, 30)
        async with asyncio.timeout(PLENTY_SECONDS):
            for event in events:
                await recorder.record(event)
        assert await spooled(spool) == events
        store.down = False
        await store.holds(events)

    probe, *others = store.events
    assert others == [event for event in events if event != probe], "oldest first, nothing twice"
    assert await spool.count() == 0
    counts = recorder.counts
    assert (counts.stored, counts.spooled, counts.drained, counts.dropped) == (30, 30, 30, 0)
    assert counts.write_failures > 0


async def test_event_written_late_and_delivered_from_the_spool_counts_once(
    store: CommandedStore, spool: Spool
) -> None:
    counts = RecorderCounts()
    drainer = Drainer(store, spool, counts)
    events = plans_started(Recorder(store, spool), 3)
    kept = (await spool.append(events)).ids
    late = asyncio.create_task(store.write(events))
    await drainer.drain_batch()
    drainer.store_failed(LateWrite(late, events, kept))
    await drainer.drain_batch()

    assert (counts.stored, counts.drained) == (3, 3)


async def test_direct_writes_resume_when_the_store_is_back(
    store: CommandedStore, spool: Spool
) -> None:
    async with Recorder(store, spool) as recorder:
        store.down = True
        first = plan_started(recorder)
        await recorder.record(first)
        store.down = False
        await store.holds([first])
        spooled_before = recorder.counts.spooled
        second = plan_started(recorder)
        await recorder.record(second)

        assert second in store.events
        assert recorder.counts.spooled == spooled_before


async def test_unavailable_store_is_retried_at_intervals_not_per_event(
    store: CommandedStore, spool: Spool
) -> None:
    async with Recorder(store, spool, patience=60) as recorder:
        store.down = True
        await recorder.record(plan_started(recorder))
        async with asyncio.timeout(PLENTY_SECONDS):
            while recorder.counts.write_failures < 4:  # noqa: ASYNC110 - the loop turns until then
                await asyncio.sleep(0)
        store.may_write.clear()  # whoever asks now has to wait
        asked = store.attempts
        async with asyncio.timeout(PLENTY_SECONDS):
            for event in plans_started(recorder, 50):
                await recorder.record(event)

        assert store.attempts <= asked + 1, "by the drainer alone"
        store.may_write.set()
        store.down = False


async def test_hanging_store_delays_a_call_by_at_most_the_store_timeout(
    store: CommandedStore, spool: Spool
) -> None:
    async with Recorder(store, spool, patience=0.05) as recorder:
        store.may_write.clear()
        events = plans_started(recorder, 20)
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with asyncio.timeout(PLENTY_SECONDS):
            for event in events:
                await recorder.record(event)

        assert loop.time() - start >= 0.05
        assert store.attempts == 1, "only the first waits"
        assert await spooled(spool) == events
        store.may_write.set()
        await store.holds(events)

    assert store.events == events, "the late write's copy was taken out of the spool"
    assert await spool.count() == 0
    assert recorder.counts.stored == recorder.counts.drained == recorder.counts.spooled == 20


async def test_events_of_a_cancelled_call_are_spooled_if_the_store_hangs(
    store: CommandedStore, spool: Spool
) -> None:
    async with Recorder(store, spool, patience=0.02) as recorder:
        store.may_write.clear()
        cancelled, other = plans_started(recorder, 2)
        call = asyncio.create_task(recorder.record(cancelled))
        await store.reached.wait()
        call.cancel()
        await recorder.record(other)

        assert await spooled(spool) == [cancelled, other]
        store.may_write.set()
        await store.holds([cancelled, other])


async def test_late_failure_of_a_write_leaves_its_events_in_the_spool(
    store: CommandedStore, spool: Spool
) -> None:
    async with Recorder(store, spool, patience=0.02) as recorder:
        store.may_write.clear()
        event = plan_started(recorder)
        await recorder.record(event)
        store.down = True
        store.may_write.set()
        await asyncio.sleep(0)
        assert await spooled(spool) == [event]
        store.down = False
        await store.holds([event])

    assert recorder.counts.dropped == 0


async def test_only_the_event_that_crashes_the_store_is_dropped(
    store: CommandedStore, spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    async with Recorder(store, spool) as recorder:
        events = plans_started(recorder, 20)
        poison = events[7]
        store.breaks_on = lambda event: event == poison
        await recorder.record(*events)
        await store.holds([event for event in events if event != poison])

    assert poison not in store.events
    assert await spool.count() == 0
    assert (recorder.counts.stored, recorder.counts.dropped) == (19, 1)
    [line] = [each for each in caplog.records if "events_dropped" in each.message]
    assert vars(line)["fields"]["record_ids"] == [str(poison.plan_id)]
    assert vars(line)["fields"]["reason"].startswith("builtins.RuntimeError at ")
    assert "a payload" not in str([vars(record) for record in caplog.records])


async def test_event_that_crashes_the_store_does_not_block_later_events(
    store: CommandedStore, spool: Spool
) -> None:
    recorder = Recorder(store, spool)
    events = plans_started(recorder, 20)
    await recorder.record(*events)  # into the spool
    store.breaks_on = lambda event: event == events[0]
    store.breaks_with = ConnectionResetError("the server closed the connection")
    async with recorder:
        await store.holds(events[1:])
        assert await spooled(spool) == events[:1], "it is tried again"

    assert recorder.counts.dropped == 0


async def test_missing_migrations_lose_no_event(store: CommandedStore, spool: Spool) -> None:
    async with Recorder(store, spool) as recorder:
        store.breaks_on, store.breaks_with = lambda event: True, SchemaOutOfDate()
        event = plan_started(recorder)
        await recorder.record(event)
        assert await spooled(spool) == [event]
        store.breaks_on = lambda event: False
        await store.holds([event])


@pytest.mark.parametrize("failure", [asyncio.CancelledError(), ConnectionResetError()])
async def test_failed_delivery_of_the_spool_is_retried(
    failure: BaseException, store: CommandedStore, spool: Spool
) -> None:
    recorder = Recorder(store, spool)
    event = plan_started(recorder)
    await recorder.record(event)
    store.breaks_on, store.breaks_with = lambda event: True, failure
    async with recorder:
        async with asyncio.timeout(PLENTY_SECONDS):
            while recorder.counts.write_failures < 2:  # noqa: ASYNC110 - the loop turns until then
                await asyncio.sleep(0)
        store.breaks_on = lambda event: False
        await store.holds([event])

    assert recorder.counts.dropped == 0


async def test_cancellation_raised_by_the_store_loses_no_event(
    store: CommandedStore, spool: Spool
) -> None:
    async with Recorder(store, spool, patience=10) as recorder:
        store.may_write.clear()
        event = plan_started(recorder)
        call = asyncio.create_task(recorder.record(event))
        await store.reached.wait()
        [write] = [
            task for task in asyncio.all_tasks() if "CommandedStore.write" in repr(task.get_coro())
        ]
        write.cancel()
        store.may_write.set()
        await call
        await store.holds([event])


async def test_next_recorder_delivers_events_left_by_an_outage(
    store: CommandedStore, spool: Spool
) -> None:
    async with asyncio.timeout(PLENTY_SECONDS):
        async with Recorder(store, spool) as recorder:
            store.down = True
            events = plans_started(recorder, 3)
            await recorder.record(*events)
        store.down = False
        async with Recorder(store, spool):
            await store.holds(events)

    assert store.events == events


async def test_closing_does_not_wait_long_for_a_store_that_hangs(
    store: CommandedStore, spool: Spool
) -> None:
    recorder = Recorder(store, spool, patience=0.02, closing_seconds=0.05)
    # Without the bound, closing would wait thirty seconds for the store.
    async with asyncio.timeout(60), recorder:
        store.may_write.clear()
        event = plan_started(recorder)
        await recorder.record(event)

    assert await spooled(spool) == [event]
    assert store.events == []


async def test_cancelled_close_ends_early_and_loses_no_event(
    store: CommandedStore, spool: Spool
) -> None:
    store.may_write.clear()
    recorder = Recorder(store, spool, patience=0.02, closing_seconds=10 * PLENTY_SECONDS)
    event = plan_started(recorder)

    async def agent() -> None:
        async with recorder:
            await recorder.record(event)

    running = asyncio.create_task(agent())
    while recorder.counts.spooled == 0:  # noqa: ASYNC110 - the loop turns until it is so
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(PLENTY_SECONDS):
        with pytest.raises(asyncio.CancelledError):
            await running

    assert await spooled(spool) == [event]
