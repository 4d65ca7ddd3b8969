"""The commands `tracer projector` and `tracer reproject`, which use the database directly."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from uuid import UUID

import orjson
import typer

from api.commands import database as db
from tracer.cli.terminal import AsJson, Project, console, counted, run_command
from tracer.errors import BadRequest
from tracer.records import DEFAULT_PROJECT
from tracer.settings import Settings
from tracer.storage.postgres import EventPricing
from tracer.storage.postgres.processes import ProjectorOptions, Report, keep_projecting
from tracer.storage.postgres.projection import Reprojection
from tracer.storage.postgres.projector import TimeLimits

# --- The command `tracer projector`, which projects spans without a server.

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
            options = ProjectorOptions.of(url, settings.lease_terms, settings.search_directory)
            keep_projecting(options, end, report, TimeLimits())

    run_command(run, terminated=0)


# --- The command `tracer reproject`, which uses the database directly.


def reproject(
    runs: Annotated[
        list[UUID] | None, typer.Argument(metavar="RUN", help="The root plan ids of runs.")
    ] = None,
    all_runs: Annotated[bool, typer.Option("--all", help="All runs of the project.")] = False,
    prices: Annotated[
        bool,
        typer.Option("--prices", help="Compute costs by the current prices."),
    ] = False,
    project: Project = DEFAULT_PROJECT,
    as_json: AsJson = False,
) -> None:
    """Compute the records of runs from their spans again, with this version of Tracer.

    With --prices, current prices apply. Runs that were recorded as events get new costs, too, but
    only from the project's own prices.
    """

    async def run(settings: Settings) -> None:
        if bool(runs) == all_runs:
            raise BadRequest("Pass the ids of runs, or --all for all runs of a project.")
        done = Reprojected()
        async with (
            db.database(settings) as url,
            db.reprojection(url, project) as reprojection,
        ):
            with console.status("Projecting …") as status:
                async for batch in _batches(reprojection, runs or None):
                    goals = await reprojection.request(batch, with_prices=prices)
                    done.rejected += sorted(set(batch) - goals.keys())
                    failed = await reprojection.wait(goals)
                    done.failed += failed
                    done.runs += len(goals) - len(failed)
                    status.update(f"Projected {counted(done.runs, 'run')} …")
        if prices:
            async with (
                db.database(settings) as url,
                db.project_pool(url, project) as pool,
            ):
                pricing = EventPricing(pool)
                async for batch in _batches(pricing, runs and done.rejected):
                    priced = set(await pricing.apply(batch))
                    done.rejected = [run for run in done.rejected if run not in priced]
                    done.priced += len(priced)
        _tell(done, as_json=as_json)

    run_command(run)


@dataclass
class Reprojected:
    """The result of `tracer reproject`."""

    runs: int = 0
    """The number of runs whose records were computed, or that were deleted in the meantime."""
    failed: list[UUID] = field(default_factory=list)
    priced: int = 0
    """The number of runs that were recorded as events and got new costs."""
    rejected: list[UUID] = field(default_factory=list)
    """The runs whose records cannot be computed again."""


async def _batches(
    stored: Reprojection | EventPricing, runs: list[UUID] | None
) -> AsyncIterator[list[UUID]]:
    if runs is not None:
        yield sorted(set(runs))
        return
    async for batch in stored.batches():
        yield batch


def _tell(done: Reprojected, *, as_json: bool) -> None:
    """Print the result of `tracer reproject`. If a run could not be projected, exit with 1."""
    if as_json:
        shown = {
            "runs": done.runs,
            "priced": done.priced,
            "failed": done.failed,
            "rejected": done.rejected,
        }
        typer.echo(orjson.dumps(shown).decode())
    else:
        console.print(f"Projected {counted(done.runs, 'run')} again.")
        if done.priced:
            console.print(f"Applied prices to {counted(done.priced, 'run')} of events.")
        for why, run_ids in (
            ("The projection of these runs failed; see their `projectionError`", done.failed),
            (
                "These runs do not exist, were deleted, arrived as events, or were projected by a"
                " newer version",
                done.rejected,
            ),
        ):
            if run_ids:
                console.print(f"{why}: {', '.join(map(str, run_ids))}.", markup=False)
    if done.failed or done.rejected:
        raise typer.Exit(1)
