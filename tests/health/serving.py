"""The application and its agents, served as `tracer serve` does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import uvicorn

from api.app import create_app
from api.main import ServerParts, server_parts
from health.agents import health_application
from health.demo import REQUEST, TOKEN_ID
from health.diary import Diary
from tracer.context import identity
from tracer.runtime import Application
from tracer.runtime.chat_model import ChatModel
from tracer.runtime.launcher import RunOutcome
from tracer.settings import read_settings

CONNECT_SECONDS = 300.0  # the machine may be busy


def health(model: ChatModel | None = None) -> Application:
    """Return the application over a new diary, with `model` instead of its own if given."""
    application = health_application(Diary(), CONNECT_SECONDS)
    return application if model is None else replace(application, model=model)


@asynccontextmanager
async def served(
    database_url: str, home: Path, application: Application
) -> AsyncIterator[ServerParts]:
    """Give what runs an application, while a server serves it on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with server_parts(
            read_settings(home=home), database_url, application, address
        ) as made:
            server = _Server(uvicorn.Config(create_app(made), log_config=None))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                # Whoever connects before it accepts has to wait, and is answered.
                yield made
            finally:
                server.should_exit = True
                await serving


async def demonstrated(made: ServerParts) -> RunOutcome:
    """Run the demonstration's request for its user."""
    with identity(token_id=TOKEN_ID):
        return await (await made.opened_launcher()).run(REQUEST)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
