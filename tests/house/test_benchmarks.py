"""The benchmark programs, their goals, and their reports."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.figures import Figure, Goal, Results, at_least, at_most, read_results
from benchmarks.report import page
from tests.house.project_files import ROOT


def results(ratio: float) -> Results:
    figure = Figure(
        name="OTLP",
        value=9_000 * ratio,
        unit="spans/s",
        yardstick="bare COPY",
        ratio=ratio,
        goal=at_least(0.3),
    )
    return Results(
        date=datetime(2026, 1, 1, tzinfo=UTC),
        seed=1,
        is_quick=True,
        machine={"cores": 2},
        versions={"tracer": "0.1.0"},
        figures={"ingest": [figure]},
        failures={"peers": "RuntimeError: no <registry>"},
        seconds={"ingest": 1.5},
    )


@pytest.mark.thorough
def test_quick_benchmarks_write_a_file_of_figures(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    parts = ["recording", "single"]
    options = [text for part in parts for text in ("--only", part)]

    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--out", out, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    written = read_results(out)
    assert written.failures == {}
    assert list(written.figures) == parts
    assert all(figure.value > 0 for part in parts for figure in written.figures[part])
    assert {figure.is_reached for part in parts for figure in written.figures[part]} >= {None}
    assert str(tmp_path) not in out.read_text()


@pytest.mark.parametrize(
    ("goal", "reached"),
    [
        (at_least(0.3), True),
        (at_least(0.5), False),
        (at_most(0.4), True),
        (at_most(400, "value"), True),
        (at_most(100, "value"), False),
    ],
)
def test_benchmark_goal_limits_the_figure_or_its_ratio(goal: Goal, reached: bool) -> None:
    figure = Figure(name="some", value=300, unit="ms", yardstick="other", ratio=0.4, goal=goal)

    assert figure.is_reached is reached


def test_benchmark_results_are_equal_after_save_and_read(tmp_path: Path) -> None:
    saved = results(0.4)
    saved.save(tmp_path / "new" / "bench.json")

    assert read_results(tmp_path / "new" / "bench.json") == saved


def test_benchmark_report_compares_two_runs_and_shows_failures() -> None:
    text = page([results(0.2), results(0.4)])

    assert "1,800" in text
    assert "3,600" in text
    assert text.count("<rect") == 2
    assert "no &lt;registry&gt;" in text
    assert "<script" not in text
