"""Count the files and functions of Tracer that a span passes, and those that a tool call passes.

The span: one request with 512 spans goes through the application in this process, and its run
through a projector. The tool call: an agent in a server's process runs two rounds, and the first
requests a tool. In both cases, the same goes first, so that one-time work does not count. Every
function counts, in any task and thread; comprehensions and lambdas belong to the function around
them. `python -m benchmarks.span_path` lists all functions with their calls.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FrameType
from uuid import UUID

import httpx2
from rich.console import Console

from api.app import create_app
from api.main import server_parts
from benchmarks.figures import Figure, at_most
from benchmarks.surroundings import Bench, surroundings
from benchmarks.workload import BATCH_SPANS, bodies, trace
from tracer import tool
from tracer.records import DEFAULT_PROJECT_ID, Status
from tracer.runtime import Agent, Application
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn, call
from tracer.settings import read_settings
from tracer.storage.postgres import connection_options, sync_connection
from tracer.storage.postgres.projector import Projector

ROOT = Path(__file__).parents[1]
COUNTED = ("tracer/", "api/")

REQUEST = "How warm is it?"

PER_SPAN = BATCH_SPANS / 50
"""A function that is called more often handles single spans, or single records of one kind."""

_is_counted = ContextVar("is_counted", default=False)
"""Whether the task or the thread works for the request: periodic jobs do not."""

Calls = Counter[tuple[str, str]]
"""How often each function was called, by file and qualified name."""


def measured(bench: Bench) -> Iterator[Figure]:
    """Count both."""
    with bench.database() as url:
        calls = asyncio.run(calls_of_span(bench.seed, url, bench.folder))
    yield from _figures("of a span", calls, files=35)
    per_span = {each for each, times in calls.items() if times > PER_SPAN}
    files_per_span = {file for file, _ in per_span}
    yield Figure(
        name="files with functions called for single spans", value=len(files_per_span), unit=""
    )
    yield Figure(name="functions called for single spans", value=len(per_span), unit="")
    with bench.database() as url:
        calls = asyncio.run(calls_of_tool_call(url, bench.folder))
    yield from _figures("of a tool call", calls, files=42)


def _figures(what: str, calls: Calls, files: int) -> Iterator[Figure]:
    found = {file for file, _ in calls}
    yield Figure(name=f"files {what}", value=len(found), unit="", goal=at_most(files, "value"))
    yield Figure(name=f"functions {what}", value=len(calls), unit="")


async def calls_of_span(seed: int, url: str, home: Path) -> Calls:
    """Send two requests, project each, and return what the second called."""
    idle = Application(name="idle", agents=(Agent("nobody", "Wait."),), model=ScriptedModel([]))
    settings = read_settings(home=home, projectors=0)
    async with server_parts(settings, url, idle) as parts:
        transport = httpx2.ASGITransport(create_app(parts))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            with sync_connection(connection_options(url)) as connection:
                projector = Projector(connection)
                calls: Calls = Counter()
                for number in range(2):
                    spans = trace(seed + number, BATCH_SPANS)
                    [body] = bodies(spans)
                    run_id = UUID(bytes=spans[0].trace_id)
                    calls.clear()
                    with _counting(calls):
                        response = await client.post(
                            "/v1/traces",
                            content=body,
                            headers={"Content-Type": "application/x-protobuf"},
                        )
                        is_projected = await asyncio.to_thread(
                            projector.project_run, DEFAULT_PROJECT_ID, run_id
                        )
                    assert response.status_code == 200, response.text
                    assert is_projected
    return calls


async def calls_of_tool_call(url: str, home: Path) -> Calls:
    """Run an agent twice in a server's process, and return what the second run called."""
    turns = (Turn(calls=(call("read_temperature", {"ward": "east"}),)), Turn("21 degrees."))
    application = Application(
        name="ward",
        agents=(Agent("nurse", "Answer.", (read_temperature,)),),
        model=ScriptedModel([Script(turns, times=None)]),
    )
    settings = read_settings(home=home, projectors=0)
    async with server_parts(settings, url, application) as parts:
        launcher = await parts.opened_launcher()
        calls: Calls = Counter()
        for _ in range(2):
            calls.clear()
            # The recorder's task, which writes the events, started with the server.
            with _counting(calls, in_all_tasks=True):
                outcome = await launcher.run(REQUEST, agent="nurse")
            assert outcome.status is Status.SUCCEEDED, outcome
    return calls


@tool
def read_temperature(ward: str) -> float:
    """Return the temperature of a ward in degrees Celsius."""
    return 21.0


@contextmanager
def _counting(calls: Calls, in_all_tasks: bool = False) -> Iterator[None]:
    """Count the calls of all threads while inside, of tasks that were started inside, or of all."""
    names: dict[CodeType, tuple[str, str] | None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (in_all_tasks or _is_counted.get()):
            code = frame.f_code
            if code not in names:
                names[code] = _name_of(code)
            if (name := names[code]) is not None:
                calls[name] += 1

    threading.setprofile(note)  # of threads that start inside; those of the first request stay
    sys.setprofile(note)
    token = _is_counted.set(True)
    try:
        yield
    finally:
        _is_counted.reset(token)
        sys.setprofile(None)
        threading.setprofile(None)


def _name_of(code: CodeType) -> tuple[str, str] | None:
    """Return the file and the function of a code object; None if it does not count."""
    path = Path(code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    file = str(path.relative_to(ROOT))
    name = code.co_qualname.partition(".<locals>.<")[0]
    is_function = not code.co_name.startswith("<") or "<locals>" in code.co_qualname
    return (file, name) if file.startswith(COUNTED) and is_function else None


def main() -> None:
    """Print the functions by file."""
    lines: list[str] = []
    with surroundings(1, is_quick=True, tool_calls=0, say=lambda _: None) as bench:
        with bench.database() as url:
            lines += _listed("A span", asyncio.run(calls_of_span(1, url, bench.folder)))
        with bench.database() as url:
            lines += _listed("A tool call", asyncio.run(calls_of_tool_call(url, bench.folder)))
    Console(highlight=False, soft_wrap=True).print("\n".join(lines), markup=False)


def _listed(title: str, calls: Calls) -> list[str]:
    files = sorted({file for file, _ in calls})
    lines = [f"{title}:"]
    for file in files:
        lines.append(file)
        named = sorted(
            (name, times) for (its_file, name), times in calls.items() if its_file == file
        )
        lines += [f"{times:8,}  {name}" for name, times in named]
    return [*lines, f"{title}: {len(files)} files, {len(calls)} functions"]


if __name__ == "__main__":
    main()
