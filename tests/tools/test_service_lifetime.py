"""A tool service's beginning and end: servers that are late, and a cancellation on the way."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.tools.mcp_servers import LiveServer, nothing_left_behind, until
from tests.tools.short_times import PATIENCE
from tracer.recorder.recorder import Recorder
from tracer.recorder.spool import Spool
from tracer.storage.memory_store import MemoryStore
from tracer.tools.definition import tool
from tracer.tools.executors.mcp import McpConfig, McpServer
from tracer.tools.registry import ToolRegistry
from tracer.tools.run_scope import ToolResources
from tracer.tools.tool_service import ToolService

NEVER = ("-c", "import sys; sys.stdin.read()")
SILENT = McpConfig(name="silent", command=sys.executable, args=NEVER)


async def test_a_server_that_comes_late_has_its_tools_as_soon_as_it_is_there(
    tmp_path: Path,
) -> None:
    live = LiveServer(tmp_path, "http", "auto")
    await live.start()
    server = McpServer(live.config(), retry_seconds=0.01)
    registry = ToolRegistry(servers=[server])
    live.stop()
    try:
        async with (
            nothing_left_behind(),
            Recorder(MemoryStore(), Spool(tmp_path / "spool.db")) as recorder,
            ToolService(registry, recorder) as tools,
        ):
            before = await tools.call("number", {"n": 20})
            await live.start()
            await until(lambda: registry.find("number") is not None)
            after = await tools.call("number", {"n": 20})
    finally:
        live.stop()

    assert (before.reason, after.reason) == ("unknown_tool", None)


async def test_a_server_that_never_comes_is_asked_no_more_once_the_service_is_closed(
    tmp_path: Path,
) -> None:
    config = McpConfig(name="absent", command=str(tmp_path / "no-such-program"))
    server = McpServer(config, retry_seconds=0)
    async with (
        nothing_left_behind(),
        Recorder(MemoryStore(), Spool(tmp_path / "spool.db")) as recorder,
        ToolService(ToolRegistry(servers=[server]), recorder),
    ):
        await asyncio.sleep(0)


async def test_a_start_that_is_cancelled_leaves_no_server_behind(tmp_path: Path) -> None:
    async with (
        nothing_left_behind(),
        Recorder(MemoryStore(), Spool(tmp_path / "spool.db")) as recorder,
    ):
        server = McpServer(SILENT)
        service = ToolService(ToolRegistry(servers=[server]), recorder)
        starting = asyncio.create_task(service.__aenter__())
        await until(lambda: any(each.get_name() == "mcp-silent" for each in asyncio.all_tasks()))
        starting.cancel()
        await asyncio.wait({starting}, timeout=PATIENCE)

    assert starting.cancelled()


async def test_closing_goes_on_to_its_end_when_it_is_cancelled(tmp_path: Path) -> None:
    let_go = asyncio.Event()

    @tool(timeout=0.01)
    async def stubborn() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    live = LiveServer(tmp_path, "stdio", "auto")
    registry = ToolRegistry([stubborn], [McpServer(live.config())])
    async with (
        nothing_left_behind(),
        Recorder(MemoryStore(), Spool(tmp_path / "spool.db")) as recorder,
    ):
        service = ToolService(registry, recorder)
        await service.__aenter__()
        await service.call("stubborn")
        closing = asyncio.create_task(service.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert live.running() == []


async def test_what_fails_to_close_keeps_nothing_else_open(tmp_path: Path) -> None:
    class Broken(ToolResources):
        async def aclose(self) -> None:
            raise OSError("broken")

    live = LiveServer(tmp_path, "stdio", "auto")
    registry = ToolRegistry(servers=[McpServer(live.config())])
    async with (
        nothing_left_behind(),
        Recorder(MemoryStore(), Spool(tmp_path / "spool.db")) as recorder,
    ):
        service = ToolService(registry, recorder, Broken())
        await service.__aenter__()
        with pytest.raises(OSError, match="broken"):
            await service.aclose()
        assert live.running() == []


def test_the_resources_begin_with_an_empty_state_of_their_own() -> None:
    assert ToolResources().sessions is not ToolResources().sessions
