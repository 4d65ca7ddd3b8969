"""The server at TRACER_URL, as commands use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import orjson

from tracer.errors import NOTHING_FOUND, USAGE, BadRequest, StoreUnavailable
from tracer.settings import LOCAL_SERVER, Settings

SECONDS = 120.0
"""How long a request may take."""


class Refused(BadRequest):
    """The server rejected a request."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"The server answered {status}: {reason}")
        self.exit_code = {404: NOTHING_FOUND, 400: USAGE, 409: USAGE, 422: USAGE}.get(status, 1)


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
        raise StoreUnavailable(
            f"The server at {url} does not answer ({type(error).__name__}). Check that it runs and "
            "that TRACER_URL is its address."
        ) from error


async def check(answer: httpx2.Response) -> None:
    """Raise the server's reason as an error if it rejected the request."""
    if answer.is_success:
        return
    await answer.aread()
    try:
        problem = orjson.loads(answer.content)
        reason = problem.get("detail") or problem["message"]
    except (orjson.JSONDecodeError, AttributeError, KeyError):
        reason = "the response is not from a Tracer server, or the request was too large."
    raise Refused(answer.status_code, reason)
