"""The contents of the two distributions, and the size of an agent's installation."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.house.project_files import ROOT, project_files

MAX_PACKAGES = 20
MAX_BYTES = 30 * 10**6

CLIENT, SERVER = (
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    for folder in (".", "server")
)
PROGRAMS = Path(sys.executable).parent


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source: Path, dist: Path, target: str = "wheel") -> Path:
    """Build a wheel or a source archive, and return its path."""
    run(PROGRAMS / "hatchling", "build", "--target", target, "--directory", dist, cwd=source)
    pattern = "tracer_lineage_server-*" if source != ROOT else "tracer_lineage-*"
    [built] = dist.glob(pattern + (".whl" if target == "wheel" else ".tar.gz"))
    return built


def contents(wheel: Path) -> set[str]:
    """Return the files of a wheel without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="session")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def server_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT / "server", tmp_path_factory.mktemp("dist"))


def tracked(*folders: str) -> set[str]:
    return {str(path) for path in project_files() if str(path).startswith(folders)}


def test_client_wheel_contains_only_the_package_tracer(client_wheel: Path) -> None:
    assert contents(client_wheel) == tracked("tracer/")


def test_server_wheel_contains_only_the_package_tracer_server(server_wheel: Path) -> None:
    found = contents(server_wheel)
    viewer = {name for name in found if name.startswith("tracer_server/api/static/")}
    expected = {
        *(f"tracer_server/{name}" for name in tracked("api/", "migrations/")),
        *(
            name.replace("examples/health", "tracer_server/health")
            for name in tracked("examples/health/")
        ),
        *(name.removeprefix("server/") for name in tracked("server/tracer_server/")),
    }

    assert found - viewer == expected
    assert "tracer_server/api/static/index.html" in viewer


def test_server_wheel_does_not_import_a_top_level_api_package(server_wheel: Path) -> None:
    with zipfile.ZipFile(server_wheel) as archive:
        sources = [
            archive.read(name).decode() for name in archive.namelist() if name.endswith(".py")
        ]
    lines = [line.strip() for source in sources for line in source.splitlines()]

    assert [line for line in lines if line.startswith(("from api", "import api"))] == []


def test_client_and_server_distributions_have_the_same_version() -> None:
    version = CLIENT["version"]

    assert SERVER["version"] == version
    assert f"tracer-lineage[cli,otel,runtime]=={version}" in SERVER["dependencies"]
    assert CLIENT["optional-dependencies"]["server"] == [
        f"tracer-lineage-server[embedded]=={version}"
    ]


@pytest.mark.thorough
def test_server_source_archive_builds_the_same_wheel(server_wheel: Path, tmp_path: Path) -> None:
    archive = build(ROOT / "server", tmp_path, "sdist")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")

    assert contents(build(tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path)) == contents(
        server_wheel
    )


@pytest.mark.thorough
def test_client_installation_stays_within_its_size_limits(
    client_wheel: Path, tmp_path: Path
) -> None:
    environment = tmp_path / "environment"
    python = environment / "bin" / "python"
    uv = (PROGRAMS / "uv", "pip")
    run(PROGRAMS / "uv", "venv", "--quiet", "--python", sys.executable, environment)
    run(*uv, "install", "--quiet", "--compile-bytecode", "--python", python, client_wheel)

    packages = run(*uv, "freeze", "--python", python).splitlines()
    files = [
        Path(folder) / name for folder, _, names in os.walk(environment / "lib") for name in names
    ]
    run(*uv, "check", "--python", python)

    assert len(packages) <= MAX_PACKAGES, packages
    assert sum(each.stat().st_size for each in files) <= MAX_BYTES
    run(python, "-c", "import tracer; tracer.connect('http://127.0.0.1:1').close()", cwd=tmp_path)


NEEDED = {
    "cli": "import tracer.cli.main",
    "otel": "import tracer.adapters.opentelemetry, tracer.otel.otlp.redact_spans",
    "runtime": "import tracer; [getattr(tracer, name) for name in tracer.__all__]",
}
"""What each extra of the client makes work."""


@pytest.mark.thorough
@pytest.mark.parametrize(("extra", "program"), NEEDED.items(), ids=NEEDED)
def test_each_pip_extra_installs_the_packages_that_its_program_needs(
    extra: str, program: str, client_wheel: Path, tmp_path: Path
) -> None:
    python = tmp_path / "environment" / "bin" / "python"
    uv = PROGRAMS / "uv"
    run(uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "environment")
    install = (uv, "pip", "install", "--quiet", "--python", python)
    run(*install, client_wheel)
    before = subprocess.run(
        [python, "-c", program], cwd=tmp_path, check=False, stderr=subprocess.DEVNULL
    )
    run(*install, f"{client_wheel}[{extra}]")
    run(uv, "pip", "check", "--python", python)

    assert before.returncode != 0
    run(python, "-c", program, cwd=tmp_path)
