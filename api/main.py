"""The server: creates its components from the settings, connects them, and serves the API.

Only this module imports all implementations. It also has the `tracer` commands that start a server;
`tracer/cli/server.py` finds `commands` and `launcher` by an entry point.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import socket
from asyncio import Task
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Annotated, Any
from urllib.parse import urlsplit
from uuid import UUID

import typer
import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.commands.analysts import analysts, psql, sql
from api.commands.database import database
from api.commands.deletion import erase, prune
from api.commands.keys import first_key_notice, keys, projects
from api.commands.prices import prices
from api.commands.search import search
from api.commands.spans import projector, reproject
from api.metrics import Metrics
from api.middleware.authentication import Access, is_loopback
from api.otlp import GrpcAddress, grpc_serving
from api.parts import Parts
from api.requests import VARIABLE, behind_proxies
from tracer.cli.run import AsJson, check_outcome, print_outcome, run_and_report
from tracer.cli.terminal import TERMINATED, Project, console, counted, run_command
from tracer.context import Identity
from tracer.errors import ConfigurationError, NoApplication
from tracer.logs import configure_logs
from tracer.recorder import Recorder, spool_for
from tracer.records import DEFAULT_PROJECT
from tracer.records.access import Caller, Scope
from tracer.records.events import Event, PlanStarted
from tracer.records.sessions import SessionStates
from tracer.runtime import Application, RunLauncher, Surroundings
from tracer.runtime.launcher import (
    RunReader,
    ServedApplication,
    application_launcher,
    load_application,
    named,
    with_model_of,
)
from tracer.settings import Settings
from tracer.storage.postgres import OnCommit, Pool, ProjectPool, open_pool
from tracer.storage.postgres.jobs import Backlog, Pruner, Reaper, Reprojector, SpanPacker
from tracer.storage.postgres.keys import Authenticator
from tracer.storage.postgres.migrate import MigrationPlan, plan_upgrade
from tracer.storage.postgres.migrate import head as schema_head
from tracer.storage.postgres.processes import projectors
from tracer.storage.postgres.project_stores import PostgresSessions, ProjectStores
from tracer.storage.postgres.projects import project_id_of
from tracer.storage.postgres.search_source import search_index

DEFAULT_PORT = 8420
DEFAULT_HOST = "127.0.0.1"
FREE_PORT = 0
DEFAULT_GRPC_PORT = 4317
"""The standard port of OTLP over gRPC."""
DRAIN_SECONDS = 5
"""How long requests in progress may take after the server was asked to stop."""


@dataclass(frozen=True, kw_only=True)
class ServerParts(Parts):
    """The parts of a server whose application runs in this process."""

    application: ServedApplication | None
    stores: ProjectStores
    authenticator: Authenticator

    async def opened_launcher(self) -> RunLauncher:
        """Wait until the application's resources are open, and return its launcher.

        Raises:
            NoApplication: The server runs no application.
            ApplicationUnavailable: The resources could not be opened.
        """
        if self.application is None:
            raise NoApplication
        return await self.application.opened()


@asynccontextmanager
async def server_parts(
    settings: Settings,
    database_url: str,
    application: Application | None,
    server_url: str | None = None,
    project: str = DEFAULT_PROJECT,
    on_commit: OnCommit = lambda _written, _seconds: None,
) -> AsyncIterator[ServerParts]:
    """Yield the components that serve a project and run an application.

    Args:
        settings: The settings. They contain the model for an application that does not choose one,
            and the directory of the recorder's spool.
        database_url: The URL of a Postgres whose schema is up to date.
        application: The application to run; None to run no application. Its resources open in the
            background.
        server_url: The server's own address; None if no server runs.
        project: The project to which the application's runs belong.
        on_commit: Called after each batch of writes.

    Raises:
        ConfigurationError: The project does not exist, or the application has no model.
    """
    terms, redaction = settings.lease_terms, settings.redaction
    async with (
        _server_pool(settings, database_url) as pool,
        ProjectStores(
            pool,
            terms,
            redaction=redaction,
            url=database_url,
            on_commit=on_commit,
            search=await search_index(pool, settings.search_directory),
        ) as stores,
    ):
        project_id = await project_id_of(pool, project)
        await stores.warn_without_row_security()
        authenticator = Authenticator(pool)
        tools = Caller(project_id, project, frozenset({Scope.READ}))
        surroundings = Surroundings(database_url, server_url, authenticator.own_key(tools))
        store = await stores.of(project_id)
        spool = spool_for(settings.home, database_url, project_id=project_id)
        recorder = Recorder(store.recorder_writer, spool, redaction=redaction)
        async with (
            projectors(
                database_url, settings.projectors, terms, search=settings.search_directory
            ) as projections,
            Backlog(pool, settings.backlog_bytes) as backlog,
            Reaper(pool, terms, stores.notify.written),
            Pruner(pool, stores.notify.written),
            SpanPacker(pool),
            Reprojector(pool),
            recorder,
            _served(
                settings,
                application,
                surroundings,
                recorder,
                store.reader,
                PostgresSessions(ProjectPool(pool, project_id), redaction=redaction),
            ) as served_application,
        ):
            yield ServerParts(
                reader=store.reader,
                writer=store.writer,
                application=served_application,
                watch=store.watch,
                project_id=project_id,
                stores=stores,
                projection=store.projection,
                authenticator=authenticator,
                recorder=recorder,
                projections=projections,
                backlog=backlog,
                schema_revision=schema_head(),
            )


@asynccontextmanager
async def _served(
    settings: Settings,
    application: Application | None,
    surroundings: Surroundings,
    recorder: Recorder,
    reader: RunReader,
    sessions: SessionStates,
) -> AsyncIterator[ServedApplication | None]:
    """Choose the model of the application, and open its resources in the background."""
    if application is None:
        yield None
        return
    async with with_model_of(settings, application) as application:
        open_launcher = partial(
            application_launcher, application, surroundings, recorder, reader, sessions
        )
        refused_tools = application.registry.refused
        served_application = ServedApplication(refused_tools=refused_tools)
        async with served_application.opening(open_launcher) as served:
            yield served


def _server_pool(settings: Settings, database_url: str) -> Pool:
    """Return the connection pool of a server. Connections may use a pooler such as PgBouncer."""
    if settings.direct_database_url is None or settings.database_url is None:
        return open_pool(database_url)
    return open_pool(settings.database_url.get_secret_value(), has_sessions=False)


class _Server(uvicorn.Server):
    """A uvicorn server without signal handlers, because the `tracer` command handles signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Served:
    """A running server."""

    parts: ServerParts
    address: str
    serving: Task[None]
    """Ends when the server ends."""
    grpc_port: int | None = None
    """The port of OTLP over gRPC; None if the server does not serve gRPC."""


