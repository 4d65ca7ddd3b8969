"""A real server for tests: the `tracer serve` command in a process of its own."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ONE_PROJECTOR = {"TRACER_PROJECTORS": "1"}
"""The settings of a server to which a test sends spans."""

ADDRESS = re.compile(r"listens on (http://\S+)")


@dataclass(frozen=True)
class Server:
    """A server that listens."""

    address: str
    process: subprocess.Popen[bytes]


@contextmanager
def tracer_server(
    database_url: str,
    home: Path,
    *options: str,
    python: Path | str = sys.executable,
    cwd: Path | None = None,
    address_space: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Run `tracer serve` on a free port and yield its address; see `start_server`."""
    server = start_server(
        database_url,
        home,
        *options,
        python=python,
        cwd=cwd,
        address_space=address_space,
        settings=settings,
    )
    try:
        yield server.address
    finally:
        server.process.terminate()
        server.process.wait(timeout=60)


def start_server(
    database_url: str,
    home: Path,
    *options: str,
    port: int = 0,
    python: Path | str = sys.executable,
    cwd: Path | None = None,
    address_space: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> Server:
    """Start `tracer serve` and return when it listens; the caller ends it.

    Args:
        database_url: The Postgres that it serves.
        home: Its `TRACER_HOME`; its log is `server.log` there.
        options: Options of the command.
        port: Where it listens; 0 takes a free one.
        python: The interpreter that has Tracer installed.
        cwd: The directory that it is started from.
        address_space: Its `RLIMIT_AS` in bytes, on Linux; None: unlimited.
        settings: More environment variables.
    """
    log = home / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [python, "-m", _command_module(cwd), "serve", "--port", str(port), *options],
            env={
                **os.environ,
                "TRACER_DATABASE_URL": database_url,
                "TRACER_HOME": str(home),
                "TRACER_GRPC_PORT": "0",
                **(settings or {}),
            },
            cwd=cwd,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        if address_space is not None and sys.platform == "linux":
            # From outside: `preexec_fn` is not safe in a process with threads.
            resource.prlimit(process.pid, resource.RLIMIT_AS, (address_space, address_space))
        return Server(_address(process, log), process)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _command_module(cwd: Path | None) -> str:
    """Return the module of the `tracer` command, which an older checkout has elsewhere."""
    project = None if cwd is None else cwd / "pyproject.toml"
    if project is None or not project.exists():
        return "tracer.cli"
    entry: str = tomllib.loads(project.read_text())["project"]["scripts"]["tracer"]
    return entry.partition(":")[0]


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server has said where it listens."""
    while process.poll() is None:
        found = ADDRESS.search(log.read_text())
        if found:
            return found[1]
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(
        f"the server ended with {process.returncode} before it listened:\n{log.read_text()}"
    )
