"""The `tracer` command."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Annotated, NoReturn, Unpack

import orjson
import typer

from api.commands.analysts import analysts, psql
from api.commands.deletion import erase, prune
from api.commands.keys import keys
from api.commands.projects import projects
from api.commands.serve import DEFAULT_HOST, FREE_PORT, served
from api.commands.spans import pack_spans, reproject
from api.commands.spools import spool
from api.commands.terminal import TERMINATED, Project, carry_out, said
from api.commands.transfer import export_run, import_files
from tracer import assembly
from tracer.context import Identity
from tracer.errors import ConfigurationError
from tracer.records.ids import DEFAULT_PROJECT
from tracer.records.status import Status
from tracer.runtime.application import Application
from tracer.runtime.launcher import RunLauncher, RunOptions, RunOutcome
from tracer.settings import Settings

DEFAULT_PORT = 8420

commands = typer.Typer(
    name="tracer",
    help="Records what an LLM agent did, and which tool call opened which sub-plan.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
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
commands.add_typer(spool)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(version("tracer"))
        raise typer.Exit


@commands.callback()
def tracer(
    is_asked: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Take what stands before a command."""


Host = Annotated[str, typer.Option(help="The address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@commands.command()
def serve(
    host: Host = DEFAULT_HOST,
    port: Port = DEFAULT_PORT,
    migrate: Annotated[bool, typer.Option(help="Bring the schema up to date first.")] = True,
    project: Project = DEFAULT_PROJECT,
    first_key: Annotated[
        bool,
        typer.Option("--first-key", help="Make a key for everything and print it, if none is."),
    ] = False,
) -> None:
    """Serve the API and the viewer."""

    async def run(settings: Settings) -> None:
        application = assembly.load_application(settings)
        async with served(settings, application, host, port, migrate, project, first_key) as server:
            said.print(f"Tracer listens on {server.address}")
            await asyncio.shield(server.serving)

    carry_out(run, terminated=0)


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
        demonstration = assembly.load_demonstration()
        async with served(
            _with_thread(settings), demonstration.application, host, FREE_PORT if once else port
        ) as server:
            if not once:
                said.print(f"Tracer listens on {server.address}")
            outcome = await _run(
                server.parts.launcher,
                demonstration.request,
                identity=Identity(demonstration.token_id),
            )
            if as_json:
                _print_json(outcome)
            elif once:
                print(outcome.root_plan_id)
            if once:
                _check(outcome)
                return
            said.print(f"The demonstration run: {server.address}/runs/{outcome.root_plan_id}")
            said.print("Stop with Ctrl-C.")
            await asyncio.shield(server.serving)

    carry_out(run, terminated=TERMINATED if once else 0)


@commands.command()
def migrate() -> None:
    """Bring the database's schema up to date."""

    async def run(settings: Settings) -> None:
        async with assembly.database(settings):
            said.print("The schema is up to date.")

    carry_out(run)


@commands.command(name="run")
def run_request(
    request: Annotated[
        str, typer.Argument(metavar="REQUEST", help="What is asked, in plain words.")
    ],
    agent: Annotated[str | None, typer.Option(help="The agent to ask.")] = None,
    token_id: Annotated[
        str | None,
        typer.Option(
            envvar="TRACER_TOKEN_ID",
            show_envvar=True,
            help="Who asks: a user's id or token, which tools get and models do not.",
        ),
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="The conversation that it belongs to.")
    ] = None,
    project: Project = DEFAULT_PROJECT,
    as_json: AsJson = False,
) -> None:
    """Run a request through the application's agents, and print its outcome."""

    async def run(settings: Settings) -> None:
        application = assembly.load_application(settings)
        identity = Identity(token_id) if token_id else None
        async with _launcher(settings, application, project) as launcher:
            outcome = await _run(
                launcher, request, agent=agent, identity=identity, session_id=session
            )
            if as_json:
                _print_json(outcome)
            else:
                print(outcome.root_plan_id)
                print(outcome.summary or "")
            _check(outcome)

    carry_out(run)


@asynccontextmanager
async def _launcher(
    settings: Settings, application: Application, project: str
) -> AsyncIterator[RunLauncher]:
    """Give what runs an application: it records to the server that is named, else to one here."""
    if settings.url is not None:
        if project != DEFAULT_PROJECT:
            raise ConfigurationError(
                "TRACER_URL is set: its key says which project the run belongs to. Leave out "
                "--project."
            )
        async with assembly.launcher_over_http(settings, settings.url, application) as launcher:
            yield launcher
    else:
        async with served(_with_thread(settings), application, project=project) as server:
            yield server.parts.launcher


def _with_thread(settings: Settings) -> Settings:
    """Return settings with a projector thread unless `TRACER_PROJECTORS` is set."""
    if settings.projectors is not None:
        return settings
    return settings.model_copy(update={"projectors": "thread"})


async def _run(launcher: RunLauncher, request: str, **options: Unpack[RunOptions]) -> RunOutcome:
    """Run `request` and return what came of it; a failure is told."""
    with said.status("The agents are at work …"):
        outcome = await launcher.run(request, **options)
    if outcome.status is not Status.SUCCEEDED:
        why = outcome.error.message if outcome.error else outcome.reason
        said.print(f"The run ended {outcome.status}: {why}", markup=False)
    return outcome


def _print_json(outcome: RunOutcome) -> None:
    answer = {
        "rootPlanId": outcome.root_plan_id,
        "status": outcome.status,
        "reason": outcome.reason,
        "summary": outcome.summary,
    }
    print(orjson.dumps(answer).decode())


def _check(outcome: RunOutcome) -> None:
    """Make a run that did not succeed the command's own failure."""
    if outcome.status is not Status.SUCCEEDED:
        raise typer.Exit(1)


def main() -> None:
    """Run the command."""
    try:
        commands()
    except SystemExit as end:
        _leave(end.code)


def _leave(code: str | int | None) -> NoReturn:
    """End the process, also where a tool's thread never ends: nothing can stop a thread."""
    here = threading.current_thread()
    left = [each for each in threading.enumerate() if each is not here and not each.daemon]
    if not left:
        sys.exit(code)
    said.print(f"{len(left)} tool calls were given up and still run: ending without them.")
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else code is not None)


if __name__ == "__main__":
    main()