@asynccontextmanager
async def served(
    settings: Settings,
    application: Application | None,
    host: str = DEFAULT_HOST,
    port: int = FREE_PORT,
    migrated: bool = True,
    project: str = DEFAULT_PROJECT,
    first_key: bool = False,
    grpc: bool = False,
) -> AsyncIterator[Served]:
    """Run a server inside a `with` block.

    The application's tools can send requests to the server, too.

    Args:
        settings: The settings of the environment.
        application: The application; None to run no application. Its resources open in the
            background.
        host: The address to listen on.
        port: The port to listen on. With 0, the system selects a free port.
        migrated: Whether to bring the database schema up to date first.
        project: The project of the application's own runs.
        first_key: Whether to create and print a key if the server has never had one.
        grpc: Whether to serve OTLP over gRPC, too, unless the settings turn gRPC off. It listens
            on this machine only, unless the settings name another address.
    """
    with closing(_listen(host, port)) as listener:
        # A server that listens on all addresses is reached on this machine's loopback address.
        reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        shown = f"[{reached}]" if ":" in reached else reached
        address = f"http://{shown}:{listener.getsockname()[1]}"
        metrics = Metrics()
        async with (
            database(settings, migrated=migrated) as url,
            server_parts(
                settings, url, application, address, project, metrics.note_commit
            ) as parts,
        ):
            if first_key:
                await _make_first_key(parts, project)
            await _check_address(parts, host)
            address_of_grpc = _address_of_grpc(settings) if grpc else None
            if address_of_grpc is not None:
                await _check_address(parts, address_of_grpc.host)
            async with _serving(settings, parts, listener, metrics, address_of_grpc) as serving:
                yield Served(parts, address, *serving)


async def _make_first_key(parts: ServerParts, project: str) -> None:
    """If the server has never had a key, create an admin key, and print it with a notice."""
    assert parts.stores is not None
    closed = await parts.stores.closed_by_first_key(project)
    new = await parts.stores.make_first_key(parts.project_id)
    if new is not None:
        # All on one stream, because a container's log would mix the lines of two.
        print(
            *([] if closed is None else [first_key_notice(closed)]),
            f"The first key, with all scopes in the project {new.key.project!r}:",
            new.secret,
            "The key is shown only once. Sign in with it, or set it as TRACER_API_KEY.",
            sep="\n",
            flush=True,
        )


