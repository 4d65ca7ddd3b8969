"""The commands that give SQL access to one project: `tracer analysts`, `psql` and `sql`."""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.table import Table

from api.commands import database as db
from tracer.cli.terminal import AsJson, Project, console, run_command
from tracer.errors import ConfigurationError, StoreUnavailable
from tracer.questions import shown
from tracer.records import DEFAULT_PROJECT
from tracer.settings import Settings
from tracer.storage.embedded import installed_programs
from tracer.storage.postgres import Pool, open_pool
from tracer.storage.postgres.analysts import (
    NewAnalyst,
    add_analyst,
    list_analysts,
    remove_analyst,
    run_query,
)

analysts = typer.Typer(
    name="analysts",
    help="Let database roles read a project by SQL, and nothing else.",
    no_args_is_help=True,
)

Role = Annotated[str, typer.Argument(metavar="ROLE", help="The role that logs in.")]


@analysts.command()
def add(role: Role, project: Project = DEFAULT_PROJECT, as_json: AsJson = False) -> None:
    """Let a database role read one project by SQL. Print a psql command that logs in as this role.

    If the role does not exist, it is created with a password, which is shown only once.
    """

    async def run(settings: Settings) -> None:
        async with _database(settings) as pool:
            new = await add_analyst(pool, role, project)
            if as_json:
                typer.echo(orjson.dumps(asdict(new)).decode())
                return
            typer.echo(shlex.join([_psql(), new.url]))
        console.print(f"{role!r} reads the project {project!r}.", markup=False)
        if new.password is not None:
            console.print("The line contains the role's password, which is shown only once.")
        if settings.database_url is None:
            console.print("The embedded Postgres answers while `tracer serve` runs.")

    run_command(run)


@analysts.command()
def remove(role: Role) -> None:
    """Revoke a role's access and end its sessions.

    If `tracer analysts add` created the role, the role is dropped.
    """

    async def run(settings: Settings) -> None:
        async with _database(settings) as pool:
            removed = await remove_analyst(pool, role)
        what = "dropped" if removed.was_made else "no analyst any more"
        console.print(f"The role {role!r} is {what}.", markup=False)

    run_command(run)


@analysts.command(name="list")
def list_all(as_json: AsJson = False) -> None:
    """List the analysts of all projects: the database roles that can read them by SQL."""

    async def run(settings: Settings) -> None:
        async with _database(settings) as pool:
            analysts = await list_analysts(pool)
        if as_json:
            typer.echo(orjson.dumps([asdict(each) for each in analysts]).decode())
            return
        table = Table("role", "project", box=None)
        for each in analysts:
            table.add_row(each.role, each.project)
        Console(markup=False).print(table)

    run_command(run)


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SQL statement.")],
    project: Project = DEFAULT_PROJECT,
    as_json: AsJson = False,
) -> None:
    """Print what a query of one project's records returns. Views need no schema.

    A database role is created for this query, which can only read the project, and removed at its
    end.
    """

    async def run(settings: Settings) -> None:
        async with _temporary_analyst(settings, project) as new:
            columns, rows = await run_query(new.url, query)
        if as_json:
            found = [dict(zip(columns, row, strict=True)) for row in rows]
            typer.echo(orjson.dumps(found, default=str).decode())
        elif sys.stdout.isatty():
            table = Table(*map(shown, columns), box=None)
            for row in rows:
                table.add_row(*("" if each is None else shown(str(each)) for each in row))
            Console(markup=False).print(table)
        else:
            typer.echo("\t".join(map(shown, columns)))
            for row in rows:
                typer.echo("\t".join("" if each is None else shown(str(each)) for each in row))

    run_command(run)


def psql(
    project: Project = DEFAULT_PROJECT,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENTS]", help="Arguments of psql.")
    ] = None,
) -> None:
    """Open psql with read access to one project.

    A database role is created for this psql session, and removed at its end.
    """

    async def run(settings: Settings) -> None:
        async with _temporary_analyst(settings, project) as new:
            code = await _run_psql(new, arguments or [])
        if code:
            raise typer.Exit(code)

    run_command(run)


async def _run_psql(analyst: NewAnalyst, arguments: list[str]) -> int:
    """Run psql in the foreground and return its exit code."""
    # All users of the machine can read the arguments of a process, and not its environment.
    password = analyst.password or ""
    address = analyst.url.replace(f":{password}@", "@", 1)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # in psql, Ctrl-C cancels a query
    try:
        process = await asyncio.create_subprocess_exec(
            _psql(), address, *arguments, env={**os.environ, "PGPASSWORD": password}
        )
        return await process.wait()
    except FileNotFoundError as error:
        raise ConfigurationError("psql was not found. Install PostgreSQL's client.") from error
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _psql() -> str:
    """Return the command for psql. Without psql on the PATH, use the embedded Postgres's."""
    if shutil.which("psql") is None:
        with suppress(StoreUnavailable):
            return str(installed_programs() / "psql")
    return "psql"


@asynccontextmanager
async def _temporary_analyst(settings: Settings, project: str) -> AsyncIterator[NewAnalyst]:
    """Yield a role that reads a project, and remove it afterwards."""
    role = f"tracer_psql_{secrets.token_hex(4)}"
    async with _database(settings) as pool:
        new = await add_analyst(pool, role, project)
        try:
            yield new
        finally:
            await remove_analyst(pool, role)


@asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[Pool]:
    """Migrate the database, and open a pool of connections with the owner's rights."""
    async with db.database(settings) as url, open_pool(url) as pool:
        yield pool
