"""An index that follows the database before each search, instead of in a projector."""

from __future__ import annotations

import contextlib
import shutil
import weakref
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from typing import Any
from unittest.mock import patch
from uuid import UUID

import tantivy

from tracer.search import Follower, Hit, Query, SearchDirectory, SearchIndex
from tracer.storage.postgres import connection_options, sync_connection
from tracer.storage.postgres.search_source import SearchSource


class IndexedFirst(SearchIndex):
    """`SearchIndex` over a directory of its own, for a server or a store in this process."""

    def __init__(self, options: Any) -> None:
        """Take the options of connections: `connection_options(url)`, or `pool.kwargs`."""
        home = mkdtemp(prefix="tracer-search-")
        weakref.finalize(self, shutil.rmtree, home, ignore_errors=True)
        self._followed = SearchDirectory(Path(home) / "index")
        super().__init__(self._followed)
        self._options = options
        self._following = Lock()

    def hits(self, *arguments: Any, **options: Any) -> list[Hit]:
        self.follow()
        return super().hits(*arguments, **options)

    def matching(self, query: Query, project_id: int, runs: Collection[UUID]) -> set[UUID]:
        return super().matching(query, project_id, runs)

    def follow(self) -> None:
        """Index all committed changes."""
        with self._following, sync_connection(self._options) as connection:
            catch_up(_AllRuns(connection), self._followed)


class _AllRuns(SearchSource):
    """The runs of all projects, also of those that a test did not create."""

    def projects(self) -> list[tuple[int, datetime | None, datetime]]:
        others = "SELECT DISTINCT project_id, NULL::timestamptz, statement_timestamp() FROM run"
        created = {each[0]: each for each in super().projects()}
        found = {each[0]: each for each in self._session.ask(others)}
        return [(*row,) for row in (found | created).values()]


def index_of(database_url: str) -> IndexedFirst:
    """Return an index of a database."""
    return IndexedFirst(connection_options(database_url))


def words_in(directory: SearchDirectory, prefix: str = "") -> list[str]:
    """Return the words in an index that begin with a text, those of deleted runs included."""
    searcher = tantivy.Index.open(str(directory.generation())).searcher()
    return [word for word, _ in searcher.terms_with_prefix("words", prefix)]


def catch_up(source: Any, directory: SearchDirectory) -> None:
    """Index all committed changes of a source."""
    with without_pauses(), contextlib.closing(Follower(source, directory)) as follower:
        while follower.step():
            pass


@contextlib.contextmanager
def without_pauses() -> Iterator[None]:
    """Make followers index and commit every change at once."""
    with (
        patch("tracer.search.follower.QUIET", timedelta(days=-1)),
        patch("tracer.search.follower.OPEN_PAUSE", timedelta(0)),
        patch("tracer.search.follower.COMMIT_SECONDS", 0.0),
        patch("tracer.search.follower.IDLE_SECONDS", 0.0),
    ):
        yield
