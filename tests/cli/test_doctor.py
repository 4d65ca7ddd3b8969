"""`tracer doctor` finds what keeps a run from appearing, with real servers and wrong settings."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anyio.from_thread import start_blocking_portal
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

import tracer as library
from tests.api.commands import Result, serving_here, tracer
from tests.cli.test_spools import new_key
from tests.house.project_files import ROOT
from tests.tools.http_servers import Answer, HttpServer, Received, http_server, reply
from tracer.clock import utc_now

READY = {"status": "ok", "projectors": 1}
GENERAL = "OTEL_EXPORTER_OTLP_ENDPOINT"
HTTP = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the settings and the programs of the machine that runs the tests."""
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", str(folder))
    for name in ("TRACER_URL", "TRACER_API_KEY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "program"


@contextmanager
def answering(answer: Answer) -> Iterator[HttpServer]:
    """Serve answers from another thread."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(http_server(answer)) as server,
    ):
        yield server


@contextmanager
def serving(database_url: str, folder: Path, **settings: Any) -> Iterator[str]:
    """Serve with a projector. Yield the address when it is connected."""
    soon = Retrying(
        retry=retry_if_result(lambda count: count == 0),
        wait=wait_fixed(0.1),
        stop=stop_after_delay(60),
    )
    with serving_here(database_url, folder, projectors=1, **settings) as url:
        soon(lambda: httpx2.get(f"{url}/readyz", timeout=60).json()["projectors"])
        yield url


def examined(home: Path, url: str, *arguments: str, **variables: str) -> dict[str, list[str]]:
    """Run the command. Return the messages of each check, which begin with their statuses."""
    variables = {"TRACER_URL": url, **variables}
    done = tracer(home, "doctor", "--json", "--wait", "60", *arguments, **variables)
    answer = json.loads(done.stdout)
    has_problem = any(each["status"] == "problem" for each in answer["checks"])
    assert (done.code, answer["ok"], answer["url"]) == (int(has_problem), not has_problem, url)
    found: dict[str, list[str]] = {}
    for each in answer["checks"]:
        found.setdefault(each["check"], []).append(
            f"{each['status']}: {each['message']} {each['fix'] or ''}".strip()
        )
    return found


def test_healthy_server_has_no_problem_and_keeps_no_test_run(
    database_url: str, tmp_path: Path, home: Path
) -> None:
    with serving(database_url, tmp_path) as url:
        done = tracer(home, "doctor", "--wait", "60", TRACER_URL=url)
        listed = httpx2.get(f"{url}/api/runs?otherTraces=true", timeout=60).json()["items"]

    checks = [line.split()[:2] for line in done.stdout.splitlines()[:5]]
    assert checks == [["ok", each] for each in ("server", "clock", "ports", "key", "run")]
    assert f"{url.removeprefix('http://')} accepted a span and a log record" in done.stdout
    assert done.stdout.endswith("It was deleted.\n\nFound no problem.\n")
    assert (done.code, listed) == (0, [])


def test_test_run_of_a_key_that_cannot_delete_is_listed_as_another_trace(
    database_url: str, tmp_path: Path, home: Path
) -> None:
    key = new_key(tracer, home, database_url, "ward", "record", "read")
    with serving(database_url, tmp_path) as url:
        found = examined(home, url, TRACER_API_KEY=key)
        printed = tracer(home, "doctor", TRACER_URL=url, TRACER_API_KEY=key).stdout
        headers = {"Authorization": f"Bearer {key}"}
        runs, others = (
            httpx2.get(f"{url}/api/runs{query}", headers=headers, timeout=60).json()["items"]
            for query in ("", "?otherTraces=true")
        )

    assert found["key"] == ["ok: `ward` of the project `ward` may read, record."]
    assert found["run"][0].endswith("and a run appeared. It is one of *Other traces*.")
    assert runs == []
    assert [each["serviceName"] for each in others] == ["tracer doctor"] * 2
    page = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8").partition("## Doctor")[2]
    for shown in ("agents", "default"):
        page = page.replace(f"`{shown}`", "`ward`")
    page = page.replace("127.0.0.1:8420", url.removeprefix("http://"))
    lines = [each for each in printed.splitlines() if re.match("ok +(server|clock|key|run)", each)]
    assert len(lines) == 4
    assert [each for each in lines if each not in page] == []


def test_key_without_the_needed_scope_is_named(
    database_url: str, tmp_path: Path, home: Path
) -> None:
    reader = new_key(tracer, home, database_url, "readers", "read")
    recorder = new_key(tracer, home, database_url, "recorders", "record")
    with serving(database_url, tmp_path) as url:
        reading, recording, none, wrong = (
            examined(home, url, TRACER_API_KEY=key)
            for key in (reader, recorder, "", "tracer_wrong")
        )

    create = "Create a key on the server: `tracer keys create NAME --scope record`."
    expected = "problem: `readers` of the project `readers` may read. It cannot record."
    assert reading["key"] == [f"{expected} {create}"]
    assert "403: This key lacks the `record` scope" in reading["run"][0]
    assert recording["key"] == ["ok: `recorders` of the project `recorders` may record."]
    assert recording["run"][0].startswith("note: ")
    assert "No key here may read the run." in recording["run"][0]
    [missing], [unknown] = none["key"], wrong["key"]
    assert "The server requires one of its keys, and TRACER_API_KEY has none." in missing
    assert "The server requires one of its keys, and TRACER_API_KEY has another one." in unknown


def test_server_that_cannot_be_used_is_described(home: Path) -> None:
    def other(_: Received) -> bytes:
        return reply(200, json={"hello": "world"})

    def broken(_: Received) -> bytes:
        problem = {"code": "schema_out_of_date", "detail": "Run `tracer migrate`."}
        return reply(503, json=problem)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with answering(other) as one, answering(broken) as two:
        down, not_tracer, not_ready = (examined(home, each) for each in (closed, one.url, two.url))
        urls = one.url, two.url

    assert down["server"][0].startswith(f"problem: {closed}: connection refused.")
    expected = f"problem: {urls[0]}: this is not the address of a Tracer server."
    assert not_tracer["server"][0].startswith(expected)
    assert not_ready["server"][0].startswith(f"problem: {urls[1]}: Run `tracer migrate`.")
    assert all("run" not in each for each in (down, not_tracer, not_ready))


def test_address_with_a_path_is_corrected(database_url: str, tmp_path: Path, home: Path) -> None:
    with serving_here(database_url, tmp_path) as url:
        found = examined(home, f"{url}/tracer")

    assert found["server"][0].endswith(f"A Tracer server answers at {url}: set TRACER_URL={url}.")


def test_port_of_grpc_is_recognized(database_url: str, tmp_path: Path, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with serving(database_url, tmp_path, grpc_host="127.0.0.1", grpc_port=port) as url:
        grpc = f"http://127.0.0.1:{port}"
        asked = examined(home, grpc)
        fine = examined(home, url, **{GENERAL: grpc, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
        wrong = examined(home, url, **{GENERAL: grpc, **HTTP})
        http = examined(home, url, **{GENERAL: url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})

    assert "This is a port for gRPC." in asked["server"][0]
    assert asked["ports"][0].startswith(f"ok: 127.0.0.1 has {port} gRPC, ")
    sdk = "OpenTelemetry SDK"
    assert fine[sdk] == [f"ok: 127.0.0.1:{port} answers gRPC. No test data was sent."]
    assert wrong[sdk][0].startswith(f"problem: {grpc}/v1/traces ({GENERAL} in the environment): ")
    assert http[sdk][0].startswith(f"problem: gRPC is sent to the HTTP port: {url} (")


def test_server_without_a_projector_is_noted(database_url: str, tmp_path: Path, home: Path) -> None:
    with serving_here(database_url, tmp_path, projectors=0) as url:
        found = examined(home, url, "codex")

    assert found["server"][0].startswith(f"note: {url} answers. Without a projector, it makes no")


@pytest.mark.parametrize(
    ("difference", "message"),
    [
        (timedelta(seconds=2), "ok: This machine and the server have the same time."),
        (timedelta(days=-1), "problem: The clock of this machine is 1 day, 0:"),
        (timedelta(days=2, minutes=9), "problem: The clock of this machine is 2 days, 0:"),
    ],
)
def test_clocks_are_compared(home: Path, difference: timedelta, message: str) -> None:
    def answer(_: Received) -> bytes:
        return reply(json=READY, date=_http_date(utc_now() + difference))

    with answering(answer) as server:
        [found] = examined(home, server.url, "codex")["clock"]

    assert found.startswith(message)
    direction = {-1: " ahead of ", 2: " behind "}.get(difference.days, "")
    assert direction in found


def _http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


def test_run_that_a_collector_forwards_is_found(
    database_url: str, tmp_path: Path, home: Path
) -> None:
    with serving(database_url, tmp_path) as url:

        def forward(request: Received) -> bytes:
            headers = {"Content-Type": request.headers["content-type"]}
            answer = httpx2.post(url + request.path, content=request.body, headers=headers)
            return reply(answer.status_code, json={"partialSuccess": {}})

        with answering(forward) as collector:
            found = examined(home, url, **HTTP, **{GENERAL: collector.url})
            host = collector.host

    assert [path for each in collector.received if "v1" in (path := each.path)] == [
        "/v1/traces",
        "/v1/logs",
    ]
    [message] = found["OpenTelemetry SDK"]
    assert message.startswith(f"ok: {host} accepted a span and a log record, and a run appeared.")


def test_collector_that_drops_data_is_named(database_url: str, tmp_path: Path, home: Path) -> None:
    with (
        serving(database_url, tmp_path) as url,
        answering(lambda _: reply(json={})) as collector,
    ):
        found = examined(home, url, "--wait", "0.5", **HTTP, **{GENERAL: collector.url})

    [message] = found["OpenTelemetry SDK"]
    assert "the server has 0 spans and 0 log records of them" in message
    assert f"Check where {collector.host} sends" in message


def test_program_is_checked_with_its_own_key(database_url: str, tmp_path: Path, home: Path) -> None:
    reader = new_key(tracer, home, database_url, "readers", "admin")
    other = new_key(tracer, home, database_url, "ward", "record", "read")
    with serving(database_url, tmp_path) as url:
        _write_codex(url, other)
        found = examined(home, url, TRACER_API_KEY=reader)
        _write_codex(url, "tracer_wrong")
        wrong = examined(home, url, TRACER_API_KEY=reader)

    messages = found["Codex CLI"]
    assert messages[0].startswith("note: Texts are not sent: runs have no request and no title.")
    assert messages[1] == "ok: `ward` of the project `ward` may read, record."
    assert messages[2].startswith(
        "note: Its key belongs to the project `ward`, TRACER_API_KEY to `readers`."
    )
    assert "and a run appeared." in messages[3]
    address = f"{url}/v1/traces (otel.trace_exporter.otlp-http.endpoint in ~/.codex/config.toml)"
    assert wrong["Codex CLI"][1].startswith(f"problem: {address}: 401: ")


def _write_codex(url: str, key: str) -> None:
    path = Path.home() / ".codex" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    lines = [
        f'{name} = {{ otlp-http = {{ endpoint = "{url}/v1/{signal}", '
        f'headers = {{ Authorization = "Bearer {key}" }} }} }}'
        for name, signal in (("exporter", "logs"), ("trace_exporter", "traces"))
    ]
    path.write_text("\n".join(["[otel]", *lines]))


def test_program_that_is_not_set_up_is_a_problem_only_if_it_is_asked_about(home: Path) -> None:
    program = Path.home() / "claude"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert shutil.which("claude")
    with answering(lambda _: reply(json=READY)) as server:
        found = examined(home, server.url)
        asked = examined(home, server.url, "claude")

    assert found["Claude Code"] == [
        "off: It is not set up to send. See docs/get-started/coding-agents.md."
    ]
    assert asked["Claude Code"][0] == (
        "problem: CLAUDE_CODE_ENABLE_TELEMETRY is not set: it sends nothing. Set "
        "CLAUDE_CODE_ENABLE_TELEMETRY to 1 where claude starts, or in ~/.claude/settings.json."
    )


def test_recorders_of_this_machine_are_checked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACER_HOME", str(home))
    with library.connect("http://127.0.0.1:1") as tracing, tracing.plan("x"):
        pass
    variables: dict[str, Any] = {"TRACER_DISABLED": "1", "HTTP_PROXY": "http://proxy.example"}
    with answering(lambda _: reply(json=READY)) as server:
        found = examined(home, server.url, "codex", **variables)

    assert found["recorder"] == [
        "problem: TRACER_DISABLED turns `tracer.connect()` off. Remove TRACER_DISABLED."
    ]
    assert "events of recorders wait on this machine" in found["spool"][0]
    assert found["proxy"][0].startswith("note: Exporters use the proxy of HTTP_PROXY.")


def test_unknown_program_and_unreadable_settings_are_named(home: Path) -> None:
    path = Path.home() / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text("{")
    with answering(lambda _: reply(json=READY)) as server:
        found = examined(home, server.url, "claude")
        unknown: Result = tracer(home, "doctor", "emacs", TRACER_URL=server.url)

    [message] = found["Claude Code"]
    assert message.startswith("problem: ~/.claude/settings.json cannot be read: ")
    assert unknown.code == 1
    assert "The program emacs is not known. Known are claude, codex," in unknown.stderr
