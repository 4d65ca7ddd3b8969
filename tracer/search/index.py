"""The index: a directory of Tantivy's, with one document for each run.

The directory of a database has *generations*, each of which is a whole index with a state, and the
file `current`, which names the one that readers use. A new generation is built next to it and then
named there. Everything in the directory is derived from Postgres.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any, Self
from uuid import UUID

import orjson
import tantivy
from tantivy import FieldType, Occur

from tracer.errors import BadRequest, SearchOff
from tracer.records import new_id
from tracer.search.queries import Query, Term
from tracer.search.words import words_of

WHOLE, OPEN = "whole", "status=open"
"""Terms of documents that a filter must not exclude, because the database decides: runs of a piece
of work with several runs, and runs that were open when they were indexed."""

_MOST_TERM_CHARACTERS = 200
_WRITER_BYTES = 30_000_000


def _schema() -> tantivy.Schema:
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("words", tokenizer_name="whitespace", index_option="position")
    for name in ("run", "term"):
        schema.add_text_field(name, tokenizer_name="raw", index_option="basic")
    schema.add_unsigned_field("project", indexed=True)
    for name in ("start", "id_high", "id_low"):
        schema.add_unsigned_field(name, indexed=True, fast=True)
    schema.add_unsigned_field("revision", fast=True)
    return schema.build()


_SCHEMA = _schema()

VERSION = 1
"""To be raised with every change of the words or of the documents. The index is then rebuilt."""


def term(name: str, value: str) -> str:
    """Return the term of a field by which documents are filtered."""
    return f"{name}={value[:_MOST_TERM_CHARACTERS]}"


@dataclass(frozen=True)
class RunDocument:
    """What the index has of a run."""

    project_id: int
    run_id: UUID
    revision: int
    start: datetime
    terms: Sequence[str]
    texts: Iterable[str]
    """Plain texts. A phrase is within one of them."""


@dataclass(frozen=True)
class Hit:
    """A run that contains the words of a query."""

    start: datetime
    run_id: UUID


@dataclass
class ProjectState:
    """How far the runs of a project are indexed."""

    followed_to: datetime
    """All changes up to this time were read."""
    up_to: datetime
    """All changes of ended runs up to this time are indexed."""
    before: datetime | None
    """The runs that started before this time were not read yet; None if all were read."""
    before_id: UUID | None = None
    indexed: int = 0
    """How many runs were read for the first time."""
    to_index: int = 0
    """How many runs there were when the index was begun."""


@dataclass
class IndexState:
    """How far an index is complete. It is written after each commit, so it may be older."""

    began_at: datetime
    projects: dict[int, ProjectState] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all runs that existed when the index was begun are in it."""
        return all(each.before is None for each in self.projects.values())

    @classmethod
    def read(cls, generation: Path) -> Self | None:
        """Return the state of a generation; None if it has none, or that of another version."""
        try:
            content = orjson.loads((generation / _STATE).read_bytes())
            if content["version"] != VERSION:
                return None
            projects = {
                int(project_id): ProjectState(
                    datetime.fromisoformat(each["followed_to"]),
                    datetime.fromisoformat(each["up_to"]),
                    each["before"] and datetime.fromisoformat(each["before"]),
                    each["before_id"] and UUID(each["before_id"]),
                    each["indexed"],
                    each["to_index"],
                )
                for project_id, each in content["projects"].items()
            }
            return cls(datetime.fromisoformat(content["began_at"]), projects)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(self, generation: Path) -> None:
        """Replace the state of a generation."""
        projects = {str(project_id): each for project_id, each in self.projects.items()}
        content = {"version": VERSION, "began_at": self.began_at, "projects": projects}
        _replace(generation / _STATE, orjson.dumps(content))


_STATE, _CURRENT, _REBUILD = "state.json", "current", "rebuild"


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{new_id().hex}")
    temporary.write_bytes(content)
    temporary.replace(path)


@dataclass(frozen=True)
class SearchProgress:
    """How far the index of a server is."""

    up_to: datetime
    """All changes of ended runs up to this time are indexed, in all projects."""
    indexed: int
    """How many of the runs that existed before the index were read."""
    to_index: int
    """How many there were."""
    size: int
    """The bytes of the index."""


@dataclass(frozen=True)
class SearchDirectory:
    """The directory of one database's indexes."""

    path: Path

    def generation(self) -> Path | None:
        """Return the directory of the index that readers use; None if there is none."""
        with suppress(OSError, UnicodeDecodeError):
            name = (self.path / _CURRENT).read_text()
            if name.isalnum() and (self.path / name).is_dir():
                return self.path / name
        return None

    def begin(self) -> Path:
        """Create the directory of a new index.

        Raises:
            OSError: The directory cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        generation = self.path / new_id().hex
        generation.mkdir(mode=0o700)
        return generation

    def use(self, generation: Path) -> None:
        """Make readers use a generation, and delete all others. The caller has the lock."""
        _replace(self.path / _CURRENT, generation.name.encode())
        for each in self.path.iterdir():
            if each.is_dir() and each != generation:
                shutil.rmtree(each, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Lock the directory for writing. Yield False if another process has it."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def request_rebuild(self) -> None:
        """Ask the process that has the lock to build a new index."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.path / _REBUILD).touch()

    def end_rebuild(self) -> None:
        """Note that the requested index is in use."""
        (self.path / _REBUILD).unlink(missing_ok=True)

    def is_rebuild_requested(self) -> bool:
        """Return whether a new index is to be built."""
        return (self.path / _REBUILD).exists()

    def size(self) -> int:
        """Return how many bytes the files have."""
        total = 0
        for folder, _, names in os.walk(self.path):
            for name in names:
                with suppress(OSError):
                    total += os.stat(os.path.join(folder, name)).st_size
        return total


