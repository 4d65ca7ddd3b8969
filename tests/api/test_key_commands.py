"""`tracer keys`, and a server that others can reach."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx2
import psycopg

from tests.api.test_cli import tracer
from tests.api.test_cli_over_http import WARD, run
from tests.servers import tracer_server

KEY = re.compile(r"^tracer_[\w-]{43}$", re.MULTILINE)


def test_keys_are_made_listed_and_revoked(database_url: str, tmp_path: Path) -> None:
    def keys(*arguments: str) -> str:
        done = tracer(tmp_path, "keys", *arguments, TRACER_DATABASE_URL=database_url)
        assert done.returncode == 0, done.stderr
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


def test_a_key_that_is_in_no_project_is_looked_for_in_the_list(
    database_url: str, tmp_path: Path
) -> None:
    unknown = "01a20033-9dce-7364-82b8-37c32d771382"
    done = tracer(tmp_path, "keys", "revoke", unknown, TRACER_DATABASE_URL=database_url)

    assert done.returncode == 1
    assert f"no key with the id '{unknown}'. See `tracer keys list`." in done.stderr


def test_a_server_that_nobody_needs_a_key_for_is_not_opened_to_others(
    database_url: str, tmp_path: Path
) -> None:
    done = tracer(
        tmp_path, "serve", "--host", "0.0.0.0", "--port", "0", TRACER_DATABASE_URL=database_url
    )

    assert done.returncode == 1
    assert "tracer keys create" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_first_key_is_printed_once_and_opens_a_server_that_others_reach(
    database_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    options = ("--host", "0.0.0.0", "--first-key")
    with tracer_server(database_url, tmp_path, *options) as address:
        [key] = KEY.findall(log.read_text())
        assert httpx2.get(f"{address}/api/runs", timeout=60).status_code == 401
        headers = {"Authorization": f"Bearer {key}", "Host": "traces.example"}
        assert httpx2.get(f"{address}/api/runs", headers=headers, timeout=60).status_code == 200
        assert httpx2.get(f"{address}/readyz", timeout=60).json()["rowLevelSecurity"] == "on"

    with tracer_server(database_url, tmp_path, *options):
        assert KEY.findall(log.read_text()) == []
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM api_key").fetchone() == (1,)


def test_a_program_records_to_its_keys_project_and_the_command_finds_it_there(
    database_url: str, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.mkdir()
    (program / "ward.py").write_text(WARD)
    make = ("keys", "create", "ward", "--scope", "record", "--project", "ward")
    key = tracer(tmp_path, *make, TRACER_DATABASE_URL=database_url).stdout.strip()
    with tracer_server(database_url, tmp_path) as address:
        done = run(program, address, TRACER_API_KEY=key)
    assert done.returncode == 0, done.stderr
    root_plan_id = json.loads(done.stdout)["rootPlanId"]

    def exported(project: str) -> int:
        export = ("export", root_plan_id, "--project", project)
        return tracer(tmp_path, *export, TRACER_DATABASE_URL=database_url).returncode

    assert [exported("ward"), exported("default")] == [0, 1]
