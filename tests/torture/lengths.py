"""The sizes of tests of endurance: small in `make test-thorough`, large in `make torture`."""

from __future__ import annotations

import os
import sys

IS_LONG = bool(os.environ.get("TRACER_TORTURE"))

EVENTS = int(os.environ.get("TRACER_TORTURE_EVENTS", "100000")) if IS_LONG else 2_000
"""How many events are recorded under load."""

KILLS = max(2, EVENTS // 5_000)
"""How often something is killed meanwhile."""


def say(what: str, **figures: object) -> None:
    """Print the figures of a test: pytest shows them where it is asked for (`-rP`)."""
    text = ", ".join(f"{name.replace('_', ' ')} {figure}" for name, figure in figures.items())
    sys.stdout.write(f"{what}: {text}\n")
