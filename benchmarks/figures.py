"""A figure, its goal and yardstick, and the file that a run of the benchmarks writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Literal

from pydantic import BaseModel, ConfigDict
from rich.table import Table


class _FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class Goal(_FrozenModel):
    """The bound for a figure, or for its ratio to its yardstick."""

    of: Literal["value", "ratio"]
    sign: Literal["≥", "≤"]
    bound: float

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}{' ×' if self.of == 'ratio' else ''}"


class Figure(_FrozenModel):
    """One thing measured."""

    name: str
    """The measured quantity. The same from run to run, so that runs can be compared."""
    value: float
    unit: str
    yardstick: str | None = None
    """The yardstick, which the same run measured."""
    ratio: float | None = None
    """The figure divided by its yardstick."""
    goal: Goal | None = None

    @property
    def is_reached(self) -> bool | None:
        """Whether the goal is reached; None if it has no goal."""
        if self.goal is None:
            return None
        reached = self.value if self.goal.of == "value" else self.ratio
        assert reached is not None, f"{self.name} has no ratio"
        return reached >= self.goal.bound if self.goal.sign == "≥" else reached <= self.goal.bound


class Results(_FrozenModel):
    """The results of one run of the benchmarks."""

    date: datetime
    seed: int
    is_quick: bool
    """Whether it was the short form, whose figures are not meaningful."""
    machine: dict[str, int | float | str]
    versions: dict[str, str]
    figures: dict[str, list[Figure]]
    """The figures of each part."""
    failures: dict[str, str]
    """The errors of parts that lack figures."""
    seconds: dict[str, float]
    """How long each part took."""

    def save(self, path: Path) -> None:
        """Write them as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(indent=2) + "\n")


def read_results(path: Path) -> Results:
    """Return what `save` wrote."""
    return Results.model_validate_json(path.read_text())


def at_least(bound: float, of: Literal["value", "ratio"] = "ratio") -> Goal:
    """Return the goal of reaching so much, or such a ratio."""
    return Goal(of=of, sign="≥", bound=bound)


def at_most(bound: float, of: Literal["value", "ratio"] = "ratio") -> Goal:
    """Return the goal of staying within so much, or such a ratio."""
    return Goal(of=of, sign="≤", bound=bound)


def spread(
    name: str, values: Sequence[float], unit: str = "ms", goal: Goal | None = None
) -> list[Figure]:
    """Return the median, which the goal is for, and the 95th percentile as figures."""
    return [
        Figure(name=f"{name}, p50", value=median(values), unit=unit, goal=goal),
        Figure(name=f"{name}, p95", value=p95(values), unit=unit),
    ]


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


def shown(value: float) -> str:
    """Return a number with about three digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def figures_table(title: str, figures: Iterable[Figure]) -> Table:
    """Return figures as they are printed."""
    table = Table("figure", title=title, title_justify="left")
    for name in ("value", "unit", "ratio", "to", "goal", ""):
        table.add_column(name, justify="right" if name in ("value", "ratio") else "left")
    marks = {None: "", True: "[green]✓[/]", False: "[red]✗[/]"}
    for each in figures:
        table.add_row(
            each.name,
            shown(each.value),
            each.unit,
            "" if each.ratio is None else shown(each.ratio),
            each.yardstick or "",
            str(each.goal or ""),
            marks[each.is_reached],
        )
    return table
