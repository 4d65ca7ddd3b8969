"""The components of a server, as its routes see them.

`api.main` creates the components and connects them. The routes depend only on the protocols here,
on the store's interface (`tracer.store`) and on the records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from typing import Literal, Protocol, Unpack
from uuid import UUID

from tracer.context import Identity
from tracer.records import DEFAULT_PROJECT_ID, Run
from tracer.records.access import ApiKey, Caller, NewKey, ProjectSettings, Scope, SettingsChange
from tracer.records.events import Event
from tracer.records.prices import ModelPrice
from tracer.search import SearchIndex
from tracer.store import SpanProjection, TraceReader, TraceWriter


class Authenticator(Protocol):
    """Finds the callers of requests. Each method may raise `StoreUnavailable`."""

    async def are_keys_needed(self) -> bool:
        """Return whether a key was ever created. If so, every request must have one."""

    async def by_key(self, key: str) -> Caller:
        """Return the caller that a key identifies.

        Raises:
            NotIdentified: The key does not exist, or was revoked.
        """

    async def by_sign_in(self, secret: str) -> Caller:
        """Return the caller that the secret of a sign-in identifies.

        Raises:
            NotIdentified: The sign-in does not exist, or has expired.
        """

    async def sign_in(self, key: str) -> tuple[str, Caller]:
        """Sign a browser in with a key. Return the sign-in's secret and the caller.

        Raises:
            NotIdentified: The key does not exist, or was revoked.
            NotAllowed: The key lacks the scope `read`.
        """

    async def sign_out(self, secret: str) -> None:
        """End a sign-in."""

    def forget(self) -> None:
        """Clear the cache, because a key was revoked here."""


class ApiKeys(Protocol):
    """The keys of one project."""

    async def create(self, name: str, scopes: Iterable[Scope]) -> NewKey:
        """Create a key, and return it with its secret.

        Raises:
            BadRequest: The name is empty or too long, or there are no scopes.
        """

    async def list_keys(self) -> list[ApiKey]:
        """Return the keys, including revoked ones, oldest first."""

    async def revoke(self, key_id: UUID) -> None:
        """Revoke a key.

        Raises:
            RecordNotFound: The project has no such key.
        """


class SettingsOfProject(Protocol):
    """The settings of one project."""

    async def read(self) -> ProjectSettings:
        """Return the current settings."""

    async def change(self, **changes: Unpack[SettingsChange]) -> ProjectSettings:
        """Change some settings, and return all.

        Raises:
            BadRequest: A number is not positive, or too large.
        """


class ModelPrices(Protocol):
    """The model prices that one project has set."""

    async def list_prices(self) -> list[ModelPrice]:
        """Return the prices, sorted by model, provider and first day."""

    async def set_price(self, price: ModelPrice) -> None:
        """Add a price, or replace the price of the same model, provider and first day.

        Raises:
            BadRequest: A value is not valid.
        """

    async def delete(self, model: str, provider: str | None, valid_from: date) -> bool:
        """Delete a price. Return whether the project had it."""


class RunWatch(Protocol):
    """Wakes the event streams of a project's runs."""

    @property
    def is_over(self) -> bool:
        """Whether the server is about to stop. If so, the streams must end."""

    def watching(self, root_plan_id: UUID) -> AbstractContextManager[asyncio.Event]:
        """Yield an event that is set whenever the run may have changed. The stream clears it."""

    def end(self) -> None:
        """End all streams."""


class ProjectStore(Protocol):
    """The store of one project, and its administration."""

    @property
    def reader(self) -> TraceReader:
        """Reads the records of the project."""

    @property
    def writer(self) -> TraceWriter:
        """Writes the records of the project."""

    @property
    def projection(self) -> SpanProjection | None:
        """Projects pending spans; None: no reader waits for them."""

    @property
    def watch(self) -> RunWatch:
        """Watches the runs of the project."""

    @property
    def keys(self) -> ApiKeys:
        """The keys of the project."""

    @property
    def settings(self) -> SettingsOfProject:
        """The settings of the project."""

    @property
    def prices(self) -> ModelPrices:
        """The model prices of the project."""


class LeaseCounts(Protocol):
    """The numbers of leases in all projects."""

    @property
    def alive(self) -> int:
        """The number of leases of live recorders."""

    @property
    def expired(self) -> int:
        """The number of leases of recorders that left unfinished records."""


