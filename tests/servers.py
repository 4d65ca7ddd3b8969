"""A real server for tests: the `tracer serve` command in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ADDRESS = re.compile(r"listens on (http://\S+)")


@contextmanager
def tracer_server(
    database_url: str,
    home: Path,
    *options: str,
    python: Path | str = sys.executable,
    cwd: Path | None = None,
) -> Iterator[str]:
    """Run `tracer serve` on a free port while inside, and give its address.

    Args:
        database_url: The Postgres that it serves.
        home: Its `TRACER_HOME`; its log is `server.log` there.
        options: Options of the command.
        python: The interpreter that has Tracer installed.
        cwd: The directory that it is started from.
    """
    log = home / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [python, "-m", "api.cli", "serve", "--port", "0", *options],
            env={**os.environ, "TRACER_DATABASE_URL": database_url, "TRACER_HOME": str(home)},
            cwd=cwd,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        process.wait(timeout=20)


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
    raise AssertionError(f"the server did not start:\n{log.read_text()}")
