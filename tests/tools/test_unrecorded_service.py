"""A `ToolService` without a recorder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import tracer
from tests.adapters.recording import recording, trees_of
from tests.tools.http_servers import http_server, reply
from tracer.context import identity
from tracer.errors import Denied, RegistrationError
from tracer.records import Status
from tracer.tools import (
    BudgetLimits,
    CallOutcome,
    SessionState,
    Tool,
    ToolRegistry,
    ToolService,
    tool,
)
from tracer.tools.functions import stateful_tool
from tracer.tools.parameters import UserId
from tracer.tools.rest import RestConfig, rest_tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_calls_without_a_recorder_write_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call_add() -> CallOutcome:
        async with ToolService([add]) as tools:
            return await tools.call("add", {"a": 1, "b": 2})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACER_HOME", str(tmp_path))
    outcome = asyncio.run(call_add())

    assert (outcome.status, outcome.result) == (Status.SUCCEEDED, "3")
    assert list(tmp_path.iterdir()) == []


async def test_without_a_recorder_no_task_stays_open() -> None:
    before = asyncio.all_tasks()
    async with ToolService([add]) as tools:
        await tools.call("add", {"a": 1, "b": 2})
        assert asyncio.all_tasks() == before


async def test_service_without_arguments_has_no_tools_until_one_is_registered() -> None:
    async with ToolService() as tools:
        before = await tools.call("add", {"a": 1, "b": 2})
        tools.registry.register(add)
        after = await tools.call("add", {"a": 1, "b": 2})

    assert (before.reason, after.result) == ("unknown_tool", "3")


async def test_service_uses_the_registry_that_it_receives() -> None:
    registry = ToolRegistry([add])
    async with ToolService(registry) as tools:
        assert tools.registry is registry


def test_two_tools_with_one_name_are_rejected() -> None:
    with pytest.raises(RegistrationError, match="add"):
        ToolService([add, add])


def test_a_plain_function_in_place_of_a_tool_is_rejected() -> None:
    def subtract(a: int, b: int) -> int:
        return a - b

    functions: list[Any] = [subtract]

    with pytest.raises(RegistrationError, match=r"subtract.*@tool"):
        ToolService(functions)


async def test_identity_hooks_state_and_budgets_work_without_a_recorder() -> None:
    async def guard(next: Any, arguments: dict[str, Any]) -> Any:
        if arguments["points"] > 10:
            raise Denied("At most 10.")
        return await next(arguments)

    @tool(tool_hooks=[guard])
    def score(points: int, user_id: UserId, state: SessionState) -> str:
        state.increment("points", points)
        return str(len(user_id))

    @tool
    def total(state: SessionState) -> int:
        found: int = state["points"]
        return found

    async with ToolService([score, total]) as tools:
        anonymous = await tools.call("score", {"points": 1}, thread_id="match")
        with identity(token_id="ann"):
            denied = await tools.call("score", {"points": 11}, thread_id="match")
            scored = [await tools.call("score", {"points": 2}, thread_id="match") for _ in "ab"]
            summed = await tools.call("total", thread_id="match")
            async with tools.run("A match", limits=BudgetLimits(tool_calls=1)):
                reasons = [(await tools.call("total")).reason for _ in "ab"]

    assert anonymous.reason == "missing_identity"
    assert (denied.reason, [each.result for each in scored]) == ("denied", ["3", "3"])
    assert summed.result == "4"
    assert reasons[1] == "budget_exhausted"


async def test_stateful_tools_work_without_a_recorder() -> None:
    class Counter:
        def __init__(self) -> None:
            self.calls = 0

        def execute(self) -> int:
            """Count."""
            self.calls += 1
            return self.calls

    async with ToolService([stateful_tool(name="count", create=Counter)]) as tools:
        results = [
            (await tools.call("count", thread_id=thread)).result for thread in ("a", "a", "b")
        ]

    assert results == ["1", "2", "1"]


async def test_parallel_calls_without_a_recorder_have_distinct_ids() -> None:
    async with ToolService([add]) as tools:
        calls = [tools.call("add", {"a": each, "b": 0}) for each in range(200)]
        outcomes = await asyncio.gather(*calls)

    assert [each.result for each in outcomes] == [str(each) for each in range(200)]
    assert len({each.tool_call_id for each in outcomes}) == 200


async def test_unrecorded_call_sends_no_trace_headers() -> None:
    async with http_server(lambda request: reply(json=sorted(request.headers))) as server:
        read_headers = rest_tool(
            name="read_headers",
            description="Read the headers.",
            parameters={"type": "object", "properties": {}},
            config=RestConfig(base_url=server.url, allowed_hosts=frozenset({server.host})),
        )
        async with ToolService([read_headers]) as tools:
            outcome = await tools.call("read_headers")

    assert outcome.result is not None
    assert "accept-encoding" in outcome.result.lower()
    assert "trace" not in outcome.result.lower()


async def test_manual_plan_in_an_unrecorded_call_is_a_separate_run(
    tmp_path: Path,
) -> None:
    @tool
    async def ask(question: str) -> str:
        """Ask an agent that is recorded by hand."""
        async with tracing.plan(question, agent="researcher") as plan:
            plan.finish("answered")
        return str(plan.root_plan_id == plan.plan_id)

    with recording(tmp_path) as (tracing, store):
        async with ToolService([ask]) as tools:
            outcome = await tools.call("ask", {"question": "Why?"})
        [tree] = await trees_of(store)

    assert outcome.result == "True"
    assert (tree["title"], tree["status"]) == ("Why?", "succeeded")


async def test_one_tool_call_needs_only_public_names() -> None:
    @tracer.tool
    def double(number: int) -> int:
        return number * 2

    made: Tool = double
    async with tracer.ToolService([made]) as tools:
        assert (await tools.call("double", {"number": 4})).result == "8"
