"""The protocol page's example works as it stands there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest

from api.openapi import DOCS
from api.schemas import PLAN_ID
from tests.servers import tracer_server


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
async def test_the_example_records_a_run_from_a_shell(database_url: str, tmp_path: Path) -> None:
    page = (DOCS / "protocol.md").read_text(encoding="utf-8")
    [(script, answer)] = re.findall(r"```sh\n(.*?)```\n\n```json\n(.*?)```", page, re.DOTALL)

    with tracer_server(database_url, tmp_path) as url:
        done = await asyncio.to_thread(
            subprocess.run,
            ["sh", "-eu"],
            input=script,
            env={**os.environ, "TRACER_URL": url},
            capture_output=True,
            text=True,
            check=False,
        )
        tree = httpx2.get(f"{url}/api/plans/{PLAN_ID}/tree").json()

    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == json.loads(answer)
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
