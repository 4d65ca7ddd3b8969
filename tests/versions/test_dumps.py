"""Databases of every schema version upgrade with their data, and the server serves them."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.api.commands import serving_here
from tests.api.commands import tracer as command
from tests.versions import locks
from tests.versions.dumps import RELEASED, dump_of, restore, revisions

WITHOUT_SPANS = "0011"
"""Its dump has runs whose spans are not stored: their records must stay."""

OTHERS = [each for each in revisions() if each not in (RELEASED, WITHOUT_SPANS)]


def test_every_revision_has_a_dump() -> None:
    missing = [each for each in revisions() if not dump_of(each).exists()]

    assert missing == [], "run `python -m tests.versions.dumps`"


@pytest.mark.parametrize(
    "revision",
    [RELEASED, WITHOUT_SPANS, *(pytest.param(each, marks=pytest.mark.thorough) for each in OTHERS)],
)
def test_dump_is_upgraded_and_served(
    revision: str, empty_database_url: str, tmp_path: Path
) -> None:
    restore(revision, empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        rows = connection.execute("SELECT root_plan_id FROM plan_execution_record").fetchall()
        calls = connection.execute("SELECT count(*) FROM act_tool_info").fetchone()

    roots = {str(root_plan_id) for (root_plan_id,) in rows}
    with serving_here(empty_database_url, tmp_path) as url:
        listed = httpx2.get(f"{url}/api/runs", timeout=60).json()["items"]
        trees = {
            root: httpx2.get(f"{url}/api/plans/{root}/tree", timeout=60).json() for root in roots
        }

    assert len(roots) >= 6
    assert {each["rootPlanId"] for each in listed} == roots
    assert {tree["rootPlanId"] for tree in trees.values()} == roots
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT count(*) FROM act_tool_info").fetchone() == calls


def test_check_lists_missing_migrations_with_their_locks_and_changes_nothing(
    empty_database_url: str, tmp_path: Path
) -> None:
    restore("0018", empty_database_url)

    done = command(tmp_path, "migrate", "--check", TRACER_DATABASE_URL=empty_database_url)

    assert done.code == 1, done.stderr
    lines = done.stdout.splitlines()
    missing = revisions()[revisions().index("0018") + 1 :]
    assert [line[:4] for line in lines if line[0] == "0"] == missing
    assert "      ACCESS EXCLUSIVE on act_tool_info" in lines
    assert "The schema has version 0018" in done.stderr
    with psycopg.connect(empty_database_url) as connection:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    assert found == [("0018",)]


def test_check_of_a_current_schema_exits_with_0(database_url: str, tmp_path: Path) -> None:
    done = command(tmp_path, "migrate", "--check", TRACER_DATABASE_URL=database_url)

    assert (done.code, done.stdout) == (0, "")
    assert "up to date" in done.stderr


@pytest.mark.parametrize("arguments", [("migrate",), ("migrate", "--check")], ids=" ".join)
def test_database_of_a_newer_version_is_refused_with_what_to_upgrade(
    arguments: tuple[str, ...], database_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    done = command(tmp_path, *arguments, TRACER_DATABASE_URL=database_url)

    assert done.code == 1
    assert "has version 9999" in done.stderr
    assert "Upgrade tracer-lineage-server" in done.stderr


def test_locks_of_every_migration_are_documented() -> None:
    assert list(json.loads(locks.FILE.read_text("utf-8"))) == revisions()[1:], (
        "run `python -m tests.versions.locks`"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("revision", revisions()[1:])
def test_documented_locks_equal_the_locks_that_a_migration_takes(
    revision: str, postgres_server_url: str
) -> None:
    written = json.loads(locks.FILE.read_text("utf-8"))

    assert locks.measured(postgres_server_url, revision) == written[revision]
