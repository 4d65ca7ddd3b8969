"""The page on runs that do not appear shows the messages that each cause really produces."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from anyio.from_thread import start_blocking_portal

from tests.api.commands import serving_here
from tests.api.commands import tracer as tracer_command
from tests.house.project_files import ROOT
from tests.tools.http_servers import http_server, reply

PAGE = (ROOT / "docs" / "get-started" / "no-run.md").read_text("utf-8")
PROGRAM = "import tracer\nwith tracer.connect() as tracing, tracing.plan('x'): pass"


@pytest.mark.thorough
def test_page_shows_the_problem_that_a_recorder_reports(database_url: str, tmp_path: Path) -> None:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(http_server(lambda _: reply(json={}))) as other,
    ):
        problems = _problems(other.url, database_url, tmp_path)

    shown = re.findall(r"^\| `([^|]+?)(?: …)?` \|", PAGE, re.MULTILINE)
    assert [each for each in problems if not any(each.startswith(text) for text in shown)] == []


def _problems(other: str, database_url: str, folder: Path) -> list[str]:
    """Return what a recorder reports for each cause of the page that needs no name server."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    with serving_here(database_url, folder) as url:
        without_keys = [
            _reported(address, folder)
            for address in (
                f"http://127.0.0.1:{closed}",
                url.replace("http:", "https:"),
                f"{url}/tracer",
                other,
            )
        ]
    create = ("keys", "create", "reader", "--scope", "read", "--yes")
    done = tracer_command(folder, *create, TRACER_DATABASE_URL=database_url)
    with serving_here(database_url, folder) as url:
        keys = ("", "tracer_unknown", done.stdout.split()[-1])
        return without_keys + [_reported(url, folder, key) for key in keys]


def _reported(url: str, folder: Path, key: str = "") -> str:
    variables = {"TRACER_URL": url, "TRACER_API_KEY": key, "TRACER_HOME": str(folder / "home")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"problem=(['\"])(.*?)\1 what_to_do", done.stderr)
    return found[2] if found else done.stderr


def test_page_shows_the_status_of_a_wrong_otlp_path(database_url: str, tmp_path: Path) -> None:
    with serving_here(database_url, tmp_path) as url:
        statuses = [httpx2.post(f"{url}{path}").status_code for path in ("/", "/v1/trace")]

    assert statuses == [405, 404]
    assert all(f"code: {status}, reason" in PAGE for status in statuses)
