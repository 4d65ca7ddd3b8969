"""Each way of recording gives the same trajectory, in parallel processes."""

from __future__ import annotations

import re

import pytest

from tests.house.project_files import ROOT
from tests.testing.sessions import run_pytest

PROGRAM = ROOT / "tests" / "testing" / "programs" / "frameworks.py"


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], str]:
    folder = tmp_path_factory.mktemp("frameworks")
    for name in (PROGRAM.name, "weather.yaml"):
        (folder / name).write_text((PROGRAM.parent / name).read_text())
    (folder / "pytest.ini").write_text("[pytest]\npython_files = *.py\n")
    session = run_pytest(folder, "-p", "tracer.testing", "-n", "2", "-rA", "-q")
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", session.output, re.MULTILINE)
    return {name: outcome for outcome, name in found}, session.output


@pytest.mark.parametrize("name", re.findall(r"def (test_\w+)", PROGRAM.read_text()))
def test_framework_records_the_trajectory(name: str, outcomes: tuple[dict[str, str], str]) -> None:
    by_name, output = outcomes

    assert by_name.get(name) == "PASSED", output
