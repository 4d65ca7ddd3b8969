"""Write a page about one run of the benchmarks, or a comparison of two.

`python -m benchmarks.report A.json [B.json]`. The page is one HTML file that needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import log10
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.figures import Figure, Results, read_results, shown

_DECADES = 2.0
"""How far the plot goes to each side of the goal, in powers of ten."""

_WIDTH = 760
_NAMES = 420
_BAR = 9
_ROW = 26

_STYLE = """
:root { color-scheme: light dark; --dim: light-dark(#667, #99a); --line: light-dark(#dde, #334);
    --before: light-dark(#b9c4d6, #55627a); --good: light-dark(#2c7a54, #57b386);
    --bad: light-dark(#b4552d, #d98a63) }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem }
h2 { margin: 2.5rem 0 .5rem; font-size: 1.1rem }
p, dl { color: var(--dim); margin: .3rem 0 }
.wide { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--line) }
th { font-weight: 500; color: var(--dim) }
.number { text-align: right }
.good { color: var(--good) } .bad { color: var(--bad) }
svg { display: block; margin: .8rem 0 } svg text { font-size: 12px; fill: currentColor }
svg .name { text-anchor: end } svg .dim { fill: var(--dim) }
svg .before { fill: var(--before) } svg .reached { fill: var(--good) }
svg .missed { fill: var(--bad) } svg line { stroke: var(--dim) }
"""


def page(runs: Sequence[Results]) -> str:
    """Return the page about one run, or about two."""
    parts = dict.fromkeys(part for run in runs for part in (*run.figures, *run.failures))
    body = "".join([*_about(runs), *(text for part in parts for text in _part(part, runs))])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Benchmarks</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>Benchmarks</h1>{body}</html>\n"
    )


def _about(runs: Sequence[Results]) -> Iterator[str]:
    for label, run in zip("AB", runs, strict=False):
        machine = ", ".join(f"{name} {value}" for name, value in run.machine.items())
        versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
        quick = " The short form: its figures are not meaningful." if run.is_quick else ""
        yield f"<p><b>{label}</b>: {run.date:%Y-%m-%d %H:%M} UTC, seed {run.seed}.{quick}"
        yield f"<br>{escape(machine)}.<br>{escape(versions)}.</p>"
    yield (
        "<p>A plot shows the distance of each figure from its goal: the line is the goal, and its "
        "right side is better; of two runs, A is pale. Ratios use yardsticks of the same run."
        "</p>"
    )


def _part(part: str, runs: Sequence[Results]) -> Iterator[str]:
    """Yield a part's plot and table."""
    figures_by_run = [{figure.name: figure for figure in run.figures.get(part, ())} for run in runs]
    names = list(dict.fromkeys(name for figures in figures_by_run for name in figures))
    yield f"<h2>{escape(part)}</h2>"
    for label, run in zip("AB", runs, strict=False):
        if part in run.failures:
            yield f'<p class="bad">{label} failed: {escape(run.failures[part][:300])}</p>'
    rows = [(name, [figures.get(name) for figures in figures_by_run]) for name in names]
    # How far it is from nothing at all cannot be drawn.
    drawn = [row for row in rows if any(each and each.goal and each.goal.bound for each in row[1])]
    yield f'<div class="wide">{_plot(drawn)}{_table(rows)}</div>'


Row = tuple[str, Sequence[Figure | None]]


def _plot(rows: Sequence[Row]) -> str:
    """Return a bar for each figure that has a goal, from the goal's line."""
    if not rows:
        return ""
    middle = _NAMES + (_WIDTH - _NAMES) / 2
    reach = (_WIDTH - _NAMES) / 2 - 10
    height = _ROW * len(rows) + 22
    drawn = []
    for decade in range(-int(_DECADES), int(_DECADES) + 1):
        x = middle + reach * decade / _DECADES
        solid = "" if decade == 0 else ' stroke-dasharray="1 5"'
        drawn.append(f'<line x1="{x}" x2="{x}" y1="0" y2="{height - 20}"{solid}/>')
        label = "goal" if decade == 0 else f"{10.0**decade:g}×"
        drawn.append(
            f'<text class="dim" x="{x}" y="{height - 5}" text-anchor="middle">{label}</text>'
        )
    for place, (name, row) in enumerate(rows):
        y = place * _ROW + 4
        drawn.append(
            f'<text class="name" x="{_NAMES - 8}" y="{y + 13}">{escape(_short(name))}</text>'
        )
        for number, figure in enumerate(row):
            if figure is None or figure.goal is None:
                continue
            length = reach * max(-_DECADES, min(_DECADES, log10(_distance(figure)))) / _DECADES
            latest = number == len(row) - 1
            style = ("reached" if figure.is_reached else "missed") if latest else "before"
            drawn.append(
                f'<rect class="{style}" x="{min(middle, middle + length):.1f}"'
                f' y="{y + number * (_BAR + 1)}" width="{max(abs(length), 1.5):.1f}"'
                f' height="{_BAR}"><title>{shown(_distance(figure))} of the goal</title></rect>'
            )
    return (
        f'<svg role="img" aria-label="Distance from the goals" width="{_WIDTH}"'
        f' height="{height}">{"".join(drawn)}</svg>'
    )


def _distance(figure: Figure) -> float:
    """Return how many times better than its goal a figure is; below 1 it is worse."""
    assert figure.goal is not None
    reached = figure.value if figure.goal.of == "value" else figure.ratio
    assert reached is not None
    factor = max(reached, 1e-9) / figure.goal.bound
    return factor if figure.goal.sign == "≥" else 1 / factor


def _short(name: str) -> str:
    return name if len(name) < 60 else f"{name[:58]}…"


def _table(rows: Sequence[Row]) -> str:
    runs = len(rows[0][1]) if rows else 0
    labels = "AB"[:runs]
    heads = [("figure", "")]
    heads += [(label, "number") for label in labels] + [("", "")]
    heads += [("B/A", "number")] * (runs == 2)
    heads += [(f"ratio {label}" if runs == 2 else "ratio", "number") for label in labels]
    heads += [("to", ""), ("goal", "")]
    lines = ["".join(f'<th class="{style}">{name}</th>' for name, style in heads)]
    for name, row in rows:
        known = [figure for figure in row if figure is not None]
        last = known[-1]
        cells = [f"<td>{escape(name)}</td>"]
        cells += [_number(None if figure is None else figure.value) for figure in row]
        cells.append(f"<td>{escape(last.unit)}</td>")
        if runs == 2:
            both = len(known) == 2 and known[0].value != 0
            cells.append(_number(known[1].value / known[0].value if both else None))
        cells += [_number(None if figure is None else figure.ratio) for figure in row]
        cells.append(f"<td>{escape(last.yardstick or '')}</td>")
        style = {None: "", True: "good", False: "bad"}[last.is_reached]
        mark = {None: "", True: " ✓", False: " ✗"}[last.is_reached]
        cells.append(f'<td class="{style}">{last.goal or ""}{mark}</td>')
        lines.append("".join(cells))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _number(value: float | None) -> str:
    return f'<td class="number">{"" if value is None else shown(value)}</td>'


def main(
    run: Annotated[Path, typer.Argument(help="A file that `make bench` wrote.")],
    other: Annotated[Path | None, typer.Argument(help="Another, to be compared with it.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The page; by default next to the last file.")
    ] = None,
) -> None:
    """Write a page about a run of the benchmarks, or about two."""
    files = [run] if other is None else [run, other]
    path = out or files[-1].with_suffix(".html")
    path.write_text(page([read_results(file) for file in files]))
    typer.echo(f"Written to {path}")


if __name__ == "__main__":
    typer.run(main)
