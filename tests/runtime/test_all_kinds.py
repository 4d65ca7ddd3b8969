"""One run calls every type of tool; Postgres stores each call before and after it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from tests.runtime.runs import bench
from tests.tools.http_servers import http_server, reply
from tracer import McpConfig, McpServer, RestConfig, rest_tool, stateful_tool
from tracer.context import identity
from tracer.runtime import Agent, Application, PlanTemplate, StepTemplate, subplan_tool
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.tools import ToolRegistry, tool
from tracer.tools.parameters import UserId

BEFORE = "SELECT name, tool_type, status, arguments, started_at FROM act_tool_info"
AFTER = """
SELECT name, tool_type, status, reason, attempt, octet_length(arguments) AS arguments_bytes,
       octet_length(result) AS result_bytes, result, finished_at >= started_at AS is_in_order
FROM act_tool_info ORDER BY name
"""


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def execute(self, by: int) -> int:
        """Add to the count.

        Args:
            by: How much.
        """
        self.count += by
        return self.count


async def test_each_tool_type_is_recorded_before_and_after_running(
    database_url: str, tmp_path: Path
) -> None:
    @tool
    def add(one: int, other: int) -> int:
        """Add."""
        return one + other

    seen: list[dict[str, Any]] = []

    async def look(next: Any, arguments: Any, name: str) -> Any:
        async with await psycopg.AsyncConnection.connect(
            database_url, row_factory=dict_row
        ) as connection:
            cursor = await connection.execute(f"{BEFORE} WHERE name = %s", [name])
            seen.extend(await cursor.fetchall())
        return await next(arguments)

    template = PlanTemplate(name="review", description="Reviews.", steps=(StepTemplate("Sum up"),))
    calls: dict[str, dict[str, Any]] = {
        "add": {"one": 1, "other": 2},
        "count": {"by": 3},
        "weather": {"city": "Zürich"},
        "convert_time": {
            "source_timezone": "UTC",
            "time": "12:00",
            "target_timezone": "Asia/Shanghai",
        },
        "review": {},
    }
    chosen = [call(name, arguments) for name, arguments in calls.items()]
    model = ScriptedModel(
        [
            Script([Turn(calls=chosen), Turn("done")], request="Go"),
            Script([Turn("All is well.")], request="Sum up"),
        ]
    )
    time_server = McpServer(
        McpConfig(
            name="time",
            command=sys.executable,
            args=("-m", "mcp_server_time"),
            connect_timeout=200,
        )
    )
    async with http_server(lambda _: reply(json={"degrees": 21, "of": "user-42-canary"})) as api:
        weather = rest_tool(
            name="weather",
            description="Weather.",
            parameters={"type": "object", "properties": {"city": {"type": "string"}}},
            hidden={"user_id": UserId},
            config=RestConfig(
                base_url=api.url,
                path="/of/{user_id}/{city}",
                allowed_hosts=frozenset({api.host}),
            ),
        )
        registry = ToolRegistry(
            [
                add,
                stateful_tool(name="count", create=Counter),
                weather,
                subplan_tool(template),
            ],
            [time_server],
        )
        worker = Agent("worker", "Work.", tools=tuple(calls), tool_hooks=(look,))
        application = Application(name="all", agents=(worker,), model=model, registry=registry)
        async with (
            open_pool(database_url) as pool,
            bench(
                application,
                postgres_writer(ProjectPool(pool)),
                PostgresReader(ProjectPool(pool)),
                tmp_path,
            ) as on,
        ):
            with identity(token_id="user-42-canary"):
                outcome = await on.launcher.run("Go", agent="worker")

    assert outcome.status == "succeeded"
    kinds = {
        "add": "STATELESS",
        "convert_time": "MCP",
        "count": "STATEFUL",
        "review": "SUBPLAN",
        "weather": "REST",
    }
    assert {each["name"]: each["tool_type"] for each in seen} == kinds
    assert all(each["status"] == "running" and each["started_at"] for each in seen)
    assert all(each["arguments"] for each in seen)
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        rows = connection.execute(AFTER).fetchall()
    assert {each["name"]: each["tool_type"] for each in rows} == kinds
    for each in rows:
        assert (each["status"], each["reason"], each["attempt"]) == ("succeeded", None, 1), each
        assert each["is_in_order"]
        assert each["arguments_bytes"] >= 2
        assert each["result_bytes"] == len(each["result"].encode())
    results = {each["name"]: each["result"] for each in rows}
    assert results["add"] == results["count"] == "3"
    assert results["review"] == "All is well."
    assert "20:00" in results["convert_time"]
    assert results["weather"] == '{"degrees":21,"of":"[hidden]"}'
    [request] = api.received
    assert request.path == "/of/user-42-canary/Z%C3%BCrich"
    trace = outcome.root_plan_id.hex
    assert request.headers["traceparent"].startswith(f"00-{trace}-")
