"""MCP tool calls: their records, and the requests that the server receives."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from tests.runtime.runs import application, bench, script
from tests.tools.mcp_servers import LiveServer, forking, live_server
from tests.tools.service_bench import Service, service
from tests.tools.short_times import PATIENCE, long_enough
from tests.tools.traced_mcp_process import call_while_traced
from tracer.records import span_id
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.storage.memory import recording_in_memory
from tracer.tools import ToolRegistry
from tracer.tools.mcp import CALL_ID_KEY, McpServer

# The quick tests in test_mcp.py use stdio too.
KINDS = [pytest.param("stdio", marks=pytest.mark.thorough), "http"]


@asynccontextmanager
async def mirrored(home: Path, live: LiveServer) -> AsyncIterator[Service]:
    """Open a service that has the tools of a server."""
    async with service(home) as on:
        await on.tools.registry.add_server(McpServer(live.config())).start()
        yield on


@pytest.mark.parametrize("kind", KINDS)
async def test_mcp_server_receives_the_recorded_call_id_and_trace(
    tmp_path: Path, kind: str
) -> None:
    async with live_server(tmp_path, kind) as live, mirrored(tmp_path, live) as on:
        outcome = await on.tools.call("echo_meta")
        row = await on.row(outcome)

    meta = json.loads(outcome.result or "")
    assert meta[CALL_ID_KEY] == row["toolCallId"] == str(outcome.tool_call_id)
    span = span_id(outcome.tool_call_id)
    assert meta["traceparent"] == f"00-{outcome.root_plan_id.hex}-{span}-01"


@pytest.mark.parametrize("kind", KINDS)
async def test_mcp_server_receives_the_trace_of_the_run_under_opentelemetry(
    tmp_path: Path, kind: str
) -> None:
    async with live_server(tmp_path, kind) as live:
        receiving, sending = forking.Pipe(duplex=False)
        with receiving, sending:
            process = forking.Process(
                target=call_while_traced, args=(tmp_path, live.config(), sending), daemon=True
            )
            process.start()
            sending.close()
            assert await asyncio.to_thread(receiving.poll, PATIENCE)
            received = receiving.recv()
            process.join(PATIENCE)

    _, trace, span, _ = received["traceparent"].split("-")
    assert trace == received["run"]
    assert span != span_id(UUID(received["call"])), "a span of the library's own, below the call's"
    assert received["tracestate"] == f"tracer={received['call']}"
    assert received[CALL_ID_KEY] == received["call"]


async def test_calls_of_a_killed_server_are_recorded_as_unavailable(
    tmp_path: Path,
) -> None:
    async with live_server(tmp_path, "http") as live, mirrored(tmp_path, live) as on:
        started = time.monotonic()
        others = [asyncio.create_task(on.tools.call("slow")) for _ in range(3)]
        await live.until_noted("call slow", 3)
        killed = await on.tools.call("die", timeout=600)
        others_ended = [await each for each in others]
        took = time.monotonic() - started
        await live.start()
        after = await on.tools.call("number", {"n": 20})
        rows = [await on.row(each) for each in (killed, *others_ended)]

    assert took < 300  # of 600 s
    assert [(each["status"], each["reason"]) for each in rows] == [("failed", "unavailable")] * 4
    assert [each["attempt"] for each in rows] == [1] * 4
    assert "was lost before the tool responded" in killed.for_model
    assert (after.status, after.result) == ("succeeded", "20")
    # Nothing was called twice: nobody knows what it had done.
    assert (live.counted("call die"), live.counted("call slow")) == (1, 3)


@pytest.mark.parametrize("kind", KINDS)
async def test_cancelled_and_timed_out_calls_are_recorded_and_stopped(
    tmp_path: Path, kind: str
) -> None:
    async with live_server(tmp_path, kind) as live, mirrored(tmp_path, live) as on:
        calling = asyncio.create_task(on.tools.call("slow"))
        await live.until_noted("call slow")
        calling.cancel()
        await asyncio.wait({calling})
        await live.until_noted("cancelled")
        first = on.events[0].root_plan_id
        too_slow = await long_enough(
            lambda seconds: on.tools.call("slow", timeout=seconds),
            lambda: live.counted("call slow") > 1,
        )
        await live.until_noted("cancelled", 2)
        roots = (first, on.events[-1].root_plan_id)
        rows = [each for root in roots for each in (await on.rows(root)).tool_calls]

    assert calling.cancelled()
    assert too_slow.reason == "timed_out"
    assert [(each["status"], each["reason"]) for each in rows] == [
        ("cancelled", None),
        ("failed", "timed_out"),
    ]


async def test_model_continues_after_an_error_of_the_server(
    tmp_path: Path,
) -> None:
    async with live_server(tmp_path, "http") as live:
        registry = ToolRegistry(servers=[McpServer(live.config())])
        model = ScriptedModel([script("Go", [call("fail"), call("number", {"n": 20})], "done")])
        store = recording_in_memory()
        names = ("fail", "number")
        of_agents = application(model, names, registry=registry)
        async with bench(of_agents, store, store, tmp_path) as on:
            outcome = await on.launcher.run("Go", agent="worker")
            rows = (await on.rows(outcome.root_plan_id)).tool_calls

    assert outcome.status == "succeeded"
    assert [(each["name"], each["toolType"], each["status"], each["reason"]) for each in rows] == [
        ("fail", "MCP", "failed", "tool_error"),
        ("number", "MCP", "succeeded", None),
    ]
    assert rows[0]["error"]["message"] == "There is no such city."
