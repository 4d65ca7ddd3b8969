"""The test suite's MCP server as a process, over stdio or on loopback."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.tools.garbage import new_garbage
from tests.tools.short_times import until
from tracer.tools.mcp import McpConfig

SERVER = Path(__file__).with_name("mcp_test_server.py")


def _serve(notes: str, port: int) -> None:
    from tests.tools.mcp_test_server import serve_http  # imports the MCP library

    serve_http(notes, port)


forking = multiprocessing.get_context("forkserver")
"""Starts processes that fork from one that has imported the MCP library, which takes a second."""

forking.set_forkserver_preload([__name__, "tests.tools.mcp_test_server", "pytest"])


class LiveServer:
    """A server, or the command that starts one, and the notes that it takes."""

    def __init__(self, home: Path, kind: str, protocol: str) -> None:
        self.notes = home / "notes"
        self.notes.touch()
        self.kind = kind
        self._protocol = protocol
        self._process: multiprocessing.process.BaseProcess | None = None

    def config(self, **options: Any) -> McpConfig:
        if self.kind == "stdio":
            args = (str(SERVER), str(self.notes))
            way: dict[str, Any] = {"command": sys.executable, "args": args}
        else:
            way = {"url": f"http://127.0.0.1:{self.noted('port')[-1]}/mcp"}
        limits = {"timeout": 600, "connect_timeout": 600}
        given = {"name": "tests", "protocol": self._protocol, **limits}
        return McpConfig.model_validate(given | way | options)

    def noted(self, what: str) -> list[str]:
        lines = self.notes.read_text().splitlines()
        return [line.removeprefix(what).strip() for line in lines if line.startswith(what)]

    def counted(self, what: str) -> int:
        return len(self.noted(what))

    async def until_noted(self, what: str, times: int = 1) -> None:
        await until(lambda: self.counted(what) >= times)

    async def start(self) -> None:
        """Start an HTTP server, on the port that it had before."""
        self.stop()
        ports = self.noted("port")
        port = int(ports[-1]) if ports else 0
        self._process = forking.Process(target=_serve, args=(str(self.notes), port), daemon=True)
        self._process.start()
        await self.until_noted("port", len(ports) + 1)

    def stop(self) -> None:
        """Kill an HTTP server."""
        if self._process is not None:
            self._process.kill()
            self._process.join(timeout=60)
            self._process.close()
            self._process = None

    def running(self) -> list[str]:
        return [
            pid
            for pid in self.noted("pid")
            if psutil.pid_exists(int(pid)) and psutil.Process(int(pid)).status() != "zombie"
        ]


@asynccontextmanager
async def live_server(home: Path, kind: str, protocol: str = "auto") -> AsyncIterator[LiveServer]:
    """Give a server. Fails if its user leaves a connection or a task open."""
    server = LiveServer(home, kind, protocol)
    async with nothing_left_behind():
        if kind == "http":
            await server.start()
        try:
            yield server
            if kind == "stdio":
                assert server.running() == []
        finally:
            server.stop()


@asynccontextmanager
async def nothing_left_behind() -> AsyncIterator[None]:
    """Fail if tasks of ours or the library's still run in the end, or something was not closed."""
    before = asyncio.all_tasks()
    with new_garbage() as collect:
        yield
        left = [task.get_name() for task in asyncio.all_tasks() - before if not task.done()]
        assert [name for name in left if name.startswith(("mcp", "tracer"))] == []
        collect()  # An unclosed resource warns now, and warnings are errors.
