"""What a server does again and again beside serving."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import ClassVar, Self

from tracer.logs import get_logger

log = get_logger(__name__)


class Looker(ABC):
    """Looks again and again while inside. To be entered with `async with`."""

    trouble: ClassVar[str]
    """What the log says where it could not: once, until it could again."""

    def __init__(self, pause: float) -> None:
        """Say how often.

        Args:
            pause: How many seconds to wait between one look and the next.
        """
        self._pause = pause
        self._looking: asyncio.Task[None] | None = None
        self.failures = 0
        """How often it could not."""

    @abstractmethod
    async def look(self) -> None:
        """Look once.

        Raises:
            StoreUnavailable: The store does not answer.
        """

    async def __aenter__(self) -> Self:
        name = f"tracer-{type(self).__name__.lower()}"
        self._looking = asyncio.create_task(self._keep_looking(), name=name)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def _keep_looking(self) -> None:
        is_answered = True
        while True:
            try:
                await self.look()
            except Exception as error:  # whatever it is, it looks again
                if is_answered:
                    log.warning(self.trouble, error=type(error).__name__)
                is_answered = False
                self.failures += 1
            else:
                is_answered = True
            await asyncio.sleep(self._pause)
