"""Concurrency limits of tools: which calls wait for a slot, and nested calls never deadlock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.reviews import review_template
from tests.runtime.runs import application, bench, everything, script
from tests.tools.service_bench import service
from tests.tools.short_times import PATIENCE, long_enough
from tracer.context import ToolContext
from tracer.errors import RegistrationError
from tracer.runtime import Agent, Application, subplan_tool
from tracer.runtime.scripted_model import Script, ScriptedModel, call
from tracer.storage.memory import recording_in_memory
from tracer.tools import Tool, ToolRegistry, ToolType, tool
from tracer.tools.call import batch_tool
from tracer.tools.definition import EXCLUSIVE


class Room:
    """Notes who is in it at once."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.met: list[tuple[str, ...]] = []
        self.most = 0

    async def stay(self, who: str) -> None:
        self.inside.append(who)
        for _ in range(20):
            self.most = max(self.most, len(self.inside))
            self.met.append(tuple(sorted(self.inside)))
            await asyncio.sleep(0)
        self.inside.remove(who)

    def met_alone(self, who: str) -> bool:
        return all(len(each) == 1 for each in self.met if who in each)


def visiting(room: Room, name: str, **options: Any) -> Tool:
    """Return a tool that stays in the room for a while."""

    async def visit(who: str = name) -> str:
        await room.stay(who)
        return who

    return tool(name=name, **options)(visit)


async def test_exclusive_call_waits_for_earlier_calls_and_delays_later_ones(tmp_path: Path) -> None:
    room = Room()
    tools = [visiting(room, "shared"), visiting(room, "alone", concurrency=EXCLUSIVE)]
    names = [("shared", "a"), ("shared", "b"), ("alone", "c"), ("alone", "d"), ("shared", "e")]
    chosen = [call(name, {"who": who}) for name, who in names]
    model = ScriptedModel([script("Go", chosen, "done")])
    store = recording_in_memory()

    async with bench(application(model, tools), store, store, tmp_path) as on:
        outcome = await on.launcher.run("Go", agent="worker")
        rows = (await on.rows(outcome.root_plan_id)).tool_calls

    assert ("a", "b") in room.met
    assert room.met_alone("c")
    assert room.met_alone("d")
    order = list(dict.fromkeys(who for each in room.met for who in each))
    assert order == ["a", "b", "c", "d", "e"]
    assert [each["result"] for each in rows] == ["a", "b", "c", "d", "e"]


async def test_concurrency_limit_of_a_tool_applies_across_runs(tmp_path: Path) -> None:
    room = Room()
    async with service(tmp_path, visiting(room, "visit", max_parallel=3)) as on:
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(on.tools.call("visit") for _ in range(12)))

    assert room.most == 3


def of_agents(
    scripts: Sequence[Script], tools: Sequence[Tool], registered: Sequence[Tool] = (), **more: Any
) -> Application:
    """Return an application of one agent, whose model has these scripts."""
    worker = Agent("worker", "Do your work.", tools=tuple(tools), max_parallel=20)
    return Application(
        name="tests",
        agents=(worker,),
        model=ScriptedModel(scripts),
        registry=ToolRegistry([*tools, *registered]),
        **more,
    )


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_limit_of_a_run_counts_calls_of_batches_sub_plans_and_tools(
    tmp_path: Path, limit: int
) -> None:
    room = Room()
    visit = visiting(room, "visit")

    @tool
    async def outer() -> Any:
        outcomes = await asyncio.gather(*(on.launcher.tools.call("visit") for _ in range(2)))
        return [each.result for each in outcomes]

    @tool
    def outer_in_thread() -> Any:
        return on.launcher.tools.call_sync("visit").result

    review = subplan_tool(review_template())
    chosen = [
        call("visit"),
        call("visit_each", {"items": [{}] * 4}),
        call("review_each", {"items": [{"week": 1}, {"week": 2}]}),
        call("review", {"week": 3}),
    ]
    scripts = [script("Go", chosen, "done")]
    scripts += [script(f"Review week {n}.", [call("visit")] * 3, "fine") for n in (1, 2, 3)]
    tools = [visit, batch_tool(visit), review, batch_tool(review), outer, outer_in_thread]
    limited = of_agents(scripts, tools, max_parallel_calls=limit)
    store = recording_in_memory()
    async with bench(limited, store, store, tmp_path) as on, asyncio.timeout(PATIENCE):
        outcome = await on.launcher.run("Go", agent="worker")
        rows = await on.rows(outcome.root_plan_id)

    assert outcome.status == "succeeded"
    assert {each["status"] for each in everything(rows)} == {"succeeded"}
    assert room.most == limit


