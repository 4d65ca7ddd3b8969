"""`tracer keys`, and a server that others can reach."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx2
import psycopg
import pytest

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


def test_revoking_an_unknown_key_refers_to_the_list(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    unknown = "01a20033-9dce-7364-82b8-37c32d771382"
    done = tracer(tmp_path, "keys", "revoke", unknown, TRACER_DATABASE_URL=database_url)

    assert done.code == 1
    assert f"no key with the id '{unknown}'. See `tracer keys list`." in done.stderr


def test_server_without_keys_refuses_to_listen_on_all_addresses(
    database_url: str, tmp_path: Path
) -> None:
    with (
        pytest.raises(ConfigurationError, match="`tracer keys create NAME --scope admin`"),
        serving_here(database_url, tmp_path, host="0.0.0.0") as address,
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


def test_first_key_is_printed_once_and_opens_a_server_on_all_addresses(
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


def test_run_is_recorded_in_its_keys_project_and_exported_from_there(
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

    def exported(project: str) -> int:
        export = ("export", root_plan_id, "--project", project)
        return tracer(tmp_path, *export, TRACER_DATABASE_URL=database_url).code

    assert [exported("ward"), exported("default")] == [0, 1]
