"""The project `examples/tested_agent`: green, and red with a message that explains itself."""

from __future__ import annotations

import re
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import NamedTuple

import pytest

from tests.house.project_files import ROOT
from tests.testing.sessions import run_pytest

EXAMPLE = ROOT / "examples" / "tested_agent"
PAGE = ROOT / "docs" / "guides" / "testing.md"


class Change(NamedTuple):
    """A change of the example, and the first difference that its test reports."""

    file: str
    old: str
    new: str
    difference: str


REFUND = 'Turn("It was.", (("refund", {"invoice": "INV-42", "booked_on": str(today)}),)),'
NOTIFY = 'Turn("I tell the customer.", (("notify", {"customer": "Ada"}),)),'
LEDGER = '("read_ledger", {"invoice": "INV-42"}),'

CHANGES = {
    "an added call": Change(
        "model.py",
        LEDGER,
        f'{LEDGER} ("delete_entry", {{"invoice": "INV-42"}}),',
        "bookkeeper, round 1: the call `delete_entry` is not expected.",
    ),
    "a changed order": Change(
        "model.py",
        f"{REFUND}\n        {NOTIFY}",
        f"{NOTIFY}\n        {REFUND}",
        "billing: the call `refund` is in round 4, expected in round 3.",
    ),
    "another argument": Change(
        "model.py",
        REFUND,
        REFUND.replace("INV-42", "INV-43"),
        'billing, round 3, `refund`: argument `invoice`: "INV-43" instead of "INV-42".',
    ),
    "a budget": Change(
        "trajectories/refund.yaml",
        "rounds: 14",
        "rounds: 6",
        "billing: rounds: 7, the limit is 6.",
    ),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    ignored = ignore_patterns("__pycache__", ".pytest_cache")
    return copytree(EXAMPLE, tmp_path / "project", ignore=ignored)


def test_example_passes_on_two_days(project: Path) -> None:
    code, output = run_pytest(project, "-n", "2")

    assert code == 0, output
    assert "2 passed" in output
    assert not (project / "home").exists()  # no spool


QUICK = "another argument"
"""`test_trajectory.py` has the other differences, without a session of pytest."""


@pytest.mark.parametrize(
    "change",
    [pytest.param(each, marks=() if each == QUICK else pytest.mark.thorough) for each in CHANGES],
)
def test_changed_agent_fails_with_the_message_of_the_page(project: Path, change: str) -> None:
    file, old, new, difference = CHANGES[change]
    text = (project / file).read_text()
    assert old in text
    (project / file).write_text(text.replace(old, new))

    code, output = run_pytest(project, "-k", "day0")

    assert code == 1
    lines = re.findall(r"^E(?:$|       (?:tracer\S+: )?(.*)$)", output, re.MULTILINE)
    message = "\n".join(lines).rstrip()
    assert f"1. {difference}" in message
    assert f"```text\n{message}\n```\n" in PAGE.read_text()


@pytest.mark.parametrize("file", ["agent.py", "model.py", "pytest.ini", "test_refund.py"])
def test_page_contains_the_files_of_the_example(file: str) -> None:
    assert f"\n{(EXAMPLE / file).read_text()}```\n" in PAGE.read_text()
