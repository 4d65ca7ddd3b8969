"""`tracer run` that records to a server over HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from tests.api import commands, ward
from tests.api.commands import Result, Tracer, serving_here
from tests.api.test_cli import HUNG
from tests.trees import complete

APP = "tests.api.ward:application"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The directory of the program that records, which is not the server's."""
    folder = tmp_path / "program"
    folder.mkdir()
    return folder


def run(tracer: Tracer, home: Path, url: str, **environment: str) -> Result:
    command = ("run", "How is p-1?", "--agent", "nurse", "--json")
    return tracer(home, *command, **{"TRACER_APP": APP, "TRACER_URL": url, **environment})


def listed_run(url: str) -> Any:
    """Return the only run once the server lists it; the program may have spooled its start."""
    soon = Retrying(
        retry=retry_if_result(lambda runs: not runs),
        wait=wait_fixed(0.1),
        stop=stop_after_delay(60),
    )
    [found] = soon(lambda: httpx2.get(f"{url}/api/runs", timeout=60).json()["items"])
    return found


def test_run_is_recorded_on_the_server_without_a_local_database(
    tracer: Tracer, database_url: str, tmp_path: Path, home: Path
) -> None:
    with serving_here(database_url, tmp_path) as url:
        done = run(tracer, home, url, TRACER_API_KEY="k3y")
        assert done.code == 0, done.stderr
        answer = json.loads(done.stdout)
        tree = complete(
            httpx2.get(f"{url}/api/plans/{answer['rootPlanId']}/tree", timeout=60).json()
        )

    [think_act, _] = tree["agentExecutions"][0]["thinkActs"]
    assert answer["summary"] == tree["summary"] == "121/79: well."
    assert [call["result"] for call in think_act["toolCalls"]] == ["121/79"]
    assert {each.name for each in home.iterdir()} <= {"spool"}  # made if the server is slow


def test_run_spooled_while_the_server_is_down_is_sent_by_the_next_run(
    tracer: Tracer, database_url: str, tmp_path: Path, home: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    alone = run(tracer, home, f"http://127.0.0.1:{port}")
    with serving_here(database_url, tmp_path, port=port) as url:
        later = run(tracer, home, url)
        runs = httpx2.get(f"{url}/api/runs", timeout=60).json()["items"]

    assert alone.code == 0, alone.stderr
    assert later.code == 0, later.stderr
    ids = {json.loads(done.stdout)["rootPlanId"] for done in (alone, later)}
    assert {(each["rootPlanId"], each["status"]) for each in runs} == {
        (each, "succeeded") for each in ids
    }


def cancelled_once_waiting(url: str) -> int:
    """Cancel the only run when its tool waits, and return the status of the answer."""
    assert ward.waiting.wait(60)
    root_plan_id = listed_run(url)["rootPlanId"]
    return httpx2.post(f"{url}/api/runs/{root_plan_id}/cancel", timeout=60).status_code


def test_cancel_request_over_http_ends_the_run(
    database_url: str, tmp_path: Path, home: Path
) -> None:
    ward.waiting.clear()
    with serving_here(database_url, tmp_path) as url, ThreadPoolExecutor(1) as threads:
        cancelling = threads.submit(cancelled_once_waiting, url)
        done = commands.tracer(
            home, "run", "Wait.", "--agent", "nurse", TRACER_APP=APP, TRACER_URL=url
        )
        assert cancelling.result() == 202
        ended = listed_run(url)

    assert done.code == 1
    assert (ended["status"], ended["reason"]) == ("cancelled", "cancel_requested")


@pytest.mark.thorough
def test_cancel_request_over_http_ends_a_process_whose_tool_hangs(
    database_url: str, tmp_path: Path, home: Path
) -> None:
    (home / "hung.py").write_text(HUNG)
    with serving_here(database_url, tmp_path) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "tracer.cli", "run", "Go", "--agent", "worker"],
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
        running = listed_run(url)
        httpx2.post(f"{url}/api/runs/{running['rootPlanId']}/cancel", timeout=60)
        try:
            process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            raise
        ended = httpx2.get(f"{url}/api/runs/{running['rootPlanId']}", timeout=60).json()

    assert process.returncode == 1
    assert (ended["status"], ended["reason"]) == ("cancelled", "cancel_requested")


def test_application_with_its_own_tables_needs_a_database_url(tracer: Tracer, home: Path) -> None:
    done = run(tracer, home, "http://127.0.0.1:1", TRACER_APP="health:application")

    assert done.code == 1
    assert "TRACER_DATABASE_URL" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["serve --port 0", "demo --port 0", "migrate"])
def test_command_that_needs_a_database_rejects_a_server_url(
    tracer: Tracer, home: Path, command: str
) -> None:
    done = tracer(home, *command.split(), TRACER_URL="http://127.0.0.1:1")

    assert done.code == 1
    assert "Unset TRACER_URL" in done.stderr
    assert "Traceback" not in done.stderr
