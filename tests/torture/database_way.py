"""The way from a server to its database, which can be closed or frozen, and opened again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from tracer.storage.postgres.pool import libpq_url

_PART_BYTES = 2**16


class DatabaseWay:
    """Hands on what is sent, and counts who comes."""

    def __init__(self, database_url: str) -> None:
        self._target = conninfo_to_dict(libpq_url(database_url))
        self._open: set[asyncio.StreamWriter] = set()
        self._is_closed = False
        self._flows = asyncio.Event()
        self._flows.set()
        self.attempts = 0
        """How often somebody connected, or tried to."""

    def url(self, port: int) -> str:
        """Return the address of the database by this way, which listens on a port."""
        user, password = (quote(str(self._target.get(k) or "")) for k in ("user", "password"))
        return f"postgresql://{user}:{password}@127.0.0.1:{port}/{self._target['dbname']}"

    def close(self) -> None:
        """End all that is under way, and turn away who comes."""
        self._is_closed = True
        for writer in self._open:
            writer.transport.abort()

    def freeze(self) -> None:
        """Keep everything that is sent, and end nothing."""
        self._flows.clear()

    def open(self) -> None:
        """Let everybody through again, and what was kept."""
        self._is_closed = False
        self._flows.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect one who came."""
        self.attempts += 1
        if self._is_closed:
            writer.transport.abort()
            return
        far_reader, far_writer = await self._connect()
        self._open |= {writer, far_writer}
        try:
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        finally:
            self._open -= {writer, far_writer}
            for each in (writer, far_writer):
                each.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = str(self._target.get("host") or ""), int(self._target.get("port") or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host or "127.0.0.1", port)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(_PART_BYTES):
                await self._flows.wait()
                sink.write(data)
                await sink.drain()
        sink.transport.abort()


@asynccontextmanager
async def database_way(database_url: str) -> AsyncIterator[tuple[DatabaseWay, str]]:
    """Give a way to a database, and the address to reach it by."""
    way = DatabaseWay(database_url)
    server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
    try:
        yield way, way.url(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        way.close()
        await server.wait_closed()
