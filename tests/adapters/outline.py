"""A run's tree as a few lines that a test can compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.trees import Node


def outline(plan: Node) -> list[str]:
    """Return what hangs under what, each with its status, and with its reason where it has one.

    A round is the line above its calls. What a step did outside of a round hangs under the plan.
    """
    return list(_plan(plan, ""))


def calls_of(plan: Node) -> list[Any]:
    """Return all tool calls of a plan's own steps, in their order."""
    rounds = [each for step in plan["agentExecutions"] for each in step["thinkActs"]]
    outside = [each for step in plan["agentExecutions"] for each in step["toolCalls"]]
    return [call for each in rounds for call in each["toolCalls"]] + outside


def _plan(plan: Node, margin: str) -> Iterator[str]:
    agents = [step["agentName"] or "nobody" for step in plan["agentExecutions"]]
    yield f"{margin}plan of {', '.join(agents) or plan['agentName']}: {_status(plan)}"
    for step in plan["agentExecutions"]:
        assert step["status"] == plan["status"]
        for think_act in step["thinkActs"]:
            yield f"{margin}  round: {_status(think_act)}"
            for call in think_act["toolCalls"]:
                yield from _call(call, margin + "    ")
        for call in step["toolCalls"]:
            yield from _call(call, margin + "  ")
        for sub_plan in step["subPlans"]:
            yield from _plan(sub_plan, margin + "  ")


def _call(call: Node, margin: str) -> Iterator[str]:
    yield f"{margin}{call['name']}({call['arguments'] or ''}): {_status(call)}"
    for inner in call["toolCalls"]:
        yield from _call(inner, margin + "  ")
    for sub_plan in call["subPlans"]:
        yield from _plan(sub_plan, margin + "  ")


def _status(node: Node) -> str:
    return f"{node['status']} ({node['reason']})" if node.get("reason") else str(node["status"])
