"""`tracer.connect` finds the store, and a missing or invalid store never stops an agent."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
import uvicorn
from opentelemetry.sdk.trace import TracerProvider

import tracer
from api.app import create_app
from api.parts import Parts
from tests.api.conftest import serving_parts
from tests.client.programs import NOBODY
from tracer.adapters.opentelemetry import TracerSpanProcessor
from tracer.errors import ConfigurationError
from tracer.recorder import Spool
from tracer.recorder.spool import spool_path
from tracer.runtime.scripted_model import ScriptedModel


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRACER_URL", "TRACER_DATABASE_URL", "TRACER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRACER_HOME", str(tmp_path / "home"))


async def titles(url: str) -> list[str]:
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        return [each["title"] for each in (await client.get("/api/runs")).json()["items"]]


def record(title: str, url: str | None = None) -> None:
    with tracer.connect(url) as tracing, tracing.plan(title):
        pass


@asynccontextmanager
async def listening(parts: Parts, listener: socket.socket) -> AsyncIterator[None]:
    """Serve the API on a socket that is bound; until then, connections to it are refused."""
    server = uvicorn.Server(uvicorn.Config(create_app(parts), log_config=None))
    listener.listen()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        parts.watch.end()
        server.should_exit = True
        await serving


async def test_connect_finds_the_store_and_redelivers_the_spool(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        await asyncio.to_thread(record, "server, before it started", url)
        async with (
            serving_parts(database_url, tmp_path, ScriptedModel([])) as parts,
            listening(parts, listener),
        ):
            await asyncio.to_thread(record, "server", url)
            await asyncio.to_thread(record, "database", database_url)
            monkeypatch.setenv("TRACER_DATABASE_URL", database_url)
            await asyncio.to_thread(record, "database of the environment")
            monkeypatch.setenv("TRACER_URL", NOBODY)
            await asyncio.to_thread(record, "absent server of the environment")
            monkeypatch.setenv("TRACER_URL", url)
            await asyncio.to_thread(record, "server of the environment")
            seen = await titles(url)

    assert sorted(seen) == [
        "database",
        "database of the environment",
        "server",
        "server of the environment",
        "server, before it started",
    ]


async def test_events_are_spooled_if_the_database_is_not_migrated(
    empty_database_url: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(record, "kept", empty_database_url)

    spool = Spool(spool_path(tmp_path / "home", empty_database_url))
    assert await spool.count() == 2
    await spool.close()


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8420", "ftp://host", "http://user:secret@host", "postgresql://[", "http:"],
)
def test_connect_rejects_an_invalid_address(url: str) -> None:
    with pytest.raises(ConfigurationError, match="http://HOST:PORT") as raised:
        tracer.connect(url)

    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_error_about_an_invalid_address_names_the_environment_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRACER_URL", "localhost")

    with pytest.raises(ConfigurationError, match="TRACER_URL"):
        tracer.connect()


def test_disabled_connection_records_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACER_DISABLED", "1")
    threads = threading.active_count()
    provider = TracerProvider(shutdown_on_exit=False)

    with tracer.connect(NOBODY) as tracing:
        provider.add_span_processor(TracerSpanProcessor(tracing))
        with (
            tracing.about(user="ann"),
            tracing.plan("Nobody reads this.") as plan,
            provider.get_tracer("agent").start_span("s"),
        ):
            plan.finish("Done.")
        assert provider.force_flush()
        assert tracing.flush()

    assert threading.active_count() == threads
    assert not (tmp_path / "home").exists()


def test_importing_tracer_does_not_import_heavy_modules() -> None:
    program = "import sys, tracer; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    modules = set(done.stdout.split())
    assert {name for name in modules if name.startswith("tracer.")} == set()
    assert modules.isdisjoint({"pydantic", "sqlalchemy", "opentelemetry", "asyncio"})


# --- The line about the first stored run ---------------------------------------------------------

MANY_RUNS = """\
import logging, sys, threading
import tracer
from opentelemetry.sdk.trace import TracerProvider
from tracer.adapters.opentelemetry import TracerSpanProcessor

logging.getLogger("tracer.client.work").disabled = True  # it warns about runs in threads

