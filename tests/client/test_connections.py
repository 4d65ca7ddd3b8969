"""A connection never blocks or breaks the agent: slow stores, dead threads, and closing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import wait
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.recording import PLENTY_SECONDS, recording, tree_of, trees_of
from tests.recordings import runs_of
from tests.tools.garbage import new_garbage
from tracer.client import Tracing
from tracer.client.work import current_work
from tracer.recorder import Spool
from tracer.records import new_id
from tracer.records.events import Event, PlanStarted
from tracer.storage.memory import RecordingInMemory, recording_in_memory
from tracer.store import TraceWriter, WriteAnswer


class HeldStore(RecordingInMemory):
    """A store that answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()
        self.batches: list[int] = []

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        await asyncio.get_running_loop().run_in_executor(None, self.may_answer.wait)
        self.batches.append(len(events))
        return await super().write(events)


def connected(store: TraceWriter, folder: Path, **options: Any) -> Tracing:
    def open_writer() -> AbstractAsyncContextManager[TraceWriter]:
        return nullcontext(store)

    return Tracing(open_writer, lambda: Spool(folder / "spool.sqlite3"), **options)


async def kill_recorder(writer: TraceWriter) -> None:
    """Stop the recorder's event loop from within, as a fault in it would."""
    asyncio.get_running_loop().call_soon(_raise, SystemExit(7))
    await asyncio.Event().wait()


def _raise(error: BaseException) -> None:
    raise error


async def test_closed_connection_drops_and_logs_events(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with recording(tmp_path) as (tracing, store):
        with tracing.plan("kept"):
            pass
        tree = await tree_of(store)
    tracing.close()
    with tracing.plan("dropped"):
        pass

    assert tracing.flush(PLENTY_SECONDS)
    assert tree["title"] == "kept"
    assert "events_dropped" in caplog.text
    with pytest.raises(RuntimeError, match="closed"):
        tracing.run(lambda writer: writer.write([]))


async def test_work_is_never_nested_under_work_of_another_connection(
    tmp_path: Path,
) -> None:
    with recording(tmp_path / "1") as (one, first), recording(tmp_path / "2") as (two, second):
        with one.plan("outer"), two.plan("other"), one.tool_call("inner"):
            assert current_work(two) is not None
        outer, other = await tree_of(first), await tree_of(second)

    assert (outer["title"], other["title"]) == ("outer", "other")
    assert [each["name"] for each in outer["agentExecutions"][0]["toolCalls"]] == ["inner"]
    assert other["agentExecutions"] == []


async def test_buffered_connection_never_waits_for_the_store(tmp_path: Path) -> None:
    store = HeldStore()
    tracing = connected(store, tmp_path, buffered=True)
    try:
        for number in range(200):
            with tracing.plan(str(number)):
                pass
        assert store.batches == []
        assert not tracing.flush(0)
    finally:
        store.may_answer.set()
        await asyncio.to_thread(tracing.close)

    assert len(runs_of(store)) == 200
    assert len(store.batches) < 20


async def test_events_go_to_the_spool_when_the_store_is_slow(
    tmp_path: Path,
) -> None:
    store = HeldStore()
    tracing = connected(store, tmp_path, patience=0.05)
    try:
        async with tracing.plan("one"):
            spool = Spool(tmp_path / "spool.sqlite3")
            assert await spool.count() == 1
            await spool.close()
    finally:
        store.may_answer.set()
        await asyncio.to_thread(tracing.close)

    assert len(runs_of(store)) == 1


def test_connection_raises_if_the_store_cannot_be_opened(tmp_path: Path) -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[TraceWriter]:
        if folder_is_missing:
            raise LookupError("no such store")
        yield recording_in_memory()

    folder_is_missing = not (tmp_path / "store").exists()

    with pytest.raises(LookupError, match="no such store"):
        Tracing(broken, lambda: Spool(tmp_path / "spool.sqlite3"))


async def test_recording_does_not_wait_for_a_dead_recorder_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with recording(tmp_path) as (tracing, _):
        asked = tracing.run(kill_recorder)
        await asyncio.to_thread(wait, [asked], PLENTY_SECONDS)
        with tracing.plan("dropped"):
            pass

        assert asked.cancelled()
        assert tracing.flush(PLENTY_SECONDS)
    assert "recorder_thread_failed" in caplog.text
    assert "events_dropped" in caplog.text


async def test_waiting_calls_return_when_the_recorder_thread_dies(tmp_path: Path) -> None:
    store = HeldStore()
    tracing = connected(store, tmp_path)

    async def record(number: int) -> None:
        async with tracing.plan(str(number)):
            pass

    tasks = [asyncio.create_task(record(number)) for number in range(50)]
    await asyncio.sleep(0)
    tracing.run(kill_recorder)
    store.may_answer.set()
    async with asyncio.timeout(PLENTY_SECONDS):
        await asyncio.gather(*tasks)
    await asyncio.to_thread(tracing.close)


async def test_recording_in_the_recorder_thread_does_not_deadlock(tmp_path: Path) -> None:
    with recording(tmp_path) as (tracing, store):

        async def record(writer: TraceWriter) -> None:
            with tracing.plan("from within"):
                pass

        await asyncio.wrap_future(tracing.run(record))
        tree = await tree_of(store)

    assert tree["status"] == "succeeded"


async def test_garbage_collected_generator_ends_its_open_work(tmp_path: Path) -> None:
    with recording(tmp_path) as (tracing, store):

        def stream() -> Iterator[dict[str, Any]]:
            itself: dict[str, Any] = {}
            with tracing.plan("unread"):
                yield itself

        def abandon() -> None:
            generator = stream()
            next(generator)["generator"] = generator

        with new_garbage() as collect:
            abandon()
            collect()
        with tracing.plan("next"):
            pass
        trees = await trees_of(store)

    endings = {tree["title"]: tree["status"] for tree in trees}
    assert endings == {"unread": "cancelled", "next": "succeeded"}


async def test_events_above_the_queue_limit_are_dropped_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = HeldStore()
    tracing = connected(store, tmp_path, buffered=True, patience=60, max_queued=20)
    try:
        for number in range(100):
            plan_id = new_id()
            start = PlanStarted(
                **tracing.stamp(), root_plan_id=plan_id, plan_id=plan_id, title=str(number)
            )
            tracing.record(start)
        waiting = tracing.waiting
    finally:
        store.may_answer.set()
        await asyncio.to_thread(tracing.close)

    stored = len(runs_of(store))
    dropped = caplog.text.count("too_many_events_wait")
    # The recorder may have taken some of the queue before the limit was reached.
    assert 20 <= waiting <= 40
    assert (stored, stored + dropped) == (waiting, 100)
