"""`tracer run`: running an application's agents, and printing the outcome."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Annotated, Unpack

import orjson
import typer

from tracer.cli.server import Launcher, load
from tracer.cli.terminal import Project, carry_out, said
from tracer.context import Identity
from tracer.errors import ConfigurationError
from tracer.recorder.recorder import Recorder
from tracer.recorder.spool import spool_for
from tracer.records.ids import DEFAULT_PROJECT
from tracer.records.status import Status
from tracer.runtime.application import Application, Surroundings
from tracer.runtime.from_settings import application_launcher, load_application
from tracer.runtime.launcher import RunLauncher, RunOptions, RunOutcome
from tracer.settings import Settings
from tracer.storage.http.writer import HttpWriter

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


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
        application = load_application(settings)
        identity = Identity(token_id) if token_id else None
        async with _launcher(settings, application, project) as launcher:
            outcome = await run_and_report(
                launcher, request, agent=agent, identity=identity, session_id=session
            )
            if as_json:
                print_outcome(outcome)
            else:
                print(outcome.root_plan_id)
                print(outcome.summary or "")
            check_outcome(outcome)

    carry_out(run)


def _launcher(
    settings: Settings, application: Application, project: str
) -> AbstractAsyncContextManager[RunLauncher]:
    """Return a launcher that records to the server at `TRACER_URL`, or to one in this process."""
    if settings.url is None:
        local: Launcher = load("`tracer run` without TRACER_URL", "launcher")
        return local(settings, application, project)
    if project != DEFAULT_PROJECT:
        raise ConfigurationError(
            "TRACER_URL is set: its key says which project the run belongs to. Leave out --project."
        )
    return _launcher_over_http(settings, settings.url, application)


@asynccontextmanager
async def _launcher_over_http(
    settings: Settings, url: str, application: Application
) -> AsyncIterator[RunLauncher]:
    """Give a launcher that records to a server over HTTP; sessions' state lives in memory.

    Args:
        settings: The server's key, the model, the home of the recorder's spool, and the database
            that the application's own tools may use.
        url: The address of the server.
        application: The application to run.
    """
    key, database_url = (
        None if secret is None else secret.get_secret_value()
        for secret in (settings.api_key, settings.database_url)
    )
    redaction = settings.redaction
    async with aclosing(HttpWriter(url, key, redaction=redaction)) as writer:
        spool = spool_for(settings.home, url, api_key=key)
        surroundings = Surroundings(database_url, url, key)
        async with application_launcher(
            settings,
            application,
            surroundings,
            Recorder(writer, spool, redaction=redaction),
            writer,
        ) as launcher:
            yield launcher


async def run_and_report(
    launcher: RunLauncher, request: str, **options: Unpack[RunOptions]
) -> RunOutcome:
    """Run `request` and return its outcome; print a sentence if it failed."""
    with said.status("The agents are at work …"):
        outcome = await launcher.run(request, **options)
    if outcome.status is not Status.SUCCEEDED:
        why = outcome.error.message if outcome.error else outcome.reason
        said.print(f"The run ended {outcome.status}: {why}", markup=False)
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
    """Make a run that did not succeed the command's own failure."""
    if outcome.status is not Status.SUCCEEDED:
        raise typer.Exit(1)