class ProjectStores(Protocol):
    """The stores of all projects of the server's database."""

    search: SearchIndex

    async def of(self, project_id: int) -> ProjectStore:
        """Return a project's store."""

    async def is_walled(self) -> bool:
        """Return whether row-level security is effective."""

    async def count_leases(self) -> LeaseCounts:
        """Count the leases of all projects."""

    def pool_stats(self) -> Mapping[str, int]:
        """Return the statistics of the connection pool."""

    def end(self) -> None:
        """End the event streams of all runs, because the server shuts down."""


class Launcher(Protocol):
    """Starts runs of the server's application."""

    async def start(
        self,
        request: str,
        *,
        agent: str | None = ...,
        session_id: str | None = ...,
        traceparent: str | None = ...,
        plan: tuple[str, list[tuple[str | None, str]]] | None = ...,
        identity: Identity | None = ...,
        observe: Callable[[Sequence[Event]], None] | None = ...,
    ) -> Run:
        """Start a run in the background, and return it once its record is durable.

        `tracer.runtime.launcher.RunOptions` describes the options.

        Raises:
            BadRequest: The request is blank, or the application has no such agent.
            StoreUnavailable: The server is shutting down.
        """


class ServedApplication(Protocol):
    """The application whose agents the server runs."""

    @property
    def state(self) -> Literal["loading", "ready", "failed"]:
        """Whether the application can start runs."""

    @property
    def refused_tools(self) -> list[str]:
        """The faulty tools that the application works without."""

    @property
    def launcher(self) -> Launcher:
        """The launcher.

        Raises:
            ApplicationUnavailable: The application is loading, or could not be opened.
        """


class ProjectionCounts(Protocol):
    """Counts the work of the server's projectors."""

    @property
    def failures(self) -> int:
        """Projections that failed, and projectors that died during one."""

    @property
    def unread(self) -> Mapping[str, int]:
        """Spans with token counts that no rule could read, by instrumentation scope."""


class BacklogFigures(Protocol):
    """The accepted spans of the whole database that are not projected yet."""

    @property
    def size(self) -> int:
        """Their uncompressed bytes."""

    @property
    def lag(self) -> float:
        """For how many seconds the oldest run with such spans has been due."""

    @property
    def to_link(self) -> int:
        """The number of runs whose links to other runs are not up to date."""

    @property
    def link_lag(self) -> float:
        """How many seconds ago the first of these changed."""


class Backlog(Protocol):
    """Measures the accepted spans that are not projected yet."""

    @property
    def figures(self) -> BacklogFigures:
        """The backlog, at most a minute old."""

    @property
    def max_bytes(self) -> int:
        """Above how many bytes of such spans no more are accepted."""

    async def count_projectors(self) -> int:
        """Return how many projectors of all servers are connected to the database."""


class Spool(Protocol):
    """Holds events that the store did not accept in time."""

    async def count(self) -> int:
        """Return how many events are in the spool.

        Raises:
            sqlite3.Error: The spool cannot be read.
            OSError: The same.
        """


class Recorder(Protocol):
    """The recorder of the application's agents."""

    @property
    def counts(self) -> object:
        """The outcomes of the recorder's events, one attribute per outcome."""

    @property
    def spool(self) -> Spool:
        """Holds the events that the store did not accept in time."""


@dataclass(frozen=True)
class Parts:
    """The components of a server."""

    reader: TraceReader
    writer: TraceWriter
    application: ServedApplication | None
    """Runs the application; None if the server runs no application."""
    watch: RunWatch
    """Wakes the event streams of a run when the run may have changed."""
    project_id: int = DEFAULT_PROJECT_ID
    """The project that `reader` and `writer` serve, and in which the application records. Data that
    the application's tools store is not divided by project."""
    stores: ProjectStores | None = None
    """The stores of the other projects; None if the server has no other projects."""
    projection: SpanProjection | None = None
    """Reads wait for it until pending spans are projected; None: reads do not wait."""
    authenticator: Authenticator | None = None
    """Authenticates callers; None: every request may do everything."""
    recorder: Recorder | None = None
    """Records the work of the application's agents."""
    projections: ProjectionCounts | None = None
    """Counts the work of this server's projectors."""
    backlog: Backlog | None = None
    """Measures the accepted spans that are not projected yet. If there are too many, it rejects
    further spans."""
    schema_revision: str = ""
    """The revision of the database schema that this server needs."""

    def end_watching(self) -> None:
        """End the event streams of all runs, because the server is about to stop."""
        self.watch.end()
        if self.stores is not None:
            self.stores.end()
