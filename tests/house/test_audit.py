"""The audit distinguishes findings from unreachable advisories."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.audit import Findings, NotAnswered, node_findings, python_findings, run_audit


def package(**more: Any) -> dict[str, Any]:
    return {"dependencies": [{"name": "some", "version": "1", **more}], "fixes": []}


def test_what_is_known_of_a_pin_is_found() -> None:
    known = {"id": "PYSEC-1", "fix_versions": ["2"], "aliases": [], "description": ""}
    assert [*python_findings(package(vulns=[known]))] == ["some 1: PYSEC-1, mended in 2"]
    assert [*python_findings(package(vulns=[]))] == []
    found = {"vulnerabilities": {"some": {"range": "<2", "severity": "high"}}, "metadata": {}}
    assert [*node_findings(found)] == ["some <2: high"]
    assert [*node_findings({"vulnerabilities": {}, "metadata": {}})] == []


@pytest.mark.parametrize(
    ("findings", "answer"),
    [
        (python_findings, package(skip_reason="not found")),
        (python_findings, {}),
        (node_findings, {"message": "405 Method Not Allowed", "error": {}}),
    ],
)
def test_what_was_not_audited_does_not_count_as_sound(
    findings: Findings, answer: dict[str, Any]
) -> None:
    with pytest.raises(NotAnswered):
        [*findings(answer)]


def test_a_broken_connection_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(NotAnswered):
        run_audit([sys.executable, "-c", "raise OSError"], tmp_path, python_findings)
