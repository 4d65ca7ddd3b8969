"""The `tracer` command, run as its users run it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import httpx2
import psycopg
import pytest

from tests.api.commands import Tracer
from tests.searching import catch_up
from tests.servers import ADDRESS, start_server
from tracer.storage.postgres import connection_options, sync_connection
from tracer.storage.postgres.migrate import head
from tracer.storage.postgres.search_source import SearchSource


def test_demo_once_prints_the_root_plan_id_of_a_recorded_run(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    done = tracer(tmp_path, "demo", "--once", TRACER_DATABASE_URL=database_url)

    assert done.code == 0, done.stderr
    root_plan_id = UUID(done.stdout.strip())
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT status::text FROM run WHERE root_plan_id = %s", [root_plan_id]
        ).fetchone()
    assert row == ("succeeded",)


@pytest.mark.thorough
def test_demo_once_prints_json_on_request(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    done = tracer(tmp_path, "demo", "--once", "--json", TRACER_DATABASE_URL=database_url)

    assert done.code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["status"] == "succeeded"
    assert UUID(answer["rootPlanId"])


def test_migrate_creates_the_schema(
    tracer: Tracer, empty_database_url: str, tmp_path: Path
) -> None:
    done = tracer(tmp_path, "migrate", TRACER_DATABASE_URL=empty_database_url)

    assert done.code == 0, done.stderr
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT count(*) FROM act_tool_info").fetchone() == (0,)


def test_check_of_an_empty_database_lists_the_migration_and_changes_nothing(
    tracer: Tracer, empty_database_url: str, tmp_path: Path
) -> None:
    done = tracer(tmp_path, "migrate", "--check", TRACER_DATABASE_URL=empty_database_url)

    assert (done.code, done.stdout) == (1, f"{head()}  Create all tables.\n")
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT to_regclass('run')").fetchone() == (None,)


def test_check_of_a_current_schema_exits_with_0(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    done = tracer(tmp_path, "migrate", "--check", TRACER_DATABASE_URL=database_url)

    assert (done.code, done.stdout) == (0, "")
    assert "up to date" in done.stderr


@pytest.mark.parametrize("arguments", [("migrate",), ("migrate", "--check")], ids=" ".join)
def test_database_of_a_newer_version_is_refused_with_what_to_upgrade(
    tracer: Tracer, arguments: tuple[str, ...], database_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    done = tracer(tmp_path, *arguments, TRACER_DATABASE_URL=database_url)

    assert done.code == 1
    assert "has version 9999" in done.stderr
    assert "Upgrade tracer-lineage-server" in done.stderr


def test_run_without_a_scripted_answer_is_recorded_as_failed(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    done = tracer(
        tmp_path,
        *("run", "What is the meaning?"),
        TRACER_APP="tests.api.ward:application",
        TRACER_DATABASE_URL=database_url,
    )

    assert done.code == 1
    assert "failed" in done.stderr
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT status::text FROM run").fetchone() == ("failed",)


def test_invalid_setting_is_reported_in_a_sentence_that_names_it(
    tracer: Tracer, tmp_path: Path
) -> None:
    unreachable = "postgresql://nobody@127.0.0.1:1/x?connect_timeout=1"
    cases = [
        ("TRACER_APP", "nowhere:application", "TRACER_APP"),
        ("TRACER_APP", "health:nothing", "TRACER_APP"),
        ("TRACER_APP", "nonsense", "TRACER_APP"),
        ("TRACER_MODEL", "nonsense", "TRACER_MODEL"),
        ("TRACER_DATABASE_URL", "mysql://x", "TRACER_DATABASE_URL"),
        ("TRACER_DATABASE_URL", unreachable, "database"),
    ]
    failures = []
    for variable, value, expected in cases:
        environment = {
            "TRACER_APP": "tests.api.ward:application",
            "TRACER_DATABASE_URL": unreachable,
            variable: value,
        }
        done = tracer(tmp_path, "run", "hello", **environment)
        if done.code != 1 or expected not in done.stderr or "Traceback" in done.stderr:
            failures.append(
                f"{variable}={value}: expected exit code 1 and {expected!r} in the message, "
                f"got {done.code} and {done.stderr[:200]!r}"
            )

    assert failures == []


def test_serve_on_a_port_in_use_names_the_option_that_changes_it(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tracer(tmp_path, "serve", "--port", str(port), TRACER_DATABASE_URL=database_url)

    assert done.code == 1
    assert "--port" in done.stderr


@pytest.mark.thorough
def test_demo_process_serves_three_runs_and_exits_0_on_sigterm(
    database_url: str, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tracer.cli", "demo", "--json", "--port", "0"],
        env={**os.environ, "TRACER_DATABASE_URL": database_url, "TRACER_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    root_plan_id = json.loads(process.stdout.readline())["rootPlanId"]
    log = "".join(iter(process.stderr.readline, "Stop with Ctrl-C.\n"))
    address = ADDRESS.search(log)
    assert address is not None
    links = re.findall(r"/runs/([0-9a-f-]+)(?:\?select=([0-9a-f-]+))?", log)

    runs = httpx2.get(f"{address[1]}/api/runs", timeout=60).json()["items"]
    opener = httpx2.get(f"{address[1]}/api/tool-calls/{links[1][1]}", timeout=60).json()
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=60)

    assert [run["rootPlanId"] for run in reversed(runs)] == [run for run, _ in links]
    assert [run["status"] for run in runs] == ["running", "succeeded", "failed"]
    assert {run["unpricedCalls"] for run in runs} == {0}
    assert links[1][0] == root_plan_id
    assert opener["name"] == "interaction_check"
    assert process.returncode == 0
    assert "Traceback" not in log + rest


def test_server_process_prints_its_address_and_exits_0_on_sigterm(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACER_APP", "tests.api.ward:application")
    server = start_server(database_url, tmp_path)
    try:
        answer = httpx2.get(f"{server.address}/readyz", timeout=60)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=60) == 0
    finally:
        server.process.kill()
    assert answer.status_code == 200
    assert "Traceback" not in (tmp_path / "server.log").read_text()


@pytest.mark.thorough
def test_server_process_exits_130_on_ctrl_c(database_url: str, tmp_path: Path) -> None:
    # A shell starts background jobs with SIGINT ignored, and processes inherit that.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = start_server(database_url, tmp_path).process
    finally:
        signal.signal(signal.SIGINT, inherited)
    try:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
    assert "Traceback" not in (tmp_path / "server.log").read_text()


HUNG = """
import time
from tracer.runtime.application import Agent
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


@pytest.mark.thorough
def test_process_exits_although_a_tool_hangs(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "hung.py").write_text(HUNG)
    process = subprocess.Popen(
        [sys.executable, "-m", "tracer.cli", "run", "Go", "--agent", "worker"],
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


def test_ctrl_c_ends_a_rebuild_of_the_search_index_and_leaves_the_old_one(
    database_url: str, tmp_path: Path
) -> None:
    with sync_connection(connection_options(database_url)) as connection:
        source = SearchSource(connection)
        index = source.directory(tmp_path / "search")
        catch_up(source, index)
    old = index.generation()
    lock = index.lock()  # as a projector has it, so the command waits
    assert lock is not None
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "tracer.cli", "search", "rebuild"],
            env={**os.environ, "TRACER_DATABASE_URL": database_url, "TRACER_HOME": str(tmp_path)},
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, inherited)
    with lock, process:
        while not index.rebuild.exists():
            with contextlib.suppress(subprocess.TimeoutExpired):
                pytest.fail(f"It ended with {process.wait(timeout=0.1)}.")
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=120)

    assert process.returncode == 130
    assert "Traceback" not in log
    assert index.generation() == old
    assert not index.rebuild.exists()
