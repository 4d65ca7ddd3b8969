"""The `tracer` commands that need the server's packages.

`tracer/cli/server.py` finds them by an entry point.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Annotated, Any
from uuid import UUID

import typer

from api.commands.analysts import analysts, psql
from api.commands.deletion import erase, prune
from api.commands.keys import keys
from api.commands.prices import prices
from api.commands.projector import projector
from api.commands.projects import projects
from api.commands.serve import DEFAULT_HOST, FREE_PORT, Served, served
from api.commands.spans import reproject
from tracer import assembly
from tracer.cli.launching import check_outcome, print_outcome, run_and_report
from tracer.cli.run import AsJson
from tracer.cli.terminal import TERMINATED, Project, console, counted, run_command
from tracer.context import Identity
from tracer.logs import configure_logs
from tracer.records.access import Caller, Scope
from tracer.records.events import Event, PlanStarted
from tracer.records.ids import DEFAULT_PROJECT
from tracer.runtime.application import Application
from tracer.runtime.from_settings import load_application, named
from tracer.runtime.launcher import RunLauncher
from tracer.settings import Settings
from tracer.storage.postgres.administration.migrate import MigrationPlan, plan_upgrade

DEFAULT_PORT = 8420

commands = typer.Typer()
commands.command(name="prune")(prune)
commands.command(name="erase")(erase)
commands.command(name="reproject")(reproject)
commands.command(name="projector")(projector)
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
        async with assembly.database(settings, migrated=not check) as url:
            if check and (plan := await asyncio.to_thread(plan_upgrade, url)).steps:
                _print_plan(plan)
                raise typer.Exit(1)
            console.print("The schema is up to date.")

    run_command(run)


def _print_plan(plan: MigrationPlan) -> None:
    """Print the missing migrations of a database."""
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
