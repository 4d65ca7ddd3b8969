"""Looking after the embedded Postgres: nobody else starts it again when it was killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tracer.logs import get_logger
from tracer.storage.embedded_postgres import EmbeddedPostgres

LOOK_SECONDS = 2.0
"""How soon it is noticed that it died."""

log = get_logger(__name__)


@asynccontextmanager
async def kept_alive(embedded: EmbeddedPostgres) -> AsyncIterator[None]:
    """Start an embedded Postgres again, while inside, whenever it is found dead."""
    looking = asyncio.create_task(_keep_looking(embedded), name="tracer-embedded-postgres")
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])


async def _keep_looking(embedded: EmbeddedPostgres) -> None:
    is_up = True
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            await asyncio.to_thread(embedded.revive)
            is_up = True
        except Exception as error:  # whatever it is, it tries again
            if is_up:
                log.error("embedded_postgres_down", error=str(error))
            is_up = False
