"""The `tracer projects` commands, which connect to the database directly."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.table import Column, Table

from api.commands import database as db
from tracer.cli.terminal import AsJson, console, run_command
from tracer.errors import BadRequest
from tracer.records.payloads import PayloadPolicy
from tracer.records.project_settings import ProjectSettings, SettingsChange
from tracer.settings import Settings

projects = typer.Typer(
    name="projects", help="Show and change how long projects store runs.", no_args_is_help=True
)

_FOR_EVER = "none"


@projects.command(name="list")
def list_projects(as_json: AsJson = False) -> None:
    """List the projects, with their limits for runs and their policies for payloads."""

    async def run(settings: Settings) -> None:
        async with db.database(settings) as url, db.project_settings(url) as projects:
            settings_by_name = {name: await each.read() for name, each in projects.items()}
        if as_json:
            shown = [{"name": name, **_shown(each)} for name, each in settings_by_name.items()]
            typer.echo(orjson.dumps(shown).decode())
            return
        headings = ("name", "keep days", "keep runs", "payloads")
        table = Table(*(Column(each, no_wrap=True) for each in headings), box=None)
        for name, each in settings_by_name.items():
            limits = (each.keep_days, each.keep_runs)
            table.add_row(name, *(str(limit or _FOR_EVER) for limit in limits), each.payloads)
        Console(markup=False, width=400).print(table)

    run_command(run)


@projects.command(name="set")
def set_project(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The project.")],
    keep_days: Annotated[
        str | None,
        typer.Option(metavar="DAYS", help="Delete runs this long after they ended, or `none`."),
    ] = None,
    keep_runs: Annotated[
        str | None,
        typer.Option(metavar="RUNS", help="Delete the oldest runs above this number, or `none`."),
    ] = None,
    payloads: Annotated[
        PayloadPolicy | None, typer.Option(help="How to store arguments, results and texts.")
    ] = None,
) -> None:
    """Change the settings of a project. Omitted settings do not change."""

    async def run(settings: Settings) -> None:
        changes: SettingsChange = {}
        if keep_days is not None:
            changes["keep_days"] = _limit(keep_days)
        if keep_runs is not None:
            changes["keep_runs"] = _limit(keep_runs)
        if payloads is not None:
            changes["payloads"] = payloads
        async with (
            db.database(settings) as url,
            db.project_settings(url, name) as projects,
        ):
            new_settings = await projects[name].change(**changes)
        console.print(f"{name}: {_in_words(new_settings)}", markup=False)

    run_command(run)


def _limit(limit: str) -> int | None:
    if limit == _FOR_EVER:
        return None
    if not limit.isdecimal():
        raise BadRequest(f"{limit!r} is not a number. Pass a number or `{_FOR_EVER}`.")
    return int(limit[:20])  # longer numbers are out of range in any case


def _shown(settings: ProjectSettings) -> dict[str, object]:
    return {
        "keepDays": settings.keep_days,
        "keepRuns": settings.keep_runs,
        "payloads": settings.payloads,
    }


def _in_words(settings: ProjectSettings) -> str:
    days = "for ever" if settings.keep_days is None else f"for {settings.keep_days} days"
    runs = "" if settings.keep_runs is None else f", {settings.keep_runs} at most"
    return f"runs are kept {days}{runs}; payloads: {settings.payloads}."
