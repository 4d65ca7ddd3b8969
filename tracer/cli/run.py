"""`tracer run`."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, Unpack

import orjson
import typer

from tracer.cli.names import EXTRAS
from tracer.cli.server import load_entry
from tracer.cli.terminal import Project, console, run_command
from tracer.context import Identity
from tracer.errors import ConfigurationError, missing_extra
from tracer.records import DEFAULT_PROJECT, Status
from tracer.settings import Settings

if TYPE_CHECKING:  # they need the extra `runtime`
    from tracer.runtime import RunLauncher
    from tracer.runtime.launcher import RunOptions, RunOutcome

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def run_request(
    request: Annotated[
        str, typer.Argument(metavar="REQUEST", help="The request to the agent, as text.")
    ],
    agent: Annotated[str | None, typer.Option(help="The agent that handles the request.")] = None,
    token_id: Annotated[
        str | None,
        typer.Option(
            envvar="TRACER_TOKEN_ID",
            show_envvar=True,
            help="The caller's id or token. Tools receive it, models do not.",
        ),
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="The id of the conversation that the run belongs to.")
    ] = None,
    project: Project = DEFAULT_PROJECT,
    as_json: AsJson = False,
) -> None:
    """Run a request with the application's agents, and print its outcome."""

    async def run(settings: Settings) -> None:
        identity = Identity(token_id) if token_id else None
        async with _open_launcher(settings, project) as launcher:
            outcome = await run_and_report(
                launcher, request, agent=agent, identity=identity, session_id=session
            )
            if as_json:
                print_outcome(outcome)
            else:
                print(outcome.root_plan_id)
                print(outcome.summary or "")
            check_outcome(outcome)

    run_command(run)


def _open_launcher(settings: Settings, project: str) -> AbstractAsyncContextManager[RunLauncher]:
    """Return a launcher of the configured application that records to the server at `TRACER_URL`.

    If `TRACER_URL` is not set, the launcher records to a server in this process.

    Raises:
        ConfigurationError: The extra `runtime` or the server is not installed, the application
            cannot be loaded, or the key determines the project.
    """
    try:
        from tracer.runtime.launcher import launcher_over_http, load_application
    except ModuleNotFoundError as error:
        needed = missing_extra("tracer run", EXTRAS["run"], error)
        raise ConfigurationError(str(needed)) from error
    if settings.url is None:
        open_launcher = load_entry("`tracer run` without TRACER_URL", "launcher", is_starting=True)
        # After the server, whose package makes the demonstration importable.
        application = load_application(settings)
        launcher: AbstractAsyncContextManager[RunLauncher] = open_launcher(
            settings, application, project
        )
        return launcher
    if project != DEFAULT_PROJECT:
        raise ConfigurationError(
            "TRACER_URL is set, so the API key determines the project. Omit --project."
        )
    return launcher_over_http(settings, settings.url, load_application(settings))


async def run_and_report(
    launcher: RunLauncher, request: str, **options: Unpack[RunOptions]
) -> RunOutcome:
    """Run `request` and return its outcome; print a sentence if it failed."""
    with console.status("The agents are working …"):
        outcome = await launcher.run(request, **options)
    if outcome.status is not Status.SUCCEEDED:
        why = outcome.error.message if outcome.error else outcome.reason
        console.print(f"The run ended {outcome.status}: {why}", markup=False)
    return outcome


def print_outcome(outcome: RunOutcome) -> None:
    """Print the outcome as JSON."""
    answer = {
        "rootPlanId": outcome.root_plan_id,
        "status": outcome.status,
        "reason": outcome.reason,
        "summary": outcome.summary,
    }
    print(orjson.dumps(answer).decode())


def check_outcome(outcome: RunOutcome) -> None:
    """Exit with code 1 unless the run succeeded."""
    if outcome.status is not Status.SUCCEEDED:
        raise typer.Exit(1)
