"""The application of a server. Its resources open in the background, so the server can listen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, Self

from tracer.errors import ApplicationUnavailable, TracerError
from tracer.logs import get_logger
from tracer.runtime.launcher import RunLauncher
from tracer.tasks import Waited, wait_for_end

log = get_logger(__name__)

RETRY_SECONDS = 30.0
"""How long to wait after a failure to open the resources, before the next attempt."""


class ServedApplication:
    """The state of a server's application, and its launcher once the resources are open."""

    def __init__(
        self, launcher: RunLauncher | None = None, refused_tools: Iterable[str] = ()
    ) -> None:
        """Create an application that is ready if there is a launcher, and else loading."""
        self.refused_tools = sorted(refused_tools)
        """The faulty tools that the application works without."""
        self._launcher = launcher
        self._failure: str | None = None
        self._attempted = asyncio.Event()
        if launcher is not None:
            self._attempted.set()

    @property
    def state(self) -> Literal["loading", "ready", "failed"]:
        """Whether the application can start runs. If it failed to open, the server tries again."""
        if self._launcher is not None:
            return "ready"
        return "loading" if self._failure is None else "failed"

    @property
    def launcher(self) -> RunLauncher:
        """The launcher.

        Raises:
            ApplicationUnavailable: The application is loading, or could not be opened.
        """
        if self._launcher is not None:
            return self._launcher
        if self._failure is None:
            raise ApplicationUnavailable
        raise ApplicationUnavailable(
            f"The resources of the server's application cannot be opened: {self._failure} The "
            "server tries again regularly; its log has the reason of each attempt."
        )

    async def opened(self) -> RunLauncher:
        """Wait for the end of the first attempt to open the resources, and return the launcher.

        Raises:
            ApplicationUnavailable: The resources could not be opened.
        """
        await self._attempted.wait()
        return self.launcher

    @asynccontextmanager
    async def opening(
        self,
        open_launcher: Callable[[], AbstractAsyncContextManager[RunLauncher]],
        retry_seconds: float = RETRY_SECONDS,
    ) -> AsyncIterator[Self]:
        """Open the resources in the background. At the end of the `with` block, close them.

        Args:
            open_launcher: Opens the resources and the launcher; called once per attempt.
            retry_seconds: How long to wait after a failed attempt.
        """
        closing = asyncio.Event()
        # One task enters and exits the context manager, as libraries such as anyio require.
        task = asyncio.create_task(
            self._keep_open(open_launcher, closing, retry_seconds), name="tracer-application"
        )
        try:
            yield self
        finally:
            closing.set()
            if self._launcher is None:
                task.cancel()
            if await wait_for_end(task, deadline=None, grace=None) is Waited.CANCELLED:
                raise asyncio.CancelledError
        if not task.cancelled():
            task.result()

    async def _keep_open(
        self,
        open_launcher: Callable[[], AbstractAsyncContextManager[RunLauncher]],
        closing: asyncio.Event,
        retry_seconds: float,
    ) -> None:
        while True:
            try:
                async with open_launcher() as self._launcher:
                    self._attempted.set()
                    await closing.wait()
                return
            except Exception as error:
                if self._launcher is not None:
                    raise  # while closing
                # Messages of other errors may quote a password.
                self._failure = (
                    str(error) if isinstance(error, TracerError) else f"{type(error).__name__}."
                )
                log.error("application_not_opened", exc_info=error)
            self._attempted.set()
            await asyncio.sleep(retry_seconds)