async def _check_address(parts: ServerParts, host: str) -> None:
    """Reject an address that other machines can reach while the server needs no key.

    Raises:
        ConfigurationError: Other machines can reach the address, and the server needs no key.
    """
    assert parts.authenticator is not None
    if not is_loopback(host) and not await parts.authenticator.are_keys_needed():
        raise ConfigurationError(
            f"Cannot listen on {host}: other machines could use the server, which has no key yet. "
            "Create a key with `tracer keys create NAME --scope admin`, pass --first-key, or "
            f"listen on {DEFAULT_HOST}."
        )


@asynccontextmanager
async def _serving(
    settings: Settings,
    parts: ServerParts,
    listener: socket.socket,
    metrics: Metrics,
    address_of_grpc: GrpcAddress | None,
) -> AsyncIterator[tuple[Task[None], int | None]]:
    """Run a server inside a `with` block. Yield its task, and its gRPC port (None without gRPC)."""
    hosts = None if settings.hosts is None else frozenset(_hosts(settings.hosts))
    access = Access(parts.authenticator, hosts, frozenset(_origins(settings.otlp_origins or "")))
    app = create_app(parts, access=access, metrics=metrics)
    config = uvicorn.Config(
        behind_proxies(app, os.environ.get(VARIABLE, "")),
        proxy_headers=False,  # `behind_proxies` is stricter
        log_config=None,
        access_log=False,  # `RequestLog` writes one without paths
        # A browser's open connections must not delay the shutdown.
        timeout_graceful_shutdown=DRAIN_SECONDS,
        server_header=False,
    )
    # Exempt the objects that exist by now from garbage collection: traversing them takes as long as
    # reading a tree. Large trees are not garbage either, so collect less often.
    gc.freeze()
    gc.set_threshold(50_000)
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    # Do not wait for a server that failed before it listens; `serving` raises the reason.
    serving.add_done_callback(lambda _: server.listens.set())
    try:
        await server.listens.wait()
        async with _grpc_serving(app, address_of_grpc) as grpc_port:
            yield serving, grpc_port
    finally:
        parts.end_watching()
        server.should_exit = True
        await serving


def _address_of_grpc(settings: Settings) -> GrpcAddress | None:
    port = DEFAULT_GRPC_PORT if settings.grpc_port is None else settings.grpc_port
    if port == 0:
        return None
    is_required = settings.grpc_port is not None
    files = settings.grpc_certificate, settings.grpc_key
    return GrpcAddress(settings.grpc_host, port, is_required, *files)


@asynccontextmanager
async def _grpc_serving(app: FastAPI, address: GrpcAddress | None) -> AsyncIterator[int | None]:
    if address is None:
        yield None
        return
    async with grpc_serving(app, address) as port:
        yield port


def _hosts(listed: str) -> Iterator[str]:
    """Yield the host names in a comma-separated list, without ports and in lower case."""
    for each in listed.split(","):
        if each.strip():
            yield urlsplit(f"//{each.strip()}").hostname or ""


def _origins(listed: str) -> Iterator[str]:
    """Yield the origins in a comma-separated list, as browsers write them (RFC 6454)."""
    for each in listed.split(","):
        if origin := each.strip().rstrip("/").lower():
            if not re.fullmatch(r"https?://[^/]+", origin):
                raise ConfigurationError(
                    f"TRACER_OTLP_ORIGINS has {each.strip()!r}. Write each origin as "
                    "`https://app.example.com`, with a port if it is not the standard one."
                )
            yield origin


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio recognises TCP and disables Nagle's algorithm. Otherwise a
    # short response would wait 40 ms for the acknowledgement of its headers.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"Cannot listen on {host} port {port}: {error.strerror}. "
            "Choose another address with --host or another port with --port; 0 selects a free port."
        ) from error
    return listener


commands = typer.Typer()
commands.command(name="prune")(prune)
commands.command(name="erase")(erase)
commands.command(name="reproject")(reproject)
commands.command(name="projector")(projector)
commands.command(name="psql")(psql)
commands.command(name="sql")(sql)
commands.add_typer(keys)
commands.add_typer(analysts)
commands.add_typer(projects)
commands.add_typer(prices)
commands.add_typer(search)

Host = Annotated[str, typer.Option(help="The address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")]


