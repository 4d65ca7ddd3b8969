"""The `tracer` commands that need the server's packages.

`tracer/cli/server.py` finds them by an entry point.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from api.commands.analysts import analysts, psql
from api.commands.deletion import erase, prune
from api.commands.keys import keys
from api.commands.prices import prices
from api.commands.projects import projects
from api.commands.serve import DEFAULT_HOST, FREE_PORT, served
from api.commands.spans import pack_spans, reproject
from api.commands.transfer import export_run, import_files
from tracer import assembly
from tracer.cli.launching import check_outcome, print_outcome, run_and_report
from tracer.cli.run import AsJson
from tracer.cli.terminal import TERMINATED, Project, console, run_command
from tracer.context import Identity
from tracer.records.ids import DEFAULT_PROJECT
from tracer.runtime.application import Application
from tracer.runtime.from_settings import load_application, named
from tracer.runtime.launcher import RunLauncher
from tracer.settings import Settings
from tracer.storage.postgres.administration.migrate import MigrationPlan, plan_upgrade

DEFAULT_PORT = 8420

commands = typer.Typer()
commands.command(name="export")(export_run)
commands.command(name="import")(import_files)
commands.command(name="prune")(prune)
commands.command(name="erase")(erase)
commands.command(name="pack-spans")(pack_spans)
commands.command(name="reproject")(reproject)
commands.command(name="psql")(psql)
commands.add_typer(keys)
commands.add_typer(analysts)
commands.add_typer(projects)
commands.add_typer(prices)

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
        bool, typer.Option("--once", help="Record the run, print its root plan id and exit.")
    ] = False,
    as_json: AsJson = False,
    host: Host = DEFAULT_HOST,
    port: Port = DEFAULT_PORT,
) -> None:
    """Record a run of the demonstration application, and show it in the viewer."""

    async def run(settings: Settings) -> None:
        demonstration = load_demonstration()
        async with served(
            _with_thread(settings), demonstration.application, host, FREE_PORT if once else port
        ) as server:
            if not once:
                console.print(f"Tracer listens on {server.address}")
            outcome = await run_and_report(
                await server.parts.opened_launcher(),
                demonstration.request,
                identity=Identity(demonstration.token_id),
            )
            if as_json:
                print_outcome(outcome)
            elif once:
                print(outcome.root_plan_id)
            if once:
                check_outcome(outcome)
                return
            console.print(f"The demonstration run: {server.address}/runs/{outcome.root_plan_id}")
            console.print("Stop with Ctrl-C.")
            await asyncio.shield(server.serving)

    run_command(run, terminated=TERMINATED if once else 0)


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
        async with assembly.database(settings, migrated=not check) as url:
            if check and (plan := await asyncio.to_thread(plan_upgrade, url)).steps:
                _print_plan(plan)
                raise typer.Exit(1)
            console.print("The schema is up to date.")

    run_command(run)


def _print_plan(plan: MigrationPlan) -> None:
    """Print the missing migrations of a database, each with the table locks that it takes."""
    console.print(
        f"The schema has version {plan.current or 'none'}. `tracer migrate` runs "
        f"{len(plan.steps)} migrations in one transaction, which holds all locks until it ends:",
        markup=False,
    )
    for step in plan.steps:
        print(f"{step.revision}  {step.title}")
        for table, lock in step.locks.items():
            print(f"      {lock} on {table}")
    console.print("It then replaces the views of the schema trace.")


@asynccontextmanager
async def launcher(
    settings: Settings, application: Application, project: str
) -> AsyncIterator[RunLauncher]:
    """Run a server in this process. Yield the launcher, which starts runs of the application."""
    async with served(_with_thread(settings), application, project=project) as server:
        yield await server.parts.opened_launcher()


def _with_thread(settings: Settings) -> Settings:
    """Return settings that run the projector of spans in a thread, not in another process.

    If `TRACER_PROJECTORS` is set, the settings do not change.
    """
    if settings.projectors is not None:
        return settings
    return settings.model_copy(update={"projectors": "thread"})


@dataclass(frozen=True)
class Demonstration:
    """The demonstration application, and a request to it."""

    application: Application
    request: str
    """The request that the scripted model answers."""
    token_id: str
    """The identity of the caller."""


def load_demonstration() -> Demonstration:
    """Load the demonstration from the package `health`."""
    application = named("health:application")
    request, token_id = named("health.demo:REQUEST"), named("health.demo:TOKEN_ID")
    assert isinstance(application, Application)
    assert isinstance(request, str)
    assert isinstance(token_id, str)
    return Demonstration(application, request, token_id)
