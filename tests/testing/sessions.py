"""Test sessions of projects that use the plugin, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.house.project_files import ROOT


class Session(NamedTuple):
    """The exit code of pytest, and what it printed."""

    code: int
    output: str


def run_pytest(folder: Path, *arguments: str, **environment: str) -> Session:
    """Run pytest in a folder that is its root."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", ".", *arguments],
        cwd=folder,
        env={
            **{key: text for key, text in os.environ.items() if not key.startswith("PYTEST_")},
            "PYTHONPATH": str(ROOT),
            "TRACER_HOME": str(folder / "home"),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    return Session(done.returncode, done.stdout + done.stderr)
