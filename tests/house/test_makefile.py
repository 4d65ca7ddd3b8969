"""`make` names a missing program before it installs anything, and tests all parts."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.project_files import ROOT
from tests.profiles import quick_among

COPIED = (
    "Makefile",
    "pyproject.toml",
    "scripts/run_parts.py",
    "server/pyproject.toml",
    "web/package.json",
    "web/package-lock.json",
)
PROGRAMS = ("awk", "bash", "env", "find", "grep", "make", "sed", "touch")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of what the Makefile needs, in which nothing was installed."""
    folder = tmp_path / "checkout"
    for name in COPIED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    # Empty, so that a check that does not work installs nothing either.
    for name in ("", "-build", "-runtime"):
        (folder / f"requirements{name}.lock").touch()
    return folder


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder that is used as PATH: with Python and make, without Node and npm."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    # Runs the version check. Any other command proves that the checks passed.
    _script(folder, "python3", f'[ "$1" = -c ] && exec {sys.executable} "$@"; echo passed; exit 1')
    return folder


def _script(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!{shutil.which('bash')}\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def _make(checkout: Path, programs: Path, target: str = "demo", port: int = 0) -> tuple[str, bool]:
    """Run make; return the lines on standard error that are not make's own, and if it passed."""
    environment = {"PATH": str(programs), "HOME": str(checkout)}
    run = subprocess.run(
        [programs / "make", target, f"PORT={port}"],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode != 0
    assert not os.path.lexists(checkout / ".venv/bin/uv")
    assert not os.path.lexists(checkout / ".venv-demo")
    assert not os.path.lexists(checkout / "web/node_modules")
    lines = [each for each in run.stderr.splitlines() if not each.startswith("make")]
    return "\n".join(lines), "passed" in run.stdout


@pytest.mark.parametrize("target", ["demo", "setup", "serve", "test", "test-web"])
def test_make_reports_an_old_node_in_one_sentence(
    checkout: Path, programs: Path, target: str
) -> None:
    _script(programs, "node", "echo v18.19.0")
    _script(programs, "npm", "exit 1")

    assert _make(checkout, programs, target) == (
        f"Node 20.19 or newer and npm are required; found node v18.19.0 and npm {programs}/npm. "
        "Install them, or add their directory to PATH.",
        False,
    )


def test_make_reports_missing_node_in_one_sentence(checkout: Path, programs: Path) -> None:
    assert _make(checkout, programs) == (
        "Node 20.19 or newer and npm are required; found node none and npm none. "
        "Install them, or add their directory to PATH.",
        False,
    )


def test_make_reports_missing_npm_in_one_sentence(checkout: Path, programs: Path) -> None:
    _script(programs, "node", "echo v24.1.0")

    assert _make(checkout, programs) == (
        "Node 20.19 or newer and npm are required; found node v24.1.0 and npm none. "
        "Install them, or add their directory to PATH.",
        False,
    )


@pytest.mark.parametrize("version", ["v20.19.0", "v20.20.2", "v22.0.0", "v100.1.0"])
def test_make_accepts_node_from_the_minimum_version_on(
    version: str, checkout: Path, programs: Path
) -> None:
    _script(programs, "node", f"echo {version}")
    _script(programs, "npm", "exit 1")

    assert _make(checkout, programs) == ("", True)


@pytest.mark.parametrize("version", ["v20.18.3", "v9.99.0", "unknown"])
def test_make_rejects_node_below_the_minimum_version(
    version: str, checkout: Path, programs: Path
) -> None:
    _script(programs, "node", f"echo {version}")
    _script(programs, "npm", "exit 1")

    message, has_passed = _make(checkout, programs)

    assert f"found node {version} and" in message
    assert not has_passed


def test_make_reports_an_old_python_in_one_sentence(checkout: Path, programs: Path) -> None:
    _script(programs, "python3", '[ "$1" = --version ] && echo Python 3.9.2 && exit; exit 1')

    assert _make(checkout, programs) == (
        "Python 3.11 or newer is required; python3 is Python 3.9.2. "
        "Install it, or name another program: make PYTHON=python3.12 demo",
        False,
    )


def test_make_skips_the_python_check_if_the_environment_exists(
    checkout: Path, programs: Path
) -> None:
    (programs / "python3").rename(programs / "python3.12")
    installed = checkout / ".venv/bin"
    installed.mkdir(parents=True)
    (installed / "python").symlink_to(programs / "python3.12")

    message, _ = _make(checkout, programs)

    assert message.startswith("Node")


def test_make_reports_missing_python_in_one_sentence(checkout: Path, programs: Path) -> None:
    (programs / "python3").unlink()

    assert _make(checkout, programs) == (
        "Python 3.11 or newer is required; python3 is missing. "
        "Install it, or name another program: make PYTHON=python3.12 demo",
        False,
    )


def test_make_demo_reports_a_port_in_use_before_it_installs_anything(
    checkout: Path, programs: Path
) -> None:
    _script(programs, "node", "echo v24.1.0")
    _script(programs, "npm", "exit 1")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = _make(checkout, programs, port=port)

    assert found == (
        f"Port {port} is in use or invalid. Stop the program that listens on it, or choose another "
        "port: make demo PORT=8421",
        False,
    )


PARTS = ("ruff check", "ruff format", "mypy", "lint-imports", "web check", "web test")
TYPESCRIPT_PARTS = ("clients/typescript check", "clients/typescript test")


@pytest.mark.parametrize(
    "failing", quick_among([None, *PARTS, *TYPESCRIPT_PARTS, "pytest"], [None, "web test", "mypy"])
)
def test_make_test_runs_every_part_even_if_one_fails(
    failing: str | None, installed: Path, programs: Path
) -> None:
    if failing:
        (installed / "failing").write_text(failing, encoding="utf-8")

    run = subprocess.run(
        [programs / "make", "test"],
        cwd=installed,
        env={"PATH": str(programs), "HOME": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    started = (installed / "started").read_text(encoding="utf-8").splitlines()
    assert sorted(started) == sorted([*PARTS, *TYPESCRIPT_PARTS, "pytest"])
    assert started[-1] == "pytest"
    failed = 1 if failing else 0
    assert run.stdout.splitlines()[-1] == f"Parts: {9 - failed} passed, {failed} failed"
    assert run.stdout.count("FAILED") == failed
    assert bool(run.returncode) == bool(failing)


@pytest.fixture
def installed(checkout: Path, programs: Path) -> Path:
    """Return a checkout with stand-ins for all commands that `make test` runs.

    Each adds its name to the file `started`. The one that the file `failing` names fails.
    """
    (programs / "cat").symlink_to(shutil.which("cat") or "")
    _script(programs, "node", "echo v24.1.0")
    _command(programs, "npm", "$([[ $2 = web ]] && echo web || echo clients/typescript) ${*: -1}")
    binaries = checkout / ".venv/bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(sys.executable)
    _command(binaries, "ruff", "ruff $1")
    for name in ("mypy", "lint-imports", "pytest"):
        _command(binaries, name, name)
    _script(checkout / "scripts", "ensure_browser.sh", "")
    client = checkout / "clients/typescript"
    for path in (
        client / "package.json",
        client / "package-lock.json",
        checkout / ".venv/.installed",
        checkout / "web/node_modules/.installed",
        client / "node_modules/.installed",
        checkout / "api/static/index.html",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return checkout


def _command(folder: Path, program: str, name: str) -> None:
    _script(
        folder,
        program,
        f'name="{name}"\necho "$name" >> started\n'
        '[[ ! -e failing || "$name" != "$(cat failing)" ]]',
    )
