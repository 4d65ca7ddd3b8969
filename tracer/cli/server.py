"""Load the parts of the `tracer` command that belong to the server, if the server is installed.

The server's package registers two entry points in the group `tracer.server`. `commands` is a
`typer.Typer` with the commands that `tracer/cli/names.py` lists. `launcher` is the function that
`server_launcher` calls.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand
from typer.main import get_group

from tracer.cli.terminal import report_errors
from tracer.errors import ConfigurationError

if TYPE_CHECKING:  # they need the extra `runtime`
    from tracer.runtime.application import Application
    from tracer.runtime.launcher import RunLauncher
    from tracer.settings import Settings

GROUP = "tracer.server"


class ServerCommand(TyperCommand):
    """A command whose code is loaded from the server's package when a user runs the command."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Load the server's command of the same name, and return the context of that command."""
        with report_errors():
            commands = _load(f"`tracer {self.name}`", "commands")
        command = get_group(commands).commands[str(self.name)]
        return command.make_context(info_name, args, parent, **extra)


def add_server_commands(commands: typer.Typer, names: dict[str, str]) -> None:
    """Add a `ServerCommand` for each name. `names` contains the help of each."""
    for name, text in names.items():
        commands.command(name=name, help=text, cls=ServerCommand)(lambda: None)


def server_launcher(
    settings: Settings, application: Application, project: str
) -> AbstractAsyncContextManager[RunLauncher]:
    """Return a launcher that records to a server in this process.

    Raises:
        ConfigurationError: The server is not installed.
    """
    open_launcher = _load("`tracer run` without TRACER_URL", "launcher")
    launcher: AbstractAsyncContextManager[RunLauncher] = open_launcher(
        settings, application, project
    )
    return launcher


def _load(feature: str, name: str) -> Any:
    """Return the object that the server registers as the entry point `name`.

    Raises:
        ConfigurationError: The server is not installed. The message states that `feature` needs it.
    """
    missing = ""
    for entry in entry_points(group=GROUP, name=name):
        try:
            return entry.load()
        except ModuleNotFoundError as error:
            missing = f" ({error})"
    raise ConfigurationError(
        f"{feature} needs the server, which is not installed{missing}. Install it with "
        "`pip install 'tracer-lineage[server]'`."
    )