@commands.command()
def serve(
    host: Host = DEFAULT_HOST,
    port: Port = DEFAULT_PORT,
    migrate: Annotated[bool, typer.Option(help="Bring the schema up to date first.")] = True,
    project: Project = DEFAULT_PROJECT,
    first_key: Annotated[
        bool,
        typer.Option("--first-key", help="Create and print an admin key if the server has no key."),
    ] = False,
) -> None:
    """Serve the API and the viewer."""

    async def run(settings: Settings) -> None:
        application = None if settings.app is None else load_application(settings)
        async with served(
            settings, application, host, port, migrate, project, first_key, grpc=True
        ) as server:
            console.print(f"Tracer listens on {server.address}")
            if server.grpc_port is not None:
                console.print(f"It accepts OTLP over gRPC on port {server.grpc_port}")
            await asyncio.shield(server.serving)

    run_command(run, terminated=0)


@commands.command()
def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Record one run, print its root plan id and exit.")
    ] = False,
    as_json: AsJson = False,
    host: Host = DEFAULT_HOST,
    port: Port = DEFAULT_PORT,
) -> None:
    """Record runs of the demonstration, and show them in the viewer."""

    async def run(settings: Settings) -> None:
        if not once:
            configure_logs("WARNING")  # the links must not be lost among lines about requests
        application = named("health:application")
        assert isinstance(application, Application)
        script: Any = import_module("health.demo")
        caller = Identity(script.TOKEN_ID)
        async with served(
            _without_projectors(settings) if once else settings,
            application,
            host,
            FREE_PORT if once else port,
        ) as server:
            if not once:
                console.print(f"Tracer listens on {server.address}")
                _show(server, "A run that failed, two sub-agents deep", await _failure(server))
            launcher = await server.parts.opened_launcher()
            events: list[Event] = []
            outcome = await run_and_report(
                launcher, script.REQUEST, identity=caller, observe=events.extend
            )
            if as_json:
                print_outcome(outcome)
            elif once:
                print(outcome.root_plan_id)
            if once:
                check_outcome(outcome)
                return
            # The page opens the path to the record that is selected: to the parallel sub-agents.
            sub_plans = [each for each in events if isinstance(each, PlanStarted) and each.depth]
            deepest = max(sub_plans, key=lambda each: each.depth, default=None)
            first = "" if deepest is None else f"?select={deepest.tool_call_id}"
            _show(server, "A run with parallel sub-agents", f"{outcome.root_plan_id}{first}")
            with script.live_pace():
                live = await launcher.start(script.LIVE_REQUEST, identity=caller)
            _show(server, "A run to watch, for two minutes", live.root_plan_id)
            console.print("Stop with Ctrl-C.")
            await asyncio.shield(server.serving)

    run_command(run, terminated=TERMINATED if once else 0)


async def _failure(server: Served) -> UUID:
    """Record the demonstration's failed run, as another program does: over HTTP."""
    billing: Any = import_module("health.billing")
    parts = server.parts
    assert parts.authenticator is not None
    program = Caller(parts.project_id, DEFAULT_PROJECT, frozenset({Scope.RECORD}))
    key = parts.authenticator.own_key(program)
    root_plan_id: UUID = await asyncio.to_thread(billing.record_failure, server.address, key)
    return root_plan_id


def _show(server: Served, what: str, run: object) -> None:
    console.print(f"{what}: {server.address}/runs/{run}", markup=False)


@commands.command()
def migrate(
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Change nothing: list missing migrations, and exit with 1 if there are any.",
        ),
    ] = False,
) -> None:
    """Bring the database's schema up to date."""

    async def run(settings: Settings) -> None:
        async with database(settings, migrated=not check) as url:
            if check and (plan := await asyncio.to_thread(plan_upgrade, url)).steps:
                _print_plan(plan)
                raise typer.Exit(1)
            console.print("The schema is up to date.")

    run_command(run)


def _print_plan(plan: MigrationPlan) -> None:
    console.print(
        f"The schema has version {plan.current or 'none'}. `tracer migrate` runs "
        f"{counted(len(plan.steps), 'migration')} in one transaction, which holds its locks until "
        "it ends:",
        markup=False,
    )
    for step in plan.steps:
        print(f"{step.revision}  {step.title}")
    console.print("It then replaces the views of the schema trace.")


@asynccontextmanager
async def launcher(
    settings: Settings, application: Application, project: str
) -> AsyncIterator[RunLauncher]:
    """Run a server in this process. Yield the launcher, which starts runs of the application."""
    async with served(_without_projectors(settings), application, project=project) as server:
        yield await server.parts.opened_launcher()


def _without_projectors(settings: Settings) -> Settings:
    """Return settings for one run of an application, which records events.

    If `TRACER_PROJECTORS` is set, the settings do not change.
    """
    if "projectors" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"projectors": 0})
