"""Other systems that store OTLP data in Postgres: how to install and start them.

Each comes from the package registry into an environment of its own, which stays for the next time.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from urllib.parse import unquote

import httpx2
import platformdirs

from benchmarks.surroundings import Bench
from tests.databases import fresh_database

START_SECONDS = 600


@dataclass(frozen=True)
class Peer:
    """One such system."""

    name: str
    package: str
    requirements: tuple[str, ...]
    """The arguments of pip."""
    command: Callable[[int, str], list[str]]
    """Returns the command for a port and a database's address, the program's name first."""
    environment: Callable[[int, str], Mapping[str, str]]
    health: str
    """The path that answers when the peer is ready."""
    tree: Callable[[str], str]
    """Returns the path of a trace's spans for its id."""
    count: str
    """The SQL that counts its spans."""
    headers: tuple[str, ...] = ()
    """The headers that exporters must send."""


PEERS = (
    Peer(
        name="MLflow",
        package="mlflow",
        requirements=("mlflow", "psycopg[binary]"),
        command=lambda port, url: [
            *("mlflow", "server", "--host", "127.0.0.1", "--port", str(port)),
            *("--backend-store-uri", url),
            # On a busy machine its processes take longer to start than it waits for them.
            *("--uvicorn-opts", f"--timeout-worker-healthcheck {START_SECONDS}"),
        ],
        environment=lambda port, url: {"MLFLOW_DISABLE_TELEMETRY": "true"},
        health="/health",
        tree=lambda trace_id: f"/api/3.0/mlflow/traces/get?trace_id=tr-{trace_id}",
        count="SELECT count(*) FROM spans",
        headers=("x-mlflow-experiment-id: 0",),
    ),
    Peer(
        name="Phoenix",
        package="arize-phoenix",
        requirements=("arize-phoenix[pg]",),
        command=lambda port, url: ["phoenix", "serve"],
        environment=lambda port, url: {
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(_free_port()),
            "PHOENIX_SQL_DATABASE_URL": url,
            "PHOENIX_TELEMETRY_ENABLED": "false",
        },
        health="/healthz",
        tree=lambda trace_id: f"/v1/projects/default/spans?trace_id={trace_id}&limit=1000",
        count="SELECT count(*) FROM spans",
    ),
)


@dataclass(frozen=True)
class Installed:
    """Where a peer is, and which version."""

    programs: Path
    version: str


def install(peer: Peer, upgrade: bool) -> Installed:
    """Install a peer, or find its earlier installation.

    Raises:
        RuntimeError: No registry has it.
    """
    folder = platformdirs.user_cache_path("tracer-benchmarks") / peer.package
    programs = folder / "bin"
    uv = Path(sys.executable).with_name("uv")
    if not (programs / "python").exists():
        _run(uv, "venv", "--quiet", "--python", sys.executable, folder)
    options = ["--upgrade"] if upgrade else []
    _run(uv, "pip", "install", "--quiet", *options, "--python", folder, *peer.requirements)
    ask = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
    return Installed(programs, _run(programs / "python", "-c", ask, peer.package).strip())


@dataclass(frozen=True)
class Running:
    """A peer that answers."""

    address: str
    database_url: str
    process: subprocess.Popen[bytes] = field(repr=False)


@contextmanager
def running(bench: Bench, peer: Peer, installed: Installed) -> Iterator[Running]:
    """Run a peer on a new database of the shared Postgres.

    Raises:
        RuntimeError: It does not start.
    """
    folder = bench.folder / peer.package
    folder.mkdir()
    port = _free_port()
    with fresh_database(bench.postgres) as database_url, (folder / "log").open("w") as log:
        url = unquote(database_url)  # not all of them read an escaped path
        program, *arguments = peer.command(port, url)
        process = subprocess.Popen(
            [installed.programs / program, *arguments],
            cwd=folder,
            env={
                **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                "PATH": f"{installed.programs}{os.pathsep}{os.environ['PATH']}",
                "HOME": str(folder),
                **peer.environment(port, url),
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(peer, address, process, folder / "log")
            yield Running(address, database_url, process)
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(peer: Peer, address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = perf_counter() + START_SECONDS
    while perf_counter() < until:
        try:
            if httpx2.get(address + peer.health, timeout=5).is_success:
                return
        except httpx2.TransportError:
            pass
        try:
            process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            continue
        break
    raise RuntimeError(f"{peer.name} does not start: {log.read_text()[-2_000:]}")


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def _run(program: Path, *arguments: str | Path) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{program.name} {arguments[0]} failed: {done.stderr[-1_000:]}")
    return done.stdout
