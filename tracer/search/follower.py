"""The follower: keeps an index equal to what is stored.

It reads the runs of each project in the order of their last change, and compares their revisions
with those in the index. A transaction may commit a change later than another one that changed its
run later, so earlier changes are read again (`LOOKS`). The runs that existed before the index are
read from the latest start to the earliest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, NamedTuple, Protocol
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

LOOKS = (
    (timedelta(seconds=5), 0.0),
    (timedelta(minutes=2), 30.0),
    (timedelta(days=1), 3_600.0),
)
"""How long before the last change that was read a look for changes begins, and how many seconds
pass between two of them."""
QUIET = timedelta(seconds=2)
"""A run is indexed this long after its last change, if it has ended."""
OPEN_PAUSE = timedelta(seconds=30)
"""An open run is indexed at most this often, and if its texts have grown by half."""
COMMIT_SECONDS = 1.0
IDLE_SECONDS = 5.0
"""How often the state is written while there is nothing to commit, and how often an index that is
built is committed: on a busy machine, more commits took as long as all else."""
REBUILD_PAUSE = timedelta(days=1)
"""After erasures, the index is built again at most this often."""
RUNS_AT_ONCE = 500
"""How many runs are compared with the index at once."""
INDEXED_AT_ONCE = 50
GROUP_BYTES = 2**20
"""Runs are read together up to this many bytes of texts."""

_RETRY_SECONDS = 5.0
"""How often a process tries to get the directory that another one has."""
_FIRST_ID = UUID(int=0)
_LATEST = datetime.max.replace(tzinfo=UTC), UUID(int=2**128 - 1)

Projects = Sequence[tuple[int, datetime | None, datetime]]
"""The ids of projects, the times of their last erasure, and the present time."""


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

    def projects(self) -> Projects:
        """Return the projects."""

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
    waiting: dict[UUID, ChangedRun] = field(default_factory=dict)
    """The runs that differ from the index."""
    is_behind: bool = False
    """Whether more of them are due than a step indexes."""
    open_runs: dict[UUID, tuple[datetime, int]] = field(default_factory=dict)
    """When open runs were due last, and the sizes of their texts when they were indexed."""
    positions: dict[timedelta, tuple[datetime, UUID]] = field(default_factory=dict)
    """The positions at which the looks in progress continue."""
    look_at: dict[timedelta, float] = field(default_factory=dict)
    """When the next looks begin."""

    def is_due(self, run: ChangedRun, now: datetime) -> bool:
        """Return whether a changed run may be indexed now."""
        if run.is_open and run.run_id in self.open_runs:
            return now - self.open_runs[run.run_id][0] >= OPEN_PAUSE
        return run.is_open or now - run.changed_at >= QUIET

    def has_grown(self, run: ChangedRun, size: int, now: datetime) -> bool:
        """Return whether a run that is due must be indexed: it has ended, or grown by half."""
        _, indexed = self.open_runs.pop(run.run_id, (now, 0))
        has_grown = not run.is_open or size >= 1.5 * indexed
        if run.is_open:
            self.open_runs[run.run_id] = now, size if has_grown else indexed
        return has_grown


class IndexBuild:
    """One generation and its writer. It follows all projects in turns."""

    def __init__(self, source: Source, generation: Path) -> None:
        """Open the generation.

        Raises:
            OSError: It does not exist.
            ValueError: Another process writes it, or its files are damaged.
        """
        self._source = source
        self.generation = generation
        self.state = IndexState.read(generation)
        self._writer = IndexWriter(generation)
        self._projects: dict[int, _Project] = {}
        self._committed_at = time.monotonic()

    def step(self, projects: Projects) -> bool:
        """Do a part of the work for each project. Return whether there is more to do now."""
        is_busy = False
        for project_id, _, now in projects:
            if (project := self._projects.get(project_id)) is None:
                state = self.state.projects.get(project_id) or ProjectState(
                    followed_to=now,
                    up_to=now,
                    before=_LATEST,
                    to_index=self._source.count(project_id),
                )
                self.state.projects[project_id] = state
                project = self._projects[project_id] = _Project(state)
            is_busy |= not project.is_behind and self._look(project_id, project, now)
            project.is_behind = self._index_changes(project_id, project, now)
            is_busy |= self._go_back(project_id, project, now) or project.is_behind
        for gone in self.state.projects.keys() - {each[0] for each in projects}:
            del self.state.projects[gone]
            self._projects.pop(gone, None)
        self.commit(only_if_due=True)
        return is_busy

    def commit(self, *, only_if_due: bool = False) -> None:
        """Commit what was written, and then store how far the index is complete."""
        is_urgent = self._writer.has_changes and self.state.is_complete
        pause = COMMIT_SECONDS if is_urgent else IDLE_SECONDS
        if only_if_due and time.monotonic() - self._committed_at < pause:
            return
        if self._writer.has_changes:
            self._writer.commit()
        self.state.write(self.generation)
        self._committed_at = time.monotonic()

    def close(self) -> None:
        """Release the index. What is not committed is lost, and found again."""
        self._writer.close()

    def _look(self, project_id: int, project: _Project, now: datetime) -> bool:
        """Find runs that differ from the index. Return whether there are more changes to read."""
        state = project.state
        for back, pause in LOOKS:
            if back not in project.positions:
                if time.monotonic() < project.look_at.get(back, 0.0):
                    continue
                project.positions[back] = state.followed_to - back, _FIRST_ID
                project.look_at[back] = time.monotonic() + pause
            page = self._source.following(project_id, *project.positions[back], RUNS_AT_ONCE)
            for run in page:
                revision = run.revision if run.has_document else None
                if self._writer.revision(project_id, run.run_id) != revision:
                    project.waiting[run.run_id] = run
            if len(page) < RUNS_AT_ONCE:
                del project.positions[back]
                state.followed_to = now
            else:
                project.positions[back] = page[-1].changed_at, page[-1].run_id
                state.followed_to = max(state.followed_to, page[-1].changed_at)
        return bool(project.positions)

    def _index_changes(self, project_id: int, project: _Project, now: datetime) -> bool:
        """Index some of the runs that wait. Return whether more of them are due."""
        waiting = project.waiting
        due = [run for run in waiting.values() if project.is_due(run, now)]
        done = self._index(project_id, project, due, now)
        for run in due[:done]:
            del waiting[run.run_id]
        ended = (run.changed_at for run in waiting.values() if not run.is_open)
        project.state.up_to = min(ended, default=project.state.followed_to)
        return done < len(due)

    def _go_back(self, project_id: int, project: _Project, now: datetime) -> bool:
        """Index some of the runs that existed before the index. Return whether there are more."""
        state = project.state
        if state.before is None:
            return False
        page = self._source.older(project_id, *state.before, INDEXED_AT_ONCE)
        done = self._index(project_id, project, page, now)
        state.indexed += done
        state.to_index = max(0, state.to_index - done) if page else 0
        state.before = (page[done - 1].start, page[done - 1].run_id) if page else None
        return bool(page)

    def _index(
        self, project_id: int, project: _Project, runs: Sequence[ChangedRun], now: datetime
    ) -> int:
        """Make the index equal to the present state of the first of some runs. Return how many."""
        runs = runs[:INDEXED_AT_ONCE]
        sizes = self._source.sizes(project_id, [run.run_id for run in runs]) if runs else {}
        group: set[UUID] = set()
        total = done = 0
        for run in runs:
            size = sizes.get(run.run_id, 0)
            if group and total + size > GROUP_BYTES:
                break
            done += 1
            if project.has_grown(run, size, now):
                group.add(run.run_id)
                total += size
        for document in self._source.documents(project_id, [*group]) if group else ():
            self._writer.write(document)
            project.state.latest = max(project.state.latest, document.start)
            group.remove(document.run_id)
        for run_id in group:  # deleted, or no agent work
            self._writer.remove(project_id, run_id)
        return done


class Follower:
    """Keeps the index of a directory up to date, and builds another one when it must."""

    def __init__(self, source: Source, directory: SearchDirectory) -> None:
        """Set the source and the directory. Nothing is opened yet."""
        self._source = source
        self._directory = directory
        self._lock: IO[str] | None = None
        self._build: IndexBuild | None = None
        self._next: IndexBuild | None = None
        self._try_at = 0.0

    def step(self) -> bool:
        """Do a part of the work. Return whether there is more to do now.

        If another process has the directory, or it cannot be written, nothing happens.
        """
        if self._build is None and time.monotonic() < self._try_at:
            return False
        try:
            projects = self._source.projects()
            build = self._build or self._open(projects)
            if build is None or self._directory.generation() != build.generation:
                self.close()  # another process has the directory, or it was deleted
                return False
            is_busy = build.step(projects)
            return self._rebuild(build, projects) or is_busy
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
        for each in (self._next, self._build, self._lock):
            if each is not None:
                each.close()
        self._next = self._build = self._lock = None
        self._try_at = time.monotonic() + _RETRY_SECONDS

    def _open(self, projects: Projects) -> IndexBuild | None:
        """Open the index if no other process has the directory. Begin one if it has none."""
        self._lock = self._directory.lock()
        if self._lock is None:
            return None
        build = None
        try:
            if (generation := self._directory.generation()) is not None:
                build = IndexBuild(self._source, generation)
        except (OSError, ValueError) as error:
            log.warning("search_index_unreadable", error=str(error))
        if build is None:
            build = IndexBuild(self._source, self._directory.begin(projects[0][2]))
        self._build = build
        self._directory.use(build.generation)
        return build

    def _rebuild(self, build: IndexBuild, projects: Projects) -> bool:
        """Build another index next to this one after an erasure, and swap them."""
        now = projects[0][2]
        if self._next is None:
            began_at = build.state.began_at
            is_erased = any(at is not None and at >= began_at for _, at, _ in projects)
            is_due = is_erased and now - began_at >= REBUILD_PAUSE
            if not (is_due or self._directory.rebuild.exists()):
                return False
            self._next = IndexBuild(self._source, self._directory.begin(now))
        if self._next.step(projects) or not self._next.state.is_complete:
            return True
        self._next.commit()
        self._directory.use(self._next.generation)
        self._directory.rebuild.unlink(missing_ok=True)
        build.close()
        self._build, self._next = self._next, None
        return False
