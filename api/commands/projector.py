"""The command `tracer projector`, which projects spans without a server."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from api.commands import database as db
from tracer.cli.terminal import console, run_command
from tracer.settings import Settings
from tracer.storage.postgres.spans.projector import TimeLimits
from tracer.storage.postgres.spans.projector_process import (
    ProjectorOptions,
    Report,
    keep_projecting,
)

ENDING = (signal.SIGTERM, signal.SIGINT)


def projector(
    health_file: Annotated[
        Path | None,
        typer.Option(help="A file that is touched at least every few seconds while it works."),
    ] = None,
) -> None:
    """Turn accepted spans into records, without a server, until it is stopped.

    `tracer serve` starts projectors of its own (TRACER_PROJECTORS). This command runs one more, for
    example on another machine. It ends after the runs in progress. Restart it if it ends, or if the
    health file is older than two minutes.
    """

    def report(_: Report) -> None:
        if health_file is not None:
            health_file.touch()

    async def run(settings: Settings) -> None:
        async with db.database(settings, migrated=False) as url:
            end, ending = os.pipe()

            def stop(*_: object) -> None:
                os.close(ending)
                for each in ENDING:  # a second signal ends the process at once
                    signal.signal(each, signal.SIG_DFL)

            for each in ENDING:
                signal.signal(each, stop)
            console.print("The projector runs. Stop it with Ctrl-C.")
            # Not in a thread: its time limits are signals, which only the main thread receives.
            options = ProjectorOptions.of(url, settings.lease_terms)
            keep_projecting(options, end, report, TimeLimits())

    run_command(run, terminated=0)
