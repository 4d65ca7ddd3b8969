"""The contents of the two distributions, and the size of an agent's installation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import tracer
from tests.house.project_files import ADAPTERS, ROOT, project_files

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


LIGHT = {
    "Chosen",
    "ConfigurationError",
    "Denied",
    "HttpWriter",
    "InvalidArguments",
    "InvalidResult",
    "ModelError",
    "Recorder",
    "RegistrationError",
    "Spool",
    "StateConflict",
    "Status",
    "StoreUnavailable",
    "ToolContext",
    "ToolError",
    "ToolUnavailable",
    "Tracing",
    "connect",
    "identity",
    "in_context",
    "instrument_threads",
    "read",
    "recording_in_memory",
}
"""What works without extras."""

OF_ADAPTERS = {name.replace("_", "-"): {f"adapters.{name}"} for name in ADAPTERS}

WORKS = {
    **OF_ADAPTERS,
    "cli": {"cli.spools"},
    "otel": {"adapters.opentelemetry"},
    "testing": {"testing"},
    "runtime": set(tracer.__all__) - LIGHT,
    "langchain,runtime": {"adapters.langchain.from_langchain", "adapters.langchain.to_langchain"},
}
"""What each extra makes work: names of `tracer`."""

WORKS["server"] = {*WORKS["cli"], *WORKS["otel"], *WORKS["runtime"]}

COMMANDS = {
    "--version": "",
    "spool list": "cli",
    "run Hello": "cli,runtime",
    "export --help": "cli",
    "doctor --help": "cli",
    "check r123456 --against a.yaml": "cli,testing",
    "serve --help": "server",
}
"""A command of each kind, and the extra that it needs."""

NOT_IN_SCRIPT = "The demonstration follows a script, which does not contain this request."

PAGES = {"langchain": ["langchain"]}
"""Packages that a page installs along with an extra."""

NEEDS = re.compile(r"^`tracer\.(.*?)` needs .* pip install 'tracer-lineage\[(.*?)\]'")
"""The error for a name whose extra is missing."""

TRY_NAMES = """
import importlib, json, sys

def error_of(name):
    path, _, last = ("tracer." + name).rpartition(".")
    try:
        module = importlib.import_module(path)
        if not hasattr(module, last):
            importlib.import_module(f"{path}.{last}")
    except ImportError as error:
        return str(error)

print(json.dumps({name: error_of(name) for name in sys.argv[1:]}))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("extra", ["", *WORKS, ",".join([*OF_ADAPTERS, "server"])])
def test_environment_with_an_extra_has_what_the_extra_makes_work(
    extra: str, client_wheel: Path, server_wheel: Path, database_url: str, tmp_path: Path
) -> None:
    python = tmp_path / "environment" / "bin" / "python"
    uv = PROGRAMS / "uv"
    run(uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "environment")
    extras = set(extra.split(",")) - {""}
    packages = [each for name in extras for each in PAGES.get(name, [])]
    if "server" in extras:
        packages.append(str(server_wheel))
        extras |= {"cli", "otel", "runtime"}
    client = f"{client_wheel}[{extra}]" if extra else client_wheel
    run(uv, "pip", "install", "--quiet", "--python", python, client, *packages)
    run(uv, "pip", "check", "--python", python)
    expected = LIGHT.union(
        *(names for each, names in WORKS.items() if set(each.split(",")) <= extras)
    )

    errors = json.loads(
        run(python, "-c", TRY_NAMES, *sorted(LIGHT.union(*WORKS.values())), cwd=tmp_path)
    )

    assert {name: errors[name] for name in expected if errors[name] is not None} == {}
    for name, error in errors.items():
        if error is not None and name != "cli.spools":  # it is private
            [(feature, needed)] = NEEDS.findall(error)
            assert f"{name}.".startswith(f"{feature}."), error
            assert feature in WORKS[needed], error
    for command, needed in COMMANDS.items():
        done = subprocess.run(
            [python.with_name("tracer"), *command.split()],
            cwd=tmp_path,
            env={
                **{key: text for key, text in os.environ.items() if not key.startswith("TRACER_")},
                "TRACER_APP": "health:application",
                "TRACER_DATABASE_URL": database_url,
                "TRACER_HOME": str(tmp_path / "home"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr
        if set(needed.split(",")) - {""} <= extras:
            if command == "run Hello":  # only the server's distribution has an application
                assert "server" not in extras or NOT_IN_SCRIPT in done.stderr, done.stderr
            else:
                assert done.returncode == 0, done.stderr
        elif done.returncode:  # a framework may bring the packages of another extra
            assert f"pip install 'tracer-lineage[{needed}]'" in done.stderr, command
