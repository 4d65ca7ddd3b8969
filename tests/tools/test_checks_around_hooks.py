"""Arguments are checked before any hook sees them, and a model is told where and what alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from tests.tools.service_bench import service
from tracer.tools.definition import Tool, ToolType, tool
from tracer.tools.hidden import Hidden
from tracer.tools.session_state import RunContext

GIVEN = "given-canary"


class Dose(BaseModel):
    amount: Annotated[int, Field(ge=1, le=10)]
    unit: str = "mg"


asked: list[str] = []
"""Who was asked, since it was emptied last."""


def ledger() -> str:
    asked.append("provider")
    return "ledger"


def hooked(is_async: bool) -> Callable[..., Any]:
    """Return a hook that notes that it was asked."""

    def hook(next: Callable[..., Any], arguments: dict[str, Any], run_context: RunContext) -> Any:
        asked.append("hook")
        return next(arguments)

    async def hook_async(next: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        asked.append("hook")
        return await next(arguments)

    return hook_async if is_async else hook


def of_types(hook: Callable[..., Any]) -> Tool:
    """Return a tool whose function says what fits."""

    @tool(name="give", hooks=[hook])
    async def give(dose: Dose, of: Annotated[str, Hidden(ledger)], times: int = 1) -> None:
        asked.append("tool")

    return give


def of_a_schema(hook: Callable[..., Any]) -> Tool:
    """Return a tool whose schema says what fits."""

    async def run(arguments: dict[str, Any], context: Any) -> None:
        asked.append("tool")

    amount = {"type": "integer", "minimum": 1, "maximum": 10}
    dose = {
        "type": "object",
        "properties": {"amount": amount, "unit": {"type": "string"}},
        "required": ["amount"],
    }
    return Tool(
        name="give",
        description="",
        parameters={
            "type": "object",
            "properties": {"dose": dose, "times": {"type": "integer"}},
            "required": ["dose"],
            "additionalProperties": False,
        },
        run=run,
        tool_type=ToolType.REST,
        hooks=[hook],
    )


MISFITS = {
    "dose.amount": json.dumps({"dose": {"amount": 700_001}}),
    "dose.unit": json.dumps({"dose": {"amount": 1, "unit": [GIVEN]}}),
    "times": json.dumps({"dose": {"amount": 1}, "times": GIVEN}),
    "dose": json.dumps({"dose": GIVEN}),
    "line 1, column 9": '{"dose":' + GIVEN,
    "one JSON object": json.dumps([GIVEN]),
}


@pytest.mark.parametrize("where", MISFITS)
@pytest.mark.parametrize("make", [of_types, of_a_schema])
@pytest.mark.parametrize("is_async", [False, True])
async def test_what_does_not_fit_reaches_no_hook_no_provider_and_no_tool(
    tmp_path: Path, where: str, make: Callable[..., Tool], is_async: bool
) -> None:
    asked.clear()
    async with service(tmp_path, make(hooked(is_async))) as on:
        outcome = await on.tools.call("give", MISFITS[where])
        row = await on.row(outcome)

    assert (outcome.status, outcome.reason) == ("failed", "invalid_arguments")
    assert asked == []
    assert where in outcome.for_model
    assert (row["arguments"], row["effectiveArguments"]) == (MISFITS[where], None)
    assert row["shortCircuitedBy"] is None
    assert len(on.endings(outcome)) == 1


@pytest.mark.parametrize("where", MISFITS)
@pytest.mark.parametrize("make", [of_types, of_a_schema])
async def test_a_model_is_told_where_and_what_is_wrong_and_nothing_that_it_gave(
    tmp_path: Path, where: str, make: Callable[..., Tool]
) -> None:
    async with service(tmp_path, make(hooked(is_async=True))) as on:
        outcome = await on.tools.call("give", MISFITS[where])

    told = json.loads(outcome.for_model)["error"]
    assert set(told) == {"status", "reason", "type", "message"}
    assert GIVEN not in outcome.for_model
    assert "700001" not in outcome.for_model
    assert "Traceback" not in outcome.for_model


async def test_a_model_is_told_nothing_of_where_a_tools_code_broke(tmp_path: Path) -> None:
    @tool
    def divide(number: int) -> float:
        return 1 / number

    async with service(tmp_path, divide) as on:
        outcome = await on.tools.call("divide", {"number": 0})

    assert outcome.error is not None
    assert outcome.error.stack is not None
    assert "test_checks_around_hooks.py" in outcome.error.stack
    assert json.loads(outcome.for_model)["error"] == {
        "status": "failed",
        "reason": "tool_error",
        "type": "ZeroDivisionError",
        "message": "division by zero",
    }
