"""The `tracer` command, run in this process or in one of its own."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

from anyio.from_thread import start_blocking_portal
from pydantic import SecretStr
from typer.testing import CliRunner

from api.main import DEFAULT_HOST, FREE_PORT, served
from tests.searching import index_of
from tracer.cli.main import commands
from tracer.records import DEFAULT_PROJECT
from tracer.runtime import Agent, Application
from tracer.runtime.scripted_model import ScriptedModel
from tracer.search import SearchIndex
from tracer.settings import read_settings


@dataclass(frozen=True)
class Result:
    """The output of a command, and its exit code."""

    code: int
    stdout: str
    stderr: str


class Tracer(Protocol):
    """Runs the `tracer` command."""

    def __call__(
        self, home: Path, *arguments: str, stdin: str | bytes = b"", **environment: str
    ) -> Result: ...


def tracer(home: Path, *arguments: str, stdin: str | bytes = b"", **environment: str) -> Result:
    """Run `tracer` with `arguments` in this process; the test must not be asynchronous.

    An exception that the command should have reported is raised here.

    Args:
        home: Its `TRACER_HOME`.
        arguments: The command and its arguments.
        stdin: Its standard input.
        environment: Further environment variables.
    """
    with process_settings_restored():
        done = CliRunner().invoke(
            commands,
            arguments,
            input=stdin,
            env={"TRACER_HOME": str(home), **environment},
            catch_exceptions=False,
        )
    return Result(done.exit_code, done.stdout_bytes.decode(), done.stderr)


def tracer_process(
    home: Path, *arguments: str, stdin: str | bytes = b"", **environment: str
) -> Result:
    """Run `tracer` with `arguments` in a process of its own; see `tracer`."""
    done = subprocess.run(
        [sys.executable, "-m", "tracer.cli", *arguments],
        env={**os.environ, "TRACER_HOME": str(home), **environment},
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextmanager
def serving_here(
    database_url: str,
    home: Path,
    *,
    host: str = DEFAULT_HOST,
    port: int = FREE_PORT,
    first_key: bool = False,
    project: str = DEFAULT_PROJECT,
    **settings: Any,
) -> Iterator[str]:
    """Serve an application without scripts in a thread of this process; yield the address."""
    idle = Application(name="idle", agents=(Agent("nobody", "Wait."),), model=ScriptedModel([]))
    values = read_settings(home=home, database_url=SecretStr(database_url), **settings)
    serving = served(
        values,
        *(idle, host, port),
        project=project,
        first_key=first_key,
        grpc="grpc_host" in settings,
    )

    async def index(*_: object) -> SearchIndex:
        return index_of(database_url)

    with (
        patch("api.main.search_index", index),
        process_settings_restored(),
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving) as server,
    ):
        yield server.address


@contextmanager
def process_settings_restored() -> Iterator[None]:
    """Restore the process-wide settings that a command may change."""
    root = logging.getLogger()
    level, handlers, path = root.level, root.handlers[:], sys.path[:]
    thresholds = gc.get_threshold()
    root.handlers[:] = []  # `configure_logs` closes the handlers that it finds
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
        sys.path[:] = path
        gc.unfreeze()
        gc.set_threshold(*thresholds)