def work(tracing):
    for _ in range(3):
        with tracing.plan("one"):
            pass

with tracer.connect() as tracing, tracer.connect() as other:
    threads = [threading.Thread(target=work, args=[each]) for each in (tracing, other) * 2]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    provider = TracerProvider()
    provider.add_span_processor(TracerSpanProcessor(tracing))
    provider.get_tracer("t").start_span("late").end()
    provider.force_flush()
"""

A_SPAN = """\
import tracer
from opentelemetry.sdk.trace import TracerProvider
from tracer.adapters.opentelemetry import TracerSpanProcessor

with tracer.connect() as tracing:
    provider = TracerProvider()
    provider.add_span_processor(TracerSpanProcessor(tracing))
    span = provider.get_tracer("t").start_span("measure")
    span.end()
    provider.force_flush()
"""

BEFORE_THE_SERVER = """\
import time
import tracer

with tracer.connect() as tracing:
    with tracing.plan("one"):
        pass
    print("spooled", flush=True)
    input()
    while not tracing.counts.drained:
        time.sleep(0.01)
"""


def terminal_output(
    source: str,
    url: str,
    home: Path,
    when_spooled: Callable[[], object] = lambda: None,
    **settings: str,
) -> str:
    """Run a program whose standard error is a terminal. Return what it writes there."""
    ours, terminal = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", source],
        env={**os.environ, "TRACER_URL": url, "TRACER_HOME": str(home), **settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=terminal,
    )
    os.close(terminal)

    def read() -> bytes:
        output = b""
        with suppress(OSError):  # on Linux, once the program has ended
            while chunk := os.read(ours, 4096):
                output += chunk
        return output

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        assert program.stdout is not None
        if program.stdout.readline():
            when_spooled()
        try:
            program.communicate(b"\n", timeout=120)
        finally:
            program.kill()
        output = reading.result().decode().replace("\r\n", "\n")
    os.close(ours)
    assert program.returncode == 0, output
    return output


@asynccontextmanager
async def serving(database_url: str, home: Path) -> AsyncIterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        async with (
            serving_parts(database_url, home, ScriptedModel([])) as parts,
            listening(parts, listener),
        ):
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("source", [MANY_RUNS, A_SPAN], ids=["many runs", "a span"])
async def test_program_prints_the_address_of_its_first_run_once_to_a_terminal(
    source: str, database_url: str, tmp_path: Path
) -> None:
    async with serving(database_url, tmp_path) as url:
        output = await asyncio.to_thread(terminal_output, source, url, tmp_path / "home")

        assert re.fullmatch(rf"tracer: recording to {url}/runs/([0-9a-f-]{{36}})\n", output)
        run = output.strip().rpartition("/")[2]
        async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
            assert (await client.get(f"/api/runs/{run}")).status_code == 200


async def test_address_is_printed_after_the_spool_is_delivered(
    database_url: str, tmp_path: Path
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        spooled = threading.Event()
        running = asyncio.create_task(
            asyncio.to_thread(
                terminal_output, BEFORE_THE_SERVER, url, tmp_path / "home", spooled.set
            )
        )
        await asyncio.to_thread(spooled.wait, 120)
        async with (
            serving_parts(database_url, tmp_path, ScriptedModel([])) as parts,
            listening(parts, listener),
        ):
            output = await running

    assert output.count(f"tracer: recording to {url}/runs/") == 1


async def test_address_is_not_printed_if_the_setting_turns_it_off(
    database_url: str, tmp_path: Path
) -> None:
    async with serving(database_url, tmp_path) as url:
        output = await asyncio.to_thread(
            terminal_output, MANY_RUNS, url, tmp_path / "home", TRACER_ANNOUNCE="0"
        )

    assert output == ""


async def test_address_is_not_printed_to_a_pipe(database_url: str, tmp_path: Path) -> None:
    async with serving(database_url, tmp_path) as url:
        ended = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", MANY_RUNS],
            env={**os.environ, "TRACER_URL": url, "TRACER_HOME": str(tmp_path / "home")},
            capture_output=True,
            check=True,
            timeout=120,
        )

    assert (ended.stdout, ended.stderr) == (b"", b"")