# --- Writing.


class IndexWriter:
    """Writes one generation. Only one process can."""

    def __init__(self, generation: Path) -> None:
        """Open the generation, and create the index if it has none.

        Raises:
            ValueError: Another writer has it, or its files are damaged.
        """
        self.generation = generation
        index = tantivy.Index(_SCHEMA, path=str(generation))
        index.config_reader("manual")
        self._writer = index.writer(_WRITER_BYTES, 1)
        self._index = index
        self._index.reload()
        self._changed: dict[str, int | None] = {}

    def revision(self, project_id: int, run_id: UUID) -> int | None:
        """Return the revision of a run's document, uncommitted ones included; None: none."""
        key = _key(project_id, run_id)
        if key in self._changed:
            return self._changed[key]
        searcher = self._index.searcher()
        hits = searcher.search(_term("run", key), 1, count=False).hits
        if not hits:
            return None
        [revision] = searcher.fast_field_values("revision", [hits[0][1]])
        return int(revision or 0)

    def write(self, document: RunDocument) -> None:
        """Add the document of a run, and remove its earlier one."""
        self.remove(document.project_id, document.run_id)
        added = tantivy.Document()
        key = _key(document.project_id, document.run_id)
        added.add_text("run", key)
        for each in {*document.terms}:
            added.add_text("term", each)
        for text in document.texts:
            added.add_text("words", words_of(text))
        added.add_unsigned("project", document.project_id)
        added.add_unsigned("start", _microseconds(document.start))
        high, low = _halves(document.run_id)
        added.add_unsigned("id_high", high)
        added.add_unsigned("id_low", low)
        added.add_unsigned("revision", document.revision)
        self._writer.add_document(added)
        self._changed[key] = document.revision

    def remove(self, project_id: int, run_id: UUID) -> None:
        """Remove the document of a run, if there is one."""
        key = _key(project_id, run_id)
        self._writer.delete_documents_by_term("run", key)
        self._changed[key] = None

    @property
    def has_changes(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._changed)

    def commit(self) -> None:
        """Make the changes durable and visible."""
        self._writer.commit()
        self._index.reload()
        self._changed.clear()

    def close(self) -> None:
        """Give up what is not committed, and release the index."""
        with suppress(OSError, ValueError):
            self._writer.rollback()
        with suppress(OSError, ValueError):
            self._writer.wait_merging_threads()
        del self._writer


# --- Reading.


class SearchIndex:
    """Answers queries from the current generation of a directory. Any number of threads can."""

    def __init__(self, directory: SearchDirectory | None) -> None:
        """Set the directory; None: this server has no index."""
        self._directory = directory
        self._lock = Lock()
        self._generation: Path | None = None
        self._index: tantivy.Index | None = None
        self._loaded: tuple[int, int] | None = None

    def up_to(self, project_id: int) -> datetime | None:
        """Return the time up to which all changes of a project are known; None: not known."""
        generation = None if self._directory is None else self._directory.generation()
        state = generation and IndexState.read(generation)
        project = state.projects.get(project_id) if state else None
        return None if project is None or project.before is not None else project.up_to

    def progress(self) -> SearchProgress | None:
        """Return how far the index is; None if there is none."""
        generation = None if self._directory is None else self._directory.generation()
        state = generation and IndexState.read(generation)
        if self._directory is None or not state:
            return None
        projects = state.projects.values()
        up_to = min((each.up_to for each in projects), default=state.began_at)
        indexed = sum(each.indexed if each.before else each.to_index for each in projects)
        to_index = sum(each.to_index for each in projects)
        return SearchProgress(up_to, indexed, to_index, self._directory.size())

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
            wanted.append(_any(_term("term", each) for each in (*terms, WHOLE)))
        if since is not None or until is not None:
            range_of_starts = _range(
                "start",
                None if since is None else _microseconds(since),
                None if until is None else _microseconds(until) - 1,
            )
            wanted.append(_any((range_of_starts, _term("term", WHOLE))))
        if after is not None:
            wanted.append(_after(after))
        searcher = self._searcher()
        found = _sorted_hits(searcher, _all(wanted), limit + 1)
        if len(found) > limit:
            # The order of hits with one start is arbitrary, so the page must not end among them.
            last = found[limit - 1].start
            if found[limit].start == last:
                start = _microseconds(last)
                same = _all([*wanted, _range("start", start, start)])
                found = [each for each in found if each.start != last]
                found += _sorted_hits(searcher, same, _MOST_WITH_ONE_START)
        return sorted(found, key=lambda hit: (hit.start, hit.run_id), reverse=True)[:limit]

    def matching(self, query: Query, project_id: int, runs: Collection[UUID]) -> set[UUID]:
        """Return those of `runs` that match."""
        keys = [_key(project_id, each) for each in runs]
        among = tantivy.Query.term_set_query(_SCHEMA, "run", keys)
        wanted = _all([_matching(query, project_id), among])
        return {hit.run_id for hit in _sorted_hits(self._searcher(), wanted, len(keys) or 1)}

    def terms_with_prefix(self, prefix: str) -> list[str]:
        """Return the words in the index that begin with a text, those of deleted runs included."""
        return [word for word, _ in self._searcher().terms_with_prefix("words", prefix)]

    def _searcher(self) -> tantivy.Searcher:
        with self._lock:
            generation = None if self._directory is None else self._directory.generation()
            if generation is None:
                raise SearchOff
            try:
                status = (generation / "meta.json").stat()
                version = (status.st_ino, status.st_mtime_ns)
                if self._index is None or generation != self._generation:
                    index = tantivy.Index.open(str(generation))
                    index.config_reader("manual")
                    self._index, self._generation, self._loaded = index, generation, None
                if version != self._loaded:
                    self._index.reload()
                    self._loaded = version
            except (OSError, ValueError) as error:
                raise SearchOff from error
            return self._index.searcher()


