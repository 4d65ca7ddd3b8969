"""The `tracer` command without extras: each command names the extras that it needs."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.test_server_commands import packages_without, tracer
from tracer.cli.names import SERVER_COMMANDS, SERVER_GROUPS
from tracer.questions import QUESTIONS


@pytest.fixture(scope="session")
def light_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of an installation without extras."""
    return packages_without(tmp_path_factory.mktemp("light"), "rich", "typer")


def test_version_needs_no_extra(light_path: Path, tmp_path: Path) -> None:
    done = tracer(light_path, tmp_path, "--version")

    assert (done.returncode, done.stdout) == (0, f"{version('tracer-lineage')}\n"), done.stderr


@pytest.mark.parametrize(
    ("command", "extras"),
    [("run Hello", "cli,runtime"), ("spool list", "cli"), ("serve", "server"), ("keys", "server")],
)
def test_command_without_extras_names_the_extras_that_it_needs(
    light_path: Path, tmp_path: Path, command: str, extras: str
) -> None:
    done = tracer(light_path, tmp_path, *command.split())

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"tracer: `tracer {command.split()[0]}` needs the extra")
    assert done.stderr.endswith(f": pip install 'tracer-lineage[{extras}]'\n")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("unknown",)])
def test_command_line_without_extras_lists_commands_with_their_extras(
    light_path: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = tracer(light_path, tmp_path, *arguments)

    listed = {line.split()[0]: line.split()[1] for line in done.stderr.splitlines()[1:]}
    assert listed == {
        **dict.fromkeys((*SERVER_COMMANDS, *SERVER_GROUPS), "server"),
        **dict.fromkeys(("doctor", "export", "import", *QUESTIONS, "setup", "tail"), "cli"),
        "mcp": "cli,mcp",
        "check": "cli,testing",
        "run": "cli,runtime",
        "spool": "cli",
    }
