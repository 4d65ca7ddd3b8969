"""Limits on the number of recording requests in progress, and the order of their large bodies.

The limits are not a middleware, because they apply only to recording requests, and for the time
that a request's body is read, decoded and stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from tracer.errors import TooBusy

MAX_REQUESTS = 512
"""The number of requests that may be in progress together."""

MAX_PROJECT_REQUESTS = 128
"""The number for each project, so that a project cannot stop other projects from recording."""

PATIENCE_SECONDS = 5.0
"""The longest wait for the first or the next part of a body."""

SLOWEST_BYTES = 16 * 2**10
"""The lowest accepted average rate of a body, in bytes per second. It applies from
`PATIENCE_SECONDS` after the start of the body."""

LARGE_BYTES = 2**20
"""The size from which bodies are decoded one at a time."""


class Intake:
    """The recording requests in progress, limited for each project and for the server.

    If no place is free, a request is refused and not queued.
    """

    def __init__(
        self,
        max_requests: int = MAX_REQUESTS,
        max_project_requests: int = MAX_PROJECT_REQUESTS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._server = asyncio.Semaphore(max_requests)
        self._max_project_requests = max_project_requests
        self._projects = WeakValueDictionary[int, asyncio.Semaphore]()
        self._patience_seconds = patience_seconds
        self._turns = asyncio.Lock()

    @asynccontextmanager
    async def place(self, project_id: int) -> AsyncIterator[None]:
        """Count a request of a project as in progress inside an `async with` block.

        Raises:
            TooBusy: The project or the server has too many requests in progress.
        """
        project = self._projects.get(project_id)
        if project is None:
            project = asyncio.Semaphore(self._max_project_requests)
            self._projects[project_id] = project
        for owner, semaphore in (("project", project), ("server", self._server)):
            if semaphore.locked():
                raise TooBusy(
                    f"The {owner} has reached its limit of recording requests in progress. "
                    "Send the request again later."
                )
        async with project, self._server:
            yield

    def patience(self, received: int, waited: float) -> float:
        """Return how many seconds to wait for the next part of a body.

        The time is limited, because a client whose machine has crashed never closes its connection.
        If the body arrives at less than `SLOWEST_BYTES` per second, the time gets shorter.

        Args:
            received: How many bytes of the body have arrived.
            waited: How many seconds the server has waited for these bytes.
        """
        ahead = received / SLOWEST_BYTES - waited
        return self._patience_seconds + min(0.0, ahead)

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """If a body is large, wait until no other large body is being decoded.

        Because of Python's global interpreter lock, decoding several large bodies at once would not
        be faster, but would need more memory.

        Args:
            size: The size of the body in bytes.
        """
        if size < LARGE_BYTES:
            yield
            return
        async with self._turns:
            yield
