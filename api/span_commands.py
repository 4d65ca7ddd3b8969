"""The `tracer pack-spans` command: beside the database."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated

import orjson
import typer
from rich.progress import Progress

from api.terminal import AsJson, carry_out, progress_bar, said
from tracer import assembly
from tracer.settings import Settings
from tracer.storage.span_packing import SpanPacking

AnyProject = Annotated[str | None, typer.Option(help="The project; all projects if omitted.")]


def pack_spans(project: AnyProject = None, as_json: AsJson = False) -> None:
    """Move spans that earlier versions stored into compressed blocks. Servers do so, too."""

    async def run(settings: Settings) -> None:
        done = []
        async with (
            assembly.database(settings) as url,
            assembly.span_packing(url, project) as found,
        ):
            with progress_bar() as progress:
                for name, packing in found.items():
                    runs = await _packed(packing, name, progress)
                    done.append({"project": name, "runs": runs, "left": await packing.count()})
        if as_json:
            typer.echo(orjson.dumps(done).decode())
            return
        for line in done:
            left = f" {line['left']} runs are left: run the command again." if line["left"] else ""
            said.print(
                f"{line['project']}: packed the spans of {line['runs']} runs.{left}", markup=False
            )

    carry_out(run)


async def _packed(packing: SpanPacking, name: str, progress: Progress) -> int:
    """Pack the spans of a project, and return of how many runs."""
    total = await packing.count()
    shown = progress.add_task(name, total=total)
    runs = 0
    async with aclosing(packing.pack()) as working:
        async for _ in working:
            runs += 1
            progress.update(shown, completed=runs, total=max(total, runs))
    return runs
