"""No operation of the server reveals or changes the data of another project."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.api.projects import Attack, attack, two_projects
from tracer.questions import QUESTIONS
from tracer.storage.postgres import Pool, ProjectPool


async def test_no_operation_reads_or_changes_another_project(
    database_url: str, tmp_path: Path
) -> None:
    async with two_projects(database_url, tmp_path) as doors:
        back = await attack(doors, doors.other, doors.home)
        there = await attack(doors, doors.home, doors.other)

    _tell("application and row-level security", there, back)
    assert there.leaks + back.leaks == []
    assert there.operations > 25


async def test_projects_find_their_own_runs_and_no_others(
    database_url: str, tmp_path: Path
) -> None:
    async with two_projects(database_url, tmp_path) as doors:
        for caller, asked in product((doors.home, doors.other), repeat=2):
            headers = {"Authorization": f"Bearer {caller.secret}"}
            for path in ("/api/runs", "/api/runs/histogram", f"/api/runs/{asked.run.root}/search"):
                query = {"q": asked.canary}
                answer = await doors.client.get(path, params=query, headers=headers)
                found = answer.json().get("items") or answer.json().get("count")
                assert bool(found) == (caller is asked), (path, answer.text)
        for caller, asked in product((doors.home, doors.other), repeat=2):
            for path in ("overview", "spend?by=agent", f"find?id={asked.run.root}", "runs/facets"):
                headers = {"Authorization": f"Bearer {caller.secret}"}
                answer = await doors.client.get(f"/api/{path}", headers=headers)
                assert (asked.canary in answer.text) == (caller is asked), (path, answer.text)


async def test_mcp_tools_answer_only_about_the_project_of_the_key(
    database_url: str, tmp_path: Path
) -> None:
    answered = set()
    async with two_projects(database_url, tmp_path) as doors:
        for caller, asked in product((doors.home, doors.other), repeat=2):
            headers = {"Authorization": f"Bearer {caller.secret}"}
            for call in asked.tool_calls():
                answer = await doors.client.post("/mcp", content=call, headers=headers | JSON)
                result = answer.json()["result"]
                has_found = asked.canary in result["content"][0]["text"]
                if caller is not asked:
                    assert not has_found, (call, result)
                else:
                    assert not result["isError"], (call, result)
                    answered.add((asked.canary, json.loads(call)["params"]["name"], has_found))

    found = {(canary, name) for canary, name, has_found in answered if has_found}
    names = QUESTIONS.keys() - {"diff"}  # a run does not differ from itself
    assert found == {*product(("canary-home", "canary-other"), names)}


JSON = {"Content-Type": "application/json", "Accept": "application/json"}


@dataclass(frozen=True)
class Misled(ProjectPool):
    """A project's pool whose queries name the other project: the application is all wrong."""

    wall: int = 0

    @property
    def walled_project_id(self) -> int:
        return self.wall


async def test_row_level_security_blocks_queries_for_the_other_project(
    database_url: str, tmp_path: Path
) -> None:
    def misled(pool: Pool, project_id: int) -> ProjectPool:
        return Misled(pool, _other(project_id), wall=project_id)

    async with two_projects(database_url, tmp_path, misled) as doors:
        back = await attack(doors, doors.other, doors.home)
        there = await attack(doors, doors.home, doors.other)

    _tell("row-level security alone, queries for the other project", there, back)
    assert there.leaks + back.leaks == []


async def test_row_level_security_blocks_queries_without_a_project(
    database_url: str, tmp_path: Path, forgotten: list[str]
) -> None:
    async with two_projects(database_url, tmp_path) as doors:
        back = await attack(doors, doors.other, doors.home)
        there = await attack(doors, doors.home, doors.other)

    _tell(f"row-level security alone, {len(forgotten)} queries without a project", there, back)
    assert there.leaks + back.leaks == []
    assert len(forgotten) > 50


@pytest.mark.thorough
async def test_isolation_check_finds_leaks_if_the_isolation_is_removed(
    database_url: str, tmp_path: Path
) -> None:
    def unwalled(pool: Pool, project_id: int) -> ProjectPool:
        return ProjectPool(pool, _other(project_id))

    async with two_projects(database_url, tmp_path, unwalled) as doors:
        there = await attack(doors, doors.home, doors.other, timeout=5)

    _tell("neither", there)
    leaky = {leak.split()[0] for leak in there.leaks}
    assert len(leaky) > 15
    assert {"read_overview", "read_spend", "read_run_facets"} <= leaky
    assert "the victim's rows changed" in there.leaks


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Take the condition that names the project out of every query, and return those."""
    condition = re.compile(r"\b([\w.]*project_id = )(%\(project_id\)s|%s|\$1)(?!\w)")
    changed: list[str] = []
    execute = psycopg.AsyncCursor.execute

    async def without(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        text = condition.sub(r"\2::integer IS NOT NULL", str(query))
        if text != str(query):
            changed.append(text)
        return await execute(self, text, *arguments, **options)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", without)
    return changed


def _other(project_id: int) -> int:
    return {1: 2, 2: 1}[project_id]


def _tell(walls: str, *attacks: Attack) -> None:
    for each in attacks:
        sys.stdout.write(f"{walls}: {each}\n")
