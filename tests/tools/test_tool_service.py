"""The tool service: calls inside and outside runs, their lineage, and cancellation."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.recordings import run_of
from tests.runtime.runs import ENDED, everything
from tests.tools.service_bench import Service, service
from tests.tools.short_times import PATIENCE
from tests.trees import TreeRows
from tracer.context import ToolContext, current_tool_context, identity
from tracer.errors import Denied
from tracer.storage.memory import RecordingInMemory
from tracer.tools import CallOutcome, Tool, tool
from tracer.tools.parameters import UserId


@tool
async def add(a: int, b: int = 1) -> int:
    return a + b


@tool
def add_in_thread(a: int, b: int = 1) -> int:
    return a + b


@tool
async def deny() -> None:
    raise Denied("Not you.")


@tool
async def cancel() -> None:
    raise asyncio.CancelledError


@tool(timeout=0.01)
async def hang() -> None:
    await asyncio.Event().wait()


def links(rows: TreeRows) -> dict[str, tuple[Any, ...]]:
    """Return where each call hangs, by its arguments."""
    return {
        each["arguments"]: (each["name"], each["stepId"], each["parentToolCallId"])
        for each in rows.tool_calls
    }


@pytest.mark.parametrize(
    ("name", "arguments", "status", "reason"),
    [
        ("add", {"a": 1}, "succeeded", None),
        ("add_in_thread", {"a": 1}, "succeeded", None),
        ("add", {"a": "x"}, "failed", "invalid_arguments"),
        ("add", "{broken", "failed", "invalid_arguments"),
        ("deny", {}, "failed", "denied"),
        ("cancel", {}, "cancelled", None),
        ("hang", {}, "failed", "timed_out"),
        ("nowhere", {}, "failed", "unknown_tool"),
    ],
)
async def test_call_outside_a_run_is_a_separate_run(
    tmp_path: Path, name: str, arguments: Any, status: str, reason: str | None
) -> None:
    async with service(tmp_path, add, add_in_thread, deny, cancel, hang) as on:
        outcome = await on.tools.call(name, arguments, thread_id="s", provider_call_id="call_0")
        rows = await on.rows(outcome.root_plan_id)
        assert isinstance(on.reader, RecordingInMemory)
        run = run_of(on.reader, outcome.root_plan_id)

    assert (outcome.status, outcome.reason) == (status, reason)
    [row], [step], [plan] = rows.tool_calls, rows.steps, rows.plans
    for each in (row, step, plan):
        assert (each["status"], each["reason"]) == (status, reason)
        assert each["startedAt"] <= each["finishedAt"]
    assert (row["name"], row["thinkActId"], row["providerCallId"]) == (name, None, "call_0")
    assert (plan["title"], run.session_id, run.status) == (name, "s", status)
    assert current_tool_context() is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "{}"),
        ({"a": 1}, '{"a":1}'),
        ('{"a": 1}', '{"a": 1}'),
        ({"a": datetime(2026, 1, 1, tzinfo=UTC)}, '{"a":"2026-01-01T00:00:00Z"}'),
        ({"a": "你好 \0\ud800"}, None),
    ],
)
async def test_service_accepts_arguments_as_values_or_json_text(
    tmp_path: Path, given: Any, text: str | None
) -> None:
    @tool
    async def show(a: Any = None) -> Any:
        return a

    async with service(tmp_path, show) as on:
        outcome = await on.tools.call("show", given)
        row = await on.row(outcome)

    assert outcome.status == "succeeded"
    assert text in (None, row["arguments"])
    if isinstance(given, dict) and isinstance(given["a"], str):
        assert outcome.result == given["a"]


async def test_calls_inside_a_run_belong_to_it_in_order(tmp_path: Path) -> None:
    async with service(tmp_path, add, add_in_thread) as on:
        async with on.tools.run("Sums", request="Add", agent_name="me", tags=["x"]) as context:
            first = await on.tools.call("add", {"a": 1})
            second = await on.tools.call("add_in_thread", {"a": 2})
            third = await asyncio.to_thread(on.tools.call_sync, "add", {"a": 3})
            during = await on.rows(context.root_plan_id)
        rows = await on.rows(context.root_plan_id)

    assert {each.root_plan_id for each in (first, second, third)} == {context.root_plan_id}
    assert [each["status"] for each in (*during.plans, *during.steps)] == ["running"] * 2
    assert {each["status"] for each in everything(rows)} == {"succeeded"}
    assert [(each["position"], each["result"]) for each in rows.tool_calls] == [
        (0, "2"),
        (1, "3"),
        (2, "4"),
    ]
    [plan], [step] = rows.plans, rows.steps
    assert (plan["title"], plan["userRequest"], step["agentName"]) == ("Sums", "Add", "me")


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ValueError("no"), "failed", "tool_error"),
        (Denied("no"), "failed", "denied"),
        (SystemExit("no"), "failed", "tool_error"),
        (asyncio.CancelledError(), "cancelled", None),
    ],
)
async def test_run_whose_block_raises_is_recorded_as_failed_and_raises(
    tmp_path: Path, error: BaseException, status: str, reason: str | None
) -> None:
    contexts: list[ToolContext] = []

    async def breaks() -> None:
        async with on.tools.run("Breaks") as context:
            contexts.append(context)
            await on.tools.call("add", {"a": 1})
            raise error

    async with service(tmp_path, add) as on:
        with pytest.raises(type(error)):
            await breaks()
        rows = await on.rows(contexts[0].root_plan_id)

    for each in (*rows.plans, *rows.steps):
        assert (each["status"], each["reason"]) == (status, reason)
    assert rows.tool_calls[0]["status"] == "succeeded"


async def test_recorded_error_of_a_run_does_not_contain_the_caller(tmp_path: Path) -> None:
    contexts: list[ToolContext] = []

    async def breaks() -> None:
        with identity(token_id="token-zyx"):
            async with on.tools.run("Breaks") as context:
                contexts.append(context)
                await on.tools.call("who")
                raise ValueError("no token-zyx, no user-zyx")

    @tool
    async def who(user_id: UserId) -> None: ...

    async with service(tmp_path, who, resolve_token=lambda token_id: "user-zyx") as on:
        with pytest.raises(ValueError, match="zyx"):
            await breaks()
        rows = await on.rows(contexts[0].root_plan_id)

    assert rows.plans[0]["error"]["message"] == "no [hidden], no [hidden]"
    assert "zyx" not in repr(rows)


def nesting(is_async: bool) -> Tool:
    """Return a tool that calls itself until it is deep enough, and then adds."""

    async def nest_async(depth: int) -> Any:
        tools = _service.get().tools
        outcome = await (
            tools.call("add", {"a": 0}) if depth == 0 else tools.call("nest", {"depth": depth - 1})
        )
        return outcome.result

    def nest(depth: int) -> Any:
        tools = _service.get().tools
        if depth == 0:
            return tools.call_sync("add", {"a": 0}).result
        return tools.call_sync("nest", {"depth": depth - 1}).result

    return tool(name="nest")(nest_async if is_async else nest)


_service: contextvars.ContextVar[Service] = contextvars.ContextVar("service")


@pytest.mark.parametrize("is_async", [False, True])
async def test_call_made_by_a_tool_is_a_child_of_its_call(tmp_path: Path, is_async: bool) -> None:
    async with service(tmp_path, add, nesting(is_async)) as on:
        _service.set(on)
        outcomes = await asyncio.gather(*(on.tools.call("nest", {"depth": 2}) for _ in range(5)))
        for outcome in outcomes:
            rows = await on.rows(outcome.root_plan_id)
            calls = {each["arguments"]: each for each in rows.tool_calls}
            names = ['{"depth":2}', '{"depth":1}', '{"depth":0}', '{"a":0}']
            chain = [calls[name] for name in names]
            assert len(rows.tool_calls) == 4
            above = [None, *(each["toolCallId"] for each in chain[:-1])]
            assert [each["parentToolCallId"] for each in chain] == above
            assert {each["stepId"] for each in chain} == {rows.steps[0]["stepId"]}


async def test_call_made_after_its_run_ended_is_a_separate_run(tmp_path: Path) -> None:
    let_go = asyncio.Event()

    async def later(on: Service) -> CallOutcome:
        await let_go.wait()
        return await on.tools.call("add", {"a": 1})

    async with service(tmp_path, add) as on:
        async with on.tools.run("Over") as context:
            task = asyncio.create_task(later(on))
        let_go.set()
        outcome = await task
        rows = await on.rows(context.root_plan_id)

    assert outcome.status == "succeeded"
    assert outcome.root_plan_id != context.root_plan_id
    assert rows.tool_calls == []


async def test_call_with_another_session_within_a_run_is_a_separate_run(tmp_path: Path) -> None:
    threads: list[str] = []

    @tool
    async def look(context: ToolContext) -> None:
        threads.append(context.thread_id)

    async with service(tmp_path, look) as on:
        async with on.tools.run("Mine", session_id="mine") as context:
            same = await on.tools.call("look", thread_id="mine")
            unsaid = await on.tools.call("look")
            other = await on.tools.call("look", thread_id="other")
        alone = await on.tools.call("look")

    assert same.root_plan_id == unsaid.root_plan_id == context.root_plan_id
    assert other.root_plan_id != context.root_plan_id
    assert threads == ["mine", "mine", "other", str(alone.root_plan_id)]


async def test_timeout_of_a_call_overrides_a_longer_timeout_of_its_tool(
    tmp_path: Path,
) -> None:
    @tool(timeout=PATIENCE)
    async def wait() -> None:
        await asyncio.Event().wait()

    async with service(tmp_path, wait) as on:
        outcome = await on.tools.call("wait", timeout=0.01)

    assert (outcome.status, outcome.reason) == ("failed", "timed_out")


async def test_service_waits_for_a_cancelled_tool_until_the_grace_period_ends(
    tmp_path: Path,
) -> None:
    @tool(timeout=0.01)
    async def clean_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)

    async with service(tmp_path, clean_up, grace_seconds=0) as on:
        not_waited_for = await on.row(await on.tools.call("clean_up"))
        on.tools.resources.grace_seconds = PATIENCE
        waited_for = await on.row(await on.tools.call("clean_up"))

    assert (not_waited_for["reason"], not_waited_for["stillRunning"]) == ("timed_out", True)
    assert (waited_for["reason"], waited_for["stillRunning"]) == ("timed_out", None)


async def test_call_sync_is_rejected_in_the_event_loop(
    tmp_path: Path,
) -> None:
    async with service(tmp_path, add) as on:
        with pytest.raises(RuntimeError, match="Await `call`"):
            on.tools.call_sync("add", {"a": 1})
    with pytest.raises(RuntimeError, match="Enter it with"):
        await asyncio.to_thread(on.tools.call_sync, "add", {"a": 1})


# --- Left half way -----------------------------------------------------------------------------


async def lines(on: Service, closed: asyncio.Event) -> AsyncGenerator[str | None]:
    """Yield what a tool answers, in a run of its own."""
    try:
        async with on.tools.run("Generator"):
            for number in range(3):
                yield (await on.tools.call("add", {"a": number})).result
    finally:
        closed.set()


@pytest.mark.parametrize("is_closed", [False, True])
async def test_run_of_an_abandoned_generator_is_cancelled(
    tmp_path: Path,
    is_closed: bool,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    closed = asyncio.Event()
    async with service(tmp_path, add) as on, asyncio.timeout(PATIENCE):
        caplog.clear()
        async with on.tools.run("Reader") as context:
            if is_closed:
                async with aclosing(lines(on, closed)) as reading:
                    async for _ in reading:
                        break
            else:
                async for _ in lines(on, closed):
                    break
            await closed.wait()
            after = await on.tools.call("add", {"a": 10})

            assert current_tool_context() == context
            assert caplog.text + "".join(capfd.readouterr()) == ""
        [root] = {
            each.root_plan_id for each in on.events if each.root_plan_id != context.root_plan_id
        }
        rows = await on.rows(root)

    assert after.root_plan_id == context.root_plan_id
    assert current_tool_context() is None
    assert [each["status"] for each in rows.tool_calls] == ["succeeded"]
    assert [each["status"] for each in (*rows.plans, *rows.steps)] == ["cancelled"] * 2


async def test_call_cancelled_at_any_turn_leaves_no_open_record(
    tmp_path: Path,
) -> None:
    statuses = set()
    async with service(tmp_path, add, nesting(is_async=True)) as on:
        _service.set(on)
        turns = 0
        while True:
            seen = len(on.events)
            calling = asyncio.create_task(on.tools.call("nest", {"depth": 1}))
            for _ in range(turns):
                await asyncio.sleep(0)
            was_done = calling.done()
            calling.cancel()
            await asyncio.wait({calling})
            for root in {each.root_plan_id for each in on.events[seen:]}:
                rows = await on.rows(root)
                assert {each["status"] for each in everything(rows)} <= ENDED
                assert all(each["name"] and each["arguments"] for each in rows.tool_calls)
                assert len(rows.steps) == 1
                statuses.add(rows.plans[0]["status"])
            if was_done:
                break
            turns += 1

    assert statuses == {"cancelled", "succeeded"}
    assert turns > 20


async def test_run_block_cancelled_at_any_turn_ends_its_run(tmp_path: Path) -> None:
    async with service(tmp_path, add) as on:
        turns = 0
        was_cancelled = True
        while was_cancelled:
            contexts: list[Any] = []

            async def body(contexts: list[Any]) -> None:
                async with on.tools.run("Over") as context:
                    contexts.append(context)

            running = asyncio.create_task(body(contexts))
            for _ in range(turns):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.wait({running})
            was_cancelled = running.cancelled()
            assert all(each.run.is_over for each in contexts)
            turns += 1

    assert turns > 3
