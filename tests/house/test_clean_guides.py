"""The guides of frameworks, run from the client's wheel in an environment with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.api.commands import serving_here
from tests.house.project_files import ROOT
from tests.house.test_distributions import build

pytestmark = pytest.mark.thorough

GUIDES = {
    "agno": "agno",
    "langchain": "langchain,runtime",
    "openai-agents": "openai-agents",
    "pydantic-ai": "pydantic-ai",
}
"""The extras that each guide installs in all."""

# The examples may await at the top level, or call `asyncio.run`.
PROGRAM = r"""
import ast, asyncio, pathlib, re, sys
page = pathlib.Path(sys.argv[1]).read_text("utf-8")
names = {"__name__": "guide"}

loop = asyncio.new_event_loop()
for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S):
    code = compile(block, sys.argv[1], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = eval(code, names)
    if waiting is not None:
        loop.run_until_complete(waiting)
tracing = names["tracing"]
assert tracing.flush(60)
tracing.close()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.mark.parametrize(("guide", "extras"), GUIDES.items(), ids=GUIDES)
def test_guide_records_a_run_in_a_clean_environment(
    guide: str, extras: str, wheel: Path, database_url: str, tmp_path: Path
) -> None:
    uv = str(Path(sys.executable).parent / "uv")
    python = str(tmp_path / "environment" / "bin" / "python")
    more = ["langchain"] if guide == "langchain" else []
    for command in (
        (uv, "venv", "--quiet", "--python", sys.executable, str(tmp_path / "environment")),
        (uv, "pip", "install", "--quiet", "--python", python, f"{wheel}[{extras}]", *more),
        (uv, "pip", "check", "--quiet", "--python", python),
    ):
        subprocess.run(command, check=True)

    with serving_here(database_url, tmp_path / "server") as url:
        done = subprocess.run(
            [python, "-c", PROGRAM, str(ROOT / "docs" / "get-started" / f"{guide}.md")],
            cwd=tmp_path,
            env={**os.environ, "TRACER_URL": url, "TRACER_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        runs = httpx2.get(f"{url}/api/runs", timeout=60).json()["items"]

    assert [each["status"] for each in runs if each["toolCalls"]] != []
