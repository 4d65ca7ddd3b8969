"""The follower: keeps an index equal to what is stored.

It reads the runs of each project in the order of their last change, and compares their revisions
with those in the index. A transaction may commit a change later than another one that changed its
run later. So each look begins `OVERLAP` before the last change that was read, and a sweep compares
the runs of the last day once an hour. The runs that existed before the index are read from the
latest start to the earliest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import UUID

from tracer.logs import get_logger
from tracer.search.index import (
    IndexState,
    IndexWriter,
    ProjectState,
    RunDocument,
    SearchDirectory,
)

log = get_logger(__name__)

OVERLAP = timedelta(minutes=2)
SWEEP_SECONDS = 3_600.0
SWEPT = timedelta(days=1)
QUIET = timedelta(seconds=2)
"""A run is indexed this long after its last change, if it has ended."""
OPEN_PAUSE = timedelta(seconds=30)
"""An open run is indexed at most this often, and if its texts have grown by half."""
COMMIT_SECONDS = 1.0
IDLE_SECONDS = 5.0
"""How often the state is written while there is nothing to commit."""
REBUILD_PAUSE = timedelta(days=1)
"""After erasures, the index is built again at most this often."""
RUNS_AT_ONCE = 500
"""How many runs are compared with the index at once."""
INDEXED_AT_ONCE = 50
GROUP_BYTES = 2**20
"""Runs are read together up to this many bytes of texts."""

_RETRY_SECONDS = 5.0
"""How often a process tries to get the directory that another one has."""
_LATEST = datetime.max.replace(tzinfo=UTC)
FIRST_ID, LAST_ID = UUID(int=0), UUID(int=2**128 - 1)


class ChangedRun(NamedTuple):
    """A run, as the follower compares it with the index."""

    run_id: UUID
    revision: int
    changed_at: datetime
    is_open: bool
    has_document: bool
    """Whether it is agent work and not deleted."""
    start: datetime


class Source(Protocol):
    """Where the runs come from."""

    def projects(self) -> Sequence[tuple[int, datetime | None, datetime]]:
        """Return the projects: their ids, the times of their last erasure, and the present time."""

    def following(
        self, project_id: int, after: datetime, after_id: UUID, limit: int
    ) -> list[ChangedRun]:
        """Return runs in the order of their last changes, deleted ones, too."""

    def older(
        self, project_id: int, before: datetime, before_id: UUID, limit: int
    ) -> list[ChangedRun]:
        """Return runs that started earlier, latest first."""

    def count(self, project_id: int) -> int:
        """Return how many runs of a project have a document."""

    def sizes(self, project_id: int, runs: Sequence[UUID]) -> dict[UUID, int]:
        """Return the bytes of the texts of runs."""

    def documents(self, project_id: int, runs: Sequence[UUID]) -> Iterator[RunDocument]:
        """Yield the documents of some runs. Deleted runs and runs without agent work have none."""


@dataclass
class _Project:
    """What the follower remembers of a project. All of it can be lost."""

    state: ProjectState
    seen: dict[UUID, ChangedRun] = field(default_factory=dict)
    """The runs that changed in the time of `OVERLAP`, as they were last read."""
    waiting: dict[UUID, ChangedRun] = field(default_factory=dict)
    open_sizes: dict[UUID, tuple[datetime, int]] = field(default_factory=dict)
    """When the sizes of open runs were compared last, and their sizes when they were indexed."""
    swept: tuple[datetime, UUID] | None = None
    """Where the sweep in progress continues."""
    sweep_at: float = 0.0


class IndexBuild:
    """One generation and its writer. It follows all projects in turns."""

    def __init__(self, source: Source, generation: Path, now: datetime) -> None:
        """Open the generation.

        Raises:
            ValueError: Another process writes it, or its files are damaged.
        """
        self._source = source
        self.writer = IndexWriter(generation)
        self.state = IndexState.read(generation) or IndexState(now)
        self._projects: dict[int, _Project] = {}
        self._committed_at = time.monotonic()

    def step(self, projects: Sequence[tuple[int, datetime | None, datetime]]) -> bool:
        """Do a part of the work for each project. Return whether there is more to do now."""
        is_busy = False
        for project_id, _, now in projects:
            project = self._projects.get(project_id)
            if project is None:
                state = self.state.projects.get(project_id)
                if state is None:
                    count = self._source.count(project_id)
                    state = ProjectState(now, now, _LATEST, to_index=count)
                    self.state.projects[project_id] = state
                project = self._projects[project_id] = _Project(state)
            is_busy |= self._follow(project_id, project, now)
            is_busy |= self._go_back(project_id, project)
            is_busy |= self._sweep(project_id, project, now)
        for gone in self.state.projects.keys() - {each[0] for each in projects}:
            del self.state.projects[gone]
            self._projects.pop(gone, None)
        self.commit(only_if_due=True)
        return is_busy

    def commit(self, *, only_if_due: bool = False) -> None:
        """Commit what was written, and then store how far the index is complete."""
        pause = COMMIT_SECONDS if self.writer.has_changes else IDLE_SECONDS
        if only_if_due and time.monotonic() - self._committed_at < pause:
            return
        if self.writer.has_changes:
            self.writer.commit()
        self.state.write(self.writer.generation)
        self._committed_at = time.monotonic()

    def close(self) -> None:
        """Release the index. What is not committed is lost, and found again."""
        self.writer.close()

    def _follow(self, project_id: int, project: _Project, now: datetime) -> bool:
        """Index the changes of a project. Return whether there are more."""
        state = project.state
        after, after_id = state.followed_to - OVERLAP, FIRST_ID
        for run_id, run in [*project.seen.items()]:
            if run.changed_at < after:
                del project.seen[run_id]
        while True:
            page = self._source.following(project_id, after, after_id, RUNS_AT_ONCE)
            for run in page:
                known = project.seen.get(run.run_id)
                if known is None or known.revision != run.revision:
                    project.seen[run.run_id] = project.waiting[run.run_id] = run
            if page:
                after, after_id = page[-1].changed_at, page[-1].run_id
            if len(page) < RUNS_AT_ONCE or len(project.waiting) > 4 * RUNS_AT_ONCE:
                break
        is_more = len(page) == RUNS_AT_ONCE
        state.followed_to = max(state.followed_to, after if is_more else now)
        due = [
            run for run in project.waiting.values() if self._is_due(project_id, project, run, now)
        ]
        self._index(project_id, due[:INDEXED_AT_ONCE])
        for run in due[:INDEXED_AT_ONCE]:
            project.waiting.pop(run.run_id, None)
        ended = (run.changed_at for run in project.waiting.values() if not run.is_open)
        state.up_to = min(ended, default=state.followed_to)
        return is_more or len(due) > INDEXED_AT_ONCE

    def _is_due(self, project_id: int, project: _Project, run: ChangedRun, now: datetime) -> bool:
        if not run.has_document:
            return True
        if not run.is_open:
            project.open_sizes.pop(run.run_id, None)
            return now - run.changed_at >= QUIET
        compared_at, size = project.open_sizes.get(run.run_id, (None, 0))
        if compared_at is not None and now - compared_at < OPEN_PAUSE:
            return False
        new_size = self._source.sizes(project_id, [run.run_id]).get(run.run_id, 0)
        is_due = new_size > 1.5 * size
        project.open_sizes[run.run_id] = now, new_size if is_due else size
        return is_due

    def _go_back(self, project_id: int, project: _Project) -> bool:
        """Index some of the runs that existed before the index. Return whether there are more."""
        state = project.state
        if state.before is None:
            return False
        page = self._source.older(
            project_id, state.before, state.before_id or LAST_ID, INDEXED_AT_ONCE
        )
        self._index(project_id, page)
        state.indexed += sum(run.has_document for run in page)
        if len(page) < INDEXED_AT_ONCE:
            state.before = state.before_id = None
            return False
        state.before, state.before_id = page[-1].start, page[-1].run_id
        return True

    def _sweep(self, project_id: int, project: _Project, now: datetime) -> bool:
        """Find changes of the last day that were missed. Return whether there are more runs."""
        if project.swept is None:
            if time.monotonic() < project.sweep_at:
                return False
            project.swept = now - SWEPT, FIRST_ID
        page = self._source.following(project_id, *project.swept, RUNS_AT_ONCE)
        for run in page:
            indexed = self.writer.revision(project_id, run.run_id)
            if indexed != (run.revision if run.has_document else None):
                project.waiting.setdefault(run.run_id, run)
        if len(page) < RUNS_AT_ONCE:
            project.swept = None
            project.sweep_at = time.monotonic() + SWEEP_SECONDS
            return False
        project.swept = page[-1].changed_at, page[-1].run_id
        return True

    def _index(self, project_id: int, runs: Sequence[ChangedRun]) -> None:
        """Make the index equal to the present state of some runs."""
        missing = {}
        for run in runs:
            indexed = self.writer.revision(project_id, run.run_id)
            if not run.has_document:
                if indexed is not None:
                    self.writer.remove(project_id, run.run_id)
            elif indexed != run.revision:
                missing[run.run_id] = run
        if not missing:
            return
        sizes = self._source.sizes(project_id, [*missing])
        group: list[UUID] = []
        size = 0
        for run_id in missing:
            of_run = sizes.get(run_id, 0)
            if group and size + of_run > GROUP_BYTES:
                self._write(project_id, group)
                group, size = [], 0
            group.append(run_id)
            size += of_run
        self._write(project_id, group)

    def _write(self, project_id: int, runs: Sequence[UUID]) -> None:
        found = set()
        for document in self._source.documents(project_id, runs):
            self.writer.write(document)
            found.add(document.run_id)
        for run_id in runs:
            if run_id not in found:  # deleted meanwhile
                self.writer.remove(project_id, run_id)
        self.commit(only_if_due=True)


class Follower:
    """Keeps the index of a directory up to date, and builds another one when it must."""

    def __init__(self, source: Source, directory: SearchDirectory) -> None:
        """Set the source and the directory. Nothing is opened yet."""
        self._source = source
        self._directory = directory
        self._build: IndexBuild | None = None
        self._next: IndexBuild | None = None
        self._try_at = 0.0
        self._lock = ExitStack()

    def step(self) -> bool:
        """Do a part of the work. Return whether there is more to do now.

        If another process has the directory, or it cannot be written, nothing happens.
        """
        if self._build is None:
            if time.monotonic() < self._try_at:
                return False
            self._try_at = time.monotonic() + _RETRY_SECONDS
            self._open()
            if self._build is None:
                return False
        if self._directory.generation() != self._build.writer.generation:
            self.close()  # the directory was deleted
            self._try_at = 0.0
            return True
        try:
            projects = self._source.projects()
            is_busy = self._build.step(projects)
            return self._rebuild(projects) or is_busy
        except (OSError, ValueError) as error:  # such as a full disk: the caller has other work
            log.warning("search_index_not_written", error=str(error))
            self.close()
            return False

    @property
    def indexed(self) -> int:
        """How many runs this process has put into the index that it is building."""
        build = self._next or self._build
        return 0 if build is None else sum(e.indexed for e in build.state.projects.values())

    def close(self) -> None:
        """Release the directory."""
        for build in (self._build, self._next):
            if build is not None:
                build.close()
        self._build = self._next = None
        self._lock.close()

    def _open(self) -> None:
        """Open the index if no other process has the directory. Begin one if it has none."""
        self._lock = ExitStack()
        try:
            if not self._lock.enter_context(self._directory.locked()):
                self._lock.close()
                return
            now = self._source.projects()[0][2]
            generation = self._directory.generation()
            if generation is not None and IndexState.read(generation) is not None:
                self._directory.use(generation)
                try:
                    self._build = IndexBuild(self._source, generation, now)
                    return
                except ValueError:
                    log.warning("search_index_damaged", what_happens="It is built again.")
            self._build = IndexBuild(self._source, self._directory.begin(), now)
            self._build.commit()
            self._directory.use(self._build.writer.generation)
        except OSError as error:
            self._lock.close()
            log.warning("search_directory_not_writable", error=str(error))

    def _rebuild(self, projects: Sequence[tuple[int, datetime | None, datetime]]) -> bool:
        """Build another index next to this one after an erasure, and swap them."""
        assert self._build is not None
        began_at = self._build.state.began_at
        now = projects[0][2]
        if self._next is None:
            is_erased = any(at is not None and at >= began_at for _, at, _ in projects)
            is_due = is_erased and now - began_at >= REBUILD_PAUSE
            if not (is_due or self._directory.is_rebuild_requested()):
                return False
            self._next = IndexBuild(self._source, self._directory.begin(), now)
        is_busy = self._next.step(projects)
        if is_busy or not self._next.state.is_complete:
            return True
        self._next.commit()
        self._directory.use(self._next.writer.generation)
        self._directory.end_rebuild()
        self._build.close()
        self._build, self._next = self._next, None
        return False
