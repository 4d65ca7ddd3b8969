"""How long an agent waits for `import tracer` and `tracer.connect()`, in an environment of its own.

The environment has the client's wheel and what that requires, compiled. The project's own has
packages that others import if they are there. Each measurement is a new process; a figure is the
shortest time, because other programs only add to it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, at_most
from benchmarks.surroundings import Bench

ROOT = Path(__file__).parents[1]
NOBODY = "http://127.0.0.1:1"

CONNECT = f"""
from time import perf_counter
begun = perf_counter()
import tracer
imported = perf_counter()
tracing = tracer.connect({NOBODY!r})
connected = perf_counter()
print(imported - begun, connected - imported)
tracing.close()
"""

LIBRARIES = """
from time import perf_counter
begun = perf_counter()
import asyncio, httpx2, pydantic, re2, sqlite3, structlog, tenacity
pydantic.BaseModel, pydantic.TypeAdapter
print(perf_counter() - begun)
"""


def measured(bench: Bench) -> Iterator[Figure]:
    """Build the wheel, install it, and measure."""
    programs = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        python = environment / "bin" / "python"
        _run(programs / "hatchling", "build", "--target", "wheel", "--directory", folder)
        _run(programs / "uv", "venv", "--quiet", "--python", sys.executable, environment)
        [wheel] = Path(folder).glob("*.whl")
        _run(
            *(programs / "uv", "pip", "install", "--quiet", "--compile-bytecode"),
            *("--python", python, wheel),
        )
        imports: list[float] = []
        connects: list[float] = []
        libraries: list[float] = []
        for _ in range(bench.sized(20, 3)):
            libraries.append(float(_run(python, "-c", LIBRARIES)))
            imported, connected = map(float, _run(python, "-c", CONNECT).split())
            imports.append(imported)
            connects.append(connected)
    yardstick = "importing the libraries that it uses"
    yield Figure(name=yardstick, value=min(libraries) * 1e3, unit="ms")
    yield Figure(
        name="import tracer",
        value=min(imports) * 1e3,
        unit="ms",
        yardstick=yardstick,
        ratio=min(imports) / min(libraries),
        goal=at_most(50, "value"),
    )
    yield Figure(
        name="tracer.connect()",
        value=min(connects) * 1e3,
        unit="ms",
        yardstick=yardstick,
        ratio=min(connects) / min(libraries),
        goal=at_most(250, "value"),
    )


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout
