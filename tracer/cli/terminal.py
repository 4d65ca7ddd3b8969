"""What all commands have in common: where they say things, and how they end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tracer.errors import TracerError
from tracer.logs import configure_logs
from tracer.settings import Settings, read_settings

Project = Annotated[str, typer.Option(help="The project.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

# What a program reads goes to standard output, what a person reads beside it to standard error.
said = Console(stderr=True, highlight=False, soft_wrap=True)


def progress_bar() -> Progress:
    """Return a bar for work in known pieces, with the time that it has taken."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=said)


THREADS = 32
"""How many there may be beside the event loop. Each connection to Postgres takes one while it reads
something large; with Python's own number, six on two cores, those could keep all large bodies
from being masked."""

INTERRUPTED = 130
TERMINATED = 143
"""What shells say of a program that Ctrl-C or a polite kill ended before its work was done."""


def carry_out(
    run: Callable[[Settings], Coroutine[Any, Any, None]], terminated: int = TERMINATED
) -> None:
    """Carry out a command; an error that is ours becomes one sentence and exit code 1.

    Args:
        run: What the command does.
        terminated: The exit code where a polite kill ends it: 0 for what goes on until then.
    """
    try:
        with report_errors():
            settings = read_settings()
            configure_logs()
            asyncio.run(_stoppable(run(settings)))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except asyncio.CancelledError:
        raise typer.Exit(terminated) from None


@contextmanager
def report_errors() -> Iterator[None]:
    """Turn an error of ours into one sentence on standard error, and exit code 1."""
    try:
        yield
    except TracerError as error:
        said.print(f"tracer: {error}", style="red", markup=False)
        raise typer.Exit(1) from None


async def _stoppable(work: Coroutine[Any, Any, None]) -> None:
    """Do `work`; a polite kill ends it as Ctrl-C does: by cancelling it, so that it tidies up."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    loop.set_default_executor(ThreadPoolExecutor(THREADS, "tracer"))
    await work
