"""The server's part of the `tracer` command, found through the entry points `tracer.server`.

`commands` is a `typer.Typer` with the commands of `SERVER_COMMANDS`. `launcher` runs an application
in a server of this process (`Launcher`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import entry_points
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_group

from tracer.cli.terminal import report_errors
from tracer.errors import ConfigurationError
from tracer.runtime.application import Application
from tracer.runtime.launcher import RunLauncher
from tracer.settings import Settings

GROUP = "tracer.server"

SERVER_COMMANDS = {
    "export": "Write a run, whole: `tracer import` brings it back.",
    "import": "Read runs from files of JSON lines or OTLP, packed with gzip or not.",
    "prune": "Delete the runs that projects do not keep any longer. Servers do so by themselves.",
    "erase": "Delete a run, or all runs of a subject, with everything below; count what is left.",
    "pack-spans": (
        "Move spans that earlier versions stored into compressed blocks. Servers do so, too."
    ),
    "reproject": "Derive the records of runs from their spans again, as the current version does.",
    "psql": "Open psql as an analyst of a project.",
    "serve": "Serve the API and the viewer.",
    "demo": "Record a run of the demonstration application, and show it in the viewer.",
    "migrate": "Bring the database's schema up to date.",
}
SERVER_GROUPS = {
    "keys": "Make, list and revoke the keys that let in.",
    "analysts": "Let database roles read a project by SQL, and nothing else.",
    "projects": "Say what projects keep, and for how long.",
}
"""The first sentences of the commands' help, so that `tracer --help` works without the server."""

Launcher = Callable[[Settings, Application, str], AbstractAsyncContextManager[RunLauncher]]
"""Takes settings, the application to run, and the project that its runs belong to."""


class ServerCommand(TyperCommand):
    """A command that is loaded from the server's package when it is called."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Parse the arguments as the server's command does, which then takes this one's place."""
        with report_errors():
            commands = load(f"`tracer {self.name}`", "commands")
        command = get_group(commands).commands[str(self.name)]
        return command.make_context(info_name, args, parent, **extra)


def add_server_commands(commands: typer.Typer, names: dict[str, str]) -> None:
    """Add a `ServerCommand` for each name. `names` contains the help of each."""
    for name, text in names.items():
        commands.command(name=name, help=text, cls=ServerCommand)(lambda: None)


def load(what: str, name: str) -> Any:
    """Return what the server registers as `name`.

    Raises:
        ConfigurationError: The server is not installed, which `what` needs.
    """
    missing = ""
    for entry in entry_points(group=GROUP, name=name):
        try:
            return entry.load()
        except ModuleNotFoundError as error:
            missing = f" ({error})"
    raise ConfigurationError(
        f"{what} needs the server, which is not installed{missing}. Install it with "
        "`pip install 'tracer-lineage[server]'`."
    )
