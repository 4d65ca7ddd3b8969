"""The index: a directory of Tantivy's, with one document for each run.

The directory of a database has *generations*, each of which is a whole index with a state, and the
file `current`, which names the one that readers use. A new generation is built next to it and then
named there. Everything in the directory is derived from Postgres.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import IO, Literal, NamedTuple
from uuid import UUID

import tantivy
from pydantic import BaseModel
from tantivy import FieldType, Occur

from tracer.clock import utc_now
from tracer.errors import BadRequest, SearchOff
from tracer.records import new_id
from tracer.search.queries import Query, Term
from tracer.search.words import words_of

WHOLE, OPEN = "whole", "status=open"
"""Terms of documents that a filter must not exclude, because the database decides: runs of a piece
of work with several runs, and runs that were open when they were indexed."""
CUT = "cut"
"""A term of documents that lack words, because a text or all texts of the run are too long."""

_MOST_TERM_CHARACTERS = 200
_WRITER_BYTES = 30_000_000
_MOST_REVISIONS = 50_000
_SCHEMA = (
    tantivy.SchemaBuilder()
    .add_text_field("words", tokenizer_name="whitespace", index_option="position")
    .add_text_field("run", stored=True, tokenizer_name="raw", index_option="basic")
    .add_text_field("term", tokenizer_name="raw", index_option="basic")
    .add_unsigned_field("order", fast=True)
    .add_unsigned_field("revision", stored=True)
    .build()
)


def term(name: str, value: object) -> str:
    """Return the term of a field by which documents are filtered."""
    return f"{name}={str(value)[:_MOST_TERM_CHARACTERS]}"


@dataclass(frozen=True)
class RunDocument:
    """What the index has of a run."""

    project_id: int
    run_id: UUID
    revision: int
    start: datetime
    terms: Collection[str]
    texts: Iterable[str]
    """Plain texts. A phrase is within one of them."""


class Hit(NamedTuple):
    """A run that contains the words of a query."""

    start: datetime
    run_id: UUID

    @property
    def order(self) -> int:
        """The number by which hits are sorted: the start, then a part of the id.

        A part suffices: it makes it rare that many hits have the same number.
        """
        return _order(self.start) + (self.run_id.int & ((1 << _ID_BITS) - 1))


_ID_BITS = 12
_SLICES = (1, 30, 900, 27_000, 810_000, 2**40)
"""The minutes before the latest run that are searched one after another, until a page is full: the
library examines all that match, even for a few of them."""
_MOST_EQUAL = 64
"""How many hits may have the same number. Pages are exact as long as there are no more."""
_EPOCH, _MOST = datetime(1970, 1, 1, tzinfo=UTC), 2**64 - 1


def _order(start: datetime) -> int:
    """Return the least number of hits with a start. Those after 2112 have equal ones."""
    microseconds = (start - _EPOCH) // timedelta(microseconds=1)
    return min(max(0, microseconds), _MOST >> _ID_BITS) << _ID_BITS


def _key(project_id: int, run_id: UUID) -> str:
    return f"{project_id}:{run_id}"


# --- The files.


class ProjectState(BaseModel):
    """How far the runs of a project are indexed."""

    followed_to: datetime
    """All changes up to this time were read."""
    up_to: datetime
    """All changes of ended runs up to this time are indexed."""
    before: tuple[datetime, UUID] | None
    """The start and the id before which runs were not read yet; None if all were read."""
    indexed: int = 0
    """How many of the runs that existed before the index were read."""
    to_index: int
    """How many others of them there are."""
    latest: datetime = _EPOCH
    """The latest start of a run that was indexed."""


class IndexState(BaseModel):
    """How far an index is complete. It is written after each commit, so it may be older."""

    version: Literal[2] = 2
    """To be raised with each change of the words or of the documents. The index is then rebuilt."""
    began_at: datetime
    projects: dict[int, ProjectState] = {}

    @property
    def is_complete(self) -> bool:
        """Whether all runs that existed when the index was begun are in it."""
        return all(each.before is None for each in self.projects.values())

    @property
    def up_to(self) -> datetime:
        """All changes of ended runs up to this time are indexed, in all projects."""
        return min((each.up_to for each in self.projects.values()), default=self.began_at)

    @classmethod
    def read(cls, generation: Path) -> IndexState:
        """Return the state of a generation.

        Raises:
            OSError: It has none.
            ValueError: It is damaged, or of another version.
        """
        return cls.model_validate_json((generation / "state.json").read_bytes())

    def write(self, generation: Path) -> None:
        """Replace the state of a generation."""
        _replace(generation / "state.json", self.model_dump_json())


def _replace(path: Path, content: str) -> None:
    temporary = path.with_name(f"{path.name}.{new_id().hex}")
    temporary.write_text(content)
    temporary.replace(path)


@dataclass(frozen=True)
class SearchDirectory:
    """The directory of one database's indexes."""

    path: Path

    def generation(self) -> Path | None:
        """Return the directory of the index that readers use; None if there is none."""
        with suppress(OSError, UnicodeDecodeError):
            name = (self.path / "current").read_text()
            if name.isalnum() and (self.path / name).is_dir():
                return self.path / name
        return None

    def state(self) -> IndexState | None:
        """Return how far the index that readers use is complete; None if there is none."""
        with suppress(OSError, ValueError):
            return IndexState.read(self.generation() or self.path)
        return None

    def begin(self, now: datetime) -> Path:
        """Create the directory of a new index.

        Raises:
            OSError: The directory cannot be written.
        """
        generation = self.path / new_id().hex
        generation.mkdir(mode=0o700)
        IndexState(began_at=now).write(generation)
        return generation

    def use(self, generation: Path) -> None:
        """Make readers use a generation, and delete all others. The caller has the lock."""
        _replace(self.path / "current", generation.name)
        for each in self.path.iterdir():
            if each.is_dir() and each != generation:
                shutil.rmtree(each, ignore_errors=True)

    def lock(self) -> IO[str] | None:
        """Lock the directory for writing until the result is closed; None: another process has it.

        Raises:
            OSError: The directory cannot be written.
        """
        file = self._created("lock").open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    @property
    def rebuild(self) -> Path:
        """A file that exists if the process that has the lock is to build a new index."""
        return self._created("rebuild")

    def _created(self, name: str) -> Path:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self.path / name

    def size(self) -> int:
        """Return how many bytes the files have."""
        total = 0
        for each in self.path.rglob("*"):
            with suppress(OSError):
                total += each.stat().st_size
        return total


