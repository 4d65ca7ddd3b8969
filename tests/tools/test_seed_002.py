"""The example of seed 002: four tools of one service, and tool instances kept per conversation.

The registrations are the document's TypeScript as Python. A comment marks each line that differs
(`docs/explanation/seeds.md`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tools.http_servers import Received, http_server, reply
from tests.tools.mcp_servers import LiveServer, live_server
from tests.tools.service_bench import Service, service
from tracer.tools import CallOutcome
from tracer.tools.functions import stateful_tool, stateless_tool
from tracer.tools.mcp import McpServer
from tracer.tools.rest import RestConfig, rest_tool

THREADS = ("thread-1", "thread-2")


def schema(**properties: str) -> dict[str, Any]:
    fields = {name: {"type": kind} for name, kind in properties.items()}
    return {"type": "object", "properties": fields, "required": list(fields)}


class DatabaseTool:
    """Keeps rows, for one thread."""

    def __init__(self, tools: list[DatabaseTool]) -> None:
        self.rows: list[str] = []
        self.cleanups = 0
        tools.append(self)

    async def execute(self, row: str) -> int:
        assert not self.cleanups, "used after its clean-up"
        await asyncio.sleep(0)
        self.rows.append(row)
        return len(self.rows)

    def cleanup(self) -> None:
        self.cleanups += 1

    close = cleanup


def weather(request: Received) -> bytes:
    assert request.headers["authorization"] == "Bearer xxx"
    return reply(json={"city": dict(request.query)["city"], "celsius": 21})


async def calculate(a: float, b: float) -> float:
    return a + b


@asynccontextmanager
async def registered(
    home: Path, mcp: LiveServer, made: list[DatabaseTool]
) -> AsyncIterator[Service]:
    """Open a service with a tool of each of the four kinds."""
    async with http_server(weather) as api, service(home) as on:
        registry = on.tools.registry
        registry.register(
            stateless_tool(
                name="calculator",
                description="计算器工具",
                parameters=schema(a="number", b="number"),
                execute=calculate,  # by name; a function of one parameter gets `params`
            )
        )
        registry.register(
            stateful_tool(
                name="database",
                description="数据库工具",
                parameters=schema(row="string"),
                create=lambda: DatabaseTool(made),
            )
        )
        registry.register(
            rest_tool(
                name="weather",
                description="天气查询",
                parameters=schema(city="string"),
                config=RestConfig.model_validate(
                    {
                        "base_url": api.url,
                        # `headers: {'Authorization': 'Bearer xxx'}`: a reference, because
                        # configuration is copied, committed and logged.
                        "auth": {"type": "bearer", "secret": "env:SEED_WEATHER_TOKEN"},
                        # Added: the test's server is on the internal network.
                        "allowed_hosts": [api.host],
                        "timeout": 9,
                    }
                ),
            )
        )
        # No description and parameters: the server's own list has them.
        await registry.add_server(McpServer(mcp.config(name="postgres-server"))).start()
        yield on


async def test_four_registrations_are_called_by_name_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEED_WEATHER_TOKEN", "xxx")
    calls: dict[str, dict[str, Any]] = {
        "calculator": {"a": 1, "b": 2},
        "database": {"row": "one"},
        "weather": {"city": "北京"},
        "number": {"n": 20},
    }
    async with (
        live_server(tmp_path, "http") as mcp,
        registered(tmp_path, mcp, []) as on,
    ):
        outcomes = [
            await on.tools.call(name, arguments, thread_id="thread-1")
            for name, arguments in calls.items()
        ]
        rows = [await on.row(each) for each in outcomes]

    read = '{"city":"北京","celsius":21}'
    assert [each.result for each in outcomes] == ["3", "1", read, "20"]
    assert [each["toolType"] for each in rows] == ["STATELESS", "STATEFUL", "REST", "MCP"]
    assert {each["status"] for each in rows} == {"succeeded"}


async def test_thread_instance_is_reused_until_its_tool_or_thread_ends(
    tmp_path: Path,
) -> None:
    made: list[DatabaseTool] = []

    async with (
        live_server(tmp_path, "http") as mcp,
        registered(tmp_path, mcp, made) as on,
    ):

        async def add(thread: str, row: str) -> CallOutcome:
            return await on.tools.call("database", {"row": row}, thread_id=thread)

        # At once: one instance for each thread all the same, and no row is lost.
        outcomes = await asyncio.gather(*(add(thread, "row") for thread in THREADS * 5))
        assert sorted(str(each.result) for each in outcomes) == sorted("12345" * 2)
        assert [len(each.rows) for each in made] == [5, 5]

        await on.tools.end_tool("database", "thread-1")
        assert sorted(each.cleanups for each in made) == [0, 1]
        again = await add("thread-1", "another")
        await on.tools.end_thread("thread-1")
        assert sorted(each.cleanups for each in made) == [0, 1, 1]
        still = await add("thread-2", "sixth")

    assert (again.result, still.result) == ("1", "6")
    assert len(made) == 3
    assert [each.cleanups for each in made] == [1, 1, 1]
