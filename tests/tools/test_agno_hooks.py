"""Hooks and programs of Agno's own examples run unchanged, apart from their imports."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.runs import bench
from tests.tools.service_bench import service
from tracer.runtime import Agent, Application
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.storage.memory import recording_in_memory
from tracer.tools import RunContext, Toolkit, tool

EXAMPLES = Path(__file__).parent / "agno_hooks"

logger = logging.getLogger(__name__)


def definitions(example: str, *names: str, **imports: Any) -> list[Any]:
    """Return functions and classes of an example. The last definition of a name counts.

    Args:
        example: The name of the file.
        names: The names. `async NAME` is an asynchronous function.
        imports: What takes the place of Agno's names.
    """
    tree = ast.parse((EXAMPLES / f"{example}.txt").read_text())
    found: list[Any] = []
    for name in names:
        kind = (
            ast.AsyncFunctionDef if name.startswith("async ") else (ast.FunctionDef, ast.ClassDef)
        )
        plain = name.removeprefix("async ")
        nodes = [each for each in ast.walk(tree) if isinstance(each, kind) and each.name == plain]
        own = [
            each
            for each in ast.walk(tree)
            if isinstance(each, (ast.Import, ast.ImportFrom))
            and "agno" not in (getattr(each, "module", None) or "")
        ]
        scope: dict[str, Any] = {"Toolkit": Toolkit, "RunContext": RunContext, "logger": logger}
        scope |= imports
        code = ast.Module([*own, nodes[-1]], type_ignores=[])
        exec(compile(code, example, "exec"), scope)
        found.append(scope[plain])
    return found


LOGGING = [
    ("tool_hook", "logger_hook"),
    ("tool_hook", "async logger_hook"),
    ("timing_and_logging", "timing_hook"),
    ("timing_and_logging", "logging_hook"),
    ("tool_hooks_in_toolkit_nested", "logger_hook"),
    ("tool_hooks_in_toolkit_nested", "async logger_hook_async"),
]


@pytest.mark.parametrize(("example", "name"), LOGGING)
async def test_logging_hook_of_agno_wraps_synchronous_and_asynchronous_tools(
    example: str, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    caplog.set_level(logging.INFO)
    [hook] = definitions(example, name)

    @tool(tool_hooks=[hook])
    def double(number: int) -> int:
        return 2 * number

    @tool(tool_hooks=[hook])
    async def double_async(number: int) -> int:
        return 2 * number

    async with service(tmp_path, double, double_async) as on:
        outcomes = [await on.tools.call(each, {"number": 2}) for each in ("double", "double_async")]

    assert [(each.error, each.result) for each in outcomes] == [(None, "4")] * 2
    assert f"{caplog.text}{capsys.readouterr().out}".lower().count("hook") >= 2 or (
        "Running double with arguments {'number': 2}" in caplog.text
        and "Result of double_async is 4" in caplog.text
    )


@pytest.mark.parametrize("form", ["", "async "])
async def test_validating_hook_of_agno_rejects_a_call(form: str, tmp_path: Path) -> None:
    customers, hook = definitions(
        "tool_hook_in_toolkit", "CustomerDBTools", f"{form}validation_hook"
    )

    async with service(tmp_path, customers(tool_hooks=[hook])) as on:
        found = await on.tools.call("retrieve_customer_profile", {"customer_id": "456"})
        rejected = await on.tools.call("delete_customer_profile", {"customer_id": "123"})

    assert json.loads(found.result or "")["name"] == "John Doe"
    assert rejected.error is not None
    assert rejected.error.message == "Cannot delete customer profile for ID 123"


async def test_nested_hooks_of_agno_change_the_result(tmp_path: Path) -> None:
    names = ("CustomerDBToolsAsync", "async validation_hook_async", "logger_hook")
    customers, outer, inner = definitions("tool_hooks_in_toolkit_nested", *names)

    async with service(tmp_path, customers(tool_hooks=[outer, inner])) as on:
        outcome = await on.tools.call("retrieve_customer_profile", {"customer_id": "456"})

    assert outcome.error is None
    assert json.loads(outcome.result or "").keys() == {"customer_id", "email"}


async def test_hook_of_agno_replaces_an_argument_from_the_state_of_the_agent(
    tmp_path: Path,
) -> None:
    names = ("CustomerDBTools", "grab_customer_profile_hook", "logger_hook")
    customers, *hooks = definitions("tool_hook_in_toolkit_with_state_nested", *names)
    chosen = call("retrieve_customer_profile", {"customer": "123"})
    model = ScriptedModel([Script([Turn(calls=[chosen]), Turn("done")])])
    jane = {"name": "Jane Doe", "email": "jane.doe@example.com"}
    state = {"customer_profiles": {"123": jane}}
    agent = Agent(model=model, tools=[customers()], tool_hooks=hooks, session_state=state)
    store = recording_in_memory()

    async with bench(
        Application(name="a", agents=(agent,), model=model), store, store, tmp_path
    ) as on:
        run = await on.launcher.run("Retrieve my profile.", agent="agent")
        [row] = (await on.rows(run.root_plan_id)).tool_calls

    assert json.loads(row["result"]) == jane
    assert json.loads(row["effectiveArguments"]) == {"customer": json.dumps(jane)}


def test_whole_program_of_agno_prints_its_answer(capsys: pytest.CaptureFixture[str]) -> None:
    def ask(**arguments: str) -> Turn:
        return Turn(calls=[call("process_customer_request", arguments)])

    model = ScriptedModel(
        [
            Script(
                [
                    ask(customer_id="789", action="create", name="Tom"),
                    ask(customer_id="789", action="retrieve"),
                    Turn("Tom is customer 789."),
                ],
                request="First, create customer 789",
            )
        ]
    )

    def agent(db: None, **options: Any) -> Agent:
        return Agent(**options)  # `db` has no counterpart: `print_response` records in memory

    [program, hook, customers] = definitions(
        "dynamic_session_state",
        *("run_test", "customer_management_hook", "CustomerDBTools"),
        Agent=Agent,
        log_info=logger.info,
        log_warning=logger.warning,
    )
    program.__globals__.update(
        Agent=agent,
        InMemoryDb=lambda: None,
        OpenAIResponses=lambda id: model,
        customer_management_hook=hook,
        CustomerDBTools=customers,
    )

    program()

    model.check_used_up()
    assert capsys.readouterr().out == "Tom is customer 789.\n"
