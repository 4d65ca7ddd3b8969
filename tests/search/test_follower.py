"""The follower: after any history, the index equals one that is built from scratch."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.profiles import scaled
from tests.searching import catch_up, without_pauses, words_in
from tracer.errors import BadRequest, SearchOff
from tracer.search import (
    ChangedRun,
    Follower,
    Hit,
    Query,
    RunDocument,
    SearchDirectory,
    SearchIndex,
    term,
)
from tracer.search.words import words_of

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
WORDS = ["refund", "done", "refunded", "退款", "退款单", "محمد", "inv 31337", "notes.txt", "a b c"]


@dataclass(frozen=True)
class StoredRun:
    revision: int
    changed_at: datetime
    is_open: bool
    is_deleted: bool
    start: datetime
    texts: tuple[str, ...]


@dataclass
class Runs:
    """A source of runs in memory, with a clock."""

    now: datetime = BEGIN
    runs: dict[int, dict[UUID, StoredRun]] = field(default_factory=lambda: {1: {}, 2: {}})
    erased_at: datetime | None = None
    uncommitted: list[tuple[int, UUID, StoredRun]] = field(default_factory=list)

    def change(
        self, project: int, number: int, words: Sequence[str], is_open: bool, is_late: bool
    ) -> None:
        """Store a run's new texts; if `is_late`, the transaction is not committed yet."""
        self.now += timedelta(seconds=7)
        run_id = UUID(int=number)
        start = BEGIN + timedelta(hours=number // 3)  # some are equal
        before = self._latest(project, run_id)
        run = StoredRun(
            before.revision + 1 if before else 1, self.now, is_open, False, start, tuple(words)
        )
        if before and before.is_deleted:
            return
        if any(each[:2] == (project, run_id) for each in self.uncommitted):
            return  # its row is locked
        if is_late:
            self.uncommitted.append((project, run_id, run))
        else:
            self.runs[project][run_id] = run

    def commit(self) -> None:
        """Commit the changes of late transactions."""
        for project, run_id, run in self.uncommitted:
            self.runs[project][run_id] = run
        self.uncommitted.clear()

    def delete(self, project: int, number: int) -> None:
        self.now += timedelta(seconds=1)
        run_id = UUID(int=number)
        before = self._latest(project, run_id)
        if before and not any(each[:2] == (project, run_id) for each in self.uncommitted):
            self.runs[project][run_id] = replace(
                before, is_deleted=True, revision=before.revision + 1, changed_at=self.now, texts=()
            )

    def _latest(self, project: int, run_id: UUID) -> StoredRun | None:
        return self.runs[project].get(run_id)

    # --- tracer.search.Source ---

    def projects(self) -> list[tuple[int, datetime | None, datetime]]:
        return [(project, self.erased_at, self.now) for project in self.runs]

    def following(
        self, project_id: int, after: datetime, after_id: UUID, limit: int
    ) -> list[ChangedRun]:
        changed = sorted(self._changed(project_id), key=lambda run: (run.changed_at, run.run_id))
        return [run for run in changed if (run.changed_at, run.run_id) > (after, after_id)][:limit]

    def older(
        self, project_id: int, before: datetime, before_id: UUID, limit: int
    ) -> list[ChangedRun]:
        changed = sorted(
            self._changed(project_id), key=lambda run: (run.start, run.run_id), reverse=True
        )
        return [run for run in changed if (run.start, run.run_id) < (before, before_id)][:limit]

    def count(self, project_id: int) -> int:
        return len(self.runs[project_id])

    def sizes(self, project_id: int, runs: Sequence[UUID]) -> dict[UUID, int]:
        return {run: sum(map(len, self.runs[project_id][run].texts)) for run in runs}

    def documents(self, project_id: int, runs: Sequence[UUID]) -> Iterator[RunDocument]:
        for run_id in runs:
            run = self.runs[project_id][run_id]
            if not run.is_deleted:
                terms = [term("agent", "even" if run_id.int % 2 == 0 else "odd")]
                yield RunDocument(project_id, run_id, run.revision, run.start, terms, run.texts)

    def _changed(self, project_id: int) -> list[ChangedRun]:
        return [
            ChangedRun(
                run_id, run.revision, run.changed_at, run.is_open, not run.is_deleted, run.start
            )
            for run_id, run in self.runs[project_id].items()
        ]


@contextmanager
def directory() -> Iterator[SearchDirectory]:
    path = Path(tempfile.mkdtemp())
    try:
        yield SearchDirectory(path / "index")
    finally:
        shutil.rmtree(path, ignore_errors=True)


def content(index: SearchDirectory) -> dict[tuple[str, int], list[Hit]]:
    """Return what searches find."""
    search = SearchIndex(index)
    return {
        (word, project): search.hits(Query.parse(f"{word} "), project, 100)
        for word in WORDS
        for project in (1, 2)
    }


numbers = st.integers(0, 8)
projects = st.sampled_from([1, 2])
texts = st.lists(st.sampled_from(WORDS), max_size=3)
steps = st.one_of(
    st.tuples(st.just("change"), projects, numbers, texts, st.booleans(), st.booleans()),
    st.tuples(st.just("delete"), projects, numbers),
    *(
        st.tuples(st.just(name))
        for name in (
            *("commit", "follow", "follow", "follow_other", "kill", "lose_cursor"),
            *("delete_directory", "erase", "wait", "rebuild"),
        )
    ),
)


@settings(max_examples=scaled(150), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(history=st.lists(steps, max_size=25))
def test_index_equals_one_built_from_scratch_after_any_history(
    history: list[tuple[object, ...]],
) -> None:
    source = Runs()
    with directory() as followed, directory() as fresh, ExitStack() as stack:
        stack.enter_context(without_pauses())
        followers = [Follower(source, followed), Follower(source, followed)]
        for name, *values in history:
            match name:
                case "change" | "delete" | "commit":
                    getattr(source, str(name))(*values)
                case "follow":
                    followers[0].step()
                case "follow_other":
                    followers[1].step()
                case "kill":  # what was not committed is lost, and its lock is free
                    followers[0].close()
                    followers[0] = Follower(source, followed)
                case "lose_cursor":
                    for state in followed.path.glob("*/state.json"):
                        state.unlink()
                    followers[0].close()
                    followers[0] = Follower(source, followed)
                case "delete_directory":
                    shutil.rmtree(followed.path, ignore_errors=True)
                case "erase":
                    source.erased_at = source.now
                case "wait":
                    source.commit()  # no transaction stays open for longer than the sweep's day
                    source.now += timedelta(hours=30)
                case "rebuild":
                    followed.rebuild.touch()
        for follower in followers:
            follower.close()
        source.commit()
        catch_up(source, followed)
        catch_up(source, fresh)
        assert content(followed) == content(fresh)
        assert not followed.rebuild.exists()


def test_words_of_erased_runs_are_in_no_file_after_the_swap() -> None:
    source = Runs()
    with directory() as followed, without_pauses():
        source.change(1, 1, ["xylophone"], False, False)
        source.change(1, 2, ["refund"], False, False)
        catch_up(source, followed)
        source.delete(1, 1)
        source.now += timedelta(hours=25)
        source.erased_at = source.now
        catch_up(source, followed)
        assert words_in(followed, "xyl") == []
        assert words_in(followed, "ref") == ["refund"]
        assert len([path for path in followed.path.iterdir() if path.is_dir()]) == 1
        files = [path for path in followed.path.rglob("*") if path.is_file()]
        assert not any(b"xylophone" in path.read_bytes() for path in files)


@settings(max_examples=scaled(100), deadline=None)
@given(stored=st.dictionaries(st.tuples(projects, numbers), texts), word=st.sampled_from(WORDS))
def test_projects_with_equal_texts_never_meet(
    stored: dict[tuple[int, int], list[str]], word: str
) -> None:
    source, query = Runs(), Query.parse(f"{word} ")
    with directory() as followed:
        for (project, number), of_run in stored.items():  # the runs have equal ids, too
            source.change(project, number, of_run, False, False)
        catch_up(source, followed)
        search = SearchIndex(followed)
        for project in (1, 2):
            own = {number for owner, number in stored if owner == project}
            matching = {number for number in own if _has_all(query, stored[project, number])}
            found = search.hits(query, project, 100)
            assert sorted(hit.run_id.int for hit in found) == sorted(matching)
            asked = [UUID(int=number) for number in range(9)]
            assert {run.int for run in search.matching(query, project, asked)} == matching


def _has_all(query: Query, of_run: Sequence[str]) -> bool:
    found = [match for text in of_run if (place := query.find(text)) for match in place.matches]
    return {term for _, _, term in found} == {*query.terms}


def test_pages_contain_each_run_once_although_starts_are_equal() -> None:
    source = Runs()
    with directory() as followed, without_pauses():
        for number in range(9):
            source.change(1, number, ["refund"], False, False)
        catch_up(source, followed)
        search, query = SearchIndex(followed), Query.parse("refund")
        seen: list[int] = []
        after = None
        while hits := search.hits(query, 1, 2, after=after):
            seen += [hit.run_id.int for hit in hits]
            after = hits[-1]
        assert seen == [8, 7, 6, 5, 4, 3, 2, 1, 0]
        filters = {"agent": [term("agent", "odd")]}
        odd = search.hits(query, 1, 10, filters=filters)
        assert [hit.run_id.int for hit in odd] == [7, 5, 3, 1]
        first_three = (datetime.min, BEGIN), (BEGIN, BEGIN + timedelta(hours=1))
        for (since, until), runs in zip(first_three, ([], [2, 1, 0]), strict=True):
            within = search.hits(query, 1, 10, since=since.replace(tzinfo=UTC), until=until)
            assert [hit.run_id.int for hit in within] == runs
        latest = datetime.max.replace(tzinfo=UTC)
        assert len(search.hits(query, 1, 10, until=latest)) == 9
        assert search.hits(query, 1, 10, since=latest) == []


OPERATORS = (
    "+ && || ! ( ) { } [ ] ^ ~ * ? : \\ / < > = @ $ ' ; , | & % . # _ ` \x00 words: ^2 ~1 *:*"
)
WORDS_OF_THE_LIBRARY = "AND OR NOT TO IN"


@given(
    st.lists(st.sampled_from([*OPERATORS.split(), "-", '"', "refund", "done"]), max_size=8),
    st.sampled_from([*OPERATORS.split(), *WORDS_OF_THE_LIBRARY.split()]),
)
def test_operators_of_the_library_are_words_or_separators(pieces: list[str], operator: str) -> None:
    with shared_index() as search:
        for text in (" ".join(pieces), "".join(pieces)):
            try:
                query = Query.parse(text)
            except BadRequest:
                continue
            search.hits(query, 1, 10)
        # An operator is a word if it has letters, and separates words otherwise.
        has_words = bool(words_of(operator))
        for text in (f"refund {operator} done ", f"{operator} refund done "):
            assert len(search.hits(Query.parse(text), 1, 10)) == (not has_words), text
        with_operators = Query.parse(f"operators {operator} ")
        assert len(search.hits(with_operators, 2, 10)) == 1


_shared = ExitStack()
_indexes: list[SearchIndex] = []


@contextmanager
def shared_index() -> Iterator[SearchIndex]:
    if not _indexes:
        source = Runs()
        source.change(1, 1, ["refund done"], False, False)
        source.change(2, 1, [f"operators {OPERATORS} {WORDS_OF_THE_LIBRARY}"], False, False)
        index = _shared.enter_context(directory())
        catch_up(source, index)
        _indexes.append(SearchIndex(index))
    yield _indexes[0]


@pytest.fixture(scope="module", autouse=True)
def _cleaned() -> Iterator[None]:
    yield
    _shared.close()


@settings(max_examples=scaled(100), deadline=None)
@given(
    text=st.text('aé b-"退款が.1 محمد', max_size=12), q=st.text('aé b"退款が.1 محمد', max_size=6)
)
def test_index_and_texts_agree_on_what_matches(text: str, q: str) -> None:
    try:
        query = Query.parse(q)
    except BadRequest:
        return
    source = Runs()
    with directory() as followed:
        source.change(1, 1, [text], False, False)
        catch_up(source, followed)
        is_indexed = bool(SearchIndex(followed).hits(query, 1, 1))
    found = query.find(text)
    assert is_indexed == (found is not None and found.weight == query.weight)


def test_search_without_an_index_is_rejected_with_advice(tmp_path: Path) -> None:
    for index in (SearchIndex(None), SearchIndex(SearchDirectory(tmp_path / "none"))):
        with pytest.raises(SearchOff, match="TRACER_SEARCH_DIR"):
            index.hits(Query.parse("refund"), 1, 10)


def test_index_directory_belongs_to_its_user_alone() -> None:
    with directory() as followed:
        catch_up(Runs(), followed)
        generation = followed.generation()
        assert generation is not None
        assert [path.stat().st_mode & 0o777 for path in (followed.path, generation)] == [0o700] * 2
