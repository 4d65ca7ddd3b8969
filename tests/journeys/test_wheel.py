"""The client and the server wheel work in an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.servers import tracer_server

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.thorough


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_installed_wheels_work_with_a_user_package_named_api(
    empty_database_url: str, tmp_path: Path
) -> None:
    programs = Path(sys.executable).parent
    environment = tmp_path / "environment"
    python = environment / "bin" / "python"
    for source in (ROOT, ROOT / "server"):
        build = (programs / "hatchling", "build", "--target", "wheel", "--directory")
        run(*build, tmp_path / "dist", cwd=source)
    run(programs / "uv", "venv", "--quiet", "--python", sys.executable, environment)
    install = (programs / "uv", "pip", "install", "--quiet", "--python", python)
    run(*install, "--require-hashes", "--requirements", ROOT / "requirements-runtime.lock")
    run(*install, "--no-deps", *(tmp_path / "dist").glob("*.whl"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "api").mkdir()
    (packages / "api" / "__init__.py").write_text("raise AssertionError('the user's own')")

    settings = {"TRACER_DATABASE_URL": empty_database_url, "TRACER_HOME": str(tmp_path)}
    root_plan_id = run(
        environment / "bin" / "tracer", "demo", "--once", cwd=elsewhere, **settings
    ).strip()
    with tracer_server(empty_database_url, tmp_path, python=python, cwd=elsewhere) as url:
        shown = httpx2.get(f"{url}/api/runs/{root_plan_id}", timeout=60).json()
        page = httpx2.get(f"{url}/runs/{root_plan_id}", timeout=60)
        script = page.text.split('src="', 1)[1].split('"', 1)[0]
        asset = httpx2.get(f"{url}{script}", timeout=60)

    assert shown["status"] == "succeeded"
    assert page.status_code == 200
    assert asset.status_code == 200
    assert "javascript" in asset.headers["content-type"]
