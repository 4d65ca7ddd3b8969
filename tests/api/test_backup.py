"""A dump restored into a new database gives the same answers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from tests.api.conftest import client_of, serving_parts
from tests.databases import everything_stored
from tests.otel.made_traces import make_span, spans_from
from tests.otel.sent import traces_of
from tests.projecting import project_in
from tests.sample_runs import sample_run
from tracer.records.access import Scope
from tracer.runtime.scripted_model import ScriptedModel
from tracer.storage.embedded import installed_programs
from tracer.storage.postgres import PostgresWriter, ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.keys import ApiKeys, Authenticator
from tracer.storage.postgres.project_stores import PostgresSessions, ProjectStores
from tracer.storage.postgres.projects import ensure_project

TRACE = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "a tool"}


@pytest.mark.thorough
async def test_restored_database_returns_the_same_bytes_as_the_original(
    database_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    run, open_run = sample_run(), sample_run(finished=False)
    async with open_pool(database_url) as pool:
        writer = postgres_writer(ProjectPool(pool))
        await writer.write([*run.events, *open_run.events])
        await writer.write_spans(traces_of(spans_from(make_span(1, "a tool", TRACE))))
        await project_in(pool)
        await writer.delete_run(await _another(writer))
        await PostgresSessions(ProjectPool(pool)).change_state("s-1", {"messages": 3}, [])
        other = await ensure_project(pool, "other")
        await postgres_writer(ProjectPool(pool, other)).write(sample_run().events)
        key = (await ApiKeys(ProjectPool(pool, other)).create("k", [Scope.READ])).secret

    dump = tmp_path / "tracer.dump"
    _carried_out("pg_dump", "--format=custom", f"--file={dump}", database_url)
    _carried_out("pg_restore", "--exit-on-error", f"--dbname={empty_database_url}", str(dump))

    paths = ["/api/runs", "/api/tool-calls"]
    for each in (run, open_run):
        paths += [f"/api/runs/{each.root}", f"/api/plans/{each.root}/tree"]
        paths += [f"/api/runs/{each.root}/export"]
    before = await _answers(database_url, tmp_path / "old", paths)
    after = await _answers(empty_database_url, tmp_path / "new", paths)
    assert all(before)
    assert after == before
    assert sorted(everything_stored(empty_database_url).splitlines()) == sorted(
        everything_stored(database_url).splitlines()
    )
    assert _walls(empty_database_url) == _walls(database_url) != []
    async with open_pool(empty_database_url) as pool, ProjectStores(pool) as stores:
        assert await stores.is_walled()
        assert (await Authenticator(pool).by_key(key)).project == "other"
        answer = await postgres_writer(ProjectPool(pool)).write(sample_run().events)
        assert answer.refused == []


async def _another(writer: PostgresWriter) -> UUID:
    """Write a run and return its id."""
    run = sample_run()
    await writer.write(run.events)
    return run.root


def _carried_out(program: str, *arguments: str) -> None:
    ran = subprocess.run(
        [installed_programs() / program, *arguments], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


async def _answers(database_url: str, home: Path, paths: list[str]) -> list[bytes]:
    async with (
        serving_parts(database_url, home, ScriptedModel([])) as parts,
        client_of(parts) as client,
    ):
        answers = [await client.get(path) for path in paths]
    assert [answer.status_code for answer in answers] == [200] * len(paths)
    return [answer.content for answer in answers]


def _walls(database_url: str) -> list[tuple[object, ...]]:
    """Return the policies, who is held to them, and what the program's role may do."""
    with psycopg.connect(database_url) as connection:
        return connection.execute(_WALLS).fetchall()


_WALLS = """
SELECT tablename, policyname, roles::text, qual, with_check, rowsecurity::text
FROM pg_policies JOIN pg_tables USING (schemaname, tablename)
UNION ALL
SELECT table_name, grantee, privilege_type, NULL, NULL, NULL
FROM information_schema.role_table_grants WHERE grantee LIKE 'tracer%'
ORDER BY 1, 2, 3"""
