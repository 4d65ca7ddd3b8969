"""The npm package: the packed tarball is installed, and its programs record to a real server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.adapters.outline import outline
from tests.house.project_files import ROOT
from tests.servers import ONE_PROJECTOR, start_server
from tests.trees import complete
from tracer.clock import utc_now

pytestmark = pytest.mark.thorough

CLIENT = ROOT / "clients" / "typescript"
DEADLINE_SECONDS = 120.0
LEASE_SECONDS = 3
SDK = ("@opentelemetry/api@^1.9.0", "@opentelemetry/sdk-trace-base@^2.0.0")
FRAMEWORKS = {
    "ai_sdk": ("ai@7", "@ai-sdk/otel@1", "zod@4", "@opentelemetry/sdk-trace-node@2"),
    "openai_agents": (
        *("@openai/agents", "zod@4", "@opentelemetry/sdk-trace-node@2"),
        "@arizeai/openinference-instrumentation-openai-agents",
    ),
}
RUNNING = {
    "ai_sdk": [
        "plan of planner: running",
        "  round: succeeded",
        '    ask_researcher({"question":"tides"}): succeeded',
        "      plan of researcher: succeeded",
        "        round: succeeded",
        '          search({"query":"tide calendar"}): succeeded',
        "        round: succeeded",
        '    ask_researcher({"question":"species"}): running',
        "      plan of researcher: running",
        "        round: succeeded",
        '          search({"query":"anemones"}): running',
    ],
    # The instrumentation sets the arguments of a tool when the tool ends.
    "openai_agents": [
        "plan of planner: running",
        "  round: succeeded",
        '    ask_researcher({"question":"tides"}): succeeded',
        "      plan of researcher: succeeded",
        "        round: succeeded",
        '          search({"query":"tide calendar"}): succeeded',
        "        round: succeeded",
        "    ask_researcher(): running",
        "      plan of researcher: running",
        "        round: succeeded",
        "          search(): running",
    ],
}


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    if not (CLIENT / "node_modules").exists():
        _run(CLIENT, "npm", "ci", "--no-audit", "--no-fund")
    _run(CLIENT, "npm", "pack", "--pack-destination", str(folder))
    (packed,) = folder.glob("*.tgz")
    return packed


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[str]:
    """Run a server whose leases are short, and whose traces may be silent for an hour."""
    settings = {
        "TRACER_LEASE_SECONDS": str(LEASE_SECONDS),
        "TRACER_SPAN_IDLE_SECONDS": "3600",
        **ONE_PROJECTOR,
    }
    server = start_server(database_url, tmp_path, settings=settings)
    try:
        yield server.address
    finally:
        server.process.terminate()
        server.process.wait(timeout=60)


def test_typescript_package_has_the_version_of_the_project() -> None:
    package = json.loads((CLIENT / "package.json").read_text("utf-8"))
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert package["version"] == version[1]


async def test_typescript_readme_example_records_a_run(
    tarball: Path, server: str, tmp_path: Path
) -> None:
    project = _project(tmp_path, tarball, *SDK)
    example = re.search(r"^```js\n(.*?)^```", (CLIENT / "README.md").read_text(), re.M | re.S)
    assert example is not None
    (project / "example.mjs").write_text(example[1])

    _run(project, "node", "example.mjs", TRACER_URL=server)

    run = await _until(server, lambda run: run["status"] == "succeeded")
    assert outline(run["tree"]) == [
        "plan of nurse: succeeded",
        '  measure({"patient":"p-1"}): succeeded',
    ]


@pytest.mark.parametrize("program", FRAMEWORKS)
async def test_open_tool_call_of_a_killed_process_is_running_then_abandoned(
    program: str, tarball: Path, server: str, tmp_path: Path
) -> None:
    project = _project(tmp_path, tarball, *FRAMEWORKS[program])
    source = CLIENT / "test" / "programs" / f"{program}.mjs"
    (project / source.name).write_bytes(source.read_bytes())

    with _started(project, source.name, server) as process:
        expected = _paths(RUNNING[program])
        await _until(server, lambda run: _paths(outline(run["tree"])) == expected, process)
        # Two leases later, only heartbeats keep the run alive.
        later = utc_now() + 2 * timedelta(seconds=LEASE_SECONDS)
        await _until(
            server,
            lambda run: run["status"] == "running" and run["seenAt"] and run["seenAt"] > later,
            process,
        )
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)

    run = await _until(server, lambda run: run["status"] == "abandoned")
    abandoned = [line.replace(": running", ": abandoned") for line in RUNNING[program]]
    assert _paths(outline(run["tree"])) == _paths(abandoned)


def _paths(lines: list[str]) -> list[str]:
    """Return each line of an outline after the lines above it, in an order of their own.

    Two calls that start in the same millisecond may be in either order.
    """
    path: list[str] = []
    paths = []
    for line in lines:
        path[(len(line) - len(line.lstrip())) // 2 :] = [line.strip()]
        paths.append(" / ".join(path))
    return sorted(paths)


def _project(folder: Path, tarball: Path, *packages: str) -> Path:
    """Install the package into an empty project."""
    project = folder / "project"
    project.mkdir()
    (project / "package.json").write_text('{"private": true}')
    options = ("--no-audit", "--no-fund", "--ignore-scripts")
    _run(project, "npm", "install", *options, str(tarball), *packages)
    return project


def _run(folder: Path, *command: str, **settings: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def _started(project: Path, program: str, url: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "TRACER_URL": url}
    with subprocess.Popen(["node", program], cwd=project, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


async def _until(url: str, holds: Any, process: subprocess.Popen[bytes] | None = None) -> Any:
    run = None
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while (run := await _read(url)) is None or not holds(run):
                assert process is None or process.poll() is None
                await asyncio.sleep(0.1)
            return run
    except TimeoutError:
        seen = None if run is None else (run["status"], outline(run["tree"]))
        raise AssertionError(f"The run is not as expected: {seen}") from None


async def _read(url: str) -> Any:
    """Return the tree, the status and the last heartbeat of the only run; None if there is none."""
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        runs = (await client.get("/api/runs")).json()["items"]
        if not runs:
            return None
        [run] = runs
        path = f"/api/plans/{run['rootPlanId']}/tree"
        tree = complete((await client.get(path)).raise_for_status().json())
        seen_at = run["seenAt"] and datetime.fromisoformat(run["seenAt"])
        return {"tree": tree, "status": run["status"], "seenAt": seen_at}
