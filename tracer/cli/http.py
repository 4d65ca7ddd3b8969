"""The server at TRACER_URL, as commands use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

import httpx2

from tracer.reading import refusal, unreachable
from tracer.settings import LOCAL_SERVER, Settings

SECONDS = 120.0
"""How long a request may take."""


@asynccontextmanager
async def server_of(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of the server at TRACER_URL. Errors of the connection have an explanation."""
    url = settings.url or LOCAL_SERVER
    key = settings.api_key
    headers = {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
    try:
        async with httpx2.AsyncClient(
            base_url=url, headers=headers, timeout=SECONDS, trust_env=False
        ) as client:
            yield client
    except httpx2.HTTPError as error:
        raise unreachable(url, error) from error


async def check(answer: httpx2.Response) -> None:
    """Raise the server's reason as an error if it rejected the request."""
    if answer.is_success:
        return
    await answer.aread()
    raise refusal(answer.status_code, answer.content)


async def run_id_of(server: httpx2.AsyncClient, reference: str) -> str:
    """Return the id of the run that a handle means. An id is returned as it is."""
    with suppress(ValueError):
        return str(UUID(reference))
    answer = await server.get("api/questions/record", params={"id": reference})
    await check(answer)
    return str(answer.json()["rootPlanId"])
