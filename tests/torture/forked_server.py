"""A server in a process of its own, which may be killed and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from api.main import FREE_PORT, served
from tests.torture.forked import Forked
from tests.torture.projector_kills import kill_a_projector
from tracer.runtime import Agent, Application
from tracer.runtime.scripted_model import ScriptedModel
from tracer.settings import Settings, read_settings


class ForkedServer:
    """What `tracer serve` runs, on the same port each time it is started."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._port = FREE_PORT
        self._forked: Forked | None = None
        self.address = ""

    def start(self) -> None:
        """Start it, and return when it listens."""
        log = self._settings.home / "server.log"
        self._forked = Forked(log, _serve, self._settings, self._port)
        self.address = self._forked.answer()
        self._port = int(self.address.rpartition(":")[2])

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._forked is not None
        return self._forked.pid

    def kill_a_projector(self) -> None:
        """Kill one of its projectors with `kill -9`. The server starts another one."""
        assert self._forked is not None
        kill_a_projector(self._forked.pid)

    def kill(self) -> None:
        """Kill it with `kill -9`."""
        if self._forked is not None:
            self._forked.end()
            self._forked = None


@contextmanager
def forked_server(database_url: str, home: Path, **settings: Any) -> Iterator[ForkedServer]:
    """Give a server that listens, and end it afterwards.

    Args:
        database_url: A migrated Postgres.
        home: Its `TRACER_HOME`.
        settings: More of its settings.
    """
    server = ForkedServer(
        read_settings(database_url=SecretStr(database_url), home=home, **settings)
    )
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _serve(ready: Connection, settings: Settings, port: int) -> None:
    idle = Application(name="idle", agents=(Agent("nobody", "Wait."),), model=ScriptedModel([]))

    async def serve() -> None:
        async with served(settings, idle, port=port, migrated=False) as server:
            ready.send(server.address)
            await server.serving

    asyncio.run(serve())
