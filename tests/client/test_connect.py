"""`tracer.connect`: where it connects to, and that nothing there can stop an agent."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

import tracer
from tests.client.programs import NOBODY
from tests.servers import start_server, tracer_server
from tracer.errors import ConfigurationError
from tracer.recorder.spool import Spool, spool_path


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


async def test_it_records_to_a_server_and_to_a_database(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tracer_server(database_url, tmp_path) as url:
        await asyncio.to_thread(record, "server", url)
        await asyncio.to_thread(record, "database", database_url)
        monkeypatch.setenv("TRACER_DATABASE_URL", database_url)
        await asyncio.to_thread(record, "database of the environment")
        monkeypatch.setenv("TRACER_URL", NOBODY)
        await asyncio.to_thread(record, "nowhere")
        monkeypatch.setenv("TRACER_URL", url)
        await asyncio.to_thread(record, "server of the environment")

        seen = await titles(url)

    assert seen == [
        "server of the environment",
        "database of the environment",
        "database",
        "server",
    ]


async def test_what_a_server_that_is_away_misses_it_gets_later(
    database_url: str, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    await asyncio.to_thread(record, "while it was away", url)
    server = start_server(database_url, tmp_path, port=port)
    try:
        await asyncio.to_thread(record, "once it was back", url)
        seen = await titles(url)
    finally:
        server.process.terminate()
        server.process.wait(timeout=60)

    assert sorted(seen) == ["once it was back", "while it was away"]


async def test_a_database_without_its_tables_stops_nobody(
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
def test_an_address_that_is_none_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(ConfigurationError, match="http://HOST:PORT") as raised:
        tracer.connect(url)

    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_wrong_variable_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACER_URL", "localhost")

    with pytest.raises(ConfigurationError, match="TRACER_URL"):
        tracer.connect()


def test_importing_tracer_imports_little() -> None:
    program = "import sys, tracer; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    modules = set(done.stdout.split())
    assert {name for name in modules if name.startswith("tracer.")} == set()
    assert modules.isdisjoint({"pydantic", "sqlalchemy", "opentelemetry", "asyncio"})


def test_the_public_names_are_there() -> None:
    assert [getattr(tracer, name).__name__ for name in tracer.__all__] == tracer.__all__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tracer.nothing  # type: ignore[attr-defined]  # noqa: B018
