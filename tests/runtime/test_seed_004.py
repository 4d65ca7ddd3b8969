"""The example of seed 004: a hook that answers for a customer database, and keeps what it is told.

As in the seed: the hook creates customer 789 and finds them again without the tool ever running,
and the instructions show the profiles as they were when the run began. Otherwise than there, the
hook changes the state by operations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.runs import Bench, bench, script
from tests.trees import Node
from tracer.runtime.agent import Agent
from tracer.runtime.application import Application
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.storage.memory_store import MemoryStore
from tracer.tools.definition import tool
from tracer.tools.session_state import RunContext

PROFILES = {"customer_profiles": {"123": {"name": "Jane Doe"}}}
REQUEST = "First, create customer 789 named 'Tom'. Then, retrieve Tom's profile. Step by step."


@tool
async def process_customer_request(
    customer_id: str, action: str = "retrieve", name: str = "John Doe"
) -> str:
    """Process a request about a customer."""
    raise AssertionError("The hook answers instead.")


def customer_management_hook(run_context: RunContext, arguments: dict[str, Any]) -> str:
    customer_id = arguments["customer_id"]
    state = run_context.session_state
    if arguments.get("action") == "create":
        state.set(("customer_profiles", customer_id), {"name": arguments["name"]})
        return f"Success! Customer {customer_id} has been created."
    profile = state.get("customer_profiles", {}).get(customer_id)
    if profile is None:
        raise ValueError(f"Customer {customer_id!r} not found.")
    return f"Profile for {customer_id}: {json.dumps(profile)}"


async def customer_management_hook_async(run_context: RunContext, arguments: dict[str, Any]) -> str:
    return customer_management_hook(run_context, arguments)


async def system_message(on: Bench, root_plan_id: Any) -> str:
    tree = await on.tree(root_plan_id)
    messages = [
        (await on.messages(each))[0]["content"] for each in tree["agentExecutions"][0]["thinkActs"]
    ]
    assert len(set(messages)) == 1
    return str(messages[0])


def said_of(row: Node) -> tuple[Any, ...]:
    return (row["status"], row["result"], row["shortCircuitedBy"])


@pytest.mark.parametrize("hook", [customer_management_hook, customer_management_hook_async])
async def test_the_hook_creates_and_retrieves_without_the_tool_ever_running(
    hook: Any, tmp_path: Path
) -> None:
    def ask(**arguments: str) -> Any:
        return [call("process_customer_request", arguments)]

    model = ScriptedModel(
        [
            script(
                "First, create",
                ask(customer_id="789", action="create", name="Tom"),
                ask(customer_id="789"),
                "Tom is customer 789.",
            ),
            script("Who is 456?", ask(customer_id="456", action="retrieve"), "Nobody."),
        ]
    )
    worker = Agent(
        "worker",
        "Your profiles: {customer_profiles}. Use `process_customer_request`. "
        "Use either create or retrieve as action for the tool.",
        tools=(process_customer_request,),
        hooks=[hook],
    )
    application = Application(
        name="customers", agents=(worker,), model=model, session_state=PROFILES
    )
    store = MemoryStore()
    async with bench(application, store, store, tmp_path) as on:
        first = await on.launcher.run(REQUEST, agent="worker", session_id="s")
        second = await on.launcher.run("Who is 456?", agent="worker", session_id="s")
        other = await on.launcher.tools.resources.sessions.read_state("other", PROFILES)

        created, retrieved = sorted(
            (await on.rows(first.root_plan_id)).tool_calls, key=lambda each: each["toolCallId"]
        )
        [missing] = (await on.rows(second.root_plan_id)).tool_calls
        at_first = await system_message(on, first.root_plan_id)
        afterwards = await system_message(on, second.root_plan_id)

    model.check_used_up()
    by = hook.__name__
    assert first.summary == "Tom is customer 789."
    assert said_of(created) == ("succeeded", "Success! Customer 789 has been created.", by)
    assert said_of(retrieved) == ("succeeded", 'Profile for 789: {"name": "Tom"}', by)
    assert json.loads(created["stateChanges"]) == [
        {"op": "set", "path": ["customer_profiles", "789"], "value": {"name": "Tom"}}
    ]
    assert retrieved["stateChanges"] is None
    assert (missing["status"], missing["reason"]) == ("failed", "tool_error")
    assert missing["error"]["message"] == "Customer '456' not found."
    assert 'Your profiles: {"123":{"name":"Jane Doe"}}. Use' in at_first
    assert 'Your profiles: {"123":{"name":"Jane Doe"},"789":{"name":"Tom"}}. Use' in afterwards
    assert other == PROFILES
