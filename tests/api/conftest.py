"""The API over a real Postgres, asked in the same process."""

from __future__ import annotations

import asyncio
import io
import logging
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
import uvicorn

from api.app import create_app
from api.metrics import Metrics
from api.parts import Parts
from api.run_events import DEFAULT_SETTINGS, StreamSettings
from tests.api import commands
from tests.api.commands import Tracer
from tests.otel.sent import traces_of
from tests.projecting import DatabaseProjection, Projection, WokenProjection, project
from tests.sample_runs import SampleRun
from tests.searching import index_of
from tests.trees import complete
from tracer.logs import configure_logs
from tracer.recorder import Recorder, Spool
from tracer.records.spans import Span
from tracer.runtime import Agent, Application, RunLauncher
from tracer.runtime.launcher import ServedApplication
from tracer.runtime.scripted_model import ScriptedModel
from tracer.storage.postgres import (
    Notify,
    ProjectPool,
    RunWatch,
    WriterOptions,
    connection_options,
    notifications,
    open_pool,
    postgres_writer,
)
from tracer.storage.postgres.pool import ANSWER_SECONDS
from tracer.storage.postgres.project_stores import PostgresSessions
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.writer import WRITE_SECONDS
from tracer.store import TraceWriter
from tracer.tools import Tool, tool


@dataclass(frozen=True)
class Api:
    """A client of the API, and the store behind it."""

    client: httpx2.AsyncClient
    writer: TraceWriter
    projection: Projection

    async def record(self, run: SampleRun) -> SampleRun:
        answer = await self.writer.write(run.events)
        assert len(run.events) == answer.stored
        return run

    async def record_spans(self, spans: Iterable[Span]) -> None:
        """Write spans of which none may be refused, and project them."""
        answer = await self.writer.write_spans(traces_of(spans))
        assert answer.refused == []
        await self.project()

    async def project(self) -> None:
        """Project all pending runs."""
        await project(self.projection)

    async def get(self, path: str, **parameters: str | int) -> httpx2.Response:
        return await self.client.get(path, params=parameters or None)

    async def read(self, path: str, **parameters: str | int) -> dict[str, object]:
        response = await self.get(path, **parameters)
        assert response.status_code == 200, response.text
        body = response.json()
        assert isinstance(body, dict)
        return complete(body) if path.endswith("/tree") else body


@tool
async def measure() -> str:
    """Measure."""
    return "121/79"


@asynccontextmanager
async def serving_parts(
    database_url: str,
    home: Path,
    model: ScriptedModel,
    tools: Sequence[Tool] = (measure,),
    patience: float | None = None,
    write_seconds: float = WRITE_SECONDS,
    answer_seconds: float = ANSWER_SECONDS,
) -> AsyncIterator[Parts]:
    """Give the parts of a server whose application is one agent, the nurse.

    Args:
        database_url: Its database.
        home: The directory of the recorder's spool.
        model: Answers the nurse.
        tools: The nurse's tools.
        patience: How many seconds the recorder waits for the store; None: the default.
        write_seconds: How many seconds a write may take.
        answer_seconds: How many seconds to wait for a connection to the database.
    """
    nurse = Agent(name="nurse", instructions="Measure. So far: {messages}.", tools=tuple(tools))
    application = Application(
        name="ward", agents=(nurse,), model=model, session_state={"messages": 0}
    )
    async with open_pool(database_url, answer_seconds=answer_seconds) as pool:
        reader = PostgresReader(ProjectPool(pool), index_of(database_url))
        projection = WokenProjection(connection_options(database_url), ProjectPool(pool))
        async with (
            RunWatch(reader) as watch,
            notifications(pool, database_url, watch) as (written, _),
        ):
            writer = postgres_writer(
                ProjectPool(pool),
                WriterOptions(write_seconds=write_seconds, notify=Notify(written=written)),
            )
            async with (
                Recorder(writer, Spool(home / "spool.sqlite3"), patience=patience) as recorder,
                RunLauncher(
                    application,
                    recorder,
                    reader,
                    sessions=PostgresSessions(ProjectPool(pool)),
                    poll_seconds=0.02,
                ) as launcher,
            ):
                yield Parts(
                    reader, writer, ServedApplication(launcher), watch, projection=projection
                )


@asynccontextmanager
async def client_of(
    parts: Parts, metrics: Metrics | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    """Give a client that asks the API in this process."""
    app = create_app(parts, metrics=metrics)
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://tracer") as client:
        yield client


@asynccontextmanager
async def parts_without_database(home: Path) -> AsyncIterator[Parts]:
    """Give the parts of a server whose database does not answer, and that notices soon."""
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=1"
    async with serving_parts(nowhere, home, ScriptedModel([]), answer_seconds=0.1) as parts:
        yield parts


@asynccontextmanager
async def on_loopback(
    parts: Parts, stream_settings: StreamSettings = DEFAULT_SETTINGS
) -> AsyncIterator[str]:
    """Serve parts, and give the address: a client in this process could not leave half way."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = create_app(parts, stream_settings=stream_settings)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            parts.watch.end()
            server.should_exit = True
            await serving


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with (
        serving_parts(database_url, tmp_path, ScriptedModel([])) as parts,
        client_of(parts) as client,
    ):
        projection = DatabaseProjection(connection_options(database_url))
        yield Api(client, parts.writer, projection)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All that is logged, down to the least."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    root.handlers[:] = []  # configuring closes those that it finds
    stream = io.StringIO()
    configure_logs("DEBUG", stream)
    yield stream
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture(params=["here", pytest.param("process", marks=pytest.mark.thorough)])
def tracer(request: pytest.FixtureRequest) -> Tracer:
    """The `tracer` command, run in this process and, in the thorough profile, in its own."""
    return commands.tracer if request.param == "here" else commands.tracer_process


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The `TRACER_HOME` of the program that records, which is not the server's."""
    for name in ("TRACER_URL", "TRACER_DATABASE_URL", "TRACER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "program"
    folder.mkdir()
    monkeypatch.setenv("TRACER_HOME", str(folder))
    return folder
