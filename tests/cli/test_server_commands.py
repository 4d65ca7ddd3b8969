"""The `tracer` command without the server package: server commands name the missing package."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from typer.main import get_group

from api.main import commands
from tests.api.commands import tracer as tracer_here
from tests.house.project_files import ROOT
from tracer.cli.names import COMMANDS, SERVER_COMMANDS, SERVER_GROUPS
from tracer.storage.embedded import MAJOR_VERSION

PROGRAM = "import sys; sys.path.append({path!r}); from tracer.cli import main; main()"


def packages_without(folder: Path, *left_out: str) -> Path:
    """Fill a directory for `sys.path` with `tracer` and its dependencies, without some of them."""
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if not each.name.startswith(("tracer_lineage_server", *left_out)):
            (folder / each.name).symlink_to(each)
    (folder / "tracer").symlink_to(ROOT / "tracer")
    return folder


@pytest.fixture(scope="session")
def client_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the extra `cli`, without the server."""
    return packages_without(
        tmp_path_factory.mktemp("cli"), "alembic", "fastapi", "psutil", "psycopg"
    )


def tracer(path: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM.format(path=str(path)), *arguments],
        env={**os.environ, "TRACER_HOME": str(home), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_listed_server_commands_equal_the_commands_of_the_server() -> None:
    found = get_group(commands).commands

    assert {name: str(command.help).partition("\n")[0] for name, command in found.items()} == {
        **SERVER_COMMANDS,
        **SERVER_GROUPS,
    }


def test_help_without_the_server_package_lists_every_command(
    client_path: Path, tmp_path: Path
) -> None:
    done = tracer(client_path, tmp_path, "--help")

    assert done.returncode == 0, done.stderr
    for name in (*SERVER_COMMANDS, *SERVER_GROUPS, *COMMANDS):
        assert f"│ {name} " in done.stdout


@pytest.mark.parametrize("command", [("serve",), ("keys", "list"), ("psql", "--help")])
def test_server_command_without_the_server_package_names_the_package(
    client_path: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = tracer(client_path, tmp_path, *command)

    assert (done.returncode, done.stdout) == (1, "")
    assert f"`tracer {command[0]}` needs the server" in done.stderr
    assert "pip install 'tracer-lineage[server]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_spool_command_works_without_the_server_package(client_path: Path, tmp_path: Path) -> None:
    done = tracer(client_path, tmp_path, "spool", "list", "--json")

    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize("name", ["serve", "demo"])
def test_first_start_of_the_embedded_database_is_announced_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRACER_DATABASE_URL", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = (name, "--port", str(taken.getsockname()[1]))
        first = tracer_here(tmp_path, *command)
        helped = tracer_here(tmp_path, name, "--help")
        elsewhere = tracer_here(tmp_path, *command, TRACER_DATABASE_URL="postgresql://a@b/c")
        (tmp_path / f"postgres-{MAJOR_VERSION}" / "data").mkdir(parents=True)
        again = tracer_here(tmp_path, *command)

    line = "Preparing the embedded PostgreSQL, first start\n"
    assert first.stderr.startswith(line)
    assert [line in each.stderr for each in (helped, elsewhere, again)] == [False] * 3
