"""The `tracer prune` and `tracer erase` commands, which connect to the database directly."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any
from uuid import UUID

import orjson
import typer

from tracer import assembly
from tracer.cli.terminal import AsJson, Project, console, counted, progress_bar, run_command
from tracer.errors import BadRequest
from tracer.records.ids import DEFAULT_PROJECT
from tracer.settings import Settings
from tracer.storage.postgres.deletion.deletion import PostgresDeletion, PurgeResult
from tracer.storage.postgres.projects.projects import SettingsOfProject
from tracer.storage.write_redaction import WriteRedactor


def prune(
    project: Annotated[
        str | None, typer.Option(help="The project; all projects if omitted.")
    ] = None,
    older_than: Annotated[
        int | None,
        typer.Option(
            metavar="DAYS", min=0, max=36_500, help="Use this limit instead of the projects' own."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the runs, and delete nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete the runs that exceed their project's limits of age and number.

    Running servers also do this automatically.
    """

    async def run(settings: Settings) -> None:
        results = []
        async with (
            assembly.database(settings) as url,
            assembly.project_settings(url, project) as settings_by_project,
        ):
            for name, each in settings_by_project.items():
                async with assembly.deletion(url, name) as deletion:
                    results.append(
                        {"project": name, **await _prune(deletion, each, name, older_than, dry_run)}
                    )
        if as_json:
            typer.echo(orjson.dumps(results).decode())
            return
        for line in results:
            console.print(f"{line['project']}: {_in_words(line)}", markup=False)

    run_command(run)


async def _prune(
    deletion: PostgresDeletion,
    settings: SettingsOfProject,
    name: str,
    older_than: int | None,
    dry_run: bool,
) -> dict[str, int]:
    """Prune a project. Return the numbers of deleted rows.

    With `dry_run`, delete nothing, and return the number of runs that would be deleted.
    """
    project_settings = await settings.read()
    if older_than is not None:
        project_settings = replace(project_settings, keep_days=older_than, keep_runs=None)
    total = await deletion.count(project_settings)
    if dry_run:
        return {"wouldDelete": total}
    done = PurgeResult()
    with progress_bar() as progress:
        shown = progress.add_task(name, total=total)
        async for result in deletion.prune(project_settings):
            done += result
            progress.update(shown, completed=done.runs, total=max(total, done.runs))
    return asdict(done)


def _in_words(done: dict[str, Any]) -> str:
    if "wouldDelete" in done:
        return f"{counted(done['wouldDelete'], 'run')} would be deleted."
    return _deleted(done["runs"], done["records"], done["spans"])


def _deleted(runs: int, records: int, spans: int) -> str:
    return (
        f"Deleted {counted(runs, 'run')} with {counted(records, 'record')} and"
        f" {counted(spans, 'span')}."
    )


def erase(
    subject: Annotated[
        str | None, typer.Option(help="Delete all runs whose `subject` is this.")
    ] = None,
    run_id: Annotated[
        UUID | None, typer.Option("--run", metavar="ROOT_PLAN_ID", help="The run to delete.")
    ] = None,
    project: Project = DEFAULT_PROJECT,
    as_json: AsJson = False,
) -> None:
    """Delete one run, or all runs of a subject, with all data.

    The command then counts the rows of these runs that remain in the database. If any remain, it
    exits with 1.
    """

    async def run(settings: Settings) -> None:
        if subject and run_id is not None:
            raise BadRequest("--subject and --run exclude each other. Pass one of them.")
        if not subject and run_id is None:
            raise BadRequest("Name a subject with --subject or a run with --run.")
        async with (
            assembly.database(settings) as url,
            assembly.deletion(url, project) as deletion,
            assembly.reprojection(url, project) as reprojection,
        ):
            with console.status("Deleting …"):
                if run_id is not None:
                    done = await deletion.erase_run(run_id)
                else:
                    kept_as = WriteRedactor(settings.redaction).subject(subject or "")
                    done = await deletion.erase_subject(kept_as, reprojection.settle)
        if as_json:
            typer.echo(orjson.dumps(asdict(done)).decode())
        else:
            console.print(
                f"{_deleted(done.runs, done.records, done.spans)}"
                f" {counted(done.left, 'row')} of them remain in the database."
            )
            if done.unprojected:
                console.print(
                    "The spans of these runs could not be projected, so their subject is unknown:"
                    f" {', '.join(map(str, done.unprojected))}. Run `tracer reproject RUN …` and"
                    " erase the subject again, or delete a run with `tracer erase --run RUN`.",
                    markup=False,
                )
        if done.left or done.unprojected:
            raise typer.Exit(1)

    run_command(run)
