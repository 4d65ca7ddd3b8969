"""The recorder while the store works: durability, batches, and cancelled calls."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import pytest

from tests.recorder.plans import plan_started, plans_started
from tests.recorder.stores import CommandedStore
from tests.stepping import stepping_clock
from tracer.recorder import Recorder, Spool
from tracer.records import Status, new_id, sequential_ids
from tracer.records.events import PlanFinished, Stamp, StepStarted, ThoughtStarted, ToolCallStarted


async def test_an_event_is_stored_when_record_returns(store: CommandedStore, spool: Spool) -> None:
    async with Recorder(store, spool) as recorder:
        event = plan_started(recorder)
        await recorder.record(event)

        assert store.events == [event]
        assert (recorder.counts.stored, recorder.counts.spooled) == (1, 0)


async def test_recording_no_events_does_not_call_the_store(
    store: CommandedStore, spool: Spool
) -> None:
    async with Recorder(store, spool) as recorder:
        await recorder.record()

        assert store.attempts == 0


def test_event_fields_have_the_time_and_the_id_of_the_recorder(
    store: CommandedStore, spool: Spool
) -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    recorder = Recorder(store, spool, clock=stepping_clock(now), ids=sequential_ids())

    assert recorder.recorder_id == sequential_ids()()
    assert recorder.stamp() == {"at": now, "recorder_id": recorder.recorder_id}
    assert recorder.stamp()["at"] > now


async def test_events_recorded_during_a_write_share_the_next_batch(
    store: CommandedStore, spool: Spool
) -> None:
    async with Recorder(store, spool, patience=10) as recorder:
        store.may_write.clear()
        events = plans_started(recorder, 200)
        async with asyncio.TaskGroup() as calls:
            calls.create_task(recorder.record(events[0]))
            await store.reached.wait()
            for event in events[1:]:
                calls.create_task(recorder.record(event))
            await asyncio.sleep(0)  # they queue
            store.may_write.set()

        assert [len(batch) for batch in store.batches] == [1, 199]
        assert store.events == events


async def test_batch_size_is_limited_without_splitting_one_record_call(
    store: CommandedStore, spool: Spool
) -> None:
    async with Recorder(store, spool, patience=10) as recorder:
        many = plans_started(recorder, 2500)
        few = plans_started(recorder, 3)
        await asyncio.gather(recorder.record(*many), *(recorder.record(each) for each in few))

        assert [len(batch) for batch in store.batches] == [2500, 3]


async def test_events_of_a_cancelled_call_are_stored(store: CommandedStore, spool: Spool) -> None:
    async with Recorder(store, spool, patience=10) as recorder:
        store.may_write.clear()
        under_way, queued = plans_started(recorder, 2)
        first = asyncio.create_task(recorder.record(under_way))
        await store.reached.wait()
        second = asyncio.create_task(recorder.record(queued))
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        ends = await asyncio.gather(first, second, return_exceptions=True)
        store.may_write.set()
        await store.holds([under_way, queued])

        assert [type(end) for end in ends] == [asyncio.CancelledError] * 2


async def test_rejected_event_is_counted_and_logged_without_a_retry(
    store: CommandedStore, spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    async with Recorder(store, spool) as recorder:
        good, bad = plan_started(recorder), plan_started(recorder, title="secret")
        store.refuses = lambda event: event == bad
        await recorder.record(good, bad)

        assert store.events == [good]
        assert (recorder.counts.stored, recorder.counts.refused) == (1, 1)
        assert await spool.count() == 0

    [line] = [each for each in caplog.records if "event_refused" in each.message]
    fields = vars(line)["fields"]
    assert (fields["code"], fields["record_ids"]) == ("run_deleted", [str(bad.plan_id)])
    assert "secret" not in str(vars(line))


async def test_each_event_type_is_logged_with_its_record_id(
    store: CommandedStore, spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    async with Recorder(store, spool) as recorder:
        plan, step, think_act, call = new_id(), new_id(), new_id(), new_id()
        ids = Ids(**recorder.stamp(), root_plan_id=plan, plan_id=plan)
        store.refuses = lambda event: True
        await recorder.record(
            PlanFinished(**ids, status=Status.SUCCEEDED),
            StepStarted(**ids, step_id=step),
            ThoughtStarted(**ids, step_id=step, think_act_id=think_act, position=0),
            ToolCallStarted(**ids, step_id=step, tool_call_id=call, name="query"),
        )

    lines = [vars(each) for each in caplog.records if "event_refused" in each.message]
    assert [line["fields"]["record_ids"] for line in lines] == [
        [str(plan)],
        [str(step)],
        [str(think_act)],
        [str(call)],
    ]


class Ids(Stamp):
    """What every event carries."""

    root_plan_id: UUID
    plan_id: UUID


async def test_closing_the_recorder_writes_waiting_events(
    store: CommandedStore, spool: Spool
) -> None:
    recorder = Recorder(store, spool, patience=10)
    async with recorder:
        events = plans_started(recorder, 5)
        calls = [asyncio.create_task(recorder.record(event)) for event in events]
        await asyncio.sleep(0)
    await asyncio.gather(*calls)

    assert store.events == events


async def test_events_recorded_outside_the_async_with_block_wait_in_the_spool(
    store: CommandedStore, spool: Spool
) -> None:
    recorder = Recorder(store, spool)
    before, after = plans_started(recorder, 2)
    await recorder.record(before)
    async with recorder:
        await store.holds([before])
    await recorder.record(after)
    await spool.close()

    assert store.events == [before]
    async with Recorder(store, spool):
        await store.holds([after])


async def test_closed_recorder_can_be_entered_again(store: CommandedStore, spool: Spool) -> None:
    recorder = Recorder(store, spool)
    events = plans_started(recorder, 2)
    for event in events:
        async with recorder:
            await recorder.record(event)

    assert store.events == events


async def test_waiting_events_are_spooled_when_the_event_loop_closes(
    store: CommandedStore, spool: Spool
) -> None:
    """As at the end of `asyncio.run`, which cancels whatever still runs."""
    recorder = Recorder(store, spool, patience=10)
    await recorder.__aenter__()
    store.may_write.clear()
    event = plan_started(recorder)
    call = asyncio.create_task(recorder.record(event))
    await store.reached.wait()
    for task in asyncio.all_tasks():
        if task.get_name() == "tracer-recorder":
            task.cancel()
    await call

    assert [held for _, held in await spool.oldest(10)] == [event]
    store.may_write.set()
    await recorder.__aexit__(None, None, None)
    assert event in store.events
