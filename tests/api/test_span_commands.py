"""The command `tracer reproject`, on a database."""

from __future__ import annotations

import json
from pathlib import Path

from tests.api.commands import Tracer
from tracer.records import new_id


def test_reproject_command_lists_the_runs_that_it_cannot_project(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    def reproject(*options: str) -> tuple[int, str, str]:
        done = tracer(tmp_path, "reproject", *options, TRACER_DATABASE_URL=database_url)
        return done.code, done.stdout, done.stderr

    unknown = str(new_id())
    assert reproject()[0] == 1
    assert reproject(unknown, "--all")[0] == 1
    code, _, err = reproject("--all")
    assert code == 0
    assert "Projected 0 runs again." in err
    code, out, err = reproject(unknown, unknown, "--json")
    assert code == 1
    assert json.loads(out) == {
        "runs": 0,
        "priced": 0,
        "failed": [],
        "rejected": [unknown],
    }
    code, _, err = reproject(unknown)
    assert code == 1
    assert unknown in err
