"""The spool: a SQLite file that holds events while the store does not answer.

SQLite because it is the best-kept library for what a spool has to be: atomic, fsynced, safe for
several processes, and whole again after `kill -9`. What a dead process left in the file is
drained by whoever opens it next.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID
from weakref import WeakSet

from pydantic import ValidationError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from tracer.events import EVENT, Event, event_json
from tracer.ids import DEFAULT_PROJECT_ID, IdSource, new_id
from tracer.logs import get_logger

log = get_logger(__name__)

Answer = TypeVar("Answer")

MAX_BYTES = 256 * 2**20
"""How large the spool's file may grow unless told otherwise."""

BATCH_BYTES = 8 * 2**20
"""How much `oldest` reads at once, a single larger event excepted."""

BUSY_SECONDS = 5.0
"""How long to wait for another process that writes to the same file, by default."""

_PAGE_BYTES = 4096

# Rows are told apart by an id of their own, not by rowid: those are used again once the table is
# empty, and another process may still hold one that it means to remove.
_SCHEMA = (
    f"PRAGMA page_size = {_PAGE_BYTES}",
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


@dataclass
class Appended:
    """What became of events that were given to the spool."""

    kept: list[UUID] = field(default_factory=list)
    """Their ids in the spool."""
    left_out: list[tuple[Event, Exception]] = field(default_factory=list)
    """Those that it has no room for, or that cannot be written down, and why."""


def spool_path(home: Path, store_url: str, project_id: int = DEFAULT_PROJECT_ID) -> Path:
    """Return the file that spools events for one store: never drained into another.

    Without user and password, so that events that wait are found again after those changed.
    """
    url = urlsplit(store_url)
    place = f"{url.netloc.rpartition('@')[2]}{url.path}?{url.query}"
    if project_id != DEFAULT_PROJECT_ID:
        place += f"#{project_id}"
    digest = hashlib.sha256(place.encode()).hexdigest()[:16]
    return home / "spool" / f"{digest}.sqlite3"


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
        ids: IdSource = new_id,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        """Name the file; nothing is opened yet.

        Args:
            path: The file; its directory is made when it is missing.
            max_bytes: How large the file may grow.
            ids: Names what is spooled.
            busy_seconds: How long to wait for another process that writes to the same file.
        """
        self._path = Path(path)
        self._max_pages = max(max_bytes // _PAGE_BYTES, 8)
        self._ids = ids
        self._busy_seconds = busy_seconds
        self._thread: ThreadPoolExecutor | None = None
        self._open: sqlite3.Connection | None = None
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
        """Forget what has these ids, and return how much that was: some may not be there."""
        return await self._call(lambda: self._remove(ids))

    def size(self) -> int:
        """Return how many bytes the file has, events that left it included."""
        with suppress(FileNotFoundError):
            return self._path.stat().st_size
        return 0

    async def count(self) -> int:
        """Return how many events are in the spool."""
        return await self._call(self._count)

    async def close(self) -> None:
        """Close the file; what is in it stays."""
        if self._thread is not None:
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
                if not _says_corrupted(error):
                    raise
                self._close()
                self._set_aside_if_corrupted()
                return work()

    def _append(self, events: Sequence[Event]) -> Appended:
        try:
            return Appended(kept=self._insert(events))
        except sqlite3.Error as error:
            if not _says_full(error):
                raise
        except ValueError:
            pass  # one of them cannot be written as JSON
        appended = Appended()
        for event in events:
            try:
                appended.kept += self._insert([event])
            except (sqlite3.Error, ValueError) as error:
                if isinstance(error, sqlite3.Error) and not _says_full(error):
                    raise
                appended.left_out.append((event, error))
        return appended

    def _insert(self, events: Sequence[Event]) -> list[UUID]:
        rows = [(self._ids(), event_json(event)) for event in events]
        with self._database() as database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany(
                "INSERT INTO event (id, body) VALUES (?, ?)",
                [(spool_id.bytes, body) for spool_id, body in rows],
            )
        return [spool_id for spool_id, _ in rows]

    def _oldest(self, limit: int, skip: int) -> list[tuple[UUID, Event | None]]:
        found: list[tuple[UUID, Event | None]] = []
        size = 0
        rows = self._database().execute(
            "SELECT id, body FROM event ORDER BY place LIMIT ? OFFSET ?", (limit, skip)
        )
        for spool_id, body in rows:
            found.append((UUID(bytes=spool_id), _event(body)))
            size += len(body)
            if size >= BATCH_BYTES:
                break
        rows.close()
        return found

    def _count(self) -> int:
        count: int = _one(self._database(), "SELECT count(*) FROM event")
        return count

    def _remove(self, ids: Sequence[UUID]) -> int:
        with self._database() as database:
            database.execute("BEGIN IMMEDIATE")
            removed = database.executemany(
                "DELETE FROM event WHERE id = ?", [(each.bytes,) for each in ids]
            )
            return max(removed.rowcount, 0)  # -1 where there were no ids

    def _database(self) -> sqlite3.Connection:
        if self._open is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._path.exists():
                # SQLite would make it readable to all; its side files take over this mode.
                self._path.touch(mode=0o600)
            bound = f"PRAGMA max_page_count = {self._max_pages}"
            # SQLite does not wait by itself while another process turns a new file to WAL.
            patiently = Retrying(
                retry=retry_if_exception(_says_busy),
                wait=wait_random(0.001, 0.02),
                stop=stop_after_delay(self._busy_seconds),
                reraise=True,
            )
            self._open = patiently(self._connect, (*_SCHEMA, bound))
        return self._open

    def _connect(self, statements: Sequence[str]) -> sqlite3.Connection:
        database = sqlite3.connect(
            self._path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
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
                if _one(database, "PRAGMA quick_check") == "ok":
                    return
            finally:
                database.close()
        aside = self._path.with_name(f"{self._path.name}.corrupted-{self._ids()}")
        log.error("spool_corrupted", path=str(self._path), moved_to=str(aside))
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.replace(f"{self._path}{suffix}", f"{aside}{suffix}")


def _one(database: sqlite3.Connection, query: str) -> Any:
    return database.execute(query).fetchone()[0]


def _event(body: bytes) -> Event | None:
    try:
        return EVENT.validate_json(body)
    except ValidationError:
        return None


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; errors of the Python module have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _says_busy(error: BaseException) -> bool:
    return isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_BUSY


def _says_full(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG)


def _says_corrupted(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


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
