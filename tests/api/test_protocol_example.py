"""The protocol page's examples, in a shell and in TypeScript, work unchanged."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.openapi import DOCS
from api.schemas import PLAN_ID
from tests.api.commands import serving_here
from tests.trees import complete
from tracer.records import new_id

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_shell_example_records_a_run(database_url: str, tmp_path: Path) -> None:
    page = (DOCS / "reference" / "protocol.md").read_text(encoding="utf-8")
    [(recording, answer), (renewing, lease)] = re.findall(
        r"```sh\n(.*?)```\n\n```json\n(.*?)```", page, re.DOTALL
    )

    with serving_here(database_url, tmp_path) as url:
        recorded = _in_shell(recording, TRACER_URL=url)
        renewed = _in_shell(renewing, TRACER_URL=url, RECORDER_ID=str(new_id()))
        tree = complete(httpx2.get(f"{url}/api/plans/{PLAN_ID}/tree", timeout=60).json())

    assert recorded == json.loads(answer)
    assert renewed.keys() == json.loads(lease).keys()
    [step] = tree["agentExecutions"]
    [think_act] = step["thinkActs"]
    [call] = think_act["toolCalls"]
    assert (tree["status"], tree["summary"]) == ("succeeded", "121/79: well.")
    assert (step["agentName"], step["result"]) == ("nurse", "Well.")
    assert (call["name"], call["result"], call["providerCallId"]) == (
        "measure",
        "121/79",
        "call_abc",
    )
    assert tree["unplaced"] == []


def _in_shell(script: str, **environment: str) -> Any:
    """Return what a script prints as JSON."""
    done = subprocess.run(
        ["sh", "-eu"],
        input=script,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.thorough
def test_typescript_example_records_a_run(database_url: str, tmp_path: Path) -> None:
    _run(
        *(ROOT / "web/node_modules/.bin/tsc", ROOT / "examples/typescript/record.ts"),
        *("--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "commonjs"),
        *("--lib", "es2022,dom", "--outDir", tmp_path),
        cwd=tmp_path,
    )
    with serving_here(database_url, tmp_path) as url:
        said = _run("node", "record.js", cwd=tmp_path, TRACER_URL=url)
        tree = complete(httpx2.get(f"{url}/api/plans/{said.strip()}/tree", timeout=60).json())

    [step] = tree["agentExecutions"]
    round_of_calls, answer = step["thinkActs"]
    measured, missing, asked = round_of_calls["toolCalls"]
    [sub_plan] = asked["subPlans"]
    assert (tree["status"], tree["summary"], tree["unplaced"]) == ("succeeded", "p-1 is well.", [])
    assert (round_of_calls["thought"], answer["toolCalls"]) == ("I measure both, and ask.", [])
    assert (measured["status"], measured["result"]) == ("succeeded", "121/79")
    assert (missing["status"], missing["reason"], missing["error"]["type"]) == (
        "failed",
        "tool_error",
        "RangeError",
    )
    assert (asked["result"], sub_plan["title"], sub_plan["depth"]) == (
        "Yes.",
        "Is 151/99 too high?",
        1,
    )
    assert (tree["cumulative"]["inputTokens"], tree["cumulative"]["toolCalls"]) == (300, 3)


def _run(*command: Path | str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout
