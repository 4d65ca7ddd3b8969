"""Starting and closing a tool service, with late servers and cancellations."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.tools.contexts import some_context
from tests.tools.mcp_servers import LiveServer, live_server, nothing_left_behind
from tests.tools.short_times import PATIENCE, until
from tracer.errors import ToolUnavailable
from tracer.recorder import Recorder, Spool
from tracer.storage.memory import recording_in_memory
from tracer.tools import ToolRegistry, ToolResources, ToolService, tool
from tracer.tools.mcp import McpConfig, McpServer

NEVER = ("-c", "import sys; sys.stdin.read()")
SILENT = McpConfig(name="silent", command=sys.executable, args=NEVER)


async def test_tools_of_a_server_that_starts_late_are_registered(
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
            Recorder(recording_in_memory(), Spool(tmp_path / "spool.db")) as recorder,
            ToolService(registry, recorder) as tools,
        ):
            before = await tools.call("number", {"n": 20})
            await live.start()
            await until(lambda: registry.find("number") is not None)
            after = await tools.call("number", {"n": 20})
    finally:
        live.stop()

    assert (before.reason, after.reason) == ("unknown_tool", None)


async def test_closed_service_stops_retrying_its_servers(
    tmp_path: Path,
) -> None:
    config = McpConfig(name="absent", command=str(tmp_path / "no-such-program"))
    server = McpServer(config, retry_seconds=0)
    async with (
        nothing_left_behind(),
        Recorder(recording_in_memory(), Spool(tmp_path / "spool.db")) as recorder,
        ToolService(ToolRegistry(servers=[server]), recorder),
    ):
        await asyncio.sleep(0)


async def test_cancelled_start_leaves_no_server_behind(tmp_path: Path) -> None:
    async with (
        nothing_left_behind(),
        Recorder(recording_in_memory(), Spool(tmp_path / "spool.db")) as recorder,
    ):
        server = McpServer(SILENT)
        service = ToolService(ToolRegistry(servers=[server]), recorder)
        starting = asyncio.create_task(service.__aenter__())
        await until(lambda: any(each.get_name() == "mcp-silent" for each in asyncio.all_tasks()))
        starting.cancel()
        await asyncio.wait({starting}, timeout=PATIENCE)

    assert starting.cancelled()


async def test_closing_continues_when_it_is_cancelled(tmp_path: Path) -> None:
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
        Recorder(recording_in_memory(), Spool(tmp_path / "spool.db")) as recorder,
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


async def test_servers_are_closed_when_the_resources_fail_to_close(tmp_path: Path) -> None:
    class Broken(ToolResources):
        async def aclose(self) -> None:
            raise OSError("broken")

    async with live_server(tmp_path, "http") as live:
        server = McpServer(live.config())
        async with Recorder(recording_in_memory(), Spool(tmp_path / "spool.db")) as recorder:
            service = ToolService(ToolRegistry(servers=[server]), recorder, Broken())
            await service.__aenter__()
            with pytest.raises(OSError, match="broken"):
                await service.aclose()
            with pytest.raises(ToolUnavailable, match="is closed"):
                await server.call("number", {"n": 20}, some_context())


def test_default_sessions_are_not_shared_between_resources() -> None:
    assert ToolResources().sessions is not ToolResources().sessions
