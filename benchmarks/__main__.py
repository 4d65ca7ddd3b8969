"""Run all or some benchmarks and save their figures: `python -m benchmarks`."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.figures import Figure, Results, figures_table
from benchmarks.surroundings import Bench, machine, surroundings
from tracer.clock import utc_now

Measured = Callable[[Bench], Iterator[Figure]]
"""Measures one part, figure by figure."""

PARTS = {
    "start": "importing and connecting in an agent",
    "pipeline": "the cost of a tool call over a call of the function",
    "recording": "the cost of recording a tool call in the agent",
    "projection": "from serialized spans to the rows of their records",
    "span_path": "the files and functions that a span and a tool call pass",
    "ingest": "spans accepted and projected, events accepted",
    "single": "64 clients with a span a request",
    "tree": "reading a run's hierarchy",
    "lists": "pages of runs and of pieces of work, by each filter",
    "conversations": "listing and reading conversations among a million runs",
    "find": "searching the texts of all runs, and building their index",
    "mixed": "writing while the tree is read",
    "retention": "writing while older runs are pruned",
    "stalled_uploads": "writing while another project's uploads stall",
    "memory": "the server's memory under load",
    "live": "from commit to client",
    "live_page": "from commit to page",
    "viewer": "a run's page in a browser",
    "peers": "the same load on MLflow and Phoenix",
    "capacity": "the cost of a span and an event, and a test of this model on another load",
    "growth": "the same again with millions of tool calls in the tables",
}
"""Each is a module here, with a function `measured`."""

RESULTS = Path("dist")
WIDTH = 130


def main(
    only: Annotated[list[str] | None, typer.Option(help="A part to run; repeatable.")] = None,
    quick: Annotated[bool, typer.Option(help="Small sizes, to see that it works.")] = False,
    tool_calls: Annotated[
        int,
        typer.Option(
            min=1_000,
            help="How many tool calls the part `growth` makes; `find` makes at most a million.",
        ),
    ] = 5_000_000,
    before: Annotated[
        str | None,
        typer.Option(help="A commit that `ingest` and `projection` measure, too."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Which traces.")] = 1,
    out: Annotated[Path | None, typer.Option(help="The file to write.")] = None,
) -> None:
    """Measure, print each figure, and write them to a file, which grows part by part."""
    chosen = only or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        raise typer.BadParameter(
            f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}"
        )
    console = Console(width=WIDTH, highlight=False)
    date = utc_now()
    path = out or RESULTS / f"bench-{date:%Y-%m-%d-%H%M%S}.json"
    about = machine()
    say = _Progress(console)
    with surroundings(seed, quick, tool_calls, say, before) as bench:
        results = Results(
            date=date,
            seed=seed,
            is_quick=quick,
            machine=about,
            versions=bench.versions,
            figures={},
            failures={},
            seconds={},
        )
        for part in chosen:
            say.part = part
            _run(part, bench, results, console)
            results.save(path)
    console.print(f"Written to {path}")
    if results.failures:
        raise typer.Exit(1)


class _Progress:
    """Prints the progress."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.part = ""

    def __call__(self, what: str) -> None:
        self._console.print(f"[dim]{self.part}: {what} …[/]")


def _run(part: str, bench: Bench, results: Results, console: Console) -> None:
    """Run a part and store its figures, even those before a failure."""
    figures = results.figures[part] = []
    bench.say(PARTS[part])
    began = perf_counter()
    try:
        measure: Measured = import_module(f"benchmarks.{part}").measured
        for figure in measure(bench):
            figures.append(figure)
    except Exception as error:  # the other parts must still run
        results.failures[part] = _error_text(error, bench)
        console.print(traceback.format_exc(), style="red", markup=False)
    results.seconds[part] = round(perf_counter() - began, 1)
    console.print(figures_table(f"{part}: {PARTS[part]}", figures))


def _error_text(error: Exception, bench: Bench) -> str:
    """Return the error's text without paths of this machine."""
    text = f"{type(error).__name__}: {error}"
    for folder in (bench.folder, Path.cwd(), Path.home()):
        text = text.replace(str(folder), "…")
    return text[:500]


if __name__ == "__main__":
    typer.run(main)
