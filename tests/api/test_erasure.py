"""Erasing what a subject's runs hold: over HTTP, and by `tracer erase` and `tracer prune`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.api.commands import said_by
from tests.api.conftest import Api
from tests.api.projects import two_projects
from tests.storage.deletions import rich_run
from tests.store_contract.moments import Moments
from tracer.events import Event
from tracer.storage.engine import open_pool
from tracer.storage.postgres_writer import PostgresWriter
from tracer.storage.project_pool import ProjectPool


async def record(api: Api, *events: Event) -> None:
    assert (await api.writer.write(events)).refused == []


@pytest.mark.parametrize(
    "subject", ["p-1", "ward/7 ü?#", "a%2Fb", ".", "..", "/", "a//b/../c", "a+b&c=d"]
)
async def test_a_subject_is_erased_and_the_rest_is_counted(api: Api, subject: str) -> None:
    run, events = rich_run(calls=2, subject=subject)
    other = Moments()
    await record(api, *events, other.plan_started())

    answer = await api.client.delete("/api/subjects", params={"subject": subject})

    assert (answer.status_code, answer.json()) == (
        200,
        {"runs": 1, "records": 13, "spans": 0, "left": 0},
    )
    assert (await api.get(f"/api/runs/{run.root}")).status_code == 404
    assert (await api.get(f"/api/runs/{other.root}")).status_code == 200
    again = await api.client.delete("/api/subjects", params={"subject": subject})
    assert again.json() == {"runs": 0, "records": 0, "spans": 0, "left": 0}


async def test_nobody_erases_everybody_who_has_no_name(api: Api) -> None:
    run = Moments()
    await record(api, run.plan_started())
    assert (await api.client.delete("/api/subjects")).status_code == 422
    assert (await api.client.delete("/api/subjects?subject=")).status_code == 422
    assert (await api.get(f"/api/runs/{run.root}")).status_code == 200


async def test_a_subject_of_another_project_stays(database_url: str, tmp_path: Path) -> None:
    async with two_projects(database_url, tmp_path) as doors:
        doors.client.headers["Authorization"] = f"Bearer {doors.home.secret}"
        gone = await doors.client.delete(f"/api/subjects?subject={doors.other.canary}")
        assert gone.json()["runs"] == 0
        doors.client.headers["Authorization"] = f"Bearer {doors.other.secret}"
        run = await doors.client.get(f"/api/runs/{doors.other.run.root}")
        assert run.json()["subject"] == doors.other.canary


async def test_the_commands_delete_and_say_what_is_left(database_url: str, tmp_path: Path) -> None:
    _, events = rich_run(calls=1, subject="p-1")
    single, old = Moments(), Moments()
    async with open_pool(database_url) as pool:
        writer = PostgresWriter(ProjectPool(pool))
        events += [single.plan_started(), old.plan_started(), old.plan_finished()]
        assert (await writer.write(events)).refused == []

    both, erased, counted, none, foreseen, pruned = said_by(
        tmp_path,
        database_url,
        f"erase --run {single.root} --subject p-1",
        f"erase --run {single.root}",
        "erase --subject p-1 --json",
        "erase --subject=",
        "prune --older-than 0 --dry-run --json",
        "prune --older-than 0",
    )

    assert "either a subject or a run" in both
    assert "Deleted: 1 runs, 1 records" in erased
    assert json.loads(counted) == {"runs": 1, "records": 9, "spans": 0, "left": 0}
    assert "--subject" in none
    assert json.loads(foreseen) == [{"project": "default", "wouldDelete": 1}]
    assert "default: 1 runs deleted, 1 records" in pruned
