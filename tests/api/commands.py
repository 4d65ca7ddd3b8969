"""Several commands in one process: to start one takes longer than what they do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CARRY_OUT = """
import json, sys
from api.cli import commands
for arguments in json.loads(sys.argv[1]):
    commands(arguments, standalone_mode=False)
    print("<end>", flush=True)
"""


def said_by(home: Path, database_url: str, *commands: str) -> list[str]:
    """Return what each of some commands prints, to standard output and error alike."""
    done = subprocess.run(
        [sys.executable, "-c", CARRY_OUT, json.dumps([each.split() for each in commands])],
        env={**os.environ, "TRACER_HOME": str(home), "TRACER_DATABASE_URL": database_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    *said, _ = done.stdout.split("<end>\n")
    return said
