"""The command `tracer search rebuild`, which uses the database and the search directory."""

from __future__ import annotations

import asyncio
from contextlib import closing

import typer

from api.commands import database as db
from tracer.cli.terminal import console, counted, run_command
from tracer.errors import ConfigurationError
from tracer.search import Follower
from tracer.settings import Settings
from tracer.storage.postgres import connection_options, sync_connection
from tracer.storage.postgres.search_source import SearchSource

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
        path = settings.search_directory
        if path is None:
            raise ConfigurationError("There is no index to build: TRACER_SEARCH_DIR is off.")
        async with db.database(settings, migrated=False) as url:
            with sync_connection(connection_options(url)) as connection:
                source = SearchSource(connection)
                directory = source.directory(path)
                directory.rebuild.touch()
                try:
                    with (
                        closing(Follower(source, directory)) as follower,
                        console.status("Building the index …") as status,
                    ):
                        while directory.rebuild.exists():
                            # Not in a thread: Ctrl-C arrives between two steps, which are short.
                            await asyncio.sleep(0 if follower.step() else _PAUSE_SECONDS)
                            status.update(f"Indexed {counted(follower.indexed, 'run')} …")
                finally:
                    directory.rebuild.unlink(missing_ok=True)
        console.print("The search index was built.")

    run_command(run)
