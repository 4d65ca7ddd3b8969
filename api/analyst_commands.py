"""The `tracer analysts` commands: who asks Postgres itself, and sees one project."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.table import Table

from api.terminal import AsJson, Project, carry_out, said
from tracer import assembly
from tracer.ids import DEFAULT_PROJECT
from tracer.settings import Settings
from tracer.storage.analysts import Analysts, analysts_of

analysts = typer.Typer(
    name="analysts",
    help="Let roles of the database see a project by SQL, and nothing else.",
    no_args_is_help=True,
)

Role = Annotated[str, typer.Argument(metavar="ROLE", help="The role that logs in.")]


@analysts.command()
def add(role: Role, project: Project = DEFAULT_PROJECT, as_json: AsJson = False) -> None:
    """Let a role read one project; one that is made here has its password printed, this once."""

    async def run(settings: Settings) -> None:
        async with _analysts(settings) as all_of_them:
            new = await all_of_them.add(role, project)
        if as_json:
            typer.echo(orjson.dumps(asdict(new)).decode())
            return
        said.print(f"{role!r} reads the project {project!r}.", markup=False)
        if new.password is not None:
            typer.echo(new.password)
            said.print("This is the role's password, shown this once.")

    carry_out(run)


@analysts.command()
def remove(role: Role) -> None:
    """Let a role see nothing any more, and drop it if `add` made it."""

    async def run(settings: Settings) -> None:
        async with _analysts(settings) as all_of_them:
            removed = await all_of_them.remove(role)
        what = "dropped" if removed.was_made else "no analyst any more"
        said.print(f"The role {role!r} is {what}.", markup=False)

    carry_out(run)


@analysts.command(name="list")
def list_analysts(as_json: AsJson = False) -> None:
    """List the analysts of all projects."""

    async def run(settings: Settings) -> None:
        async with _analysts(settings) as all_of_them:
            found = await all_of_them.list_analysts()
        if as_json:
            typer.echo(orjson.dumps([asdict(each) for each in found]).decode())
            return
        table = Table("role", "project", box=None)
        for each in found:
            table.add_row(each.role, each.project)
        Console(markup=False).print(table)

    carry_out(run)


@asynccontextmanager
async def _analysts(settings: Settings) -> AsyncIterator[Analysts]:
    async with assembly.database(settings) as url, analysts_of(url) as all_of_them:
        yield all_of_them
