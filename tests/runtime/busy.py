"""An application that does a bit of everything, for tests that look at all of it."""

import asyncio

from tests.runtime.runs import application, script
from tracer.runtime import Application, PlanTemplate, StepTemplate, subplan_tool
from tracer.runtime.chat_model import ChatModel
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.tools import tool
from tracer.tools.call import batch_tool

PLAN = '{"steps": [{"request": "Do it"}, {"request": "Never"}]}'


@tool
async def add(a: int, b: int) -> int:
    """Adds, with a breath."""
    await asyncio.sleep(0)
    return a + b


@tool
def add_in_thread(a: int, b: int) -> int:
    """Adds in a thread."""
    return a + b


@tool
def fail() -> None:
    """Fails."""
    raise ValueError("no")


def busy_application(model: ChatModel | None = None) -> Application:
    """Return an application that does a bit of everything, as scripted unless told otherwise."""
    review = subplan_tool(
        PlanTemplate(
            name="review",
            description="Reviews.",
            parameters={"week": int},
            steps=(StepTemplate("Review week {week}"), StepTemplate("Conclude week {week}")),
        )
    )
    calls = [
        call("add", {"a": 1, "b": 2}, "x"),
        call("review", {"week": 1}, "x"),
        call("review_each", {"items": [{"week": 2}, {"week": 3}, {"week": 4}]}, "x"),
        call("fail"),
        call("unknown"),
        call("add", "{broken", ""),
        call("add_in_thread", {"a": 1, "b": 2}),
    ]
    scripts = [
        Script([Turn(PLAN)], agent="planner", times=None),
        script("Do it", calls, "done", times=None),
        script("Review week", [call("add", {"a": 3, "b": 4})], "fine", times=None),
        script("Conclude week", "so be it", times=None),
        script("Never", "reached", times=None),
    ]
    tools = [add, add_in_thread, fail, review, batch_tool(review, max_parallel=2)]
    return application(model or ScriptedModel(scripts), tools, max_parallel=3)
