"""`tracer analysts`."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.api.commands import Tracer
from tests.citus_databases import without_analysts


@without_analysts
def test_analysts_are_added_listed_and_removed(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    def analysts(*arguments: str) -> str:
        done = tracer(tmp_path, "analysts", *arguments, TRACER_DATABASE_URL=database_url)
        assert done.code == 0, done.stderr
        return done.stdout

    parts = urlsplit(database_url)
    role = f"{parts.path[1:]}_reader"
    password = analysts("add", role).strip()
    try:
        server = parts.netloc.rpartition("@")[2]
        url = parts._replace(netloc=f"{role}:{password}@{server}").geturl()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM trace.runs").fetchone() == (0,)
        assert json.loads(analysts("list", "--json")) == [
            {"role": role, "project": "default", "was_made": True}
        ]
    finally:
        analysts("remove", role)
