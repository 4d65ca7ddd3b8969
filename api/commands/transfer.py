"""The `tracer export` and `tracer import` commands."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, BinaryIO
from uuid import UUID

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from api.freshness import FRESH_SECONDS
from tracer import assembly
from tracer.assembly import Stores
from tracer.cli.terminal import Project, console, run_command
from tracer.errors import BadRequest
from tracer.records.ids import DEFAULT_PROJECT
from tracer.records.record_classes import Kind
from tracer.settings import Settings
from tracer.transfer.exporting import Format, exported
from tracer.transfer.files import Piece, pieces
from tracer.transfer.importing import Imported, Importer

STANDARD_INPUT = "-"


def export_run(
    root_plan_id: Annotated[
        UUID, typer.Argument(metavar="ROOT_PLAN_ID", help="The id of the run's root plan.")
    ],
    wanted: Annotated[
        Format,
        typer.Option("--format", help="JSON lines with all fields, or OpenTelemetry's protobuf."),
    ] = Format.JSONL,
    output: Annotated[
        Path | None, typer.Option(help="The file to write; standard output if omitted.")
    ] = None,
    project: Project = DEFAULT_PROJECT,
) -> None:
    """Export a complete run. `tracer import` restores it."""

    async def run(settings: Settings) -> None:
        if output is None and wanted is Format.OTLP and sys.stdout.isatty():
            raise BadRequest(
                "OTLP is binary, and the output is a terminal. Pass --output FILE, or pipe the "
                "output to a program."
            )
        async with _stores(settings, project) as stores:
            behind = await stores.projection.catch_up(Kind.RUN, root_plan_id, seconds=FRESH_SECONDS)
            whole = await stores.reader.read_whole_run(root_plan_id)
        if behind is not None:
            reason = behind.error or "no projector has read them yet"
            console.print(
                f"The records in this file lack {behind.spans} of its spans: {reason}.",
                style="red",
                markup=False,
            )
        with _written_to(output) as file:
            file.writelines(exported(whole, wanted))

    run_command(run)


def import_files(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files to read; - is standard input.")
    ],
    project: Project = DEFAULT_PROJECT,
) -> None:
    """Import runs from files that contain JSON lines or OTLP. Files may be compressed with gzip.

    Imported records are merged with stored ones, so importing a file again changes nothing.
    """

    async def run(settings: Settings) -> None:
        imported = Imported()
        with ExitStack() as stack:
            opened = [stack.enter_context(_read_from(path)) for path in files]
            async with _stores(settings, project) as stores:
                with _progress() as progress:
                    for path, file in zip(files, opened, strict=True):
                        read = _counted(progress, path, file)
                        await Importer(stores.writer, imported).take(read)
        _tell(imported)

    run_command(run)


@asynccontextmanager
async def _stores(settings: Settings, project: str) -> AsyncIterator[Stores]:
    async with (
        assembly.database(settings) as url,
        assembly.stores(settings, url, project) as stores,
        assembly.projecting(url),
    ):
        yield stores


@contextmanager
def _written_to(path: Path | None) -> Iterator[BinaryIO]:
    """Open the file at `path` for writing; standard output if `path` is None."""
    try:
        if path is None:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        else:
            with path.open("wb") as file:
                yield file
    except BrokenPipeError:
        # The reader closed the pipe. Python would fail again at exit, when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as error:
        raise BadRequest(f"Can't write {path}: {error.strerror}.") from error


@contextmanager
def _read_from(path: Path) -> Iterator[BinaryIO]:
    """Open the file at `path` for reading; standard input if `path` is `-`."""
    if str(path) == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise BadRequest(f"Can't read {path}: {error.strerror}.") from error
    with file:
        yield file


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console)


def _counted(progress: Progress, path: Path, file: BinaryIO) -> Iterable[Piece]:
    """Yield the chunks of a file, and show how much of the file has been read."""
    is_sized = str(path) != STANDARD_INPUT and path.is_file()
    shown = progress.add_task(path.name, total=path.stat().st_size if is_sized else None)
    read = 0
    for piece in pieces(file):
        read += piece.size
        progress.update(shown, completed=file.tell() if is_sized else read)
        yield replace(piece, location=f"{path.name}, {piece.location}")
    progress.update(shown, completed=file.tell() if is_sized else read)


def _tell(imported: Imported) -> None:
    """Print how many runs, records and spans were stored, and how many items were rejected.

    Raises:
        typer.Exit: At least one item was rejected.
    """
    for reason in imported.reasons:
        console.print(reason, style="red", markup=False)
    left_out = imported.refused - len(imported.reasons)
    if left_out:
        console.print(f"And {left_out} more.", style="red")
    console.print(
        f"Runs: {len(imported.runs)}, records: {imported.records}, spans: {imported.spans},"
        f" rejected: {imported.refused}."
    )
    if imported.refused:
        raise typer.Exit(1)
