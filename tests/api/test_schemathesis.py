"""Schemathesis sends generated requests and compares responses with the OpenAPI document."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sample_runs import sample_run
from tests.servers import ONE_PROJECTOR, tracer_server
from tracer.records.access import Scope
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.keys import ApiKeys

pytestmark = pytest.mark.thorough

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance,negative_data_rejection,"
    "unsupported_method,use_after_free"
)


@pytest.mark.parametrize("with_real_ids", [False, True])
async def test_generated_valid_and_invalid_requests_never_cause_a_server_error(
    database_url: str, tmp_path: Path, with_real_ids: bool
) -> None:
    run = sample_run(finished=False)
    options: list[str] = []
    async with open_pool(database_url) as pool:
        project = ProjectPool(pool)
        await postgres_writer(project).write(run.events)
        if with_real_ids:  # and a real key, without which nobody gets to the keys
            key = await ApiKeys(project).create("all", [Scope.ADMIN])
            options += ["--header", f"Authorization: Bearer {key.secret}"]
    if with_real_ids:
        (tmp_path / "schemathesis.toml").write_text(
            "[parameters]\n"
            f'rootPlanId = "{run.root}"\n'
            f'planId = "{run.sub_plans[0]}"\n'
            f'thinkActId = "{run.think_act}"\n'
            f'toolCallId = "{run.opening_calls[0]}"\n'
            f'a = "{run.root}"\n'
            f'b = "{run.root}"\n'
            'name = "measure"\n'
        )

    with tracer_server(database_url, tmp_path, settings=ONE_PROJECTOR) as url:
        tried = await asyncio.to_thread(_schemathesis, url, tmp_path, *options)

    assert tried.returncode == 0, tried.stdout[-8000:] + tried.stderr[-2000:]
    assert "Traceback" not in (tmp_path / "server.log").read_text()
    selected, of_all = map(int, re.findall(r"Selected: (\d+)/(\d+)", tried.stdout)[0])
    assert f"Tested: {selected}" in tried.stdout
    assert selected == of_all - 1, "all but the stream"


def _schemathesis(url: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    # A process of its own, since it brings its own event loop and hooks.
    return subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")),
            *("run", f"{url}/openapi.json"),
            *("--checks", CHECKS),
            *("--max-examples", "25", "--seed", "1", "--workers", "2"),
            *("--phases", "examples,coverage,fuzzing"),
            # The stream of a run that is there does not end; `test_live` reads it.
            *("--exclude-operation-id", "watch_run"),
            *("--suppress-health-check", "all", "--no-color", "--request-timeout", "120"),
            *options,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
