"""`tracer run`."""

from __future__ import annotations

from typing import Annotated

import typer

from tracer.cli.names import EXTRAS
from tracer.cli.terminal import Project, run_command
from tracer.context import Identity
from tracer.errors import ConfigurationError
from tracer.extras import missing_extra
from tracer.records.ids import DEFAULT_PROJECT
from tracer.settings import Settings

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
        try:
            from tracer.cli import launching
        except ModuleNotFoundError as error:
            needed = missing_extra("tracer run", EXTRAS["run"], error)
            raise ConfigurationError(str(needed)) from error
        identity = Identity(token_id) if token_id else None
        async with launching.open_launcher(settings, project) as launcher:
            outcome = await launching.run_and_report(
                launcher, request, agent=agent, identity=identity, session_id=session
            )
            if as_json:
                launching.print_outcome(outcome)
            else:
                print(outcome.root_plan_id)
                print(outcome.summary or "")
            launching.check_outcome(outcome)

    run_command(run)
