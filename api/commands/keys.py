"""The `tracer keys` and `tracer projects` commands, which connect to the database directly."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

import orjson
import typer
from rich.console import Console
from rich.table import Column, Table

from api.commands import database as db
from api.commands.database import KeyRing, database, key_ring
from tracer.cli.terminal import AsJson, Project, console, counted, run_command
from tracer.clock import utc_now
from tracer.errors import BadRequest
from tracer.records import DEFAULT_PROJECT
from tracer.records.access import ApiKey, ProjectSettings, Scope, SettingsChange
from tracer.records.masks import PayloadPolicy
from tracer.search import ProjectState
from tracer.settings import Settings

# --- The `tracer keys` commands, which manage the keys of all projects directly in the database.

keys = typer.Typer(name="keys", help="Create, list and revoke API keys.", no_args_is_help=True)


@keys.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The key's purpose.")],
    scopes: Annotated[
        list[Scope],
        typer.Option("--scope", help="A scope of the key; may be given several times."),
    ],
    project: Project = DEFAULT_PROJECT,
    is_confirmed: Annotated[
        bool,
        typer.Option("--yes", help="Do not ask if the first key closes projects that have runs."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it once. If the project does not exist, it is created.

    Once a server has its first key, it rejects requests without a key in every project.
    """
    must_ask = False
    warning = None

    async def run(settings: Settings) -> None:
        nonlocal must_ask, warning
        async with _key_ring(settings) as ring:
            if not must_ask:
                closed = await ring.closed_by_first_key(project)
                if closed is not None:
                    console.print(first_key_notice(closed), markup=False)
                    warning = unreadable_notice(project, scopes)
                must_ask = bool(closed) and not is_confirmed
                if must_ask:
                    _check_terminal()
                    return
            new = await (await ring.made(project)).create(name, scopes)
        if warning is not None:
            console.print(warning, style="yellow", markup=False)
        if as_json:
            _print_json({**_key_json(new.key), "secret": new.secret})
            return
        console.print(f"The key {new.key.name!r} of the project {new.key.project!r}:", markup=False)
        typer.echo(new.secret)
        console.print("The key is shown only once. Store it in a safe place.")

    run_command(run)
    if must_ask:  # outside of the event loop, so that Ctrl-C ends the question
        typer.confirm("Create the key?", abort=True, err=True)
        run_command(run)


@keys.command(name="list")
def list_keys(as_json: AsJson = False) -> None:
    """List the keys of all projects, including revoked ones."""

    async def run(settings: Settings) -> None:
        async with _key_ring(settings) as ring:
            api_keys = [key for each in await ring.all() for key in await each.list_keys()]
        if as_json:
            _print_json([_key_json(key) for key in api_keys])
            return
        headings = ("id", "project", "name", "scopes", "made", "last used", "revoked")
        table = Table(*(Column(each, no_wrap=True) for each in headings), box=None)
        for key in api_keys:
            moments = (key.created_at, key.last_used_at, key.revoked_at)
            times = ("" if at is None else f"{at:%Y-%m-%d %H:%M}" for at in moments)
            table.add_row(str(key.key_id), key.project, key.name, " ".join(key.scopes), *times)
        # A truncated id is useless, so the terminal may break the line instead.
        Console(markup=False, width=400).print(table)

    run_command(run)


@keys.command()
def revoke(
    key_id: Annotated[UUID, typer.Argument(metavar="KEY_ID", help="The key, as listed.")],
) -> None:
    """Revoke a key. Servers reject it within two seconds."""

    async def run(settings: Settings) -> None:
        async with _key_ring(settings) as ring:
            for each in await ring.all():
                if any(key.key_id == key_id for key in await each.list_keys()):
                    await each.revoke(key_id)
                    console.print("The key is revoked.")
                    return
        raise BadRequest(f"No key has the id '{key_id}'. List the keys: `tracer keys list`.")

    run_command(run)


