"""The live stream of a run: each change is sent once, and slow clients do not fill the memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from api import run_events as live
from api.app import create_app
from api.middleware.authentication import nothing_to_check
from api.parts import Parts
from api.run_events import DEFAULT_SETTINGS, StreamSettings
from tests.api.conftest import on_loopback, serving_parts
from tests.api.run_stream import Folded, flattened, watching
from tests.contract.moments import Moments
from tests.sample_runs import sample_run
from tests.servers import start_server
from tests.trees import complete
from tracer.errors import StoreUnavailable
from tracer.records import Kind, new_id
from tracer.records.events import Event
from tracer.runtime.scripted_model import ScriptedModel
from tracer.storage.postgres import Pool, ProjectPool, RunWatch, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.store import RunChanges

PATIENCE = 240.0
"""Seconds after which what should have happened has not."""


@dataclass(frozen=True)
class Live:
    """A server that listens, and its parts."""

    client: httpx2.AsyncClient
    parts: Parts

    async def record(self, *events: Event) -> int:
        """Record events, and return the revision that their run has then."""
        answer = await self.parts.writer.write(events)
        assert answer.stored == len(events)
        run = await self.parts.reader.read_revision(Kind.RUN, events[0].root_plan_id)
        return run.number

    async def tree(self, root: UUID) -> Folded:
        """Return a run as a client has it that reads its tree."""
        top = complete((await self.client.get(f"/api/plans/{root}/tree")).json())
        return Folded(top["revision"], flattened(top))


@asynccontextmanager
async def live_server(
    database_url: str, home: Path, stream_settings: StreamSettings = DEFAULT_SETTINGS
) -> AsyncIterator[Live]:
    async with (
        asyncio.timeout(4 * PATIENCE),
        serving_parts(database_url, home, ScriptedModel([])) as parts,
        on_loopback(parts, stream_settings) as address,
        httpx2.AsyncClient(base_url=address, timeout=PATIENCE) as client,
    ):
        yield Live(client, parts)


@pytest.fixture
async def here(database_url: str, tmp_path: Path) -> AsyncIterator[Live]:
    async with live_server(database_url, tmp_path) as server:
        yield server


async def test_events_after_the_tree_read_are_streamed_as_changes(
    here: Live,
) -> None:
    run = sample_run(sub_plans=3)
    await here.record(*run.events[:4])
    page = await here.tree(run.root)
    async with watching(here.client, run.root, after=page.revision) as messages:
        for event in run.events[4:]:
            await page.until(messages, await here.record(event))

    assert page == await here.tree(run.root)


async def test_first_stream_message_has_all_records_of_the_run(here: Live) -> None:
    run = sample_run()
    await here.record(*run.events)
    async with watching(here.client, run.root) as messages:
        message = await anext(messages)

    assert len(message.data["changed"]) == len((await here.tree(run.root)).rows)


async def test_resumed_stream_sends_each_change_exactly_once(here: Live) -> None:
    run = sample_run(sub_plans=4)
    half = len(run.events) // 2
    page = Folded()
    revision = await here.record(*run.events[:half])
    async with watching(here.client, run.root) as messages:
        await page.until(messages, revision)
    revision = await here.record(*run.events[half:])

    # A browser comes back to the address that it opened, and says where it stopped.
    async with watching(here.client, run.root, page.revision, after=1) as messages:
        message = await anext(messages)
        page.fold(message)
    assert page == await here.tree(run.root)
    assert page.revision == revision
    assert all(row["kind"] != "thinkAct" for row in message.data["changed"])


async def test_all_clients_of_a_run_receive_the_same_records(here: Live) -> None:
    run = sample_run(sub_plans=20)
    await here.record(run.events[0])

    async def watch(arrived: asyncio.Event) -> Folded:
        page = Folded()
        async with watching(here.client, run.root) as messages:
            page.fold(await anext(messages))
            arrived.set()
            while page.rows.get(("plan", str(run.root)), {}).get("status") != "succeeded":
                page.fold(await anext(messages))
        return page

    arrived = [asyncio.Event() for _ in range(5)]
    clients = [asyncio.create_task(watch(each)) for each in arrived]
    for each in arrived:
        await each.wait()
    for event in run.events[1:]:
        await here.record(event)
    pages = await asyncio.gather(*clients)

    assert pages == [await here.tree(run.root)] * 5


async def test_client_behind_by_too_many_changes_gets_a_reset_then_changes(
    database_url: str, tmp_path: Path
) -> None:
    run = sample_run(sub_plans=10)
    async with live_server(database_url, tmp_path, StreamSettings(max_changes=10)) as server:
        revision = await server.record(*run.events[:-2])
        async with watching(server.client, run.root) as messages:
            reset = await anext(messages)
            assert (reset.event, reset.id) == ("reset", revision)
            assert reset.data == {"revision": revision}
            page = await server.tree(run.root)
            await page.until(messages, await server.record(*run.events[-2:]))

        assert page == await server.tree(run.root)


async def test_stream_from_an_unknown_revision_starts_with_a_reset(here: Live) -> None:
    run = sample_run()
    revision = await here.record(*run.events)
    async with watching(here.client, run.root, after=revision + 1000) as messages:
        reset = await anext(messages)

    assert (reset.event, reset.id) == ("reset", revision)


async def test_stream_of_a_deleted_run_reports_it_and_ends(here: Live) -> None:
    run = sample_run()
    revision = await here.record(*run.events)
    async with watching(here.client, run.root, after=revision) as messages:
        assert (await here.client.delete(f"/api/runs/{run.root}")).status_code == 204
        names = [message.event async for message in messages]

    assert names == ["deleted"]


async def test_idle_stream_sends_pings(database_url: str, tmp_path: Path) -> None:
    run = sample_run()
    async with live_server(database_url, tmp_path, StreamSettings(ping_seconds=0.05)) as server:
        await server.record(*run.events)
        async with server.client.stream("GET", f"/api/runs/{run.root}/events") as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == f"retry: {live.RECONNECT_MS}"
            comments = [line async for line in _up_to_a_comment(lines)]
    assert comments[-1] == ": ping"


async def _up_to_a_comment(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if line.startswith(":"):
            return


async def test_stream_of_a_missing_run_gets_404(here: Live) -> None:
    answer = await here.client.get(f"/api/runs/{new_id()}/events")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    run = sample_run()
    await here.record(*run.events)
    for wrong in ("-1", "one", str(2**63)):
        answer = await here.client.get(
            f"/api/runs/{run.root}/events", headers={"Last-Event-ID": wrong}
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


async def test_stream_of_an_ended_run_sends_late_changes(here: Live) -> None:
    run = Moments()
    revision = await here.record(run.plan_started(), run.call_started(), run.plan_finished())
    async with watching(here.client, run.root, after=revision) as messages:
        page = await here.tree(run.root)
        await page.until(messages, await here.record(run.call_finished(result="late")))

    assert page == await here.tree(run.root)


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    async with open_pool(database_url) as pool:
        yield pool


async def test_slow_client_gets_several_changes_in_one_message(pool: Pool) -> None:
    writer, reader = postgres_writer(ProjectPool(pool)), PostgresReader(ProjectPool(pool))
    run = Moments()
    await writer.write([run.plan_started()])
    async with RunWatch(reader) as watch:
        with watch.watching(run.root) as woken:
            messages = live.run_events(reader, watch, woken, run.root, 0, nothing_to_check)
            assert await anext(messages) == f"retry: {live.RECONNECT_MS}\n\n".encode()
            first = await anext(messages)
            for _ in range(20):
                await writer.write([run.call_started(tool_call_id=new_id())])
                watch.wake([run.root])
            second = await anext(messages)
            await messages.aclose()

    assert first.endswith(b"\nid: 1\n\n")
    assert second.endswith(b"\nid: 21\n\n")
    assert second.count(b'"kind":"toolCall"') == 20


class WatchedReader(PostgresReader):
    """A reader that can be away, and counts the questions of the watchers of a run."""

    is_away = False
    readings = 0
    polls = 0

    async def read_changes(self, root_plan_id: UUID, after: int, limit: int) -> RunChanges:
        self._answer()
        self.readings += 1
        return await super().read_changes(root_plan_id, after, limit)

    async def read_revisions(self, root_plan_ids: Collection[UUID]) -> dict[UUID, int]:
        self._answer()
        self.polls += 1
        return await super().read_revisions(root_plan_ids)

    def _answer(self) -> None:
        if self.is_away:
            raise StoreUnavailable()


async def test_stream_reports_a_store_outage_and_its_end(pool: Pool) -> None:
    settings = StreamSettings(retry_seconds=0.01)
    run, store = Moments(), WatchedReader(ProjectPool(pool))
    await postgres_writer(ProjectPool(pool)).write([run.plan_started()])
    async with asyncio.timeout(PATIENCE), RunWatch(store, poll_seconds=0.01) as watch:
        with watch.watching(run.root) as woken:
            messages = live.run_events(store, watch, woken, run.root, 1, nothing_to_check, settings)
            assert await anext(messages) == f"retry: {live.RECONNECT_MS}\n\n".encode()
            next_message = asyncio.ensure_future(anext(messages))
            while store.polls < 3:  # noqa: ASYNC110 - the first wakes in any case
                await asyncio.sleep(0.01)
            store.is_away = True
            assert await next_message == b"event: stale\ndata: {}\n\n"
            assert await anext(messages) == b": ping\n\n"
            store.is_away = False
            assert await anext(messages) == b'data: {"changed":[],"removed":[]}\nid: 1\n\n'
            await messages.aclose()


async def test_store_is_not_read_while_a_client_does_not_receive(here: Live, pool: Pool) -> None:
    run, store = Moments(), WatchedReader(ProjectPool(pool))
    writer = postgres_writer(ProjectPool(pool))
    await writer.write([run.plan_started()])
    is_full, leaves = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if b"data: " in message.get("body", b""):
            is_full.set()
            await asyncio.Event().wait()

    async with RunWatch(store) as watch:
        app = create_app(
            replace(here.parts, reader=store, watch=watch),
            stream_settings=StreamSettings(gap_seconds=0),
        )
        path = f"/api/runs/{run.root}/events"
        asked = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
        stream = asyncio.ensure_future(app(asked, receive, send))
        await is_full.wait()
        for _ in range(20):
            await writer.write([run.call_started(tool_call_id=new_id())])
            watch.wake([run.root])
            await asyncio.sleep(0)
        assert store.readings == 1
        leaves.set()
        await stream
        assert watch.watched == set()


async def test_run_is_not_watched_after_its_last_client_disconnects(here: Live) -> None:
    run = sample_run()
    revision = await here.record(*run.events)
    async with watching(here.client, run.root) as messages:
        assert (await anext(messages)).id == revision
        watch = here.parts.watch
        assert isinstance(watch, RunWatch)
        assert watch.watched == {run.root}
    async with asyncio.timeout(PATIENCE):
        while watch.watched:  # noqa: ASYNC110 - the server is what notices
            await asyncio.sleep(0.01)


@asynccontextmanager
async def other_server(database_url: str, home: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Give a client of a second server in this process."""
    async with live_server(database_url, home) as server:
        yield server.client


