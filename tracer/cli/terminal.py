"""Helpers of all commands: the console for messages, exit codes and error messages."""

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

# Messages for people go to standard error, so that programs can parse standard output.
console = Console(stderr=True, highlight=False, soft_wrap=True)


def progress_bar() -> Progress:
    """Return a progress bar with a count of finished items and the elapsed time."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: "1 run", "1,024 runs"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


THREADS = 32
"""The size of the thread pool. Each Postgres connection uses a thread while it reads a large
result. With Python's default, six threads on two cores, such reads could block the redaction of all
large bodies."""

INTERRUPTED = 130
TERMINATED = 143
"""The exit code after SIGTERM. `INTERRUPTED` is the exit code after SIGINT. Shells use the same
codes."""


def run_command(
    run: Callable[[Settings], Coroutine[Any, Any, None]], terminated: int = TERMINATED
) -> None:
    """Run a command. A `TracerError` becomes one sentence on standard error and exit code 1.

    Args:
        run: The command's work.
        terminated: The exit code after SIGTERM: 0 for commands that run until they are stopped.
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
    """Print a `TracerError` as one sentence on standard error, and exit with its code."""
    try:
        yield
    except TracerError as error:
        console.print(f"tracer: {error}", style="red", markup=False)
        raise typer.Exit(error.exit_code) from None


async def _stoppable(work: Coroutine[Any, Any, None]) -> None:
    """Await `work`. SIGTERM cancels the work, as Ctrl-C does, so that it can clean up."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    loop.set_default_executor(ThreadPoolExecutor(THREADS, "tracer"))
    await work
