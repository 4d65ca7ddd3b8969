"""The spool: an SQLite file that holds events while the store does not answer.

SQLite is atomic, fsynced, safe for several processes, and consistent after `kill -9`. If a process
dies, the next process that opens the file sends its events.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit
from uuid import UUID
from weakref import WeakSet

from pydantic import ValidationError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from tracer.clock import utc_now
from tracer.errors import BadRequest
from tracer.logs import get_logger
from tracer.records import DEFAULT_PROJECT_ID, IdSource, new_id
from tracer.records.events import EVENT, Event, event_json

# --- Spool files on this machine: their names, destinations and content.
#
# A spool belongs to one destination and one key. The server derives the project of events from the
# key, so waiting events are never sent with another key, except by `tracer spool send`.

log = get_logger(__name__)

DIRECTORY = "spool"
"""The directory of the spool files in `TRACER_HOME`."""

_SUFFIX = ".sqlite3"
_SIDE_FILES = ("-wal", "-shm")


class SpoolInUse(BadRequest):
    """Another process has this spool open. Stop that process and run the command again."""


def spool_failure(path: Path, location: str) -> str:
    """Return why a spool cannot be used, and what to do if its directory cannot be written.

    Args:
        path: The spool's file.
        location: The error, as `error_location` returns it.
    """
    existing = next(each for each in (path, *path.parents) if os.path.exists(each))
    if os.access(existing, os.W_OK, effective_ids=True):
        return location
    user = os.geteuid()
    return (
        f"{existing} cannot be written by the user {user}. Set TRACER_HOME to a directory that the "
        f"user may write, or give it to the user: `chown -R {user} {existing}`, or in Kubernetes "
        f"`fsGroup` ({location})"
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


Answer = TypeVar("Answer")

MAX_BYTES = 256 * 2**20
"""The largest size of a spool's file, by default."""

BATCH_BYTES = 8 * 2**20
"""After how many bytes `oldest` reads no further event."""

BUSY_SECONDS = 5.0
"""How many seconds to wait for another process that writes to the same file, by default."""

PAGE_BYTES = 4096
"""The size of a page of the file."""

RESERVE_BYTES = 2**20
"""How much of the disk `append` leaves free, because SQLite needs space to remove events."""

# Rows have ids of their own. SQLite reuses a rowid once the table is empty, while another
# process may still be about to remove the old row.
_SCHEMA = (
    f"PRAGMA page_size = {PAGE_BYTES}",
    "PRAGMA auto_vacuum = FULL",
    "PRAGMA journal_mode = WAL",
    "PRAGMA journal_size_limit = 4194304",
    "PRAGMA synchronous = FULL",
    "PRAGMA secure_delete = ON",
    "CREATE TABLE IF NOT EXISTS event ("
    " place INTEGER PRIMARY KEY,"
    " id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),"
    " body BLOB NOT NULL)",
)

_DESTINATION_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS destination ("
    " address TEXT NOT NULL, has_key INTEGER NOT NULL, created_at TEXT NOT NULL)"
)


@dataclass
class Appended:
    """The result of `Spool.append`."""

    ids: list[UUID] = field(default_factory=list)
    """The ids of the appended events in the spool."""
    rejected: list[tuple[Event, Exception]] = field(default_factory=list)
    """Events that do not fit or cannot be serialised, each with the error."""


class SpoolFull(Exception):
    """The spool has no space left. The message contains the reason."""


def spool_for(
    home: Path,
    store_url: str,
    *,
    api_key: str | None = None,
    project_id: int = DEFAULT_PROJECT_ID,
) -> Spool:
    """Return the spool of one destination; see `spool_path`."""
    return Spool(
        spool_path(home, store_url, project_id, api_key),
        destination=Destination(address_of(store_url, project_id), bool(api_key)),
    )


def no_spool() -> Spool:
    """Return a spool that is empty and cannot be written, for stores that never fail."""
    return Spool(Path(os.devnull, "spool"))


_spools: WeakSet[Spool] = WeakSet()