# --- Writing.


class IndexWriter:
    """Writes one generation. Only one process can."""

    def __init__(self, generation: Path) -> None:
        """Open the generation, and create the index if it has none.

        Raises:
            ValueError: Another writer has it, or its files are damaged.
        """
        self._index = tantivy.Index(_SCHEMA, path=str(generation))
        self._index.config_reader("manual")
        self._writer = self._index.writer(_WRITER_BYTES, 1)
        self._index.reload()
        self._revisions: dict[str, int | None] = {}
        self.has_changes = False

    def revision(self, project_id: int, run_id: UUID) -> int | None:
        """Return the revision of a run's document, uncommitted ones included; None: none."""
        key = _key(project_id, run_id)
        if key not in self._revisions:
            searcher = self._index.searcher()
            hits = searcher.search(_term("run", key), 1, count=False).hits
            self._revisions[key] = searcher.doc(hits[0][1])["revision"][0] if hits else None
        return self._revisions[key]

    def write(self, document: RunDocument) -> None:
        """Add the document of a run, and remove its earlier one."""
        self.remove(document.project_id, document.run_id)
        key = _key(document.project_id, document.run_id)
        added = tantivy.Document()
        added.add_text("run", key)
        for each in {*document.terms, term("project", document.project_id)}:
            added.add_text("term", each)
        for text in document.texts:
            added.add_text("words", words_of(text))
        added.add_unsigned("order", Hit(document.start, document.run_id).order)
        added.add_unsigned("revision", document.revision)
        self._writer.add_document(added)
        self._revisions[key] = document.revision

    def remove(self, project_id: int, run_id: UUID) -> None:
        """Remove the document of a run, if there is one."""
        key = _key(project_id, run_id)
        self._writer.delete_documents_by_term("run", key)
        self._revisions[key] = None
        self.has_changes = True

    def commit(self) -> None:
        """Make the changes durable and visible."""
        self._writer.commit()
        self._index.reload()
        self.has_changes = False
        if len(self._revisions) > _MOST_REVISIONS:
            self._revisions.clear()

    def close(self) -> None:
        """Give up what is not committed, and release the index."""
        with suppress(OSError, ValueError):
            self._writer.rollback()
            self._writer.wait_merging_threads()
        del self._writer


# --- Reading.


