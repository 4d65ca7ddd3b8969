"""Project settings are read and changed over HTTP and with `tracer projects`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from tests.api.commands import Result, Tracer
from tests.api.projects import Doors, two_projects
from tests.storage.postgres.lock_waits import until_waiting
from tracer.errors import BadRequest, StoreUnavailable
from tracer.records.access import ProjectSettings, Scope
from tracer.records.masks import PayloadPolicy
from tracer.storage.postgres import ProjectPool, open_pool
from tracer.storage.postgres.keys import ApiKeys
from tracer.storage.postgres.projects import SettingsOfProject

FOR_EVER = {
    "name": "default",
    "keepDays": None,
    "keepRuns": None,
    "payloads": "keep",
}


@pytest.fixture
async def doors(database_url: str, tmp_path: Path) -> AsyncIterator[Doors]:
    async with two_projects(database_url, tmp_path) as doors:
        doors.client.headers["Authorization"] = f"Bearer {doors.home.secret}"
        yield doors


async def test_project_settings_keep_everything_by_default_and_can_be_changed(doors: Doors) -> None:
    assert (await doors.client.get("/api/project")).json() == FOR_EVER
    change = {"keepDays": 90, "payloads": "preview"}
    changed = await doors.client.patch("/api/project", json=change)
    assert changed.json() == FOR_EVER | change
    again = await doors.client.patch("/api/project", json={"keepDays": None, "keepRuns": 7})
    assert again.json() == FOR_EVER | {"keepRuns": 7, "payloads": "preview"}
    assert (await doors.client.get("/api/project")).json() == again.json()


async def test_settings_of_projects_are_independent(doors: Doors) -> None:
    await doors.client.patch("/api/project", json={"keepDays": 1})
    theirs = {"Authorization": f"Bearer {doors.other.secret}"}
    shown = await doors.client.get("/api/project", headers=theirs)
    assert shown.json() == FOR_EVER | {"name": "other"}


async def test_key_with_only_read_scope_cannot_change_settings(
    doors: Doors, database_url: str
) -> None:
    async with open_pool(database_url) as pool:
        reading = await ApiKeys(ProjectPool(pool)).create("reads", [Scope.READ])
        recording = await ApiKeys(ProjectPool(pool)).create("records", [Scope.RECORD])
    read = {"Authorization": f"Bearer {reading.secret}"}
    record = {"Authorization": f"Bearer {recording.secret}"}
    assert (await doors.client.get("/api/project", headers=read)).status_code == 200
    assert (await doors.client.get("/api/project", headers=record)).status_code == 403
    refused = await doors.client.patch("/api/project", json={"keepDays": 1}, headers=read)
    assert refused.status_code == 403
    assert (await doors.client.get("/api/project")).json() == FOR_EVER


async def test_invalid_project_settings_are_rejected(doors: Doors) -> None:
    changes: list[dict[str, object]] = [
        {"keepDays": 0},
        {"keepDays": 36_501},
        {"keepRuns": 2**63},
        {"payloads": "some"},
        {"keep": 1},
    ]
    statuses = [
        (await doors.client.patch("/api/project", json=change)).status_code for change in changes
    ]
    failures = [
        f"{change}: expected 422, got {status}"
        for change, status in zip(changes, statuses, strict=True)
        if status != 422
    ]

    assert failures == []
    assert (await doors.client.get("/api/project")).json() == FOR_EVER


async def test_cached_project_settings_change_only_after_expiry_or_a_read(
    database_url: str,
) -> None:
    async with open_pool(database_url) as pool:
        lasting = SettingsOfProject(ProjectPool(pool), known_seconds=3600)
        fleeting = SettingsOfProject(ProjectPool(pool), known_seconds=0)
        assert await lasting.known() == ProjectSettings()
        changed = await fleeting.change(keep_runs=3, payloads=PayloadPolicy.DROP)
        assert (await lasting.known(), await fleeting.known()) == (ProjectSettings(), changed)
        assert await lasting.read() == await lasting.known() == changed
        for number in (-1, 2**70):
            with pytest.raises(BadRequest):
                await fleeting.change(keep_runs=number)
        assert await fleeting.read() == changed


async def test_concurrent_readers_of_settings_share_one_query(database_url: str) -> None:
    async with open_pool(database_url) as pool:
        settings = SettingsOfProject(ProjectPool(pool), known_seconds=0)
        changed = await settings.change(keep_runs=3)
        with psycopg.connect(database_url) as holder:
            holder.execute("LOCK TABLE project")
            asking = [asyncio.create_task(settings.known()) for _ in range(20)]
            await until_waiting(database_url, 1)
            asking[0].cancel()
            holder.rollback()
            cancelled, *found = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(cancelled, asyncio.CancelledError)
        assert found == [changed] * 19
        assert pool.get_stats()["requests_num"] == 2
        await pool.close()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await settings.known()


def test_commands_change_and_list_project_settings(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    def projects(line: str) -> Result:
        return tracer(tmp_path, "projects", *line.split(), TRACER_DATABASE_URL=database_url)

    changed = projects("set default --keep-days 30 --keep-runs none --payloads drop")
    refused = projects("set default --keep-days soon")
    listed = projects("list --json")
    shown = projects("list")

    assert [each.code for each in (changed, refused, listed, shown)] == [0, 1, 0, 0]
    assert "default: runs are kept for 30 days; payloads: drop." in changed.stderr
    assert "not a number" in refused.stderr
    no_index = {"indexedUpTo": None, "runsToIndex": None}
    assert json.loads(listed.stdout) == [FOR_EVER | {"keepDays": 30, "payloads": "drop"} | no_index]
    assert "keep days" in shown.stdout
    assert "no index on this machine" in shown.stdout
