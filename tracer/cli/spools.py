"""The `tracer spool` commands: list, send and delete events that wait on this machine."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.table import Column, Table

from tracer.cli.terminal import AsJson, console, counted, run_command
from tracer.errors import BadRequest, ConfigurationError, StoreUnavailable
from tracer.recorder import BATCH_EVENTS, RecorderCounts, Spool
from tracer.recorder.spool import (
    DIRECTORY,
    SpoolFile,
    SpoolInUse,
    address_of,
    delete_spool_file,
    is_http,
    list_spool_files,
    read_spool_file,
    spool_path,
)
from tracer.settings import Settings
from tracer.storage.http import HttpWriter

spool = typer.Typer(
    name="spool",
    help="List, send or delete events that wait on this machine.",
    no_args_is_help=True,
)

File = Annotated[
    str, typer.Argument(metavar="FILE", help="The name in `tracer spool list`, or a path.")
]


@spool.command(name="list")
def list_spools(as_json: AsJson = False) -> None:
    """List the spool files in TRACER_HOME."""

    async def run(settings: Settings) -> None:
        spools = [_spool_fields(each, settings) for each in list_spool_files(settings.home)]
        if as_json:
            typer.echo(orjson.dumps(spools, option=orjson.OPT_UTC_Z).decode())
            return
        if not spools:
            console.print(f"There are no spool files in {settings.home / DIRECTORY}.", markup=False)
            return
        console.print(f"Spool files in {settings.home / DIRECTORY}:", markup=False)
        headings = ("file", "address", "key", "events", "oldest", "size", "open")
        table = Table(*(Column(each, no_wrap=True) for each in headings), box=None)
        for each in spools:
            oldest = each["oldest"]
            table.add_row(
                str(each["file"]),
                str(each["address"] or "unknown"),
                str(each["key"] or ""),
                str(each["events"]),
                "" if oldest is None else f"{oldest:%Y-%m-%d %H:%M}",
                f"{each['bytes']:,} B",
                "yes" if each["isOpen"] else "no",
            )
        Console(markup=False, width=400).print(table)

    run_command(run)


@spool.command()
def send(file: File) -> None:
    """Send a file's events to its address with the key in TRACER_API_KEY.

    The events are stored in the project of this key, even if they were recorded with a key of
    another project.
    """

    async def run(settings: Settings) -> None:
        counts = await _send_spool(settings, _path(settings, file))
        console.print(f"Sent {counted(counts.stored, 'event')}.", markup=False)
        if counts.refused:
            console.print(f"{counts.refused} were rejected by the server: see the lines above.")
        if counts.dropped:
            console.print(f"{counts.dropped} could not be read and were removed.")

    run_command(run)


@spool.command()
def discard(
    file: File, is_confirmed: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False
) -> None:
    """Delete a file with all events in it."""

    async def run(settings: Settings) -> None:
        path = _path(settings, file)
        events = read_spool_file(path).events
        if not is_confirmed:
            typer.confirm(f"Delete {path} with {counted(events, 'event')}?", abort=True, err=True)
        delete_spool_file(path)
        console.print(f"Deleted {counted(events, 'event')}.", markup=False)

    run_command(run)


def _path(settings: Settings, file: str) -> Path:
    listed = settings.home / DIRECTORY / file
    return listed if listed.exists() else Path(file)


def _spool_fields(file: SpoolFile, settings: Settings) -> dict[str, object]:
    return {
        "file": file.path.name,
        "address": file.destination and file.destination.address,
        "key": _key(file, settings),
        "events": file.events,
        "oldest": file.oldest,
        "bytes": file.size,
        "isOpen": file.is_open,
    }


def _key(file: SpoolFile, settings: Settings) -> str | None:
    """Return which key the events of a spool file were recorded with.

    Returns:
        `TRACER_API_KEY` for the configured key, `another` for another key, `none` for no key, or
        `unknown`. None if the events go to a database, which needs no key.
    """
    if file.destination is None:
        return "unknown"
    if not is_http(file.destination.address):
        return None
    if not file.destination.has_key:
        return "none"
    key = None if settings.api_key is None else settings.api_key.get_secret_value()
    current = spool_path(settings.home, file.destination.address, api_key=key)
    return "TRACER_API_KEY" if current.name == file.path.name else "another"


async def _send_spool(settings: Settings, path: Path) -> RecorderCounts:
    """Send a spool file's events to its address with the configured key, and delete the file.

    As in a recorder, events that the server rejects are logged and removed.

    Args:
        settings: Contains the key. If the settings name an address, it must be that of the file.
        path: The file.

    Raises:
        BadRequest: The file is no spool for a server, or a process has it open.
        ConfigurationError: The file's address differs from `TRACER_URL`.
        StoreUnavailable: The server cannot be used. The rest of the events stays in the file.
    """
    file = read_spool_file(path)
    if file.is_open:
        raise SpoolInUse()
    address = _address_to_send_to(file, settings)
    key = None if settings.api_key is None else settings.api_key.get_secret_value()
    spool, counts = Spool(path), RecorderCounts()
    async with aclosing(HttpWriter(address, key, redaction=settings.redaction)) as writer:
        try:
            while held := await spool.oldest(BATCH_EVENTS):
                events = [event for _, event in held if event is not None]
                counts.note_answer(events, await writer.write(events))
                counts.dropped += len(held) - len(events)
                await spool.remove([spool_id for spool_id, _ in held])
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"{counted(await spool.count(), 'event')} not sent; they stay in {path}. {error}"
            ) from error
        finally:
            await spool.close()
    delete_spool_file(path, is_empty=True)
    return counts


def _address_to_send_to(file: SpoolFile, settings: Settings) -> str:
    address = file.destination.address if file.destination is not None else "an unknown store"
    if not is_http(address):
        raise BadRequest(
            f"The events in {file.path} belong to {address}, but `tracer spool send` sends to "
            "servers only. Start a program that records into this database. The program then "
            "stores the events."
        )
    configured = settings.url and address_of(settings.url)
    if configured not in (None, address):
        # The key must not be sent to another server.
        raise ConfigurationError(
            f"The events in {file.path} belong to {address}, and TRACER_URL is {configured}. "
            f"Set TRACER_URL to {address} and TRACER_API_KEY to a key of that server."
        )
    return address
