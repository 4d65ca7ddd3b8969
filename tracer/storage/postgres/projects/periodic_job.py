"""What a server does again and again beside serving."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import ClassVar, Self

from tracer.errors import StoreUnavailable
from tracer.logs import get_logger
from tracer.storage.postgres.connection.pool import Pool, cancel_until_done
from tracer.storage.postgres.connection.project_session import ProjectPool
from tracer.storage.postgres.projects.projects import list_projects

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
            await cancel_until_done(self._looking)

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


async def look_after_each(
    pool: Pool, look_after: Callable[[ProjectPool], Awaitable[None]], trouble: str
) -> None:
    """Look after each project in turn; what one fails at the others have nothing to do with.

    Args:
        pool: Connections that see all projects.
        look_after: Looks after one.
        trouble: What the log says where that fails.

    Raises:
        StoreUnavailable: The database does not answer.
    """
    for project_id in (await list_projects(pool)).values():
        try:
            await look_after(ProjectPool(pool, project_id))
        except StoreUnavailable:
            raise
        except Exception as error:
            log.error(trouble, project_id=project_id, error=type(error).__name__)


async def rested(began: float) -> float:
    """Rest for as long as it took since `began`, and return when that was over."""
    await asyncio.sleep(time.monotonic() - began)
    return time.monotonic()
