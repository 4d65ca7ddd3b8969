"""Erasing the runs of a subject: over HTTP, and by `tracer erase` and `tracer prune`."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from tests.api.commands import Result, Tracer
from tests.api.commands import tracer as tracer_command
from tests.api.conftest import Api
from tests.api.projects import two_projects
from tests.contract.moments import Moments
from tests.projecting import projecting
from tests.storage.postgres.deletions import rich_run
from tracer.records.events import Event
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer


async def record(api: Api, *events: Event) -> None:
    assert (await api.writer.write(events)).refused == []


SUBJECTS = ("p-1", "ward/7 ü?#", "a%2Fb", ".", "..", "/", "a//b/../c", "a+b&c=d")


async def test_erasing_a_subject_deletes_only_its_runs_and_counts_them(api: Api) -> None:
    runs = {}
    for subject in SUBJECTS:
        run, events = rich_run(calls=2, subject=subject)
        runs[subject] = run.root
        await record(api, *events)
    other = Moments()
    await record(api, other.plan_started())

    failures = []
    for subject, root in runs.items():
        found = [
            (await api.client.delete("/api/subjects", params={"subject": subject})).json()["runs"]
            for _ in range(2)
        ]
        found.append((await api.get(f"/api/runs/{root}")).status_code)
        found.append((await api.get(f"/api/runs/{other.root}")).status_code)
        if found != [1, 0, 404, 200]:
            failures.append(f"{subject!r}: expected [1, 0, 404, 200], got {found}")

    assert failures == []


async def test_erasure_response_counts_deleted_rows(api: Api) -> None:
    _, events = rich_run(calls=2, subject="p-1")
    await record(api, *events)

    answer = await api.client.delete("/api/subjects", params={"subject": "p-1"})

    assert (answer.status_code, answer.json()) == (
        200,
        {
            **{"runs": 1, "records": 13, "spans": 0, "left": 0},
            **{"unprojected": [], "partsOfOthers": []},
        },
    )


async def test_erasing_an_empty_subject_is_rejected(api: Api) -> None:
    run = Moments()
    await record(api, run.plan_started())
    assert (await api.client.delete("/api/subjects")).status_code == 422
    assert (await api.client.delete("/api/subjects?subject=")).status_code == 422
    assert (await api.get(f"/api/runs/{run.root}")).status_code == 200


async def test_erasure_keeps_the_same_subject_in_another_project(
    database_url: str, tmp_path: Path
) -> None:
    async with two_projects(database_url, tmp_path) as doors:
        doors.client.headers["Authorization"] = f"Bearer {doors.home.secret}"
        async with projecting(database_url, doors.home.project_id):
            gone = await doors.client.delete(f"/api/subjects?subject={doors.other.canary}")
        assert gone.json()["runs"] == 0
        doors.client.headers["Authorization"] = f"Bearer {doors.other.secret}"
        run = await doors.client.get(f"/api/runs/{doors.other.run.root}")
        assert run.json()["subject"] == doors.other.canary


def test_erase_and_prune_commands_report_how_many_runs_they_delete(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    _, events = rich_run(calls=1, subject="p-1")
    single, old = Moments(), Moments()
    events += [single.plan_started(), old.plan_started(), old.plan_finished()]
    asyncio.run(written(database_url, events))

    def command(line: str) -> Result:
        return tracer(tmp_path, *line.split(), TRACER_DATABASE_URL=database_url)

    both = command(f"erase --run {single.root} --user p-1")
    erased = command(f"erase --yes --run {single.root}")
    counted = command("erase --yes --user p-1 --json")
    none = command("erase --user=")
    foreseen = command("prune --older-than 0 --dry-run --json")
    pruned = command("prune --older-than 0")

    codes = [each.code for each in (both, erased, counted, none, foreseen, pruned)]
    assert codes == [1, 0, 0, 1, 0, 0]
    assert "exclude each other" in both.stderr
    assert "Deleted 1 run with 1 record" in erased.stderr
    assert json.loads(counted.stdout) == {
        "runs": 1,
        "records": 9,
        "spans": 0,
        "left": 0,
        "unprojected": [],
        "partsOfOthers": [],
    }
    assert "--user" in none.stderr
    assert json.loads(foreseen.stdout) == [{"project": "default", "wouldDelete": 1}]
    assert "default: Deleted 1 run with 1 record" in pruned.stderr


def test_erase_command_deletes_nothing_without_confirmation(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    runs = [rich_run(calls=1, subject="p-1") for _ in range(2)]
    asyncio.run(written(database_url, [event for _, events in runs for event in events]))
    ids = [str(run.root) for run, _ in runs]

    def command(line: str) -> Result:
        return tracer(tmp_path, *line.split(), TRACER_DATABASE_URL=database_url)

    unconfirmed = command("erase --user p-1")
    foreseen = command("erase --user p-1 --dry-run --json")
    listed = command(f"erase --run {ids[0]} --dry-run")
    absent = command(f"erase --run {UUID(int=7)} --dry-run")

    assert (unconfirmed.code, unconfirmed.stdout) == (2, "")
    assert "--yes" in unconfirmed.stderr
    assert foreseen.code == 0
    assert json.loads(foreseen.stdout) == {"wouldDelete": sorted(ids), "unprojected": []}
    assert (listed.code, listed.stdout) == (0, f"{ids[0]}\n")
    assert "1 run would be deleted." in listed.stderr
    assert absent.code == 3
    assert json.loads(command("erase --user p-1 --yes --json").stdout)["runs"] == 2


@pytest.mark.parametrize(
    ("answer", "code", "left"),
    [("n", 1, 1), pytest.param("y", 0, 0, marks=pytest.mark.thorough)],
)
def test_erase_command_asks_on_a_terminal(
    answer: str, code: int, left: int, database_url: str, tmp_path: Path
) -> None:
    _, events = rich_run(calls=1, subject="p-1")
    asyncio.run(written(database_url, events))
    ours, terminal = pty.openpty()
    os.write(ours, f"{answer}\n".encode())

    erased = subprocess.run(
        [sys.executable, "-m", "tracer.cli", "erase", "--user", "p-1"],
        env={**os.environ, "TRACER_HOME": str(tmp_path), "TRACER_DATABASE_URL": database_url},
        stdin=terminal,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    os.close(terminal)
    os.close(ours)
    foreseen = tracer_command(
        tmp_path, "erase", "--user", "p-1", "--dry-run", "--json", TRACER_DATABASE_URL=database_url
    )

    assert erased.returncode == code, erased.stderr
    assert "Delete 1 run of the user 'p-1' with all data?" in erased.stderr
    assert len(json.loads(foreseen.stdout)["wouldDelete"]) == left


async def written(database_url: str, events: list[Event]) -> None:
    async with open_pool(database_url) as pool:
        answer = await postgres_writer(ProjectPool(pool)).write(events)
    assert answer.refused == []
