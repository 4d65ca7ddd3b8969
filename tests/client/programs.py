"""Programs that record while the server is away, and what they leave in the spool."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from tracer.recorder import Spool
from tracer.recorder.spool import spool_path
from tracer.records.events import Event

NOBODY = "http://127.0.0.1:1"
"""Where no server listens."""

START = f"""\
import os, signal, sys, threading, time
import tracer
tracing = tracer.connect("{NOBODY}", buffered={{buffered}})
"""


@dataclass(frozen=True)
class Ended:
    """A program that has ended."""

    code: int
    output: str
    errors: str
    events: list[Event]
    """What it left in the spool."""


async def run_program(source: str, home: Path, buffered: bool = False) -> Ended:
    """Run a program to its end; `tracing` in it is a connection to a server that is away."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "error", "-c", START.format(buffered=buffered) + dedent(source)],
        env={**os.environ, "TRACER_HOME": str(home), "TRACER_URL": "", "TRACER_DATABASE_URL": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    spool = Spool(spool_path(home, NOBODY))
    held = await spool.oldest(10_000)
    await spool.close()
    events = [event for _, event in held if event is not None]
    return Ended(done.returncode, done.stdout, done.stderr, events)


def types_of(ended: Ended) -> list[str]:
    return [event.type for event in ended.events]
