"""The `tracer` command."""

from __future__ import annotations

import os
import sys
import threading
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from tracer.cli.check import check
from tracer.cli.doctor import doctor
from tracer.cli.names import COMMANDS, SERVER_COMMANDS, SERVER_GROUPS
from tracer.cli.questions import mcp, question_command, tail
from tracer.cli.run import run_request
from tracer.cli.server import add_server_commands
from tracer.cli.setup import setup
from tracer.cli.spools import spool
from tracer.cli.terminal import console
from tracer.cli.transfer import export_run, import_files

commands = typer.Typer(
    name="tracer",
    help="Records what an LLM agent did, and which tool call opened which sub-plan.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# In the order of `tracer --help`.
commands.command(name="export")(export_run)
commands.command(name="import")(import_files)
for question in ("list", "show", "why", "record", "diff", "stats"):
    commands.command(name=question, help=COMMANDS[question])(question_command(question))
commands.command(name="tail")(tail)
commands.command(name="mcp")(mcp)
commands.command(name="check")(check)
commands.command(name="setup")(setup)
add_server_commands(commands, SERVER_COMMANDS)
commands.command(name="run")(run_request)
commands.command(name="doctor")(doctor)
add_server_commands(commands, SERVER_GROUPS)
commands.add_typer(spool)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(version("tracer-lineage"))
        raise typer.Exit


@commands.callback()
def tracer(
    is_requested: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Handle the options that precede a command."""


def run() -> None:
    """Run the command."""
    try:
        commands()
    except SystemExit as end:
        _leave(end.code)


def _leave(code: str | int | None) -> NoReturn:
    """End the process, even if threads of tools are still running.

    Python cannot stop a thread, and `sys.exit` would wait for these threads.
    """
    current = threading.current_thread()
    running = [each for each in threading.enumerate() if each is not current and not each.daemon]
    if not running:
        sys.exit(code)
    names = ", ".join(each.name for each in running)
    console.print(f"Exiting while threads still run, such as tool calls that timed out: {names}.")
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else code is not None)
