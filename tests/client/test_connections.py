"""A connection: how it waits, closes and breaks, and never in the way of the agent."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.recording import PLENTY_SECONDS, recording, tree_of, trees_of
from tracer.client import recorder_thread
from tracer.client.tracing import Tracing
from tracer.client.work import current_work
from tracer.events import Event
from tracer.recorder.spool import Spool
from tracer.storage.memory_store import MemoryStore
from tracer.store import TraceWriter, WriteAnswer


class HeldStore(MemoryStore):
    """A store that answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()
        self.batches: list[int] = []

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        await asyncio.get_running_loop().run_in_executor(None, self.may_answer.wait)
        self.batches.append(len(events))
        return await super().write(events)


def connected(store: TraceWriter, folder: Path, buffered: bool = False) -> Tracing:
    def open_writer() -> AbstractAsyncContextManager[TraceWriter]:
        return nullcontext(store)

    return Tracing(open_writer, lambda: Spool(folder / "spool.sqlite3"), buffered=buffered)


async def test_a_closed_connection_drops_what_comes_and_says_so(
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


async def test_work_of_one_connection_does_not_hang_under_that_of_another(
    tmp_path: Path,
) -> None:
    with recording(tmp_path / "1") as (one, first), recording(tmp_path / "2") as (two, second):
        with one.plan("outer"), two.plan("other"), one.tool_call("inner"):
            assert current_work(two) is not None
        outer, other = await tree_of(first), await tree_of(second)

    assert (outer["title"], other["title"]) == ("outer", "other")
    assert [each["name"] for each in outer["agentExecutions"][0]["toolCalls"]] == ["inner"]
    assert other["agentExecutions"] == []


async def test_a_buffered_connection_waits_for_nothing(tmp_path: Path) -> None:
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

    assert len(store._runs) == 200
    assert len(store.batches) < 20


async def test_what_the_store_does_not_take_in_time_is_durable_in_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracer.recorder.recorder.PATIENCE_SECONDS", 0.05)
    store = HeldStore()
    tracing = connected(store, tmp_path)
    try:
        async with tracing.plan("one"):
            spool = Spool(tmp_path / "spool.sqlite3")
            assert await spool.count() == 1
            await spool.close()
    finally:
        store.may_answer.set()
        await asyncio.to_thread(tracing.close)

    assert len(store._runs) == 1


def test_a_store_that_cannot_be_opened_is_an_error_of_the_connection(tmp_path: Path) -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[TraceWriter]:
        if folder_is_missing:
            raise LookupError("no such store")
        yield MemoryStore()

    folder_is_missing = not (tmp_path / "store").exists()

    with pytest.raises(LookupError, match="no such store"):
        Tracing(broken, lambda: Spool(tmp_path / "spool.sqlite3"))


async def test_nobody_waits_for_a_recorder_that_has_died(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with recording(tmp_path) as (tracing, _):

        async def die(writer: TraceWriter) -> None:
            asyncio.get_running_loop().call_soon(_raise, SystemExit(7))
            await asyncio.Event().wait()

        asked = tracing.run(die)
        await asyncio.to_thread(tracing._threads[-1]._thread.join)
        with tracing.plan("dropped"):
            pass

        assert asked.cancelled()
        assert tracing.flush(PLENTY_SECONDS)
    assert "recorder_thread_failed" in caplog.text
    assert "events_dropped" in caplog.text


def _raise(error: BaseException) -> None:
    raise error


async def test_many_wait_for_a_recorder_that_dies_and_all_go_on(tmp_path: Path) -> None:
    store = HeldStore()
    tracing = connected(store, tmp_path)

    async def record(number: int) -> None:
        async with tracing.plan(str(number)):
            pass

    tasks = [asyncio.create_task(record(number)) for number in range(50)]
    await asyncio.sleep(0)
    tracing._threads[-1]._loop.call_soon_threadsafe(_raise, SystemExit(7))
    store.may_answer.set()
    async with asyncio.timeout(PLENTY_SECONDS):
        await asyncio.gather(*tasks)
    await asyncio.to_thread(tracing.close)


async def test_recording_within_recording_does_not_wait_for_itself(tmp_path: Path) -> None:
    with recording(tmp_path) as (tracing, store):

        async def record(writer: TraceWriter) -> None:
            with tracing.plan("from within"):
                pass

        await asyncio.wrap_future(tracing.run(record))
        tree = await tree_of(store)

    assert tree["status"] == "succeeded"


async def test_an_object_that_records_when_it_is_collected_may_be_collected_anywhere(
    tmp_path: Path,
) -> None:
    with recording(tmp_path) as (tracing, store):

        class Recording(dict[str, Any]):
            def __del__(self) -> None:
                with tracing.plan("collected"):
                    pass

        def litter() -> None:
            for _ in range(100):
                cycle = Recording()
                cycle["itself"] = cycle
                with tracing.plan("recorded"):
                    pass

        threads = [threading.Thread(target=litter) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join, PLENTY_SECONDS)
        assert not any(thread.is_alive() for thread in threads)
        gc.collect()
        trees = await trees_of(store)

    assert {tree["status"] for tree in trees} == {"succeeded"}
    assert {tree["title"] for tree in trees} == {"collected", "recorded"}


async def test_too_many_events_that_nobody_waits_for_are_dropped_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_thread, "MAX_QUEUED", 20)
    store = HeldStore()
    tracing = connected(store, tmp_path, buffered=True)
    thread = tracing._threads[-1]
    try:
        for _ in range(100):
            thread.record(())
        assert thread.waiting <= 21
    finally:
        store.may_answer.set()
        await asyncio.to_thread(tracing.close)
