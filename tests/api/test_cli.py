"""The `tracer` command, run as its users run it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import httpx2
import psycopg
import pytest

from tests.servers import ADDRESS, start_server


def tracer(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "api.cli", *arguments],
        env={**os.environ, "TRACER_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_demo_once_records_the_run_and_prints_its_root_plan_id(
    database_url: str, tmp_path: Path
) -> None:
    done = tracer(tmp_path, "demo", "--once", TRACER_DATABASE_URL=database_url)

    assert done.returncode == 0, done.stderr
    root_plan_id = UUID(done.stdout.strip())
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT status::text FROM run WHERE root_plan_id = %s", [root_plan_id]
        ).fetchone()
    assert row == ("succeeded",)


def test_demo_once_answers_programs_in_json(database_url: str, tmp_path: Path) -> None:
    done = tracer(tmp_path, "demo", "--once", "--json", TRACER_DATABASE_URL=database_url)

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["status"] == "succeeded"
    assert UUID(answer["rootPlanId"])


def test_migrate_makes_the_schema(empty_database_url: str, tmp_path: Path) -> None:
    done = tracer(tmp_path, "migrate", TRACER_DATABASE_URL=empty_database_url)

    assert done.returncode == 0, done.stderr
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT count(*) FROM act_tool_info").fetchone() == (0,)


def test_a_request_that_the_application_can_not_answer_ends_in_a_recorded_failure(
    database_url: str, tmp_path: Path
) -> None:
    done = tracer(tmp_path, "run", "What is the meaning?", TRACER_DATABASE_URL=database_url)

    assert done.returncode == 1
    assert "failed" in done.stderr
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT status::text FROM run").fetchone() == ("failed",)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("TRACER_APP", "nowhere:application", "TRACER_APP"),
        ("TRACER_APP", "health:nothing", "TRACER_APP"),
        ("TRACER_APP", "nonsense", "TRACER_APP"),
        ("TRACER_MODEL", "nonsense", "TRACER_MODEL"),
        ("TRACER_DATABASE_URL", "mysql://x", "TRACER_DATABASE_URL"),
        ("TRACER_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/x?connect_timeout=1", "database"),
    ],
)
def test_a_wrong_setting_is_one_sentence_that_names_it(
    tmp_path: Path, variable: str, value: str, said: str
) -> None:
    environment = {"TRACER_DATABASE_URL": "postgresql://127.0.0.1:1/x", variable: value}

    done = tracer(tmp_path, "run", "hello", **environment)

    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_said_to_be(database_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tracer(tmp_path, "serve", "--port", str(port), TRACER_DATABASE_URL=database_url)

    assert done.returncode == 1
    assert "--port" in done.stderr


def test_demo_serves_the_run_that_it_recorded_and_ends_politely(
    database_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "api.cli", "demo", "--json", "--port", "0"],
            env={
                **os.environ,
                "TRACER_DATABASE_URL": database_url,
                "TRACER_HOME": str(tmp_path),
            },
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
    assert process.stdout is not None
    root_plan_id = json.loads(process.stdout.readline())["rootPlanId"]
    address = ADDRESS.search(log.read_text())
    assert address is not None

    run = httpx2.get(f"{address[1]}/api/runs/{root_plan_id}", timeout=60).json()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)

    assert run["status"] == "succeeded"
    assert process.returncode == 0
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(("told", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_server_that_is_told_to_end_has_done_its_work(
    database_url: str, tmp_path: Path, told: signal.Signals, code: int
) -> None:
    process = start_server(database_url, tmp_path).process
    try:
        process.send_signal(told)
        assert process.wait(timeout=60) == code
    finally:
        process.kill()
    assert "Traceback" not in (tmp_path / "server.log").read_text()


HUNG = """
import time
from tracer.runtime.agent import Agent
from tracer.runtime.application import Application
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.tools.definition import tool

@tool
def hang() -> None:
    print("hanging", flush=True)
    time.sleep(600)

model = ScriptedModel([Script([Turn(calls=[call("hang")])])])
application = Application(name="hung", agents=(Agent("worker", "Work.", (hang,)),), model=model)
"""


def test_a_tool_that_hangs_does_not_keep_the_process(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "hung.py").write_text(HUNG)
    process = subprocess.Popen(
        [sys.executable, "-m", "api.cli", "run", "Go", "--agent", "worker"],
        env={
            **os.environ,
            "TRACER_DATABASE_URL": database_url,
            "TRACER_HOME": str(tmp_path),
            "TRACER_APP": "hung:application",
        },
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "hanging\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)

    assert process.returncode == 143
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT DISTINCT status::text FROM act_tool_info").fetchall()
    assert rows == [("cancelled",)]
