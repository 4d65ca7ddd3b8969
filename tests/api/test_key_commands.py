"""`tracer keys`, and the key that a server needs before it listens on all addresses."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from psycopg.sql import SQL

from tests.api.commands import Tracer, serving_here, tracer_process
from tests.servers import tracer_server
from tracer.errors import ConfigurationError

KEY = re.compile(r"^tracer_[\w-]{43}$", re.MULTILINE)


def test_keys_are_created_listed_and_revoked(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    def keys(*arguments: str) -> str:
        done = tracer(tmp_path, "keys", *arguments, TRACER_DATABASE_URL=database_url)
        assert done.code == 0, done.stderr
        return done.stdout

    made = json.loads(
        keys("create", "ward", "--scope", "record", "--scope", "read", "--project", "b", "--json")
    )
    assert (made["project"], made["scopes"]) == ("b", ["read", "record"])
    assert KEY.fullmatch(made["secret"])
    keys("revoke", made["keyId"])
    [listed] = json.loads(keys("list", "--json"))

    assert listed["revokedAt"] is not None
    assert {**listed, "revokedAt": None} == {k: v for k, v in made.items() if k != "secret"}
    assert made["keyId"] in keys("list")


def record_run(tracer: Tracer, home: Path, database_url: str) -> None:
    """Record a run in the project `default`."""
    done = tracer(
        home,
        *("run", "How is p-1?", "--agent", "nurse"),
        TRACER_APP="tests.api.ward:application",
        TRACER_DATABASE_URL=database_url,
    )
    assert done.code == 0, done.stderr


def keys_made(database_url: str) -> list[str]:
    """Return the projects of the keys, the oldest key first."""
    with psycopg.connect(database_url) as connection:
        query = "SELECT project.name FROM api_key JOIN project USING (project_id) ORDER BY key_id"
        return [row[0] for row in connection.execute(SQL(query))]


def test_first_key_that_locks_out_another_project_needs_confirmation(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    record_run(tracer, tmp_path, database_url)
    create = ("keys", "create", "all", "--scope", "admin", "--project", "ward")

    refused = tracer(tmp_path, *create, TRACER_DATABASE_URL=database_url)
    assert refused.code == 1
    assert "every request needs a key" in refused.stderr
    assert "tracer keys create NAME --scope admin --project default" in refused.stderr
    assert "--yes" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert keys_made(database_url) == []

    made = tracer(tmp_path, *create, "--yes", TRACER_DATABASE_URL=database_url)
    assert made.code == 0, made.stderr
    assert KEY.fullmatch(made.stdout.strip())
    assert "tracer keys create NAME --scope admin --project default" in made.stderr
    assert keys_made(database_url) == ["ward"]

    again = ("keys", "create", "all", "--scope", "admin")
    second = tracer(tmp_path, *again, TRACER_DATABASE_URL=database_url)
    assert second.code == 0, second.stderr
    assert "every request" not in second.stderr
    assert keys_made(database_url) == ["ward", "default"]


def test_first_key_of_the_only_project_with_runs_needs_no_confirmation(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    record_run(tracer, tmp_path, database_url)
    create = ("keys", "create", "all", "--scope", "admin")

    done = tracer(tmp_path, *create, TRACER_DATABASE_URL=database_url)

    assert done.code == 0, done.stderr
    assert "every request needs a key" in done.stderr
    assert "--project" not in done.stderr
    assert KEY.fullmatch(done.stdout.strip())


@pytest.mark.parametrize(
    ("scope", "next_command"),
    [("record", "tracer keys create NAME --scope admin --project ward"), ("read", None)],
)
def test_first_key_that_cannot_read_is_followed_by_a_warning(
    tracer: Tracer, database_url: str, tmp_path: Path, scope: str, next_command: str | None
) -> None:
    def create(*arguments: str) -> str:
        command = ("keys", "create", "recorder", "--project", "ward", *arguments)
        done = tracer(tmp_path, *command, TRACER_DATABASE_URL=database_url)
        assert done.code == 0, done.stderr
        assert KEY.fullmatch(done.stdout.strip())
        return done.stderr

    first, second = create("--scope", scope), create("--scope", "record")

    assert ("This key cannot read" in first) == (next_command is not None)
    assert next_command is None or next_command in first
    assert "This key cannot read" not in second


@pytest.mark.parametrize(("answer", "projects"), [(b"n\n", []), (b"y\n", ["ward"])])
@pytest.mark.thorough
def test_terminal_asks_before_the_first_key_locks_out_another_project(
    database_url: str, tmp_path: Path, answer: bytes, projects: list[str]
) -> None:
    record_run(tracer_process, tmp_path, database_url)
    controller, terminal = pty.openpty()
    try:
        os.write(controller, answer)
        create = ("keys", "create", "all", "--scope", "admin", "--project", "ward")
        done = subprocess.run(
            [sys.executable, "-m", "tracer.cli", *create],
            env={**os.environ, "TRACER_HOME": str(tmp_path), "TRACER_DATABASE_URL": database_url},
            stdin=terminal,
            capture_output=True,
            timeout=120,
            check=False,
        )
    finally:
        os.close(controller)
        os.close(terminal)

    assert b"every request needs a key" in done.stderr
    assert done.returncode == (0 if projects else 1), done.stderr
    assert keys_made(database_url) == projects


def test_first_key_notice_lists_projects_that_now_need_a_key(
    tracer: Tracer, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_run(tracer, tmp_path, database_url)
    with psycopg.connect(database_url) as connection:
        connection.execute("INSERT INTO project VALUES (2, 'ward', now())")
    capsys.readouterr()

    with serving_here(database_url, tmp_path / "server", first_key=True, project="ward"):
        output = capsys.readouterr()
    assert KEY.search(output.out)
    assert "every request needs a key" in output.out
    assert "tracer keys create NAME --scope admin --project default" in output.out

    with serving_here(database_url, tmp_path / "server", first_key=True, project="ward"):
        assert "every request" not in capsys.readouterr().out


def test_revoking_an_unknown_key_fails_and_names_the_list_command(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    unknown = "01a20033-9dce-7364-82b8-37c32d771382"
    done = tracer(tmp_path, "keys", "revoke", unknown, TRACER_DATABASE_URL=database_url)

    assert done.code == 1
    assert f"No key has the id '{unknown}'. List the keys: `tracer keys list`." in done.stderr


@pytest.mark.parametrize("option", ["host", "grpc_host"])
def test_server_without_keys_cannot_listen_on_all_addresses(
    database_url: str, tmp_path: Path, option: str
) -> None:
    options: dict[str, Any] = {option: "0.0.0.0"}
    with (
        pytest.raises(ConfigurationError, match="`tracer keys create NAME --scope admin`"),
        serving_here(database_url, tmp_path, **options) as address,
    ):
        pytest.fail(f"expected a refusal, but the server listens on {address}")


@pytest.mark.thorough
def test_serve_process_without_keys_exits_with_1_on_all_addresses(
    database_url: str, tmp_path: Path
) -> None:
    done = tracer_process(
        tmp_path,
        *("serve", "--host", "0.0.0.0", "--port", "0"),
        TRACER_APP="tests.api.ward:application",
        TRACER_DATABASE_URL=database_url,
    )

    assert done.code == 1
    assert "tracer keys create" in done.stderr
    assert "Traceback" not in done.stderr


def test_server_that_prints_a_first_key_may_listen_on_all_addresses(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving_here(database_url, tmp_path, host="0.0.0.0", first_key=True) as address:
        [key] = KEY.findall(capsys.readouterr().out)
        assert httpx2.get(f"{address}/api/runs", timeout=60).status_code == 401
        headers = {"Authorization": f"Bearer {key}", "Host": "traces.example"}
        assert httpx2.get(f"{address}/api/runs", headers=headers, timeout=60).status_code == 200
        assert httpx2.get(f"{address}/readyz", timeout=60).json()["rowLevelSecurity"] == "on"

    with serving_here(database_url, tmp_path, host="0.0.0.0", first_key=True):
        assert KEY.findall(capsys.readouterr().out) == []
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM api_key").fetchone() == (1,)


@pytest.mark.thorough
def test_server_process_prints_the_first_key_once(database_url: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    options = ("--host", "0.0.0.0", "--first-key")
    with tracer_server(database_url, tmp_path, *options) as address:
        [key] = KEY.findall(log.read_text())
        headers = {"Authorization": f"Bearer {key}", "Host": "traces.example"}
        assert httpx2.get(f"{address}/api/runs", headers=headers, timeout=60).status_code == 200

    with tracer_server(database_url, tmp_path, *options):
        assert KEY.findall(log.read_text()) == []


def test_run_recorded_with_a_key_belongs_to_the_project_of_the_key(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    create = ("keys", "create", "ward", "--scope", "record", "--project", "ward")
    key = tracer(tmp_path, *create, TRACER_DATABASE_URL=database_url).stdout.strip()
    with serving_here(database_url, tmp_path / "server") as address:
        done = tracer(
            tmp_path,
            *("run", "How is p-1?", "--agent", "nurse", "--json"),
            TRACER_APP="tests.api.ward:application",
            TRACER_URL=address,
            TRACER_API_KEY=key,
        )
        assert done.code == 0, done.stderr
        root_plan_id = json.loads(done.stdout)["rootPlanId"]
        codes = []
        for project in ("ward", "default"):
            create = ("keys", "create", "reader", "--scope", "read", "--project", project)
            reader = tracer(tmp_path, *create, TRACER_DATABASE_URL=database_url).stdout.strip()
            environment = {"TRACER_URL": address, "TRACER_API_KEY": reader}
            codes.append(tracer(tmp_path, "export", root_plan_id, **environment).code)

    assert codes == [0, 3]
