"""The command `tracer check`, which works over HTTP."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from tracer.cli.names import EXTRAS
from tracer.cli.terminal import report_errors
from tracer.errors import NOTHING_FOUND, BadRequest, ConfigurationError, what_to_install
from tracer.reading import read


def check(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A handle or an id.")],
    against: Annotated[str, typer.Option(help="A trajectory file, or another run.")],
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, for a pull request's summary.")
    ] = False,
) -> None:
    """Compare a run of the server at TRACER_URL with a trajectory file, or with another run.

    Exits with 3 if the run differs.
    """
    with report_errors(), read() as server:
        try:
            from tracer.testing import trajectory
        except ImportError as error:
            needed = what_to_install("tracer check", EXTRAS["check"])
            raise ConfigurationError(needed) from error
        if Path(against).suffix in (".yaml", ".yml", ".json"):
            wanted = trajectory.read_file(Path(against))
        else:
            wanted = trajectory.trajectory_of(server.run(against))
        found = server.run(run)
        if found.node.behind:
            raise BadRequest("The server has not read all spans of the run yet. Try again later.")
        comparison = trajectory.compare(found, wanted)
        lines = trajectory.difference_lines(found, comparison, against)
        typer.echo(_markdown(lines, trajectory.figures(found)) if markdown else "\n".join(lines))
        if comparison.sentences:
            raise typer.Exit(NOTHING_FOUND)


def _markdown(lines: list[str], figures: dict[str, float | None]) -> str:
    """Return Markdown. All recorded texts are in a code block, so that they cannot be markup."""
    text = "\n".join(lines[1:]).strip("\n")
    fence = "`" * max([3, *(len(each) + 1 for each in re.findall("`+", text))])
    shown = [
        f"{name} {value:g}" if value is not None else f"{name} unknown"
        for name, value in figures.items()
    ]
    heading = lines[0].removesuffix(":").removesuffix(".")
    return f"### {heading}\n\n{', '.join(shown)}\n\n{fence}text\n{text}\n{fence}"
