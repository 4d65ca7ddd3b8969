"""Spool files on this machine: their names, destinations and content.

A spool belongs to one destination and one key. The server derives the project of events from the
key, so waiting events are never sent with another key, except by `tracer spool send`.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from tracer.errors import BadRequest
from tracer.logs import get_logger
from tracer.records.ids import DEFAULT_PROJECT_ID

log = get_logger(__name__)

DIRECTORY = "spool"
"""The directory of the spool files in `TRACER_HOME`."""

_SUFFIX = ".sqlite3"
_SIDE_FILES = ("-wal", "-shm")


class SpoolInUse(BadRequest):
    """Another process has this spool open. Stop that process and run the command again."""


def spool_failure(path: Path, place: str) -> str:
    """Return why a spool cannot be used, and what to do if its directory cannot be written.

    Args:
        path: The spool's file.
        place: The error, as `error_location` returns it.
    """
    existing = next(each for each in (path, *path.parents) if os.path.exists(each))
    if os.access(existing, os.W_OK, effective_ids=True):
        return place
    user = os.geteuid()
    return (
        f"{existing} cannot be written by the user {user}. Set TRACER_HOME to a directory that the "
        f"user may write, or give it to the user: `chown -R {user} {existing}`, or in Kubernetes "
        f"`fsGroup` ({place})"
    )


@dataclass(frozen=True)
class Destination:
    """The destination of a spool's events, without password and key."""

    address: str
    has_key: bool


@dataclass(frozen=True)
class SpoolFile:
    """A spool file and its content."""

    path: Path
    destination: Destination | None
    """None if a `Spool` without destination wrote the file."""
    events: int
    oldest: datetime | None
    """When the oldest event was spooled; None if the spool is empty."""
    size: int
    """The size of the file and its write-ahead log in bytes."""
    is_open: bool
    """Whether a process has the file open."""


def is_http(url: str) -> bool:
    """Return whether a store's URL is that of a tracer server."""
    return urlsplit(url).scheme.lower() in ("http", "https")


def address_of(url: str, project_id: int = DEFAULT_PROJECT_ID) -> str:
    """Return a store's address for logs and lists, without user, password and parameters."""
    parts = urlsplit(url)
    scheme, host = parts.scheme.lower(), parts.netloc.rpartition("@")[2].lower()
    address = f"{scheme}://{host}{parts.path.rstrip('/')}"
    if is_http(url):
        return address
    if not host:  # a database's host may be a parameter, a socket's directory for example
        address += "".join(f"?host={each}" for each in parse_qs(parts.query).get("host", ())[:1])
    return address if project_id == DEFAULT_PROJECT_ID else f"{address} (project {project_id})"


def spool_path(
    home: Path,
    store_url: str,
    project_id: int = DEFAULT_PROJECT_ID,
    api_key: str | None = None,
) -> Path:
    """Return the spool file of one destination.

    For a server, the name depends on the address and the key. For a database it depends on the
    project and the address, but not on user and password, which may change.

    Args:
        home: `TRACER_HOME`.
        store_url: The address of a server or a database.
        project_id: The project in a database.
        api_key: The key that is sent to a server.
    """
    if not is_http(store_url):
        return _path_without_key(home, store_url, project_id)
    # A plain SHA-256 is enough: a key has 256 random bits, so it cannot be guessed.
    return _path(home, f"{address_of(store_url)}\0{api_key or ''}")


def _path_without_key(home: Path, url: str, project_id: int) -> Path:
    parts = urlsplit(url)
    name = f"{parts.netloc.rpartition('@')[2]}{parts.path}?{parts.query}"
    return _path(home, name if project_id == DEFAULT_PROJECT_ID else f"{name}#{project_id}")


def _path(home: Path, name: str) -> Path:
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return home / DIRECTORY / f"{digest}{_SUFFIX}"


@contextmanager
def opened_exclusively(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a spool file that no other connection has open, and keep other connections out.

    Raises:
        SpoolInUse: A process has the file open.
        sqlite3.DatabaseError: The file is not an SQLite database.
    """
    database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    with closing(database):
        try:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("BEGIN EXCLUSIVE")
            database.execute("ROLLBACK")  # the lock stays
        except sqlite3.OperationalError as error:
            if is_busy(error):
                raise SpoolInUse() from error
            raise
        yield database


def is_busy(error: BaseException) -> bool:
    """Return whether SQLite reports that another connection holds a lock."""
    return isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_BUSY


def is_corrupted(error: BaseException) -> bool:
    """Return whether SQLite reports that a file is damaged or is not a database."""
    return isinstance(error, sqlite3.Error) and _code(error) in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    )


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; errors of the Python module have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def list_spool_files(home: Path, but: Path | None = None) -> list[SpoolFile]:
    """Return the spool files in `TRACER_HOME`, except the file `but`.

    Other kinds of files are ignored.
    """
    files = []
    for path in sorted((home / DIRECTORY).glob(f"*{_SUFFIX}")):
        if path != but:
            with suppress(BadRequest):
                files.append(read_spool_file(path))
    return files


def read_spool_file(path: Path) -> SpoolFile:
    """Return the content of a spool file.

    Raises:
        BadRequest: The file does not exist, or is not a spool.
    """
    if not path.is_file():
        raise BadRequest(f"There is no spool file {str(path)!r}. See `tracer spool list`.")
    try:
        try:
            with opened_exclusively(path) as database:
                return _read(path, database, is_open=False)
        except SpoolInUse:
            read_only = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            with closing(read_only) as database:
                return _read(path, database, is_open=True)
    except sqlite3.Error as error:
        raise BadRequest(f"{str(path)!r} cannot be read as a spool: {error}.") from error


def _read(path: Path, database: sqlite3.Connection, *, is_open: bool) -> SpoolFile:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema")}
    if "event" not in tables:
        raise BadRequest(f"{str(path)!r} is not a spool: it has no table `event`.")
    destination = None
    if "destination" in tables:
        row = database.execute("SELECT address, has_key FROM destination").fetchone()
        destination = row and Destination(row[0], bool(row[1]))
    events: int = _one(database, "SELECT count(*) FROM event")
    oldest = _one(database, "SELECT id FROM event ORDER BY place LIMIT 1")
    size = 0
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            size += Path(f"{path}{suffix}").stat().st_size
    return SpoolFile(path, destination, events, oldest and _time_of(oldest), size, is_open)


def _one(database: sqlite3.Connection, query: str) -> Any:
    row = database.execute(query).fetchone()
    return None if row is None else row[0]


def _time_of(spool_id: bytes) -> datetime:
    """Return the time in a UUIDv7 (RFC 9562): milliseconds in the first 48 bits."""
    return datetime.fromtimestamp((UUID(bytes=spool_id).int >> 80) / 1000, UTC)


def delete_spool_file(path: Path, *, is_empty: bool = False) -> None:
    """Delete a spool file with all events in it. Do nothing if it does not exist.

    Args:
        path: The file.
        is_empty: Whether to delete it only if it contains no events.

    Raises:
        SpoolInUse: A process has the file open.
        BadRequest: The file is not a spool.
    """
    if path.exists():
        with opened_exclusively(path) as database:
            if not is_empty or _read(path, database, is_open=False).events == 0:
                unlink(path)


def unlink(path: Path) -> None:
    """Remove a spool file that is opened exclusively, and its side files."""
    # The file first: SQLite ignores a WAL without its file, but not a file without its WAL.
    for suffix in ("", *_SIDE_FILES):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