class SearchIndex:
    """Answers queries from the current generation of a directory. Any number of threads can."""

    def __init__(self, directory: SearchDirectory | None) -> None:
        """Set the directory; None: this server has no index."""
        self.directory = directory
        self._lock = Lock()
        self._index: tantivy.Index | None = None
        self._loaded: tuple[Path, int, int] | None = None

    def up_to(self, project_id: int) -> datetime | None:
        """Return the time up to which all changes of a project are known; None: not known."""
        project = self._state(project_id)
        return None if project is None or project.before is not None else project.up_to

    def _state(self, project_id: int) -> ProjectState | None:
        state = self.directory and self.directory.state()
        return state.projects.get(project_id) if state else None

    def hits(
        self,
        query: Query,
        project_id: int,
        limit: int,
        *,
        after: Hit | None = None,
        filters: Mapping[str, Sequence[str]] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[Hit]:
        """Return the runs that match, latest start first.

        Args:
            query: The words.
            project_id: The project.
            limit: The most hits.
            after: The last hit of the page before.
            filters: For each criterion the terms of which a document has one. Documents that the
                database must decide on match, too.
            since: The earliest start.
            until: The start of the first run that is too late.

        Raises:
            SearchOff: This server has no index.
            BadRequest: The query matches too many words.
        """
        wanted = [_matching(query, project_id)]
        for terms in (filters or {}).values():
            wanted.append(_terms("term", [*terms, WHOLE]))
        if since is not None or until is not None:
            starts = _range(_order(since or _EPOCH), _order(until) if until else _MOST)
            either = [(Occur.Should, each) for each in (starts, _term("term", WHOLE))]
            wanted.append(tantivy.Query.boolean_query(either))
        end = _MOST if after is None else min(after.order + 1, _MOST)
        state = self._state(project_id)
        latest = min(end, _order(min(state.latest, utc_now()) if state else _EPOCH))
        found: list[Hit] = []
        for minutes in _SLICES:
            begin = max(0, latest - (minutes * 60_000_000 << _ID_BITS))
            hits = self._search([*wanted, _range(begin, end)], limit + _MOST_EQUAL)
            found += [hit for hit in hits if after is None or _place(hit) < _place(after)]
            if len(found) >= limit:
                break
            end = begin
        return found[:limit]

    def matching(self, query: Query, project_id: int, runs: Collection[UUID]) -> set[UUID]:
        """Return those of `runs` that match."""
        among = _terms("run", [_key(project_id, each) for each in runs])
        found = self._search([_matching(query, project_id), among], len(runs) or 1)
        return {hit.run_id for hit in found}

    def is_cut(self, project_id: int, runs: Collection[UUID]) -> bool:
        """Return whether the index lacks words of one of `runs`, because its texts are too long."""
        among = _terms("run", [_key(project_id, each) for each in runs])
        with suppress(SearchOff):
            return bool(self._search([among, _term("term", CUT)], 1))
        return False

    def _search(self, wanted: Iterable[tantivy.Query], limit: int) -> list[Hit]:
        searcher = self._searcher()
        query = tantivy.Query.boolean_query([(Occur.Must, each) for each in wanted])
        try:
            found = searcher.search(query, limit, count=False, order_by_field="order").hits
        except ValueError as error:
            raise BadRequest("The search matches too many words. Write longer ones.") from error
        hits = [
            Hit(
                _EPOCH + timedelta(microseconds=order >> _ID_BITS),
                UUID(searcher.doc(place)["run"][0].partition(":")[2]),
            )
            for order, place in found
        ]
        return sorted(hits, key=_place, reverse=True)

    def _searcher(self) -> tantivy.Searcher:
        generation = None if self.directory is None else self.directory.generation()
        if generation is None:
            raise SearchOff
        with self._lock:
            try:
                status = (generation / "meta.json").stat()
                version = (generation, status.st_ino, status.st_mtime_ns)
                if self._index is None or self._loaded is None or self._loaded[0] != generation:
                    self._index = tantivy.Index.open(str(generation))
                    self._index.config_reader("manual")
                if version != self._loaded:
                    self._index.reload()
                    self._loaded = version
            except (OSError, ValueError) as error:
                raise SearchOff from error
            return self._index.searcher()


def _place(hit: Hit) -> tuple[int, UUID]:
    return hit.order, hit.run_id


def _matching(query: Query, project_id: int) -> tantivy.Query:
    required = [_term("term", term("project", project_id)), *map(_of_term, query.terms)]
    return tantivy.Query.boolean_query(
        [(Occur.Must, each) for each in required]
        + [(Occur.MustNot, _of_term(each)) for each in query.without]
    )


def _of_term(term: Term) -> tantivy.Query:
    """Return the query of a term. Words have no characters with a meaning in expressions."""
    *words, last = term.words
    if term.is_prefix:
        last = f"{last}.*"
        if not words:
            return tantivy.Query.regex_query(_SCHEMA, "words", last)
        return tantivy.Query.regex_phrase_query(_SCHEMA, "words", [*words, last])
    if not words:
        return _term("words", last)
    return tantivy.Query.phrase_query(_SCHEMA, "words", [*words, last])


def _term(name: str, value: str) -> tantivy.Query:
    return tantivy.Query.term_query(_SCHEMA, name, value, "basic")


def _terms(name: str, values: Sequence[str]) -> tantivy.Query:
    return tantivy.Query.term_set_query(_SCHEMA, name, values)


def _range(least: int, end: int) -> tantivy.Query:
    return tantivy.Query.range_query(
        _SCHEMA, "order", FieldType.Unsigned, least, end, include_upper=False
    )