@pytest.mark.parametrize("name", ["outer", "outer_in_thread"])
async def test_nested_calls_of_a_limited_call_wait_for_no_slot(tmp_path: Path, name: str) -> None:
    @tool(max_parallel=1)
    async def inner(depth: int) -> Any:
        if depth == 0:
            return "deep"
        return (await on.launcher.tools.call("inner", {"depth": depth - 1})).result

    @tool(max_parallel=1)
    async def outer() -> Any:
        return (await on.launcher.tools.call("inner", {"depth": 3})).result

    @tool(max_parallel=1)
    def outer_in_thread() -> Any:
        return on.launcher.tools.call_sync("inner", {"depth": 3}).result

    scripts = [script("Go", [call(name)] * 3, "done")]
    limited = of_agents(scripts, [outer, outer_in_thread, inner], max_parallel_calls=1)
    store = recording_in_memory()
    async with bench(limited, store, store, tmp_path) as on:
        outcome = await on.launcher.run("Go", agent="worker", timeout=PATIENCE)
        rows = (await on.rows(outcome.root_plan_id)).tool_calls

    assert outcome.status == "succeeded"
    assert {each["result"] for each in rows} == {"deep"}
    assert len(rows) == 15


@pytest.mark.parametrize(
    ("options", "limits"), [({"max_parallel": 1}, {}), ({}, {"max_parallel_calls": 1})]
)
async def test_calls_of_a_limited_calls_sub_plan_wait_for_no_slot(
    tmp_path: Path, options: dict[str, Any], limits: dict[str, Any]
) -> None:
    review = subplan_tool(review_template())

    @tool(**options)
    async def look() -> str:
        return "seen"

    @tool(**options)
    async def outer() -> Any:
        return (await on.launcher.tools.call("review", {"week": 1})).result

    scripts = [
        script("Go", [call("outer")], "done"),
        script("Review week 1.", [call("look")], "fine"),
    ]
    limited = of_agents(scripts, [outer, look, review], **limits)
    store = recording_in_memory()
    async with bench(limited, store, store, tmp_path) as on:
        outcome = await on.launcher.run("Go", agent="worker", timeout=PATIENCE)
        rows = (await on.rows(outcome.root_plan_id)).tool_calls

    assert outcome.status == "succeeded"
    assert {each["name"]: each["result"] for each in rows} == {
        "outer": "fine",
        "review": "fine",
        "look": "seen",
    }


def holding(let_go: asyncio.Event, held: asyncio.Event, **options: Any) -> Tool:
    """Return a tool that says when it holds its place, and gives it up when it may."""

    @tool(name="hold", **options)
    async def hold() -> str:
        held.set()
        await let_go.wait()
        return "let go"

    return hold


async def test_call_that_waits_for_a_slot_times_out_and_takes_none(tmp_path: Path) -> None:
    let_go, held = asyncio.Event(), asyncio.Event()
    async with service(tmp_path, holding(let_go, held, max_parallel=1)) as on:
        first = asyncio.create_task(on.tools.call("hold"))
        await held.wait()
        late = await on.tools.call("hold", timeout=0.02)
        row = await on.row(late)
        let_go.set()
        third = await on.tools.call("hold")

        assert (await first).status == third.status == "succeeded"
    assert (row["status"], row["reason"]) == ("failed", "timed_out")
    assert row["error"]["message"] == "The time limit expired before it was the call's turn."
    assert len(on.endings(late)) == 1


async def test_call_cancelled_while_it_waits_for_a_slot_is_recorded_and_takes_none(
    tmp_path: Path,
) -> None:
    let_go, held = asyncio.Event(), asyncio.Event()
    async with service(tmp_path, holding(let_go, held, max_parallel=1)) as on:
        async with on.tools.run("Two") as context:
            first = asyncio.create_task(on.tools.call("hold"))
            await held.wait()
            waiting = asyncio.create_task(on.tools.call("hold", {}))
            for _ in range(20):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting}, timeout=PATIENCE)
            let_go.set()
            await first
            third = await on.tools.call("hold")
        rows = (await on.rows(context.root_plan_id)).tool_calls

    assert waiting.cancelled()
    assert third.status == "succeeded"
    assert [(each["name"], each["arguments"], each["toolType"]) for each in rows] == [
        ("hold", "{}", "STATELESS")
    ] * 3
    assert [each["status"] for each in rows] == ["succeeded", "cancelled", "succeeded"]