@asynccontextmanager
async def server_process(database_url: str, home: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Give a client of a server in a process of its own, which has to end as it is asked to."""
    await asyncio.to_thread(home.mkdir)
    server = await asyncio.to_thread(start_server, database_url, home)
    async with httpx2.AsyncClient(base_url=server.address, timeout=PATIENCE) as client:
        try:
            yield client
        finally:
            server.process.terminate()
            await asyncio.to_thread(server.process.wait, PATIENCE)
    log = await asyncio.to_thread((home / "server.log").read_text)
    assert "graceful shutdown exceeded" not in log


@pytest.mark.parametrize(
    "start", [other_server, pytest.param(server_process, marks=pytest.mark.thorough)]
)
async def test_changes_written_by_one_server_reach_clients_of_another(
    start: Callable[[str, Path], AbstractAsyncContextManager[httpx2.AsyncClient]],
    here: Live,
    database_url: str,
    tmp_path: Path,
) -> None:
    run = sample_run(sub_plans=5)
    await here.record(run.events[0])
    page = Folded()
    async with (
        AsyncExitStack() as streams,
        start(database_url, tmp_path / "other") as other,
    ):
        messages = await streams.enter_async_context(watching(other, run.root))
        for event in run.events[1:]:
            await page.until(messages, await here.record(event))
        there = complete((await other.get(f"/api/plans/{run.root}/tree")).json())
        # The stream is open still: the server's end must not wait for it.

    assert page == Folded(there["revision"], flattened(there)) == await here.tree(run.root)
