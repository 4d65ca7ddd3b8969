"""Calls to tools of MCP servers: results, errors, cancellation and lost servers."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from tests.tools.contexts import some_context
from tests.tools.mcp_servers import LiveServer, live_server, nothing_left_behind
from tests.tools.short_times import long_enough, until
from tracer.errors import InvalidResult, ToolError, ToolUnavailable
from tracer.tools import Tool, ToolType
from tracer.tools.http_clients import trace_headers
from tracer.tools.mcp import CALL_ID_KEY, McpConfig, McpServer

WAYS = [
    ("stdio", "auto"),
    pytest.param(("stdio", "legacy"), marks=pytest.mark.thorough),
    ("http", "auto"),
    ("http", "legacy"),
]


class Connected:
    """A server that some tests share, and how it was set up."""

    def __init__(self, live: LiveServer) -> None:
        self.live = live
        self.changes: list[tuple[Tool, ...]] = []
        config = live.config(max_result_bytes=10_000)
        self.server = McpServer(config, on_tools_changed=self.changes.append)

    async def tool(self, name: str) -> Tool:
        return (await named(self.server))[name]


@pytest.fixture(params=WAYS, ids="-".join, scope="module")
async def connected(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Connected]:
    """The suite's server over each transport, in the protocol of today and of 2025."""
    kind, protocol = request.param
    async with live_server(tmp_path_factory.mktemp("mcp"), kind, protocol) as live:
        shared = Connected(live)
        async with shared.server:
            yield shared


async def named(server: McpServer) -> dict[str, Tool]:
    return {tool.name: tool for tool in await server.tools()}