def first_key_notice(closed: Sequence[str]) -> str:
    """Return a text that explains what the first key changes and what to do next.

    Args:
        closed: The projects that have runs but no key. After the first key of the server, nobody
            can use such a project until it has a key.
    """
    lines = [
        "This is the first key of the server. From now on, every request needs a key, in every "
        "project; a request without one gets 401. Sign in with a key in the viewer, and set "
        "TRACER_API_KEY for programs that record."
    ]
    if closed:
        lines.append(
            "These projects have runs and no key yet. They cannot be read or recorded to until "
            "each has one:"
        )
        lines += [f"  {_create_admin_key(each)}" for each in closed]
    return "\n".join(lines)


def unreadable_notice(project: str, scopes: Collection[Scope]) -> str | None:
    """Return a warning if a first key with these scopes cannot read; None if it can."""
    if Scope.READ in scopes or Scope.ADMIN in scopes:
        return None
    return (
        "This key cannot read, and the server has no other key: the viewer and the API now reject "
        f"every reader. Create a key that can read: {_create_admin_key(project)}"
    )


def _create_admin_key(project: str) -> str:
    return f"tracer keys create NAME --scope admin --project {shlex.quote(project)}"


def _check_terminal() -> None:
    if not sys.stdin.isatty():
        raise BadRequest(
            "The key was not created. After the first key is created, each project listed above "
            "needs a key of its own. To confirm this, run the command in a terminal or with --yes."
        )


@asynccontextmanager
async def _key_ring(settings: Settings) -> AsyncIterator[KeyRing]:
    async with database(settings) as url, key_ring(url) as ring:
        yield ring


def _key_json(key: ApiKey) -> dict[str, object]:
    return {
        "keyId": key.key_id,
        "project": key.project,
        "name": key.name,
        "scopes": key.scopes,
        "createdAt": key.created_at,
        "lastUsedAt": key.last_used_at,
        "revokedAt": key.revoked_at,
    }


def _print_json(value: object) -> None:
    typer.echo(orjson.dumps(value, option=orjson.OPT_UTC_Z).decode())


# --- The `tracer projects` commands, which connect to the database directly.

projects = typer.Typer(
    name="projects", help="Show and change how long projects store runs.", no_args_is_help=True
)

_FOR_EVER = "none"


@projects.command(name="list")
def list_projects(as_json: AsJson = False) -> None:
    """List the projects: their limits for runs, policies for payloads, and search indexes."""

    async def run(settings: Settings) -> None:
        async with db.database(settings) as url, db.project_settings(url) as projects:
            settings_by_name = {name: await each.read() for name, each in projects.items()}
            indexed = await db.search_states(settings, url)
        if as_json:
            _print_json(
                [
                    {"name": name, **_settings_json(each), **_search_json(indexed.get(name))}
                    for name, each in settings_by_name.items()
                ]
            )
            return
        headings = ("name", "keep days", "keep runs", "payloads", "search")
        table = Table(*(Column(each, no_wrap=True) for each in headings), box=None)
        for name, each in settings_by_name.items():
            limits = (each.keep_days, each.keep_runs)
            cells = (*(str(limit or _FOR_EVER) for limit in limits), each.payloads)
            table.add_row(name, *cells, _search_in_words(indexed.get(name)))
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


def _search_in_words(state: ProjectState | None) -> str:
    if state is None:
        return "no index on this machine"
    if state.before is not None:
        return f"{counted(state.to_index, 'run')} to index"
    return f"indexed up to {(utc_now() - state.up_to).total_seconds():,.0f} s ago"


def _search_json(state: ProjectState | None) -> dict[str, object]:
    is_built = state is not None and state.before is None
    return {
        "indexedUpTo": state.up_to if state and is_built else None,
        "runsToIndex": state and state.to_index,
    }


def _settings_json(settings: ProjectSettings) -> dict[str, object]:
    return {
        "keepDays": settings.keep_days,
        "keepRuns": settings.keep_runs,
        "payloads": settings.payloads,
    }


def _in_words(settings: ProjectSettings) -> str:
    days = "for ever" if settings.keep_days is None else f"for {settings.keep_days} days"
    runs = "" if settings.keep_runs is None else f", {settings.keep_runs} at most"
    return f"runs are kept {days}{runs}; payloads: {settings.payloads}."
