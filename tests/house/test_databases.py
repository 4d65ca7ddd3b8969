"""The choice of the database for the tests."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.databases import SERVER_VARIABLE, find_database


class Engine(BaseHTTPRequestHandler):
    """Answers as a Docker engine does when a client asks for its version."""

    def do_GET(self) -> None:  # http.server's name
        body = b'{"ApiVersion": "1.41", "MinAPIVersion": "1.12"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "a Unix socket"

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each test choose again; pytest-xdist's workers are given a server."""
    monkeypatch.delenv(SERVER_VARIABLE, raising=False)
    find_database.cache_clear()
    yield
    find_database.cache_clear()


def test_server_named_by_the_environment_variable_is_used_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SERVER_VARIABLE, "postgresql+psycopg://someone@host/database")

    database = find_database()

    assert database.description == f"the server named by {SERVER_VARIABLE}"
    with database.start() as url:
        assert url == "postgresql://someone@host/database"


def test_postgres_container_is_used_if_an_older_docker_engine_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{socket}")
    with socketserver.ThreadingUnixStreamServer(str(socket), Engine) as engine:
        threading.Thread(target=engine.serve_forever).start()
        description = find_database().description
        engine.shutdown()

    assert description == "a container of postgres:18, Docker API 1.41"


def test_embedded_postgres_is_used_if_no_docker_engine_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'nothing.sock'}")

    description = find_database().description

    assert description.startswith("embedded, because no Docker engine answers: ")
    assert "No such file or directory" in description
