"""Periodic jobs of a server."""

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


class PeriodicJob(ABC):
    """A job that runs repeatedly. Use it as an async context manager."""

    trouble: ClassVar[str]
    """The log event of a failure. It is logged once until the job succeeds again."""

    def __init__(self, pause: float) -> None:
        """Configure the job.

        Args:
            pause: The seconds between the end of one run and the start of the next.
        """
        self._pause = pause
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def run_once(self) -> None:
        """Run the job once.

        Raises:
            StoreUnavailable: The store does not answer.
        """

    async def __aenter__(self) -> Self:
        name = f"tracer-{type(self).__name__.lower()}"
        self._task = asyncio.create_task(self._keep_running(), name=name)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._task is not None:
            await cancel_until_done(self._task)

    async def _keep_running(self) -> None:
        is_answered = True
        while True:
            try:
                await self.run_once()
            except Exception as error:  # the next run may succeed, whatever the error
                if is_answered:
                    log.warning(self.trouble, error=type(error).__name__)
                is_answered = False
            else:
                is_answered = True
            await asyncio.sleep(self._pause)


async def for_each_project(
    pool: Pool, work: Callable[[ProjectPool], Awaitable[None]], trouble: str
) -> None:
    """Do some work for each project in turn. A failure for one does not affect the others.

    Args:
        pool: Connections that see all projects.
        work: The work for one project.
        trouble: The log event of a failure.

    Raises:
        StoreUnavailable: The database does not answer.
    """
    for project_id in (await list_projects(pool)).values():
        try:
            await work(ProjectPool(pool, project_id))
        except StoreUnavailable:
            raise
        except Exception as error:
            log.error(trouble, project_id=project_id, error=type(error).__name__)


async def rest_as_long_as_it_took(began: float) -> float:
    """Sleep for as long as the work since `began` took, and return the time after the sleep."""
    await asyncio.sleep(time.monotonic() - began)
    return time.monotonic()
