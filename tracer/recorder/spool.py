"""The spool: a SQLite file that holds events while the store does not answer.

SQLite because it is the best-kept library for what a spool has to be: atomic, fsynced, safe for
several processes, and whole again after `kill -9`. Events that a dead process left in the file are
sent by the next process that opens it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar
from uuid import UUID
from weakref import WeakSet

from pydantic import ValidationError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from tracer.clock import utc_now
from tracer.logs import get_logger
from tracer.recorder.spool_files import (
    Destination,
    SpoolFile,
    SpoolInUse,
    address_of,
    earlier_spool_path,
    is_busy,
    is_corrupted,
    is_http,
    list_spool_files,
    opened_exclusively,
    spool_path,
    unlink,
)
from tracer.recorder.write_ahead_log import PAGE_BYTES
from tracer.records.events import EVENT, Event, event_json
from tracer.records.ids import DEFAULT_PROJECT_ID, IdSource, new_id

log = get_logger(__name__)

Answer = TypeVar("Answer")

MAX_BYTES = 256 * 2**20
"""How large the spool's file may grow unless told otherwise."""

BATCH_BYTES = 8 * 2**20
"""How much `oldest` reads at once, a single larger event excepted."""

BUSY_SECONDS = 5.0
"""How long to wait for another process that writes to the same file, by default."""

RESERVE_BYTES = 2**20
"""How much of the disk appending leaves free: SQLite needs room to remove events."""

# Rows are told apart by an id of their own, not by rowid: those are used again once the table is
# empty, and another process may still hold one that it means to remove.
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
    """What became of events that were given to the spool."""

    kept: list[UUID] = field(default_factory=list)
    """Their ids in the spool."""
    left_out: list[tuple[Event, Exception]] = field(default_factory=list)
    """Those that it has no room for, or that cannot be written down, and why."""


class SpoolFull(Exception):
    """The spool has no room. The message contains the reason."""


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


_spools: WeakSet[Spool] = WeakSet()