async def test_waiting_call_is_pending_until_it_gets_a_slot(
    tmp_path: Path,
) -> None:
    let_go, held = asyncio.Event(), asyncio.Event()
    statuses: list[list[str]] = []
    limited = holding(let_go, held, max_parallel=1)

    @tool
    async def look(context: ToolContext) -> None:
        await held.wait()
        rows = await on.rows(context.root_plan_id)
        statuses.append([each["status"] for each in rows.tool_calls])
        let_go.set()

    chosen = [call("hold"), call("look"), call("hold")]
    model = ScriptedModel([script("Go", chosen, "done")])
    store = recording_in_memory()
    async with bench(application(model, [limited, look]), store, store, tmp_path) as on:
        async with asyncio.timeout(PATIENCE):
            outcome = await on.launcher.run("Go", agent="worker")
        rows = (await on.rows(outcome.root_plan_id)).tool_calls

    assert statuses == [["running", "running", "pending"]]
    assert [each["status"] for each in rows] == ["succeeded"] * 3
    first, _, second = rows
    assert second["startedAt"] >= first["finishedAt"]


async def test_call_that_never_got_a_slot_has_no_start(tmp_path: Path) -> None:
    let_go, held = asyncio.Event(), asyncio.Event()
    limited = holding(let_go, held, max_parallel=1)
    model = ScriptedModel([script("Go", [call("hold"), call("hold")], times=None)])
    store = recording_in_memory()
    async with bench(application(model, [limited]), store, store, tmp_path) as on:
        outcome = await long_enough(
            lambda seconds: on.launcher.run("Go", agent="worker", timeout=seconds), held.is_set
        )
        rows = (await on.rows(outcome.root_plan_id)).tool_calls

    assert [each["reason"] for each in rows] == ["timed_out", "timed_out"]
    assert [each["startedAt"] is None for each in rows] == [False, True]


async def test_slot_is_released_after_success_failure_timeout_and_cancellation(
    tmp_path: Path,
) -> None:
    @tool(max_parallel=1)
    async def behave(how: str) -> None:
        if how == "raise":
            raise ValueError(how)
        if how == "exit":
            raise SystemExit(how)
        if how == "hang":
            await asyncio.Event().wait()

    async with service(tmp_path, behave) as on, asyncio.timeout(PATIENCE):
        for how in ("raise", "exit", "hang", "misfit", "well"):
            arguments = {"how": how} if how != "misfit" else {}
            seconds = 0.01 if how == "hang" else None
            last = await on.tools.call("behave", arguments, timeout=seconds)

    assert last.status == "succeeded"


@pytest.mark.parametrize("options", [{"concurrency": EXCLUSIVE}, {"max_parallel": 2}])
def test_concurrency_limit_on_a_tool_that_calls_tools_is_rejected(options: dict[str, Any]) -> None:
    async def run(arguments: dict[str, Any], context: ToolContext) -> None: ...

    with pytest.raises(RegistrationError, match="on the tools that it calls"):
        Tool("x", "", {}, run, tool_type=ToolType.SUBPLAN, ends_by_itself=True, **options)


async def test_nested_calls_proceed_while_another_call_waits_for_a_slot(
    tmp_path: Path,
) -> None:
    room = Room()
    one = visiting(room, "one", max_parallel=1)

    @tool
    async def around() -> str:
        for _ in range(20):  # so that the other call has come to where it waits
            await asyncio.sleep(0)
        return (await on.launcher.tools.call("one")).for_model

    model = ScriptedModel([script("Both", [call("around"), call("one")], "done")])
    tools = [around, one]
    app = application(model, tools, max_parallel_calls=1, registry=ToolRegistry(tools))
    store = recording_in_memory()
    async with bench(app, store, store, tmp_path) as on:
        outcome = await on.launcher.run("Both", agent="worker", timeout=PATIENCE)

    assert outcome.status == "succeeded"
    assert room.most == 1