_MOST_WITH_ONE_START = 10_000


def _sorted_hits(searcher: tantivy.Searcher, query: tantivy.Query, limit: int) -> list[Hit]:
    try:
        hits = searcher.search(query, limit, count=False, order_by_field="start").hits
    except ValueError as error:
        raise BadRequest("The search matches too many words. Write longer ones.") from error
    places = [place for _, place in hits]
    highs = searcher.fast_field_values("id_high", places)
    lows = searcher.fast_field_values("id_low", places)
    return [
        Hit(_moment(start), UUID(int=(int(high or 0) << 64) + int(low or 0)))
        for (start, _), high, low in zip(hits, highs, lows, strict=True)
    ]


def _matching(query: Query, project_id: int) -> tantivy.Query:
    in_project = tantivy.Query.term_query(_SCHEMA, "project", project_id, "basic")
    excluded = [(Occur.MustNot, _of_term(each)) for each in query.without]
    required = [(Occur.Must, each) for each in (in_project, *map(_of_term, query.terms))]
    return tantivy.Query.boolean_query([*required, *excluded])


def _of_term(term: Term) -> tantivy.Query:
    """Return the query of a term. Words have no characters with a meaning in expressions."""
    words = term.words
    has_prefix = any(is_prefix for _, _, is_prefix in words)
    if len(words) == 1:
        [(_, word, _)] = words
        if has_prefix:
            return tantivy.Query.regex_query(_SCHEMA, "words", f"{word}.*")
        return _term("words", word)
    if not has_prefix:
        return tantivy.Query.phrase_query(_SCHEMA, "words", [(at, word) for at, word, _ in words])
    patterns: list[str | tuple[int, str]] = [
        (at, f"{word}.*" if is_prefix else word) for at, word, is_prefix in words
    ]
    return tantivy.Query.regex_phrase_query(_SCHEMA, "words", patterns)


def _term(name: str, value: str) -> tantivy.Query:
    return tantivy.Query.term_query(_SCHEMA, name, value, "basic")


def _all(queries: Iterable[tantivy.Query]) -> tantivy.Query:
    return tantivy.Query.boolean_query([(Occur.Must, each) for each in queries])


def _any(queries: Iterable[tantivy.Query]) -> tantivy.Query:
    return tantivy.Query.boolean_query([(Occur.Should, each) for each in queries])


def _range(name: str, least: int | None, greatest: int | None) -> tantivy.Query:
    return tantivy.Query.range_query(_SCHEMA, name, FieldType.Unsigned, least, greatest)


def _after(hit: Hit) -> tantivy.Query:
    """Match the documents that follow a hit in the order of start and id, latest first."""
    start, (high, low) = _microseconds(hit.start), _halves(hit.run_id)
    same_start = _range("start", start, start)
    parts = [_all([same_start, _range("id_high", high, high), _below("id_low", low)])]
    parts += [_all([same_start, _below("id_high", high)]), _below("start", start)]
    return _any(parts)


def _below(name: str, value: int) -> tantivy.Query:
    return tantivy.Query.range_query(
        _SCHEMA, name, FieldType.Unsigned, None, value, include_upper=False
    )


def _key(project_id: int, run_id: UUID) -> str:
    return f"{project_id}:{run_id}"


def _halves(run_id: UUID) -> tuple[int, int]:
    return run_id.int >> 64, run_id.int & (2**64 - 1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _microseconds(moment: datetime) -> int:
    return max(0, (moment - _EPOCH) // timedelta(microseconds=1))


def _moment(microseconds: Any) -> datetime:
    return _EPOCH + timedelta(microseconds=int(microseconds))
