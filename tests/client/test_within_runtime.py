"""Blocks inside a tool of Tracer's own runtime record a sub-plan of the tool call."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.runtime.runs import application, bench, script
from tracer.client import Tracing
from tracer.connecting import connect
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.reader import PostgresReader
from tracer.tools import Tool, tool


def tools_of(tracing: Tracing) -> list[Tool]:
    @tool
    async def ask(question: str) -> str:
        """Asks somebody else's agent."""
        async with tracing.plan(question, agent="researcher") as plan:
            async with tracing.think_act(model="m") as thought:
                chosen = thought.finish("", tool_calls=[("search", {"q": question}, "call_0")])
            for each in chosen:
                async with each:
                    each.finish("found")
            plan.finish("answered")
        return "answered"

    @tool
    def ask_in_a_thread(question: str) -> str:
        """Asks in the runtime's thread."""
        with tracing.plan(question, agent="researcher"), tracing.tool_call("search"):
            return "answered"

    return [ask, ask_in_a_thread]


async def test_plan_recorded_inside_a_native_tool_is_its_sub_plan(
    database_url: str, tmp_path: Path
) -> None:
    tracing = await asyncio.to_thread(connect, database_url)
    questions = [f"question {number}" for number in range(6)]
    chosen_calls = [
        call("ask" if number % 2 else "ask_in_a_thread", {"question": question}, "call_0")
        for number, question in enumerate(questions)
    ]
    model = ScriptedModel([script("Go.", chosen_calls, "Done.")])
    async with open_pool(database_url) as pool:
        reader = PostgresReader(ProjectPool(pool))
        async with bench(
            application(model, tools_of(tracing)),
            postgres_writer(ProjectPool(pool)),
            reader,
            tmp_path,
        ) as runs:
            ended = await runs.launcher.run("Go.", agent="worker")
            tree = await runs.tree(ended.root_plan_id)
    await asyncio.to_thread(tracing.close)

    [step] = tree["agentExecutions"]
    calls_made = step["thinkActs"][0]["toolCalls"]
    assert tree["unplaced"] == []
    assert [
        [(sub["title"], sub["depth"], sub["agentName"]) for sub in each["subPlans"]]
        for each in calls_made
    ] == [[(question, 1, "researcher")] for question in questions]
    assert {
        (sub["status"], inner["name"], inner["status"])
        for each in calls_made
        for sub in each["subPlans"]
        for sub_step in sub["agentExecutions"]
        for inner in (
            *sub_step["toolCalls"],
            *(inner for thought in sub_step["thinkActs"] for inner in thought["toolCalls"]),
        )
    } == {("succeeded", "search", "succeeded")}
