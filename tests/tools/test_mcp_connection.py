"""Connections to MCP servers: start, timeouts, closing and secrets."""

import asyncio
import sys
import time
from contextvars import ContextVar
from pathlib import Path

import pytest

from tests.tools.contexts import some_context
from tests.tools.mcp_servers import live_server, nothing_left_behind
from tracer.errors import ToolUnavailable
from tracer.tools.mcp import McpConfig, McpServer

SILENT = ("-c", "import sys; sys.stdin.read()")
"""A server that never responds."""

WAYS = [
    # test_closing_continues_when_it_is_cancelled closes a stdio server in the quick profile
    pytest.param("stdio", "auto", marks=pytest.mark.thorough),
    pytest.param("stdio", "legacy", marks=pytest.mark.thorough),
    ("http", "auto"),
    ("http", "legacy"),
]


@pytest.mark.parametrize(("kind", "protocol"), WAYS)
async def test_any_task_may_close_a_server(tmp_path: Path, kind: str, protocol: str) -> None:
    async with live_server(tmp_path, kind, protocol) as live:
        server = McpServer(live.config())
        await asyncio.create_task(server.start())
        await asyncio.ensure_future((await server.tools())[0].run({}, some_context()))
        await asyncio.create_task(server.aclose())


async def test_closing_ends_calls_and_rejects_new_ones(tmp_path: Path) -> None:
    async with live_server(tmp_path, "http") as live:
        server = McpServer(live.config())
        await server.start()
        tools = {tool.name: tool for tool in await server.tools()}
        call = asyncio.ensure_future(tools["slow"].run({}, some_context()))
        await live.until_noted("call slow")
        await server.aclose()
        with pytest.raises(ToolUnavailable, match="was lost before the tool responded"):
            await call
        with pytest.raises(ToolUnavailable, match="is closed"):
            await tools["number"].run({"n": 20}, some_context())

        await server.start()
        assert await tools["number"].run({"n": 20}, some_context()) == "20"
        await server.aclose()


async def test_server_that_cannot_be_started_is_logged(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    config = McpConfig(name="absent", command=str(tmp_path / "no-such-program"))
    async with nothing_left_behind(), McpServer(config) as server:
        assert await server.tools() == ()
        with pytest.raises(ToolUnavailable, match="'absent' cannot be reached") as failed:
            await server.call("any", {}, some_context())

    assert failed.value.may_pass
    assert "mcp_server_unavailable" in caplog.text


async def test_program_that_does_not_speak_mcp_fails_immediately() -> None:
    config = McpConfig(
        name="absent", command=sys.executable, args=("-c", "print('hello')"), connect_timeout=600
    )
    started = time.monotonic()
    async with nothing_left_behind(), McpServer(config) as server:
        assert await server.tools() == ()

    assert time.monotonic() - started < 300  # of 600 s


async def test_silent_server_times_out() -> None:
    config = McpConfig(
        name="silent", command=sys.executable, args=SILENT, connect_timeout=0.5, timeout=600
    )
    started = time.monotonic()
    async with nothing_left_behind(), McpServer(config) as server:
        assert await server.tools() == ()
        with pytest.raises(ToolUnavailable, match=r"did not answer within 0\.5 s"):
            await server.call("any", {}, some_context())

    assert time.monotonic() - started < 300  # of 600 s


async def test_connecting_is_bounded_by_the_deadline_of_the_call() -> None:
    config = McpConfig(name="silent", command=sys.executable, args=SILENT, connect_timeout=600)
    async with nothing_left_behind():
        server = McpServer(config)
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            await server.call("any", {}, some_context(started + 0.2))
        took = time.monotonic() - started
        await server.aclose()  # While it still connects.

    assert took < 300  # of 600 s


async def test_mcp_server_that_starts_later_is_connected(tmp_path: Path) -> None:
    async with live_server(tmp_path, "http") as live:
        config = live.config()
        live.stop()
        async with McpServer(config) as server:
            before = await server.tools()
            await live.start()
            after = await server.tools()

    assert before == ()
    assert after != ()


async def test_cancelled_call_does_not_end_the_shared_connection(tmp_path: Path) -> None:
    async with live_server(tmp_path, "stdio") as live:
        server = McpServer(live.config())
        impatient = asyncio.ensure_future(server.call("number", {"n": 20}, some_context()))
        patient = asyncio.ensure_future(server.call("number", {"n": 19}, some_context()))
        await live.until_noted("pid")
        impatient.cancel()
        assert await patient == "19"
        await server.aclose()

    assert impatient.cancelled()
    assert live.counted("pid") == 1


async def test_missing_secret_is_named(tmp_path: Path) -> None:
    config = McpConfig(name="any", url="http://127.0.0.1:9/mcp", bearer="env:MCP_TEST_NOT_SET")
    async with nothing_left_behind(), McpServer(config) as server:
        with pytest.raises(ToolUnavailable, match="env:MCP_TEST_NOT_SET"):
            await server.call("any", {}, some_context())


async def test_stderr_of_a_server_goes_only_to_its_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    noise = tmp_path / "noise"
    noisy = ("-c", "import sys; sys.stderr.write('noise\\n')")
    for file in (None, noise):
        config = McpConfig(name="noisy", command=sys.executable, args=noisy, stderr=file)
        async with nothing_left_behind(), McpServer(config) as server:
            assert await server.tools() == ()  # it ends without an answer

    assert set(noise.read_text().splitlines()) == {"noise"}
    assert capfd.readouterr() == ("", "")


async def test_shared_mcp_connection_has_no_context_of_its_first_call(tmp_path: Path) -> None:
    caller = ContextVar[str]("caller")
    seen: list[str | None] = []
    async with live_server(tmp_path, "http") as live:
        server = McpServer(live.config(), on_tools_changed=lambda _: seen.append(caller.get(None)))
        token = caller.set("the first")
        assert await server.call("number", {"n": 20}, some_context()) == "20"
        caller.reset(token)
        await server.aclose()

    assert seen == [None]
