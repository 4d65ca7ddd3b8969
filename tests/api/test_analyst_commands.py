"""`tracer analysts`."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.api.commands import Tracer
from tests.api.commands import tracer as in_process
from tests.citus_databases import without_analysts
from tests.databases import open_directory
from tracer.storage.embedded import start_embedded_postgres


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
def test_psql_command_opens_a_shell_that_reads_one_project(
    database_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def psql(*arguments: str) -> tuple[int, str, str]:
        done = in_process(tmp_path, "psql", *arguments, TRACER_DATABASE_URL=database_url)
        return (done.code, *capfd.readouterr())

    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("INSERT INTO project VALUES (2, 'ward', now())")
        code, answer, error = psql(
            "--project", "ward", "--", "-Atc", "SELECT name FROM project; DELETE FROM run"
        )
        assert (code, answer) == (1, "ward\n"), error
        assert "permission denied" in error
        assert psql("--", "-Atc", "SELECT count(*) FROM runs")[:2] == (0, "0\n")
        assert owner.execute("SELECT FROM analyst").fetchall() == []


@without_analysts
def test_sql_command_reads_one_project_and_nothing_else(database_url: str, tmp_path: Path) -> None:
    def sql(*arguments: str) -> tuple[int, str, str]:
        done = in_process(tmp_path, "sql", *arguments, TRACER_DATABASE_URL=database_url)
        return done.code, done.stdout, done.stderr

    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("INSERT INTO project VALUES (2, 'ward', now())")
        query = "SELECT name, E'\\x1b[31m' AS red FROM project"

        assert sql(query)[:2] == (0, "name\tred\ndefault\t\\u001b[31m\n")
        assert json.loads(sql(query, "--project", "ward", "--json")[1])[0]["name"] == "ward"
        for wrong in (
            "DELETE FROM run",
            "SELECT 1; SELECT 2",
            "RESET ROLE",
            "SELECT * FROM api_key",
        ):
            code, answer, error = sql(wrong)
            assert (code, answer) == (1, ""), wrong
            assert error.startswith("tracer: "), wrong
        assert owner.execute("SELECT FROM analyst").fetchall() == []


def test_printed_psql_command_connects_to_the_embedded_postgres(
    capfd: pytest.CaptureFixture[str],
) -> None:
    query = " -Atc 'SELECT current_user, count(*) FROM trace.runs'"
    with open_directory() as directory:
        home = directory / "a home"
        with start_embedded_postgres(home):  # as `tracer serve` does
            added = in_process(home, "analysts", "add", "ana's role")
            assert added.code == 0, added.stderr
            line = added.stdout.strip() + query
            assert _shell(line) == (0, "ana's role|0\n", "")
            assert "password" in _shell(re.sub(r":[^:@]+@", "@", line))[2]
            assert in_process(home, "analysts", "remove", "ana's role").code == 0
            assert _shell(line)[0] == 2
        assert in_process(home, "psql", "--", "-Atc", "SELECT count(*) FROM trace.runs").code == 0
        assert capfd.readouterr().out == "0\n"


def _shell(line: str) -> tuple[int, str, str]:
    """Run a line in a shell without a terminal, and return its exit code and its output."""
    done = subprocess.run(line, shell=True, capture_output=True, text=True, start_new_session=True)
    return done.returncode, done.stdout, done.stderr
