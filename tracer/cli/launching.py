"""Start runs for `tracer run` and `tracer demo`, and print their outcome.

Needs the extra `runtime`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Unpack

import orjson
import typer

from tracer.cli.server import server_launcher
from tracer.cli.terminal import console
from tracer.errors import ConfigurationError
from tracer.recorder.recorder import Recorder
from tracer.recorder.spool import spool_for
from tracer.records.ids import DEFAULT_PROJECT
from tracer.records.status import Status
from tracer.runtime.application import Application, Surroundings
from tracer.runtime.from_settings import application_launcher, load_application, with_model_of
from tracer.runtime.launcher import RunLauncher, RunOptions, RunOutcome
from tracer.settings import Settings
from tracer.storage.http.writer import HttpWriter


def open_launcher(settings: Settings, project: str) -> AbstractAsyncContextManager[RunLauncher]:
    """Return a launcher of the configured application that records to the server at `TRACER_URL`.

    If `TRACER_URL` is not set, the launcher records to a server in this process.

    Raises:
        ConfigurationError: The application cannot be loaded, the server is needed and not
            installed, or the key determines the project.
    """
    if settings.url is None:
        return server_launcher(settings, project)
    if project != DEFAULT_PROJECT:
        raise ConfigurationError(
            "TRACER_URL is set, so the API key determines the project. Omit --project."
        )
    return _launcher_over_http(settings, settings.url, load_application(settings))


@asynccontextmanager
async def _launcher_over_http(
    settings: Settings, url: str, application: Application
) -> AsyncIterator[RunLauncher]:
    """Yield a launcher that records to a server over HTTP. Session state is in memory only.

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
    async with (
        with_model_of(settings, application) as application,
        aclosing(HttpWriter(url, key, redaction=redaction)) as writer,
        Recorder(
            writer, spool_for(settings.home, url, api_key=key), redaction=redaction
        ) as recorder,
        application_launcher(
            application, Surroundings(database_url, url, key), recorder, writer
        ) as launcher,
    ):
        yield launcher


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
