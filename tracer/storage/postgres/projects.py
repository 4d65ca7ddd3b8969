"""Projects: their settings, their own prices of models, and jobs that visit each of them."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextvars import Context
from dataclasses import astuple, replace
from datetime import date
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar, Unpack

from psycopg.errors import CheckViolation, NumericValueOutOfRange

from tracer.clock import utc_now
from tracer.errors import BadRequest, ConfigurationError, StoreUnavailable
from tracer.logs import get_logger
from tracer.records import DEFAULT_PROJECT, DEFAULT_PROJECT_ID
from tracer.records.access import ProjectSettings, SettingsChange
from tracer.records.masks import PayloadPolicy
from tracer.records.prices import ModelPrice, OwnPrices
from tracer.storage.postgres.pool import (
    Pool,
    PoolConnection,
    cancel_until_done,
    pooled_connection,
    store_errors,
)
from tracer.storage.postgres.session import ProjectPool, in_project
from tracer.text import storable

# --- Single flight: concurrent calls with the same key share one execution.

Answer = TypeVar("Answer")


class SingleFlight(Generic[Answer]):
    """The calls in progress, by key. Belongs to one event loop."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Answer]] = {}

    async def run(self, key: Hashable, call: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Return the result of `call`, or of a call in progress with the same key.

        If a caller is cancelled, the call continues for the others.

        Args:
            key: Identifies the call.
            call: The call. Its error is raised for all callers.
        """
        task = self._tasks.get(key)
        if task is None:
            # In an empty context, because it serves others than the caller that started it.
            task = self._tasks[key] = asyncio.create_task(call(), context=Context())
            task.add_done_callback(partial(self._end, key))
        return await asyncio.shield(task)

    def forget(self) -> None:
        """Let later callers start new calls. The calls in progress may return outdated results."""
        self._tasks.clear()

    def _end(self, key: Hashable, task: asyncio.Task[Answer]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            task.exception()  # retrieved, because asyncio logs errors that are not


# --- A value of the database that is read often, and may be a little old.

Value = TypeVar("Value")

CACHE_SECONDS = 2.0
"""How old a cached value can be. Other servers see a change after this time."""


class Cached(Generic[Value]):
    """The cache of one value. Belongs to one event loop."""

    def __init__(
        self, read: Callable[[], Coroutine[Any, Any, Value]], seconds: float = CACHE_SECONDS
    ) -> None:
        """Create an empty cache.

        Args:
            read: Reads the value. Its errors are raised, and not cached.
            seconds: How long a value is used.
        """
        self._read = read
        self._seconds = seconds
        self._stored: tuple[float, Value] | None = None
        self._flight = SingleFlight[Value]()

    async def get(self) -> Value:
        """Return the value, and read it if it is too old.

        Concurrent callers share one read. A cancelled caller does not affect the others.
        """
        if self._stored is not None and time.monotonic() < self._stored[0]:
            return self._stored[1]
        return await self._flight.run("value", self._refresh)

    def set(self, value: Value) -> Value:
        """Replace the value, and return it."""
        self._stored = time.monotonic() + self._seconds, value
        return value

    async def _refresh(self) -> Value:
        return self.set(await self._read())


# --- Projects: their names and settings.
#
# Creating a project needs access to the database: no key allows it.


_MAKE = """
INSERT INTO project (project_id, name, created_at)
SELECT max(project_id) + 1, %(name)s, %(now)s FROM project
ON CONFLICT ON CONSTRAINT project_has_its_own_name DO NOTHING"""

_LIST = "SELECT name, project_id FROM project ORDER BY project_id"

_SETTINGS = "SELECT keep_days, keep_runs, payloads FROM project WHERE project_id = %s"

_CHANGE = """
UPDATE project SET (keep_days, keep_runs, payloads) = (%s, %s, %s)
WHERE project_id = %s"""


async def project_id_of(pool: Pool, name: str) -> int:
    """Return the id of a project. The id of the default project is constant and needs no query.

    Raises:
        ConfigurationError: There is no project of that name.
        StoreUnavailable: The database does not answer.
    """
    if name == DEFAULT_PROJECT:
        return DEFAULT_PROJECT_ID
    projects = await list_projects(pool)
    if name not in projects:
        raise ConfigurationError(
            f"There is no project {name!r}. Choose one of {', '.join(projects)}, or create it with "
            f"`tracer keys create --project NAME`."
        )
    return projects[name]


async def ensure_project(pool: Pool, name: str) -> int:
    """Return the id of a project. Create it if there is none of this name.

    Raises:
        BadRequest: The name is empty or longer than 100 characters.
        StoreUnavailable: The database does not answer.
    """
    try:
        with store_errors():
            async with pooled_connection(pool) as connection, connection.transaction():
                await connection.execute("LOCK TABLE project IN SHARE ROW EXCLUSIVE MODE")
                await connection.execute(_MAKE, {"name": storable(name), "now": utc_now()})
    except CheckViolation:
        raise BadRequest("The name of a project must have 1 to 100 characters.") from None
    return (await list_projects(pool))[storable(name)]


async def list_projects(pool: Pool) -> dict[str, int]:
    """Return the ids of all projects by their names, oldest first."""
    with store_errors():
        async with pooled_connection(pool) as connection:
            cursor = await connection.execute(_LIST)
            return {name: project_id async for name, project_id in cursor}


class SettingsOfProject:
    """The settings of one project, with a short-lived cache."""

    def __init__(self, project: ProjectPool, known_seconds: float = CACHE_SECONDS) -> None:
        self._project = project
        self._cached = Cached(self._read_stored, known_seconds)

    async def known(self) -> ProjectSettings:
        """Return the settings from a cache. They may be two seconds old.

        Concurrent callers share one query. A cancelled caller does not affect the others.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        return await self._cached.get()

    async def read(self) -> ProjectSettings:
        """Return the current settings.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        return self._cached.set(await self._read_stored())

    async def change(self, **changes: Unpack[SettingsChange]) -> ProjectSettings:
        """Change some settings, and return all. Other servers see the change within two seconds.

        Raises:
            BadRequest: A number is not positive, or too large.
            StoreUnavailable: The database does not answer.
        """
        try:
            with store_errors():
                async with in_project(self._project) as connection:
                    settings = replace(
                        await self._read(connection, " FOR NO KEY UPDATE"), **changes
                    )
                    parameters = [*astuple(settings), self._project.project_id]
                    await connection.execute(_CHANGE, parameters)
        except (CheckViolation, NumericValueOutOfRange):
            raise BadRequest(
                "keepDays must be from 1 to 36,500, and keepRuns at least 1. Leave them empty to "
                "keep runs for ever."
            ) from None
        return self._cached.set(settings)

    async def _read_stored(self) -> ProjectSettings:
        with store_errors():
            async with in_project(self._project) as connection:
                return await self._read(connection)

    async def _read(self, connection: PoolConnection, locking: str = "") -> ProjectSettings:
        cursor = await connection.execute(_SETTINGS + locking, [self._project.project_id])
        row = await cursor.fetchone()
        if row is None:
            return ProjectSettings()
        keep_days, keep_runs, payloads = row
        return ProjectSettings(keep_days, keep_runs, PayloadPolicy(payloads))


# --- A project's own prices of models.


READ_PRICES = """
SELECT model, provider, valid_from, input_usd, output_usd, cache_read_usd, cache_write_usd,
    reasoning_usd
FROM model_price WHERE project_id = {} ORDER BY model, provider, valid_from"""
"""Selects the prices of a project. Replace `{}` by a placeholder for the project's id."""

_SET = """
INSERT INTO model_price (project_id, model, provider, valid_from, input_usd, output_usd,
    cache_read_usd, cache_write_usd, reasoning_usd)
VALUES (%(project_id)s, %(model)s, %(provider)s, %(valid_from)s, %(input_usd)s, %(output_usd)s,
    %(cache_read_usd)s, %(cache_write_usd)s, %(reasoning_usd)s)
ON CONFLICT (project_id, model, provider, valid_from) DO UPDATE
SET (input_usd, output_usd, cache_read_usd, cache_write_usd, reasoning_usd) =
    (excluded.input_usd, excluded.output_usd, excluded.cache_read_usd, excluded.cache_write_usd,
    excluded.reasoning_usd)"""

_DELETE = """
DELETE FROM model_price
WHERE project_id = %s AND model = %s AND provider = %s AND valid_from = %s
RETURNING model"""


class ModelPrices:
    """The prices of one project, with a short-lived cache."""

    def __init__(self, project: ProjectPool) -> None:
        self._project = project
        self._cached = Cached(self._look_up)

    async def known(self) -> OwnPrices:
        """Return the prices from a cache. They may be two seconds old.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        return await self._cached.get()

    async def _look_up(self) -> OwnPrices:
        return OwnPrices(await self.list_prices())

    async def list_prices(self) -> list[ModelPrice]:
        """Return the prices, sorted by model, provider and first day.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            async with in_project(self._project) as connection:
                cursor = await connection.execute(
                    READ_PRICES.format("%s"), [self._project.project_id]
                )
                return [price_of(row) for row in await cursor.fetchall()]

    async def set_price(self, price: ModelPrice) -> None:
        """Add a price, or replace the price of the same model, provider and first day.

        Raises:
            BadRequest: A value is not valid.
            StoreUnavailable: The database does not answer.
        """
        values = {
            **vars(price),
            "project_id": self._project.project_id,
            "model": storable(price.model),
            "provider": storable(price.provider or ""),
        }
        try:
            with store_errors():
                async with in_project(self._project) as connection:
                    await connection.execute(_SET, values)
        except (CheckViolation, NumericValueOutOfRange):
            raise BadRequest(
                "A model's name must have 1 to 200 characters, and a rate must be from 0 to "
                "1,000,000 dollars."
            ) from None
        self._cached.set(await self._look_up())

    async def delete(self, model: str, provider: str | None, valid_from: date) -> bool:
        """Delete a price. Return whether the project had it.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        values = [self._project.project_id, storable(model), storable(provider or ""), valid_from]
        with store_errors():
            async with in_project(self._project) as connection:
                cursor = await connection.execute(_DELETE, values)
                is_deleted = await cursor.fetchone() is not None
        self._cached.set(await self._look_up())
        return is_deleted


def price_of(row: tuple[Any, ...]) -> ModelPrice:
    """Return a row of `READ_PRICES` as a price."""
    model, provider, *rest = row
    return ModelPrice(model, provider or None, *rest)


# --- Periodic jobs of a server.

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
