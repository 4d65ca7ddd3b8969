"""The program of seed 004: a hook answers in place of the tool and changes the session state.

The lines of the program are the document's. A comment marks each line that differs. The rest of the
file checks what the program does (`docs/explanation/seeds.md`).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, type-arg"
from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict  # noqa: UP035 - as in the document

import pytest

from tests.runtime.runs import Bench, bench
from tests.trees import Node
from tracer.runtime import Agent, Application
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.storage.memory import recording_in_memory
from tracer.tools import RunContext, Toolkit

log_warning = logging.getLogger(__name__).warning

# --- The document's program --------------------------------------------------------------------


class CustomerDBTools(Toolkit):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register(self.process_customer_request)

    def process_customer_request(self, agent, customer_id, action="retrieve", name="John Doe"):
        log_warning("Tool called, this shouldn't happen.")
        return "This should not be seen."


def customer_management_hook(run_context: RunContext, arguments: Dict[str, Any]):  # noqa: UP006
    action = arguments.get("action", "retrieve")
    cust_id = arguments.get("customer_id")
    # Added: the document's excerpt of the hook omits this line of Agno's file.
    name = arguments.get("name", None)  # noqa: SIM910

    if action == "create":
        # 直接修改 session_state
        run_context.session_state["customer_profiles"][cust_id] = {"name": name}
        return f"Success! Customer {cust_id} has been created."

    if action == "retrieve":
        profile = run_context.session_state.get("customer_profiles", {}).get(cust_id)
        if profile:
            return f"Profile for {cust_id}: {json.dumps(profile)}"
        else:
            raise ValueError(f"Customer '{cust_id}' not found.")


def make_agent(model: ScriptedModel) -> Agent:
    return Agent(
        model=model,  # a model that answers offline, in place of OpenAIResponses(id="gpt-5.2")
        tools=[CustomerDBTools()],
        tool_hooks=[customer_management_hook],
        session_state={"customer_profiles": {"123": {"name": "Jane Doe"}}},
        instructions="Your profiles: {customer_profiles}. Use `process_customer_request`. "
        "Use either create or retrieve as action for the tool.",
        resolve_in_context=True,
        # Without db=InMemoryDb(): the records and the state are stored by the application.
    )


prompt = "First, create customer 789 named 'Tom'. Then, retrieve Tom's profile. Step by step."

# --- What it does ------------------------------------------------------------------------------


def ask(**arguments: str) -> Turn:
    return Turn(calls=[call("process_customer_request", arguments)])


def model_for_prompt(*more: Script) -> ScriptedModel:
    turns = [
        ask(customer_id="789", action="create", name="Tom"),
        ask(customer_id="789", action="retrieve"),
        Turn("Tom is customer 789."),
    ]
    return ScriptedModel([Script(turns, request="First, create"), *more])


def test_program_prints_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    model = model_for_prompt()
    agent = make_agent(model)

    agent.print_response(prompt, stream=False)

    model.check_used_up()
    assert capsys.readouterr().out == "Tom is customer 789.\n"


def test_print_response_prints_the_error_of_a_failed_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Agent(model=ScriptedModel([])).print_response("Hello")

    assert "No script would answer" in capsys.readouterr().out


def test_toolkit_method_has_the_schema_of_the_document() -> None:
    [tool] = CustomerDBTools().tools

    assert tool.name == "process_customer_request"
    assert {name: tool.parameters[name] for name in ("type", "properties", "required")} == {
        "type": "object",
        "properties": {
            "customer_id": {"type": "string"},
            "action": {"type": "string", "default": "retrieve"},
            "name": {"type": "string", "default": "John Doe"},
        },
        "required": ["customer_id"],
    }


async def customer_management_hook_async(run_context: RunContext, arguments: dict[str, Any]) -> Any:
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


@pytest.mark.parametrize("hook", [customer_management_hook, customer_management_hook_async])
async def test_hook_answers_create_and_retrieve_without_running_the_tool(
    hook: Any, tmp_path: Path
) -> None:
    missing_customer = Script([ask(customer_id="456"), Turn("Nobody.")], request="Who is 456?")
    model = model_for_prompt(missing_customer)
    agent = replace(make_agent(model), tool_hooks=[hook])
    application = Application(name="customers", agents=(agent,), model=model)
    store = recording_in_memory()
    async with bench(application, store, store, tmp_path) as on:
        first = await on.launcher.run(prompt, agent="agent", session_id="s")
        second = await on.launcher.run("Who is 456?", agent="agent", session_id="s")
        other = await on.launcher.tools.resources.sessions.read_state("other", {})

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
    assert other == {}