@pytest.mark.thorough  # test_tool_files.py has a quick test of a real server
async def test_time_server_returns_and_converts_the_time() -> None:
    config = McpConfig(
        name="time",
        command=sys.executable,
        args=("-m", "mcp_server_time"),
        connect_timeout=200,
    )
    async with nothing_left_behind(), McpServer(config) as server:
        tools = await named(server)
        now = await tools["get_current_time"].run({"timezone": "Asia/Tokyo"}, some_context())
        there = await tools["convert_time"].run(
            {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
            some_context(),
        )
        with pytest.raises(ToolError, match="Nowhere/Land"):
            await tools["get_current_time"].run({"timezone": "Nowhere/Land"}, some_context())

    assert set(tools) == {"get_current_time", "convert_time"}
    assert tools["convert_time"].tool_type is ToolType.MCP
    assert "+09:00" in json.dumps(now)
    assert "21:00:00+09:00" in json.dumps(there)


async def test_server_receives_the_call_id_and_trace(connected: Connected) -> None:
    context = some_context()
    received = await (await connected.tool("echo_meta")).run({}, context)

    ours = {CALL_ID_KEY: str(context.tool_call_id), **trace_headers(context)}
    assert {key: received[key] for key in ours} == ours


async def test_mcp_request_has_the_traceparent_of_the_current_application_span(
    connected: Connected,
) -> None:
    # The library writes the current span's, once OpenTelemetry has one; our own key survives.
    context = some_context()
    theirs = SpanContext(int("ab" * 16, 16), int("cd" * 8, 16), False, TraceFlags(1))
    tool = await connected.tool("echo_meta")
    with trace.use_span(NonRecordingSpan(theirs)):
        received = await tool.run({}, context)

    assert received["traceparent"] == f"00-{'ab' * 16}-{'cd' * 8}-01"
    assert received[CALL_ID_KEY] == str(context.tool_call_id)


async def test_mcp_server_receives_no_call_id_outside_a_call(connected: Connected) -> None:
    tool = await connected.tool("echo_meta")
    received = await tool.run({}, replace(some_context(), tool_call_id=None))

    assert not {CALL_ID_KEY, "traceparent", "tracestate"} & set(received)


async def test_error_of_the_server_fails_the_call(connected: Connected) -> None:
    with pytest.raises(ToolError, match=r"^There is no such city\.$") as failed:
        await (await connected.tool("fail")).run({}, some_context())
    with pytest.raises(ToolError, match="rejected the call"):
        await (await connected.tool("refuse")).run({}, some_context())

    assert not failed.value.may_pass


async def test_results_are_text_or_blocks_without_metadata(connected: Connected) -> None:
    lines = await (await connected.tool("lines")).run({}, some_context())
    blocks = await (await connected.tool("blocks")).run({}, some_context())

    assert lines == "one\ntwo"
    assert blocks == [
        {"type": "text", "text": "A picture:"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    ]


async def test_result_that_violates_its_schema_is_rejected(connected: Connected) -> None:
    tool = await connected.tool("temperature")
    fitting = await tool.run({"celsius": 21}, some_context())
    broken = await tool.run({"celsius": "secretly warm"}, some_context())

    assert tool.check_result is not None
    assert tool.check_result(fitting) == {"celsius": 21}
    with pytest.raises(InvalidResult) as refused:
        tool.check_result(broken)
    assert "secretly" not in f"{refused.value} {refused.value.__cause__}"


async def test_result_that_is_too_big_fails_the_call(connected: Connected) -> None:
    tool = await connected.tool("big")
    for characters in (10_000, 100_000, 3_000_000):
        with pytest.raises(ToolError, match=r"10000|byte limit") as failed:
            await tool.run({"characters": characters}, some_context())
        fits = await tool.run({"characters": 5_000}, some_context())

        assert fits == "ä" * 5_000, f"after a result of {characters} characters"
        assert not failed.value.may_pass


async def test_concurrent_mcp_calls_each_get_their_own_result(connected: Connected) -> None:
    tool = await connected.tool("number")
    answers = await asyncio.gather(*(tool.run({"n": n}, some_context()) for n in range(20)))

    assert answers == [str(n) for n in range(20)]


async def test_server_is_notified_of_a_cancelled_call(connected: Connected) -> None:
    calls, cancelled = connected.live.counted("call slow"), connected.live.counted("cancelled")
    call = asyncio.ensure_future((await connected.tool("slow")).run({}, some_context()))
    await connected.live.until_noted("call slow", calls + 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await connected.live.until_noted("cancelled", cancelled + 1)

    assert await (await connected.tool("number")).run({"n": 20}, some_context()) == "20"


async def test_server_is_notified_of_a_call_that_timed_out(connected: Connected) -> None:
    calls, cancelled = (connected.live.counted(each) for each in ("call slow", "cancelled"))
    slow = await connected.tool("slow")

    async def call(seconds: float) -> None:
        with pytest.raises(TimeoutError, match="did not respond in time"):
            await slow.run({}, some_context(time.monotonic() + seconds))

    started = time.monotonic()
    await long_enough(call, lambda: connected.live.counted("call slow") > calls)
    took = time.monotonic() - started
    await connected.live.until_noted("cancelled", cancelled + 1)

    assert took < 300  # of 600 s


async def test_tool_list_is_read_again_after_a_change_notification(connected: Connected) -> None:
    names = [f"new_{number}" for number in range(1_000)]
    add = await connected.tool("add_tool")
    # Over HTTP nobody can tell when the stream for notifications is open: hence more than once.
    async with asyncio.timeout(60):
        while len(connected.changes) == 1:
            await add.run({"name": names.pop()}, some_context())
    await until(lambda: "new_999" in {tool.name for tool in connected.changes[-1]})

    assert (await connected.tool("new_999")).tool_type is ToolType.MCP


async def test_call_ends_by_the_timeout_of_its_server(tmp_path: Path) -> None:
    async with (
        live_server(tmp_path, "http") as live,
        McpServer(live.config(timeout=0.2)) as server,
    ):
        tool = (await named(server))["slow"]
        with pytest.raises(TimeoutError):
            await tool.run({}, some_context())

    assert tool.timeout == 0.2


async def test_calls_after_a_server_process_died_share_one_new_process(tmp_path: Path) -> None:
    async with live_server(tmp_path, "stdio") as live, McpServer(live.config()) as server:
        tools = await named(server)
        meanwhile = asyncio.ensure_future(tools["slow"].run({}, some_context()))
        await live.until_noted("call slow")
        started = time.monotonic()
        with pytest.raises(ToolUnavailable, match="was lost before the tool responded"):
            await tools["die"].run({}, some_context())
        with pytest.raises(ToolUnavailable):
            await meanwhile
        took = time.monotonic() - started
        calls = (tools["number"].run({"n": n}, some_context()) for n in range(15, 20))
        answers = await asyncio.gather(*calls)

    assert took < 300  # of 600 s
    assert answers == [str(n) for n in range(15, 20)]
    assert len(set(live.noted("pid"))) == 2


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_next_call_after_an_http_server_died_works(tmp_path: Path, protocol: str) -> None:
    async with (
        live_server(tmp_path, "http", protocol) as live,
        McpServer(live.config()) as server,
    ):
        tools = await named(server)
        started = time.monotonic()
        with pytest.raises(ToolUnavailable, match="was lost before the tool responded"):
            await tools["die"].run({}, some_context())
        with pytest.raises(ToolUnavailable):  # the server is down
            await tools["number"].run({"n": 20}, some_context())
        took = time.monotonic() - started
        await live.start()
        answers = [await tools["number"].run({"n": 20}, some_context())]
        await live.start()
        # The client has not noticed this restart.
        answers += [await tools["number"].run({"n": n}, some_context()) for n in (18, 19)]

    assert took < 300  # of 600 s
    assert answers == ["20", "18", "19"]


async def test_secrets_reach_only_the_mcp_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TEST_SECRET", "s3cret")
    monkeypatch.setenv("MCP_TEST_OTHER", "not for servers")
    secrets: dict[str, Any] = {
        "stdio": {"env": {"TOKEN": "env:MCP_TEST_SECRET", "PLACE": "file:///somewhere"}},
        "http": {"headers": {"token": "env:MCP_TEST_SECRET"}, "bearer": "env:MCP_TEST_SECRET"},
    }
    names = ["TOKEN", "PLACE", "MCP_TEST_OTHER", "token", "authorization"]
    found = {}
    for kind, options in secrets.items():
        async with live_server(tmp_path, kind) as live:
            config = live.config(**options)
            async with McpServer(config) as server:
                tool = (await named(server))["environment"]
                found[kind] = await tool.run({"names": names}, some_context())
            assert "s3cret" not in repr(config)

    assert found["stdio"]["TOKEN"] == "s3cret"
    assert found["stdio"]["PLACE"] == "file:///somewhere"
    assert found["stdio"]["MCP_TEST_OTHER"] is None
    assert found["http"]["token"] == "s3cret"
    assert found["http"]["authorization"] == "Bearer s3cret"
