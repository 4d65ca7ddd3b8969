"""`tracer run` that records to a server over HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from tests.api.test_cli import HUNG, tracer
from tests.servers import tracer_server

WARD = """
from tracer.runtime.agent import Agent
from tracer.runtime.application import Application
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.tools.definition import tool

@tool
def measure() -> str:
    return "121/79"

script = Script([Turn(calls=[call("measure")]), Turn(text="121/79: well.")])
application = Application(
    name="ward", agents=(Agent("nurse", "Measure.", (measure,)),), model=ScriptedModel([script])
)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The directory of the program that records, which is not the server's."""
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "ward.py").write_text(WARD)
    (folder / "hung.py").write_text(HUNG)
    return folder


def run(home: Path, url: str, **environment: str) -> subprocess.CompletedProcess[str]:
    asked = ("run", "How is p-1?", "--agent", "nurse", "--json")
    known = {"TRACER_APP": "ward:application", "PYTHONPATH": str(home), "TRACER_URL": url}
    return tracer(home, *asked, **{**known, **environment})


def test_a_run_is_recorded_on_the_server_without_a_database_here(
    database_url: str, tmp_path: Path, home: Path
) -> None:
    with tracer_server(database_url, tmp_path) as url:
        done = run(home, url, TRACER_API_KEY="k3y")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        tree = httpx2.get(f"{url}/api/plans/{answer['rootPlanId']}/tree", timeout=60).json()

    [think_act, _] = tree["agentExecutions"][0]["thinkActs"]
    assert answer["summary"] == tree["summary"] == "121/79: well."
    assert [call["result"] for call in think_act["toolCalls"]] == ["121/79"]
    assert sorted(each.name for each in home.iterdir() if each.is_dir()) == ["spool"]


def test_what_is_recorded_while_the_server_is_away_comes_with_the_next_run(
    database_url: str, tmp_path: Path, home: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    alone = run(home, f"http://127.0.0.1:{port}")
    with tracer_server(database_url, tmp_path, "--port", str(port)) as url:
        later = run(home, url)
        runs = httpx2.get(f"{url}/api/runs", timeout=60).json()["items"]

    assert alone.returncode == 0, alone.stderr
    assert later.returncode == 0, later.stderr
    ids = {json.loads(done.stdout)["rootPlanId"] for done in (alone, later)}
    assert {(each["rootPlanId"], each["status"]) for each in runs} == {
        (each, "succeeded") for each in ids
    }


def test_a_wish_to_cancel_reaches_the_program_over_http(
    database_url: str, tmp_path: Path, home: Path
) -> None:
    with tracer_server(database_url, tmp_path) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "api.cli", "run", "Go", "--agent", "worker"],
            env={
                **os.environ,
                "TRACER_HOME": str(home),
                "TRACER_URL": url,
                "TRACER_APP": "hung:application",
            },
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "hanging\n"
        # What the server was too slow for comes out of the spool.
        soon = Retrying(
            retry=retry_if_result(lambda runs: not runs),
            wait=wait_fixed(0.1),
            stop=stop_after_delay(60),
        )
        [running] = soon(lambda: httpx2.get(f"{url}/api/runs", timeout=60).json()["items"])
        httpx2.post(f"{url}/api/runs/{running['rootPlanId']}/cancel", timeout=60)
        try:
            process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            raise
        ended = httpx2.get(f"{url}/api/runs/{running['rootPlanId']}", timeout=60).json()

    assert process.returncode == 1
    assert (ended["status"], ended["reason"]) == ("cancelled", "cancel_requested")


def test_an_application_with_tables_of_its_own_says_that_it_needs_a_database(home: Path) -> None:
    done = run(home, "http://127.0.0.1:1", TRACER_APP="health:application")

    assert done.returncode == 1
    assert "TRACER_DATABASE_URL" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["serve", "demo", "migrate"])
def test_commands_that_keep_records_do_not_take_a_server_for_them(home: Path, command: str) -> None:
    done = tracer(home, command, TRACER_URL="http://127.0.0.1:1")

    assert done.returncode == 1
    assert "Unset TRACER_URL" in done.stderr
    assert "Traceback" not in done.stderr
