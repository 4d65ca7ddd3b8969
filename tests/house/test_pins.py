"""The lock files pin every dependency."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.project_files import ROOT

PYPROJECT, SERVER = (
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text()) for folder in (".", "server")
)
OWN = {"tracer-lineage", "tracer-lineage-server"}

CLIENT = PYPROJECT["project"]["dependencies"]
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
RUNTIME = [
    *CLIENT,
    *(text for name in ("cli", "otel", "runtime") for text in EXTRAS[name]),
    *SERVER["project"]["dependencies"],
]
ALL_EXTRAS = [text for extra in EXTRAS.values() for text in extra]
EMBEDDED = SERVER["project"]["optional-dependencies"]["embedded"]
GROUPS = PYPROJECT["dependency-groups"]
DEVELOPMENT = [entry for entry in GROUPS["dev"] if isinstance(entry, str)]
LOCKS = {
    "requirements.lock": [*RUNTIME, *EMBEDDED, *ALL_EXTRAS, *GROUPS["build"], *DEVELOPMENT],
    "requirements-runtime.lock": RUNTIME,
    "requirements-build.lock": GROUPS["build"],
}


@pytest.mark.parametrize(("name", "asked"), LOCKS.items())
def test_lock_file_pins_every_requirement_within_its_range(name: str, asked: list[str]) -> None:
    pins = _pins(name)
    assert [
        text
        for text in asked
        for requirement in [Requirement(text)]
        if requirement.name not in OWN
        for version in [pins.get(canonicalize_name(requirement.name))]
        if version is None or version not in requirement.specifier
    ] == []


@pytest.mark.parametrize("name", LOCKS)
def test_image_uses_the_same_pinned_versions_as_the_tests(name: str) -> None:
    assert _pins(name).items() <= _pins("requirements.lock").items()


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_in_a_lock_file_has_hashes(name: str) -> None:
    lines = [line for line in (ROOT / name).read_text().splitlines() if line[:1].isalnum()]
    assert lines
    assert all(line.endswith("\\") for line in lines)


def _pins(name: str) -> dict[str, str]:
    pins = re.findall(r"^([\w.-]+)(?:\[.*?\])?==([^\s;]+)", (ROOT / name).read_text(), re.MULTILINE)
    return dict(pins)
