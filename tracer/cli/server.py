"""Load the parts of the `tracer` command that belong to the server, if the server is installed.

The server's package registers two entry points in the group `tracer.server`. `commands` is a
`typer.Typer` with the commands that `tracer/cli/names.py` lists. `launcher` is the function that
`tracer/cli/run.py` calls to run an application without a server of its own.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_group

from tracer.cli.terminal import console, report_errors
from tracer.errors import ConfigurationError
from tracer.settings import read_settings

GROUP = "tracer.server"

SERVING = ("serve", "demo")
"""The commands that start a server."""


class ServerCommand(TyperCommand):
    """A command whose code is loaded from the server's package when a user runs the command."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Load the server's command of the same name, and return the context of that command."""
        with report_errors():
            is_starting = self.name in SERVING and "--help" not in args
            commands = load_entry(f"`tracer {self.name}`", "commands", is_starting)
        command = get_group(commands).commands[str(self.name)]
        return command.make_context(info_name, args, parent, **extra)


def add_server_commands(commands: typer.Typer, names: dict[str, str]) -> None:
    """Add a `ServerCommand` for each name. `names` contains the help of each."""
    for name, text in names.items():
        commands.command(name=name, help=text, cls=ServerCommand)(lambda: None)


def load_entry(feature: str, name: str, is_starting: bool) -> Any:
    """Return the object that the server registers as the entry point `name`.

    Args:
        feature: The feature that needs the object.
        name: The entry point.
        is_starting: Whether a server starts. If this is the first start of the embedded Postgres,
            a line announces it, because the import alone takes seconds on a busy machine.

    Raises:
        ConfigurationError: The server is not installed. The message states that `feature` needs it.
    """
    missing = ""
    for entry in entry_points(group=GROUP, name=name):
        try:
            if is_starting:
                _announce_first_start()
            return entry.load()
        except ModuleNotFoundError as error:
            missing = f" ({error})"
    raise ConfigurationError(
        f"{feature} needs the server, which is not installed{missing}. Install it with "
        "`pip install 'tracer-lineage[server]'`."
    )


def _announce_first_start() -> None:
    from tracer.storage.embedded import is_prepared  # it needs packages of the server

    settings = read_settings()
    addresses = (settings.url, settings.database_url, settings.direct_database_url)
    if not any(addresses) and not is_prepared(settings.home):
        console.print("Preparing the embedded PostgreSQL, first start")
