"""The command `tracer search rebuild`, which uses the database and the search directory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import typer

from api.commands import database as db
from tracer.cli.terminal import console, counted, run_command
from tracer.errors import ConfigurationError
from tracer.search import Follower
from tracer.settings import Settings
from tracer.storage.postgres import connection_options, sync_connection
from tracer.storage.postgres.search_source import SearchSource, directory_of

search = typer.Typer(name="search", help="Manage the search index.", no_args_is_help=True)

_PAUSE_SECONDS = 0.2


@search.callback()
def _group() -> None:
    """Manage the search index."""


@search.command()
def rebuild() -> None:
    """Build the search index of this machine again, and replace the old one.

    Searches use the old index meanwhile. If a projector of this machine has the index, it does the
    work, and this command waits.
    """

    async def run(settings: Settings) -> None:
        directory = settings.search_directory
        if directory is None:
            raise ConfigurationError("There is no index to build: TRACER_SEARCH_DIR is off.")
        async with db.database(settings, migrated=False) as url:
            with console.status("Building the index …") as status:
                await asyncio.to_thread(_rebuild, url, directory, status.update)
        console.print("The search index was built.")

    run_command(run)


def _rebuild(url: str, path: Path, report: Callable[[str], None]) -> None:
    with sync_connection(connection_options(url)) as connection:
        source = SearchSource(connection)
        directory = directory_of(path, source.identity())
        directory.request_rebuild()
        with closing(Follower(source, directory)) as follower:
            while directory.is_rebuild_requested():
                if not follower.step():
                    time.sleep(_PAUSE_SECONDS)
                report(f"Indexed {counted(follower.indexed, 'run')} …")
