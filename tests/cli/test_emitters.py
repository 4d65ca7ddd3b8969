"""The settings of programs that send OpenTelemetry, as `tracer doctor` reads and judges them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.house.project_files import ROOT
from tracer.cli.emitters import (
    EMITTERS,
    GRPC,
    HTTP,
    Endpoint,
    Machine,
    Unreadable,
    endpoint_problem,
    setting_problems,
)
from tracer.settings import LOCAL_SERVER

BY_PROGRAM = {each.program: each for each in EMITTERS}
GENERAL = "OTEL_EXPORTER_OTLP_ENDPOINT"
CLAUDE = {
    "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
    "CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "1",
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_LOGS_EXPORTER": "otlp",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    GENERAL: LOCAL_SERVER,
}


def machine(folder: Path, variables: Mapping[str, str] | None = None, **files: str) -> Machine:
    """Return a machine whose home is `folder`, with files that are named by their places."""
    places = {
        "claude": ".claude/settings.json",
        "claude_project": "project/.claude/settings.local.json",
        "codex": ".codex/config.toml",
        "opencode": ".config/opencode/opencode.json",
        "opencode_project": "project/opencode.jsonc",
        "gemini": ".gemini/settings.json",
    }
    for name, text in files.items():
        path = folder / places[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return Machine(variables or {}, folder, folder / "project")


def judged(program: str, on: Machine) -> list[str]:
    """Return the messages of all problems and notes of a program."""
    emitter = BY_PROGRAM[program]
    found = on.settings_of(emitter)
    problems, notes = setting_problems(emitter, found, LOCAL_SERVER)
    of_endpoints = [endpoint_problem(each, LOCAL_SERVER) for each in emitter.endpoints(found)]
    return [each.message for each in (*problems, *notes, *of_endpoints) if each is not None]


def endpoints(program: str, on: Machine) -> list[Endpoint]:
    emitter = BY_PROGRAM[program]
    return list(emitter.endpoints(on.settings_of(emitter)))


def test_environment_variables_determine_the_address_of_each_signal(tmp_path: Path) -> None:
    variables = {
        GENERAL: "http://tracer.example/",
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20tracer_a,x=y",
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://logs.example:4317",
        "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_LOGS_HEADERS": "",
    }
    traces, logs = endpoints("", machine(tmp_path, variables))

    headers = (("authorization", "Bearer tracer_a"), ("x", "y"))
    assert traces == Endpoint("traces", "http://tracer.example/v1/traces", HTTP, headers)
    assert (traces.name, traces.source, traces.key) == (GENERAL, "the environment", "tracer_a")
    assert logs == Endpoint("logs", "http://logs.example:4317", GRPC, headers)


def test_without_an_endpoint_data_goes_to_the_port_of_collectors(tmp_path: Path) -> None:
    [traces] = endpoints("", machine(tmp_path, {"OTEL_EXPORTER_OTLP_HEADERS": "a=b"}))

    assert str(traces) == f"http://localhost:4318/v1/traces ({GENERAL} is not set)"


def test_endpoint_of_traces_alone_sends_no_logs(tmp_path: Path) -> None:
    name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    [traces] = endpoints("", machine(tmp_path, {name: f"{LOCAL_SERVER}/v1/traces"}))

    assert (traces.signal, traces.name) == ("traces", name)


def test_settings_of_a_project_override_those_of_the_user_and_the_environment(
    tmp_path: Path,
) -> None:
    settings = json.dumps({"env": CLAUDE, "model": "any"})
    mine = json.dumps({"env": {GENERAL: "http://127.0.0.1:4318"}})
    on = machine(tmp_path, {GENERAL: "http://other"}, claude=settings, claude_project=mine)
    found = on.settings_of(BY_PROGRAM["claude"])

    assert found[GENERAL] == ("http://127.0.0.1:4318", "~/project/.claude/settings.local.json")
    assert found["OTEL_LOGS_EXPORTER"] == ("otlp", "~/.claude/settings.json")


def test_folders_of_settings_can_be_moved_by_variables(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("otel.log_user_prompt = true")
    found = machine(tmp_path / "home", {"CODEX_HOME": str(tmp_path)}).settings_of(
        BY_PROGRAM["codex"]
    )

    assert found["otel.log_user_prompt"] == ("true", str(tmp_path / "config.toml"))


def test_json_settings_may_have_comments_and_trailing_commas(tmp_path: Path) -> None:
    text = '{ // so\n "experimental": {"openTelemetry": true,}, /* "//" */ "a": "// b", }'
    found = machine(tmp_path, opencode_project=text).settings_of(BY_PROGRAM["opencode"])

    assert found["experimental.openTelemetry"].value == "true"
    assert found["a"].value == "// b"


@pytest.mark.parametrize(("name", "program"), [("claude", "claude"), ("codex", "codex")])
def test_invalid_file_is_named(tmp_path: Path, name: str, program: str) -> None:
    with pytest.raises(Unreadable, match=r"~/\.\w+/\w+\.\w+ cannot be read: .*line 1"):
        machine(tmp_path, None, **{name: "{ = "}).settings_of(BY_PROGRAM[program])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"CLAUDE_CODE_ENABLE_TELEMETRY": ""}, "is not set: it sends nothing"),
        ({"CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "0"}, "is 0 in the environment: it sends no sp"),
        ({"OTEL_TRACES_EXPORTER": "none"}, "OTEL_TRACES_EXPORTER=none in the environment"),
        ({"OTEL_LOGS_EXPORTER": "console"}, "OTEL_LOGS_EXPORTER is console"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": ""}, "OTEL_EXPORTER_OTLP_PROTOCOL is not set"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http"}, "OTEL_EXPORTER_OTLP_PROTOCOL is http in"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "gRPC is sent to the HTTP port"),
        ({GENERAL: "http://127.0.0.1:4317"}, "HTTP is sent to the gRPC port"),
        ({GENERAL: "127.0.0.1:8420"}, "is no address"),
        ({GENERAL: f"{LOCAL_SERVER}/v1/traces"}, "The path of http://127.0.0.1:8420/v1/traces/v1"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": LOCAL_SERVER}, "The path of http://127.0.0.1:8420"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=tracer_a"}, "is not `Bearer KEY`"),
        ({"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED=true in the environment"),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, "OTEL_TRACES_SAMPLER=always_off"),
        ({}, "Texts are not sent: runs have no request and no title, calls have no arguments"),
    ],
)
def test_wrong_setting_is_named(tmp_path: Path, change: dict[str, str], message: str) -> None:
    assert any(message in each for each in judged("claude", machine(tmp_path, CLAUDE | change)))


def test_localhost_and_its_address_are_the_same_server(tmp_path: Path) -> None:
    variables = CLAUDE | {GENERAL: "http://localhost:8420", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}

    assert "gRPC is sent to the HTTP port" in "".join(
        judged("claude", machine(tmp_path, variables))
    )


@pytest.mark.parametrize("program", ["opencode", "claude", "copilot"])
def test_encoded_space_is_no_problem(tmp_path: Path, program: str) -> None:
    # OpenCode sends it as it is written, and the server accepts it.
    variables = {GENERAL: LOCAL_SERVER, "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20key"}
    message = "The header Authorization is not `Bearer KEY`."

    assert message not in judged(program, machine(tmp_path, variables))


def test_codex_needs_an_endpoint_of_each_signal(tmp_path: Path) -> None:
    on = machine(
        tmp_path,
        codex='[otel]\nexporter = { otlp-http = { endpoint = "http://127.0.0.1:8420" } }\n',
    )

    messages = judged("codex", on)
    assert any("otel.trace_exporter.otlp-http.endpoint is not set" in each for each in messages)
    assert any("The path of http://127.0.0.1:8420" in each for each in messages)


def test_shared_variables_set_up_only_installed_programs() -> None:
    found = Machine({GENERAL: LOCAL_SERVER}, Path("/"), Path("/")).settings_of(
        BY_PROGRAM["copilot"]
    )

    assert [BY_PROGRAM["copilot"].is_set_up(found, installed) for installed in (True, False)] == [
        True,
        False,
    ]


SECTIONS = {
    "Claude Code": "claude",
    "Codex CLI": "codex",
    "OpenCode": "opencode",
    "GitHub Copilot CLI": "copilot",
    "Gemini CLI": "gemini",
}


@pytest.mark.parametrize("heading", SECTIONS)
def test_settings_of_the_page_have_no_problem(heading: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "get-started" / "coding-agents.md").read_text("utf-8")
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    first = re.search(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert first is not None
    (tmp_path / ".codex").mkdir()
    done = subprocess.run(
        ["bash", "-c", f"set -e\n{first[1]}\nenv -0"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TRACER_API_KEY": "tracer_a"},
        capture_output=True,
        text=True,
        check=True,
    )
    variables = dict(each.split("=", 1) for each in done.stdout.split("\0") if each)
    files = {}
    if heading == "OpenCode":
        [option] = re.findall(r'"experimental": \{ "openTelemetry": true \}', section)
        files["opencode"] = f"{{ {option} }}"
    on = machine(tmp_path, variables, **files)

    assert judged(SECTIONS[heading], on) == []
    assert {each.signal for each in endpoints(SECTIONS[heading], on)} == {"traces", "logs"}
