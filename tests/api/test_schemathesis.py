"""Schemathesis holds the running server to its own OpenAPI document."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg

from tests.sample_runs import SampleRun, sample_run
from tracer.storage.engine import open_pool
from tracer.storage.postgres_writer import PostgresWriter

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance,negative_data_rejection,"
    "unsupported_method,use_after_free"
)


async def _record(database_url: str) -> SampleRun:
    run = sample_run(finished=False)
    async with open_pool(database_url) as pool:
        await PostgresWriter(pool).write(run.events)
    return run


async def test_no_request_that_the_document_allows_or_forbids_breaks_the_server(
    server_url: str, database_url: str, tmp_path: Path
) -> None:
    await _record(database_url)

    # A process of its own, since it brings its own event loop and hooks.
    tried = subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")),
            *("run", f"{server_url}/openapi.json"),
            *("--checks", CHECKS),
            *("--max-examples", "25", "--seed", "1", "--workers", "2"),
            *("--phases", "examples,coverage,fuzzing"),
            *("--suppress-health-check", "all", "--no-color"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert tried.returncode == 0, tried.stdout[-8000:] + tried.stderr[-2000:]
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchone() is not None
