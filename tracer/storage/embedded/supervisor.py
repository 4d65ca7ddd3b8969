"""Looking after the embedded Postgres: nobody else starts it again when it was killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tracer.logs import get_logger
from tracer.storage.embedded.postgres import EmbeddedPostgres

LOOK_SECONDS = 2.0
"""How often the server is checked, by default."""

log = get_logger(__name__)


@asynccontextmanager
async def kept_alive(
    embedded: EmbeddedPostgres, look_seconds: float = LOOK_SECONDS
) -> AsyncIterator[None]:
    """Start an embedded Postgres again, while inside, whenever it is found dead.

    Args:
        embedded: The server.
        look_seconds: How often to check it.
    """
    looking = asyncio.create_task(
        _keep_looking(embedded, look_seconds), name="tracer-embedded-postgres"
    )
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])


async def _keep_looking(embedded: EmbeddedPostgres, look_seconds: float) -> None:
    is_up = True
    while True:
        await asyncio.sleep(look_seconds)
        try:
            await asyncio.to_thread(embedded.revive)
            is_up = True
        except Exception as error:  # whatever it is, it tries again
            if is_up:
                log.error("embedded_postgres_down", error=str(error))
            is_up = False