class Spool:
    """A bounded queue of events on disk.

    The file is opened at the first use, and again after `close`. Blocking work runs in a thread of
    the spool's own, because tools that wait for the spool may occupy the event loop's threads.

    Each method raises `sqlite3.Error` or `OSError` if the disk fails.
    """

    def __init__(
        self,
        path: Path | str,
        max_bytes: int = MAX_BYTES,
        *,
        destination: Destination | None = None,
        ids: IdSource = new_id,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        """Create a spool, without opening the file yet.

        Args:
            path: The file. Its directory is created if it is missing.
            max_bytes: The largest size of the file.
            destination: The destination of the events, stored in the file for `tracer spool`.
            ids: Mints the ids of events in the spool.
            busy_seconds: How long to wait for another process that writes to the same file.
        """
        self.path = Path(path)
        self.destination = destination
        self._max_pages = max(max_bytes // PAGE_BYTES, 8)
        self._ids = ids
        self._busy_seconds = busy_seconds
        self._thread: ThreadPoolExecutor | None = None
        self._open: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        _spools.add(self)

    async def append(self, events: Sequence[Event]) -> Appended:
        """Append events. They are on disk when this returns.

        If they do not all fit, as many as possible are appended.
        """
        return await self._call(lambda: self._append(events))

    async def oldest(self, limit: int, skip: int = 0) -> list[tuple[UUID, Event | None]]:
        """Return the oldest events with their ids, at most `limit` and about `BATCH_BYTES`.

        Args:
            limit: The largest number of events.
            skip: How many of the oldest events to skip.

        Returns:
            Pairs of id and event. The event is None if it cannot be read any more.
        """
        return await self._call(lambda: self._oldest(limit, skip))

    async def remove(self, ids: Sequence[UUID]) -> int:
        """Remove events, and return how many of them were in the spool."""
        return await self._call(lambda: self._remove(ids))

    async def find_others(self) -> list[SpoolFile]:
        """Return the other spool files that contain events for this spool's address.

        These events were recorded with another key. Files that a process has open are omitted,
        because that process sends their events.
        """
        return await self._call(self._find_others)

    async def count(self) -> int:
        """Return how many events are in the spool."""
        return await self._call(self._count)

    async def close(self) -> None:
        """Close the file. Its events stay."""
        if self._thread is not None:
            await self._call(self._close)
            self._thread.shutdown(wait=False)
            self._thread = None

    async def _call(self, work: Callable[[], Answer]) -> Answer:
        """Run `work` in the spool's thread. If the caller is cancelled, `work` continues."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="tracer-spool")
        loop = asyncio.get_running_loop()
        try:
            done = loop.run_in_executor(self._thread, self._run_locked, work)
        except RuntimeError:  # the interpreter shuts down, and executors accept no more work
            return self._run_locked(work)
        return await asyncio.shield(done)

    def _run_locked(self, work: Callable[[], Answer]) -> Answer:
        """Run `work`. If the file is corrupted, set it aside and run `work` on a new file."""
        with self._lock:
            try:
                return work()
            except sqlite3.DatabaseError as error:
                if not is_corrupted(error):
                    raise
                self._close()
                self._set_aside_if_corrupted()
                return work()

    def _append(self, events: Sequence[Event]) -> Appended:
        try:
            return Appended(ids=self._insert(events))
        except (sqlite3.Error, SpoolFull) as error:
            if not _is_full(error):
                raise
        except ValueError:
            pass  # one of them cannot be written as JSON
        appended = Appended()
        for event in events:
            try:
                appended.ids += self._insert([event])
            except (SpoolFull, ValueError) as error:
                appended.rejected.append((event, error))
            except sqlite3.Error as error:
                if not _is_full(error):
                    raise
                appended.rejected.append((event, SpoolFull("the spool has reached its size limit")))
        return appended

    def _insert(self, events: Sequence[Event]) -> list[UUID]:
        rows = [(self._ids(), event_json(event)) for event in events]
        with self._database() as database:
            self._check_disk(sum(len(body) for _, body in rows))
            database.execute("BEGIN IMMEDIATE")
            database.executemany(
                "INSERT INTO event (id, body) VALUES (?, ?)",
                [(spool_id.bytes, body) for spool_id, body in rows],
            )
        return [spool_id for spool_id, _ in rows]

    def _check_disk(self, size: int) -> None:
        """Raise `SpoolFull` if writing `size` more bytes would leave too little free disk space."""
        disk = os.statvfs(self.path.parent)
        # 0 blocks: some network file systems do not report. Twice: SQLite writes WAL and file.
        if disk.f_blocks and disk.f_bavail * disk.f_frsize < RESERVE_BYTES + 2 * size:
            raise SpoolFull("the disk is full")

    def _oldest(self, limit: int, skip: int) -> list[tuple[UUID, Event | None]]:
        events: list[tuple[UUID, Event | None]] = []
        if self._is_missing():
            return events
        query = "SELECT id, body FROM event ORDER BY place LIMIT ? OFFSET ?"
        size = 0
        with closing(self._database().execute(query, (limit, skip))) as rows:
            for spool_id, body in rows:
                events.append((UUID(bytes=spool_id), _event(body)))
                size += len(body)
                if size >= BATCH_BYTES:
                    break
        return events

    def _count(self) -> int:
        if self._is_missing():
            return 0
        count: int = self._database().execute("SELECT count(*) FROM event").fetchone()[0]
        return count

    def _is_missing(self) -> bool:
        """Return whether the file does not exist, so that methods that read do not create it."""
        return self._open is None and not self.path.exists()

    def _remove(self, ids: Sequence[UUID]) -> int:
        with self._database() as database:
            database.execute("BEGIN IMMEDIATE")
            rows = database.executemany(
                "DELETE FROM event WHERE id = ?", [(each.bytes,) for each in ids]
            ).rowcount
        return max(rows, 0)  # SQLite returns -1 for an empty list

    def _find_others(self) -> list[SpoolFile]:
        if self.destination is None or not is_http(self.destination.address):
            return []
        return [
            each
            for each in list_spool_files(self.path.parent.parent, but=self.path)
            if each.events
            and not each.is_open
            and each.destination is not None
            and each.destination.address == self.destination.address
        ]

    def _database(self) -> sqlite3.Connection:
        while self._open is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.path.exists():
                # SQLite would make it readable by everyone. Its side files get the same mode.
                self.path.touch(mode=0o600)
            if os.path.exists(f"{self.path}-wal"):
                # A process was killed or has the file open. Opening it exclusively reports damage.
                with suppress(SpoolInUse), opened_exclusively(self.path):
                    pass
            file = _identity(self.path)
            # SQLite's own timeout does not cover another process that switches a new file to WAL.
            patiently = Retrying(
                retry=retry_if_exception(is_busy),
                wait=wait_random(0.001, 0.02),
                stop=stop_after_delay(self._busy_seconds),
                reraise=True,
            )
            size_limit = f"PRAGMA max_page_count = {self._max_pages}"
            database = patiently(self._connect, (*_SCHEMA, size_limit))
            if _identity(self.path) != file:
                database.close()  # another process deleted the file before SQLite locked it
                continue
            self._open = database
            self._store_destination(database)
        return self._open

    def _store_destination(self, database: sqlite3.Connection) -> None:
        if self.destination is None:
            return
        with suppress(sqlite3.OperationalError):  # on a full disk, events are more important
            database.execute(_DESTINATION_SCHEMA)
            if database.execute("SELECT 1 FROM destination").fetchone() is None:
                database.execute(
                    "INSERT INTO destination (address, has_key, created_at) VALUES (?, ?, ?)",
                    (
                        self.destination.address,
                        self.destination.has_key,
                        utc_now().isoformat(timespec="seconds"),
                    ),
                )

    def _connect(self, statements: Sequence[str]) -> sqlite3.Connection:
        database = sqlite3.connect(
            self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            for statement in statements:
                database.execute(statement)
        except BaseException:
            database.close()
            raise
        return database

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def hold(self) -> None:
        """Close the file, and keep it closed until `release` is called."""
        self._lock.acquire()
        with suppress(sqlite3.Error):
            self._close()

    def release(self) -> None:
        """End `hold`: the next call may open the file again."""
        self._lock.release()

    def _set_aside_if_corrupted(self) -> None:
        """Move a corrupted file away.

        It is checked again first: another process may have replaced it.
        """
        with suppress(sqlite3.DatabaseError):
            database = self._connect(())
            try:
                if database.execute("PRAGMA quick_check").fetchone()[0] == "ok":
                    return
            finally:
                database.close()
        aside = self.path.with_name(f"{self.path.name}.corrupted-{self._ids()}")
        log.error("spool_corrupted", path=str(self.path), moved_to=str(aside))
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.replace(f"{self.path}{suffix}", f"{aside}{suffix}")


def _event(body: bytes) -> Event | None:
    try:
        return EVENT.validate_json(body)
    except ValidationError:
        return None


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, which differ for another file with the same name."""
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def _is_full(error: Exception) -> bool:
    return isinstance(error, SpoolFull) or (
        isinstance(error, sqlite3.Error)
        and getattr(error, "sqlite_errorcode", 0) & 0xFF
        in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG)
    )


_held_spools: list[Spool] = []


def _hold_all() -> None:
    for spool in list(_spools):
        spool.hold()
        _held_spools.append(spool)


def _release_all() -> None:
    while _held_spools:
        _held_spools.pop().release()


# An open SQLite file must not be inherited by a forked process, which would consider the parent's
# POSIX locks to be its own.
os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)
