"""The span processor loses no span when its process ends or is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.adapters.outline import outline
from tests.servers import ONE_PROJECTOR, tracer_server
from tests.trees import complete

pytestmark = pytest.mark.thorough

DEADLINE_SECONDS = 300.0

PROGRAM = """
import asyncio, sys
import tracer
from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent
from pydantic_ai.models.instrumented import InstrumentationSettings
from tests.adapters.pydantic_ai_agents import calls, scripted
from tracer.adapters.opentelemetry import TracerSpanProcessor

url, hangs, shuts = sys.argv[1], sys.argv[2] == "hangs", sys.argv[3] == "shuts"
provider = TracerProvider(shutdown_on_exit=shuts)
provider.add_span_processor(TracerSpanProcessor(tracer.connect(url)))
Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))

async def measure(where: str) -> str:
    if hangs:
        await asyncio.Event().wait()
    return "121/79"

async def ask() -> str:
    model = scripted(calls(("measure", '{"where":"left"}', "call_0")), "fine")
    return (await Agent(model, name="inner", tools=[measure]).run("measure")).output

model = scripted(calls(("ask", "{}", "call_0")), "done")
asyncio.run(Agent(model, name="outer", tools=[ask]).run("How is p-1?"))
"""


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[str]:
    with tracer_server(database_url, tmp_path, settings=ONE_PROJECTOR) as url:
        yield url


@contextmanager
def _program(home: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], env={**os.environ, "TRACER_HOME": str(home)}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def _tree(url: str) -> dict[str, Any] | None:
    """Return the tree of the only run; None while there is none."""
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        runs = (await client.get("/api/runs")).json()["items"]
        if not runs:
            return None
        [run] = runs
        path = f"/api/plans/{run['rootPlanId']}/tree"
        return complete((await client.get(path)).raise_for_status().json())


async def test_open_spans_of_a_killed_process_are_shown(server: str, tmp_path: Path) -> None:
    hanging = '          measure({"where":"left"}): running'
    with _program(tmp_path, server, "hangs", "shuts") as process:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while (tree := await _tree(server)) is None or hanging not in outline(tree):
                assert process.poll() is None
                await asyncio.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)

    tree = await _tree(server)
    assert tree is not None
    assert outline(tree) == [
        "plan of outer: running",
        "  round: succeeded",
        "    ask({}): running",
        "      plan of inner: running",
        "        round: succeeded",
        hanging,
    ]


@pytest.mark.parametrize("shuts", ["shuts", "never shuts"])
async def test_process_sends_all_queued_spans_when_it_exits(
    server: str, tmp_path: Path, shuts: str
) -> None:
    with _program(tmp_path, server, "ends", shuts) as process:
        assert await asyncio.to_thread(process.wait, DEADLINE_SECONDS) == 0

    async with asyncio.timeout(DEADLINE_SECONDS):
        while (tree := await _tree(server)) is None:
            assert process.poll() == 0
            await asyncio.sleep(0.05)
    assert outline(tree)[:4] == [
        "plan of outer: succeeded",
        "  round: succeeded",
        "    ask({}): succeeded",
        "      plan of inner: succeeded",
    ]
