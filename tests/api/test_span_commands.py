"""The commands `tracer pack-spans` and `tracer reproject`, on a database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from tests.api.commands import Tracer
from tests.otel.made_traces import made, spans_from
from tests.storage.stored_spans import store_rows
from tracer.otel.otlp.spans import Span
from tracer.records.ids import new_id
from tracer.storage.postgres.connection.pool import open_pool


def test_pack_spans_command_packs_every_run_once_and_reports_the_counts(
    tracer: Tracer, database_url: str, tmp_path: Path
) -> None:
    asyncio.run(_stored(database_url, spans_from(*(made(each, "a span") for each in range(1, 4)))))

    def pack(*options: str) -> tuple[int, str, str]:
        done = tracer(tmp_path, "pack-spans", *options, TRACER_DATABASE_URL=database_url)
        return done.code, done.stdout, done.stderr

    code, out, _ = pack("--json")
    assert (code, json.loads(out)) == (0, [{"project": "default", "runs": 1, "left": 0}])
    code, _, err = pack("--project", "default")
    assert code == 0
    assert "default: packed the spans of 0 runs." in err
    code, _, err = pack("--project", "nowhere")
    assert code == 1
    assert "nowhere" in err


async def _stored(database_url: str, spans: Sequence[Span]) -> None:
    async with open_pool(database_url) as pool:
        await store_rows(pool, spans)


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
