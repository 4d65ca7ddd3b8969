"""The pytest plugin: connections that record in memory, and the fixture `recorded`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace

from tracer.client import flush_connections, open_connections
from tracer.errors import missing_extra
from tracer.reading import Run
from tracer.recorder import Recorder, no_spool
from tracer.settings import MEMORY
from tracer.storage.memory import PATIENCE_SECONDS, RecordingInMemory, process_memory
from tracer.testing.trajectory import (
    Comparison,
    compare,
    difference_lines,
    marked_tree,
    read_file,
    trajectory_of,
    write_file,
)

if TYPE_CHECKING:
    from tracer.adapters.opentelemetry import StoreExporter
    from tracer.runtime import Application, RunLauncher

OPTION = "--update-trajectories"
FLUSH_SECONDS = 60.0
_VARIABLES = {"TRACER_URL": MEMORY, "TRACER_DISABLED": ""}
_replaced: dict[str, str | None] = {}
"""The values of these variables before the plugin was loaded."""


class TrajectoryDiffers(AssertionError):
    """A run differs from a trajectory. The message contains the run's tree."""


@dataclass(frozen=True, eq=False)
class RecordedRun(Run):
    """A run of a test."""

    folder: Path = Path()
    """The folder of the test."""
    updates: bool = False
    """Whether `assert_matches` writes files."""

    def assert_matches(self, path: str | Path) -> None:
        """Compare the run with a trajectory file.

        With `--update-trajectories`, write the file from the run.

        Args:
            path: The file, relative to the folder of the test.

        Raises:
            TrajectoryDiffers: The run differs.
            ConfigurationError: The file is missing, or is no trajectory.
        """
        __tracebackhide__ = True
        file = self.folder / path
        if self.updates:
            write_file(file, trajectory_of(self, read_file(file) if file.exists() else None))
            return
        comparison = compare(self, read_file(file))
        if comparison.sentences:
            lines = difference_lines(self, comparison, str(path))
            advice = f"If the run is right, accept it with: pytest {OPTION}"
            raise TrajectoryDiffers("\n".join([*lines, "", advice]))


@dataclass(frozen=True)
class Recorded:
    """The runs of a test."""

    folder: Path
    updates: bool
    store: RecordingInMemory = process_memory
    """The store, for a `Recorder` and a `RunLauncher` of your own."""

    def run(self) -> RecordedRun:
        """Return the only run of the test.

        Raises:
            AssertionError: The test recorded no run, or several.
        """
        __tracebackhide__ = True
        runs = self.runs()
        if len(runs) != 1:
            titles = "".join(f"\n  {each.agent}: {each.node.title}" for each in runs)
            raise AssertionError(f"Expected one run, and {len(runs)} were recorded.{titles}")
        return runs[0]

    def runs(self) -> list[RecordedRun]:
        """Return the runs of the test, the earliest first."""
        flush()
        runs = [RecordedRun.of(tree) for tree in self.store.trees()]
        return [RecordedRun(run.node, run.rounds, self.folder, self.updates) for run in runs]

    def otel_exporter(self) -> StoreExporter:
        """Return an exporter for OpenTelemetry's SDK, which records spans in memory.

        Raises:
            ImportError: The extra `otel` is not installed.
        """
        try:
            from tracer.adapters.opentelemetry import StoreExporter
        except ModuleNotFoundError as error:
            raise missing_extra("recorded.otel_exporter", "otel", error) from error
        return StoreExporter(self.store.add_spans)

    @asynccontextmanager
    async def launcher(self, application: Application) -> AsyncIterator[RunLauncher]:
        """Yield a launcher that runs an application of Tracer's runtime.

        Raises:
            ImportError: The extra `runtime` is not installed.
        """
        from tracer import RunLauncher

        async with (
            Recorder(self.store, no_spool(), patience=PATIENCE_SECONDS) as recorder,
            RunLauncher(application, recorder, self.store) as launcher,
        ):
            yield launcher


def flush() -> None:
    """Wait until everything that the process recorded is in memory."""
    if "opentelemetry.sdk.trace" in sys.modules:
        force_flush = getattr(trace.get_tracer_provider(), "force_flush", None)
        if force_flush is not None:  # it exports in batches
            force_flush()
    if opentelemetry := sys.modules.get("tracer.adapters.opentelemetry"):
        opentelemetry.flush_processors()
    flush_connections(FLUSH_SECONDS)


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Recorded:
    """Record everything in the test, and return the recording."""
    flush()
    process_memory.clear()
    return Recorded(request.path.parent, request.config.getoption(OPTION, default=False))


# --- Hooks.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option, and make connections record in memory.

    pytest calls this as soon as the plugin is loaded, which is before it imports test modules.
    """
    group = parser.getgroup("tracer")
    group.addoption(OPTION, action="store_true", help="Write the trajectory files from the runs.")
    if os.environ.get("TRACER_URL") != MEMORY and open_connections():
        raise pytest.UsageError(
            "A connection of Tracer was opened before the plugin tracer.testing was loaded, so it "
            "does not record in memory. Load the plugin earlier: pytest -p tracer.testing."
        )
    for name, value in _VARIABLES.items():
        _replaced.setdefault(name, os.environ.get(name))
        os.environ[name] = value


def pytest_unconfigure() -> None:
    """Restore the environment."""
    while _replaced:
        name, value = _replaced.popitem()
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the trees of the recorded runs to the report of a failed test."""
    report = yield
    mine = getattr(item, "funcargs", {}).get("recorded")
    has_tree = call.excinfo is not None and call.excinfo.errisinstance(TrajectoryDiffers)
    if report.when == "call" and report.failed and isinstance(mine, Recorded) and not has_tree:
        lines: Sequence[str] = [
            line for run in mine.runs() for line in marked_tree(run, Comparison())
        ]
        report.sections.append(("recorded runs", "\n".join(lines) or "none"))
    return report
