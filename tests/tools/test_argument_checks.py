"""Arguments are validated before hooks, providers and tools; errors never repeat the values."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from tests.tools.hooked_tools import Hook, Next
from tests.tools.service_bench import service
from tracer.tools import RunContext, Tool, ToolType, tool
from tracer.tools.parameters import Hidden

GIVEN = "given-canary"


class Dose(BaseModel):
    amount: Annotated[int, Field(ge=1, le=10)]
    unit: str = "mg"


def typed(name: str, hook: Hook, asked: list[str]) -> Tool:
    """Return a tool whose parameters are checked by the types of its function."""

    def ledger() -> str:
        asked.append("provider")
        return "ledger"

    async def give(dose: Dose, of: Annotated[str, Hidden(ledger)], times: int = 1) -> None:
        asked.append("tool")

    return tool(name=name, tool_hooks=[hook])(give)


def described(name: str, hook: Hook, asked: list[str]) -> Tool:
    """Return a tool whose parameters are checked by a JSON schema."""

    async def run(arguments: dict[str, Any], context: Any) -> None:
        asked.append("tool")

    amount = {"type": "integer", "minimum": 1, "maximum": 10}
    dose = {
        "type": "object",
        "properties": {"amount": amount, "unit": {"type": "string"}},
        "required": ["amount"],
    }
    return Tool(
        name=name,
        description="",
        parameters={
            "type": "object",
            "properties": {"dose": dose, "times": {"type": "integer"}},
            "required": ["dose"],
            "additionalProperties": False,
        },
        run=run,
        tool_type=ToolType.REST,
        tool_hooks=[hook],
    )


MISFITS = {
    "dose.amount": json.dumps({"dose": {"amount": 700_001}}),
    "dose.unit": json.dumps({"dose": {"amount": 1, "unit": [GIVEN]}}),
    "times": json.dumps({"dose": {"amount": 1}, "times": GIVEN}),
    "dose": json.dumps({"dose": GIVEN}),
    "line 1, column 9": '{"dose":' + GIVEN,
    "one JSON object": json.dumps([GIVEN]),
}
"""Arguments that do not fit, by the place that the model is told."""


async def test_invalid_arguments_reach_no_hook_and_are_not_in_the_error(tmp_path: Path) -> None:
    asked: list[str] = []

    def hook(next: Next, arguments: dict[str, Any], run_context: RunContext) -> Any:
        asked.append("hook")
        return next(arguments)

    async def hook_async(next: Next, arguments: dict[str, Any]) -> Any:
        asked.append("hook")
        return await next(arguments)

    makers: tuple[Callable[[str, Hook, list[str]], Tool], ...] = (typed, described)
    hooks: list[Hook] = [hook, hook_async]
    tools = [
        make(f"{make.__name__}_{each.__name__}", each, asked)
        for make, each in product(makers, hooks)
    ]
    failures = []
    async with service(tmp_path, *tools) as on:
        for each, (where, arguments) in product(tools, MISFITS.items()):
            outcome = await on.tools.call(each.name, arguments)
            row = await on.row(outcome)
            answer = outcome.for_model
            checks = {
                "fails with invalid_arguments": (outcome.status, outcome.reason)
                == ("failed", "invalid_arguments"),
                "asks no hook, provider or tool": not asked,
                "tells the model the place": where in answer,
                "tells the model no value": not any(s in answer for s in (GIVEN, "700001")),
                "tells the model no code": "Traceback" not in answer,
                "tells the model the usual fields": set(json.loads(answer)["error"])
                == {"status", "reason", "type", "message"},
                "records the arguments as they came": row["arguments"] == arguments,
                "records no other arguments": row["effectiveArguments"] is None,
                "records no answering hook": row["shortCircuitedBy"] is None,
                "records one ending": len(on.endings(outcome)) == 1,
            }
            asked.clear()
            failures += [
                f"{each.name}, {arguments}: not so: {check}; told {answer}"
                for check, holds in checks.items()
                if not holds
            ]

    assert failures == []


async def test_error_for_the_model_has_no_file_names_of_the_tool(tmp_path: Path) -> None:
    @tool
    def divide(number: int) -> float:
        return 1 / number

    async with service(tmp_path, divide) as on:
        outcome = await on.tools.call("divide", {"number": 0})

    assert outcome.error is not None
    assert outcome.error.stack is not None
    assert Path(__file__).name in outcome.error.stack
    assert json.loads(outcome.for_model)["error"] == {
        "status": "failed",
        "reason": "tool_error",
        "type": "ZeroDivisionError",
        "message": "division by zero",
    }
