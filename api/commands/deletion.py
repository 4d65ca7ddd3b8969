"""The `tracer prune` and `tracer erase` commands, which connect to the database directly."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import Annotated, Any
from uuid import UUID

import orjson
import typer

from api.commands import database as db
from tracer.cli.terminal import AsJson, Project, console, counted, progress_bar, run_command
from tracer.errors import BadRequest
from tracer.records import DEFAULT_PROJECT
from tracer.settings import Settings
from tracer.storage.postgres.deletion import PostgresDeletion, PurgeResult
from tracer.storage.postgres.projects import SettingsOfProject
from tracer.storage.write_redaction import stored_subject
from tracer.store import Erasure


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
            db.database(settings) as url,
            db.project_settings(url, project) as settings_by_project,
        ):
            for name, each in settings_by_project.items():
                async with db.deletion(url, name) as deletion:
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
    user: Annotated[
        str | None,
        typer.Option(help="Delete all runs of this user: those whose `subject` is the user."),
    ] = None,
    run_id: Annotated[
        UUID | None, typer.Option("--run", metavar="ROOT_PLAN_ID", help="The run to delete.")
    ] = None,
    project: Project = DEFAULT_PROJECT,
    is_confirmed: Annotated[
        bool, typer.Option("--yes", help="Do not ask. Required outside of a terminal.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs, and delete nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete one run, or all runs of a user, with all data.

    The command asks for confirmation, unless `--yes` is passed. After the deletion, it counts the
    rows of these runs that remain in the database. If any remain, it exits with 1.
    """
    runs: list[UUID] = []

    async def find(settings: Settings) -> None:
        if user and run_id is not None:
            raise BadRequest("--user and --run exclude each other. Pass one of them.")
        if not user and run_id is None:
            raise BadRequest("Name a user with --user or a run with --run.")
        if is_confirmed and not dry_run:
            return
        if not dry_run and not sys.stdin.isatty():
            console.print(
                "tracer: Nothing was deleted, because standard input is not a terminal that could"
                " confirm it. Pass --yes to delete without a question, or --dry-run to list the"
                " runs.",
                style="red",
            )
            raise typer.Exit(2)
        async with (
            db.database(settings) as url,
            db.deletion(url, project) as deletion,
            db.reprojection(url, project) as reprojection,
        ):
            with console.status("Looking for the runs …"):
                unprojected = await reprojection.settle() if user else []
                runs.extend(await deletion.find_runs(_stored(user, settings), run_id))
        if dry_run:
            _print_foreseen(runs, unprojected, as_json)

    async def delete(settings: Settings) -> None:
        async with (
            db.database(settings) as url,
            db.deletion(url, project) as deletion,
            db.reprojection(url, project) as reprojection,
        ):
            with console.status("Deleting …"):
                if run_id is not None:
                    done = await deletion.erase_run(run_id)
                else:
                    subject = _stored(user, settings) or ""
                    done = await deletion.erase_subject(subject, reprojection.settle)
        _print_erasure(done, as_json)

    run_command(find)
    if dry_run:
        return
    if not is_confirmed:  # outside of the event loop, so that Ctrl-C ends the question
        of_user = f"{counted(len(runs), 'run')} of the user {user!r}"
        what = of_user if run_id is None else f"the run {run_id}"
        typer.confirm(f"Delete {what} with all data?", abort=True, err=True)
    run_command(delete)


def _stored(user: str | None, settings: Settings) -> str | None:
    """Return a user as the field `subject` stores it."""
    return stored_subject(user, settings.redaction) if user else None


def _print_foreseen(runs: list[UUID], unprojected: list[UUID], as_json: bool) -> None:
    if as_json:
        typer.echo(orjson.dumps({"wouldDelete": runs, "unprojected": unprojected}).decode())
    else:
        for each in runs:
            typer.echo(each)
        console.print(_in_words({"wouldDelete": len(runs)}))
        _print_unprojected(unprojected)
    if unprojected:
        raise typer.Exit(1)


def _print_erasure(done: Erasure, as_json: bool) -> None:
    if as_json:
        named = asdict(done)
        named["partsOfOthers"] = named.pop("parts_of_others")
        typer.echo(orjson.dumps(named).decode())
    else:
        console.print(
            f"{_deleted(done.runs, done.records, done.spans)}"
            f" {counted(done.left, 'row')} of them remain in the database. Words of these runs stay"
            " in the files of search indexes for at most a day; `tracer search rebuild` removes"
            " them from the index of this machine."
        )
        if done.parts_of_others:
            console.print(
                "These runs of other users are parts of the same work, and remain:"
                f" {', '.join(map(str, done.parts_of_others))}.",
                markup=False,
            )
        _print_unprojected(done.unprojected)
    if done.left or done.unprojected:
        raise typer.Exit(1)


def _print_unprojected(runs: list[UUID]) -> None:
    if runs:
        console.print(
            "The spans of these runs could not be projected or linked, so their user is unknown:"
            f" {', '.join(map(str, runs))}. Run `tracer reproject RUN …` and"
            " erase the user again, or delete a run with `tracer erase --run RUN`.",
            markup=False,
        )