class Spool:
    """A bounded queue of events on disk.

    The file is opened at the first use, and again after `close`. Its blocking work is done by a
    thread of its own: the event loop's threads may all be taken by tools that wait for us.

    Each method raises `sqlite3.Error` or `OSError` when the disk fails it.
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
        """Name the file; nothing is opened yet.

        Args:
            path: The file; its directory is made when it is missing.
            max_bytes: How large the file may grow.
            destination: The destination of the events, stored in the file for `tracer spool`.
            ids: Names what is spooled.
            busy_seconds: How long to wait for another process that writes to the same file.
        """
        self.path = Path(path)
        self.destination = destination
        self._max_pages = max(max_bytes // PAGE_BYTES, 8)
        self._ids = ids
        self._busy_seconds = busy_seconds
        self._thread: ThreadPoolExecutor | None = None
        self._open: sqlite3.Connection | None = None
        self._delivered: set[UUID] = set()
        """Removed events whose rows could not be deleted, on a full disk for example."""
        self._in_use = threading.Lock()
        _spools.add(self)

    async def append(self, events: Sequence[Event]) -> Appended:
        """Keep `events`; those kept are on disk when this returns.

        Where there is no room for all of them, as many as fit are kept.
        """
        return await self._call(lambda: self._append(events))

    async def oldest(self, limit: int, skip: int = 0) -> list[tuple[UUID, Event | None]]:
        """Return the oldest events with their ids, at most `limit` and about `BATCH_BYTES`.

        Args:
            limit: How many at most.
            skip: How many of the very oldest to pass over.

        Returns:
            Pairs of id and event; None stands for what cannot be read as an event any more.
        """
        return await self._call(lambda: self._oldest(limit, skip))

    async def remove(self, ids: Sequence[UUID]) -> int:
        """Remove events, and return how many of them were in the spool.

        If the disk fails the removal, on a full one for example, this object remembers the ids and
        never returns the events again. When all events are removed, it deletes the file, which
        needs no space. If the process ends before, the next one sends those events again.
        """
        return await self._call(lambda: self._remove(ids))

    async def find_others(self) -> list[SpoolFile]:
        """Return the spools of the same address and another key that hold events.

        Spools that a process has open are left out: that process sends their events.
        """
        return await self._call(self._find_others)

    def size(self) -> int:
        """Return how many bytes the file has, events that left it included."""
        with suppress(FileNotFoundError):
            return self.path.stat().st_size
        return 0

    async def count(self) -> int:
        """Return how many events are in the spool."""
        return await self._call(self._count)

    async def close(self) -> None:
        """Close the file; what is in it stays."""
        if self._thread is not None:
            await self._call(self._delete_delivered)
            await self._call(self._close)
            self._thread.shutdown(wait=False)
            self._thread = None

    async def _call(self, work: Callable[[], Answer]) -> Answer:
        """Do `work` in the spool's thread, on a sound file; cancelling does not stop it."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="tracer-spool")
        loop = asyncio.get_running_loop()
        try:
            done = loop.run_in_executor(self._thread, self._soundly, work)
        except RuntimeError:  # the interpreter ends: executors take nothing more
            return self._soundly(work)
        return await asyncio.shield(done)

    def _soundly(self, work: Callable[[], Answer]) -> Answer:
        with self._in_use:
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
            return Appended(kept=self._insert(events))
        except (sqlite3.Error, SpoolFull) as error:
            if not _means_full(error):
                raise
        except ValueError:
            pass  # one of them cannot be written as JSON
        appended = Appended()
        for event in events:
            try:
                appended.kept += self._insert([event])
            except (SpoolFull, ValueError) as error:
                appended.left_out.append((event, error))
            except sqlite3.Error as error:
                if not _means_full(error):
                    raise
                appended.left_out.append((event, SpoolFull("the spool has reached its bound")))
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
        """Raise `SpoolFull` if `size` more bytes would leave less than the reserve."""
        disk = os.statvfs(self.path.parent)
        # Some network file systems report 0 blocks. Twice: the log, then the file.
        if disk.f_blocks and disk.f_bavail * disk.f_frsize < RESERVE_BYTES + 2 * size:
            raise SpoolFull("the disk is full")

    def _oldest(self, limit: int, skip: int) -> list[tuple[UUID, Event | None]]:
        found: list[tuple[UUID, Event | None]] = []
        size = 0
        for place, spool_id in list(islice(self._waiting(), skip, skip + limit)):
            row = self._database().execute("SELECT body FROM event WHERE place = ?", (place,))
            for (body,) in row.fetchall():  # none if another process removed it meanwhile
                found.append((spool_id, _event(body)))
                size += len(body)
            if size >= BATCH_BYTES:
                break
        return found

    def _waiting(self) -> Iterator[tuple[int, UUID]]:
        """Yield the place and the id of the events that are not removed, oldest first."""
        if self._is_missing():
            return
        # Without the bodies, which may have gigabytes if many rows are skipped.
        rows = self._database().execute("SELECT place, id FROM event ORDER BY place")
        with closing(rows):
            for place, spool_id in rows:
                if (each := UUID(bytes=spool_id)) not in self._delivered:
                    yield place, each

    def _count(self) -> int:
        if self._delivered or self._is_missing():
            return sum(1 for _ in self._waiting())
        count: int = self._database().execute("SELECT count(*) FROM event").fetchone()[0]
        return count

    def _is_missing(self) -> bool:
        """Return whether the file does not exist. Reading does not create it."""
        return self._open is None and not self.path.exists()

    def _remove(self, ids: Sequence[UUID]) -> int:
        ids = [each for each in ids if each not in self._delivered]
        try:
            return self._delete(ids)
        except sqlite3.Error as error:
            if is_corrupted(error):
                raise
            problem = str(error)
        # Not in the handler: the error's frames refer to cursors, which keep the file open.
        if not self._delivered:
            log.warning(
                "spool_not_writable",
                path=str(self.path),
                problem=problem,
                what_to_do="Make room on the disk. Events are sent all the same. If this process "
                "ends before its spool is empty, some are sent a second time.",
            )
        try:
            removed = set(ids).intersection(spool_id for _, spool_id in self._waiting())
        finally:
            self._delivered.update(ids)
        if self._count() == 0:
            self._delete_file()
        return len(removed)

    def _delete(self, ids: Sequence[UUID]) -> int:
        with self._database() as database:
            database.execute("BEGIN IMMEDIATE")
            rows = database.executemany(
                "DELETE FROM event WHERE id = ?", [(each.bytes,) for each in ids]
            ).rowcount
        return max(rows, 0)  # SQLite returns -1 for an empty list

    def _delete_delivered(self) -> None:
        """Delete the rows of removed events that could not be deleted before, if that works now."""
        if self._delivered and not self._is_missing():
            with suppress(sqlite3.Error):
                self._delete(list(self._delivered))
                self._delivered.clear()

    def _delete_file(self) -> None:
        """Delete the file, unless it holds more than removed events or another process has it."""
        self._close()
        with suppress(SpoolInUse, OSError), opened_exclusively(self.path) as database:
            rows = database.execute("SELECT id FROM event").fetchall()
            if all(UUID(bytes=spool_id) in self._delivered for (spool_id,) in rows):
                unlink(self.path)
                self._delivered.clear()

    def _find_others(self) -> list[SpoolFile]:
        if self.destination is None or not is_http(self.destination.address):
            return []
        home = self.path.parent.parent
        earlier = earlier_spool_path(home, self.destination.address)
        return [
            each
            for each in list_spool_files(home, but=self.path)
            if each.events
            and not each.is_open
            and (
                each.path == earlier
                if each.destination is None
                else each.destination.address == self.destination.address
            )
        ]

    def _database(self) -> sqlite3.Connection:
        while self._open is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.path.exists():
                # SQLite would make it readable to all; its side files take over this mode.
                self.path.touch(mode=0o600)
            if os.path.exists(f"{self.path}-wal"):
                # A process was killed, or has the file open. Opening it once reports damage.
                with suppress(SpoolInUse), opened_exclusively(self.path):
                    pass
            file = _identity(self.path)
            # SQLite does not wait by itself while another process turns a new file to WAL.
            patiently = Retrying(
                retry=retry_if_exception(is_busy),
                wait=wait_random(0.001, 0.02),
                stop=stop_after_delay(self._busy_seconds),
                reraise=True,
            )
            bound = f"PRAGMA max_page_count = {self._max_pages}"
            database = patiently(self._connect, (*_SCHEMA, bound))
            if _identity(self.path) != file:
                database.close()  # another process deleted the file before SQLite locked it
                continue
            self._open = database
            self._state_destination(database)
        return self._open

    def _state_destination(self, database: sqlite3.Connection) -> None:
        if self.destination is None:
            return
        with suppress(sqlite3.OperationalError):  # on a full disk: the events come first
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
        """Close the file, and let nobody open it until `release`."""
        self._in_use.acquire()
        with suppress(sqlite3.Error):
            self._close()

    def release(self) -> None:
        """Let the file be opened again."""
        self._in_use.release()

    def _set_aside_if_corrupted(self) -> None:
        """Look again before a file is moved: another process may have put a sound one there."""
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
    """Return what distinguishes a file from another one with the same name."""
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def _means_full(error: Exception) -> bool:
    return isinstance(error, SpoolFull) or (
        isinstance(error, sqlite3.Error)
        and getattr(error, "sqlite_errorcode", 0) & 0xFF
        in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG)
    )


_held: list[Spool] = []


def _hold_all() -> None:
    for spool in list(_spools):
        spool.hold()
        _held.append(spool)


def _release_all() -> None:
    while _held:
        _held.pop().release()


# SQLite must not be carried into a forked process, where it believes the locks to be its own that
# the other process holds.
os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)
