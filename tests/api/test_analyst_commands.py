"""`tracer analysts`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.api.commands import Result, Tracer, tracer_process
from tests.citus_databases import without_analysts


@without_analysts
def test_analysts_are_added_listed_and_removed(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    def analysts(*arguments: str) -> str:
        done = tracer(tmp_path, "analysts", *arguments, TRACER_DATABASE_URL=database_url)
        assert done.code == 0, done.stderr
        return done.stdout

    role = f"{urlsplit(database_url).path[1:]}'s reader"
    _, url = shlex.split(analysts("add", role))
    try:
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM trace.runs").fetchone() == (0,)
        assert json.loads(analysts("list", "--json")) == [
            {"role": role, "project": "default", "was_made": True}
        ]
    finally:
        analysts("remove", role)


@without_analysts
def test_psql_opens_a_shell_that_reads_one_project(database_url: str, tmp_path: Path) -> None:
    def psql(*arguments: str) -> Result:
        return tracer_process(tmp_path, "psql", *arguments, TRACER_DATABASE_URL=database_url)

    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("INSERT INTO project VALUES (2, 'ward', now())")
    done = psql("--project", "ward", "--", "-Atc", "SELECT name FROM project; DELETE FROM run")
    assert (done.code, done.stdout) == (1, "ward\n"), done.stderr
    assert "permission denied" in done.stderr
    assert psql("--", "-c", "SELECT 1").code == 0
    listed = tracer_process(
        tmp_path, "analysts", "list", "--json", TRACER_DATABASE_URL=database_url
    )
    assert json.loads(listed.stdout) == []
