"""`tracer pack-spans`: beside the database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from tests.api.commands import Tracer
from tests.otel.made_traces import made, spans_from
from tests.storage.stored_spans import store_rows
from tracer.otel.spans import Span
from tracer.storage.engine import open_pool


def test_pack_spans_packs_every_run_once_and_reports_the_numbers(
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
