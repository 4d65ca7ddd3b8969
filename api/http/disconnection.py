"""Cancel the work for a request if the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from tracer.errors import BadRequest

T = TypeVar("T")


async def until_client_leaves(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. If the client disconnects first, cancel `work`.

    Args:
        request: The request, such as a GET. No other code may read its body.
        work: The coroutine that does the work.

    Raises:
        BadRequest: The client disconnected. This error appears only in the log.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_until_disconnect(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise BadRequest("The client disconnected before the response.")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _until_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
