"""Cancel the work of a request if the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from tracer.errors import BadRequest

T = TypeVar("T")


async def until_client_leaves(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns. If the client leaves, cancel `work`.

    Args:
        request: The request. Its body must not be read elsewhere, as for a GET.
        work: The work.

    Raises:
        BadRequest: The client left. Only the log shows this error.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_until_disconnect(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise BadRequest("The client left before the answer.")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _until_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
