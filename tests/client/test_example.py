"""The example program of recording with blocks works against a real server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.servers import tracer_server
from tests.trees import complete

EXAMPLE = Path(__file__).parents[2] / "examples" / "by_hand.py"


@pytest.mark.thorough
async def test_example_program_records_its_run(database_url: str, tmp_path: Path) -> None:
    with tracer_server(database_url, tmp_path) as url:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, str(EXAMPLE)],
            env={**os.environ, "TRACER_URL": url, "TRACER_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        [run] = httpx2.get(f"{url}/api/runs", timeout=60).json()["items"]
        tree = complete(httpx2.get(f"{url}/api/plans/{run['rootPlanId']}/tree", timeout=60).json())

    [step] = tree["agentExecutions"]
    chose, _ = step["thinkActs"]
    assert done.returncode == 0, done.stderr
    assert done.stdout == "p-1 is well, p-2 should see a doctor.\n"
    assert (tree["status"], tree["unplaced"], step["agentName"]) == ("succeeded", [], "nurse")
    assert [_shown(call) for call in chose["toolCalls"]] == [
        ("measure", "121/79", []),
        ("measure", "151/99", []),
        ("ask_doctor", "Yes.", [("doctor", [("look_up", "above 140/90", [])])]),
    ]
    assert tree["cumulative"]["inputTokens"] == 400


def _shown(call: dict[str, Any]) -> tuple[str, str, list[Any]]:
    return (
        call["name"],
        call["result"],
        [
            (
                step["agentName"],
                [
                    _shown(inner)
                    for think_act in step["thinkActs"]
                    for inner in think_act["toolCalls"]
                ],
            )
            for sub_plan in call["subPlans"]
            for step in sub_plan["agentExecutions"]
        ],
    )
