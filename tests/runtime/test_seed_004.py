"""The example of seed 004: a hook answers in place of the tool and changes the session state.

The toolkit, the hook and the instructions are the document's. Differences: the method's parameters
have type hints, and the agent takes hooks as `hooks=` (`docs/explanation/seeds.md`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.runtime.runs import Bench, bench, script
from tests.trees import Node
from tracer.runtime.agent import Agent
from tracer.runtime.application import Application
from tracer.runtime.scripted_model import ScriptedModel, call
from tracer.storage.memory.recording import recording_in_memory
from tracer.tools.definition.hidden_parameters import Hidden
from tracer.tools.definition.session_state import RunContext
from tracer.tools.definition.toolkit import Toolkit

PROFILES = {"customer_profiles": {"123": {"name": "Jane Doe"}}}
REQUEST = "First, create customer 789 named 'Tom'. Then, retrieve Tom's profile. Step by step."
INSTRUCTIONS = (
    "Your profiles: {customer_profiles}. Use `process_customer_request`. "
    "Use either create or retrieve as action for the tool."
)


class CustomerDBTools(Toolkit):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register(self.process_customer_request)

    def process_customer_request(
        self,
        agent: Annotated[Agent, Hidden(lambda context: context.agent)],
        customer_id: str,
        action: str = "retrieve",
        name: str = "John Doe",
    ) -> str:
        raise AssertionError("The hook answers instead.")


def customer_management_hook(run_context: RunContext, arguments: dict[str, Any]) -> str | None:
    action = arguments.get("action", "retrieve")
    cust_id = arguments.get("customer_id")
    name = arguments.get("name", "John Doe")

    if action == "create":
        run_context.session_state["customer_profiles"][cust_id] = {"name": name}
        return f"Success! Customer {cust_id} has been created."

    if action == "retrieve":
        profile = run_context.session_state.get("customer_profiles", {}).get(cust_id)
        if profile:
            return f"Profile for {cust_id}: {json.dumps(profile)}"
        else:
            raise ValueError(f"Customer '{cust_id}' not found.")
    return None


async def customer_management_hook_async(
    run_context: RunContext, arguments: dict[str, Any]
) -> str | None:
    return customer_management_hook(run_context, arguments)


async def system_message(on: Bench, root_plan_id: Any) -> str:
    tree = await on.tree(root_plan_id)
    messages = [
        (await on.messages(each))[0]["content"] for each in tree["agentExecutions"][0]["thinkActs"]
    ]
    assert len(set(messages)) == 1
    return str(messages[0])


def ending_of(row: Node) -> tuple[Any, ...]:
    return (row["status"], row["result"], row["shortCircuitedBy"])


def test_toolkit_method_has_the_schema_of_the_seed_document() -> None:
    [tool] = CustomerDBTools().tools
    fields = tool.parameters["properties"]

    assert tool.name == "process_customer_request"
    assert list(fields) == ["customer_id", "action", "name"]
    assert [each["type"] for each in fields.values()] == ["string"] * 3
    assert (fields["action"]["default"], fields["name"]["default"]) == ("retrieve", "John Doe")
    assert tool.parameters["required"] == ["customer_id"]


@pytest.mark.parametrize("hook", [customer_management_hook, customer_management_hook_async])
async def test_hook_answers_create_and_retrieve_without_running_the_tool(
    hook: Any, tmp_path: Path
) -> None:
    def ask(**arguments: str) -> Any:
        return [call("process_customer_request", arguments)]

    model = ScriptedModel(
        [
            script(
                "First, create",
                ask(customer_id="789", action="create", name="Tom"),
                ask(customer_id="789", action="retrieve"),
                "Tom is customer 789.",
            ),
            script("Who is 456?", ask(customer_id="456"), "Nobody."),
        ]
    )
    worker = Agent("worker", INSTRUCTIONS, tools=(CustomerDBTools(),), hooks=[hook])
    application = Application(
        name="customers", agents=(worker,), model=model, session_state=PROFILES
    )
    store = recording_in_memory()
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
    assert ending_of(created) == ("succeeded", "Success! Customer 789 has been created.", by)
    assert ending_of(retrieved) == ("succeeded", 'Profile for 789: {"name": "Tom"}', by)
    assert json.loads(created["stateChanges"]) == [
        {"op": "set", "path": ["customer_profiles", "789"], "value": {"name": "Tom"}}
    ]
    assert retrieved["stateChanges"] is None
    assert (missing["status"], missing["reason"]) == ("failed", "tool_error")
    assert missing["error"]["message"] == "Customer '456' not found."
    assert 'Your profiles: {"123":{"name":"Jane Doe"}}. Use' in at_first
    assert 'Your profiles: {"123":{"name":"Jane Doe"},"789":{"name":"Tom"}}. Use' in afterwards
    assert other == PROFILES
