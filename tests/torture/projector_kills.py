"""Killing projector processes."""

from __future__ import annotations

import random
from contextlib import suppress

import psutil

_MODULE = "tracer.storage.postgres.processes"


def kill_a_projector(parent: int) -> None:
    """Kill one of the projectors that a process started with `kill -9`, if it has any now."""
    projectors = []
    for each in psutil.Process(parent).children():
        with suppress(psutil.NoSuchProcess):
            if _MODULE in each.cmdline():
                projectors.append(each)
    with suppress(psutil.NoSuchProcess):
        if projectors:
            random.choice(projectors).kill()
