"""The audit of dependencies distinguishes vulnerabilities from advisories that it cannot reach."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.audit import Findings, NotAnswered, node_findings, python_findings, run_audit


def package(**more: Any) -> dict[str, Any]:
    return {"dependencies": [{"name": "some", "version": "1", **more}], "fixes": []}


def test_audit_reports_the_known_vulnerabilities_of_a_pin() -> None:
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
def test_audit_with_an_incomplete_answer_raises_not_answered(
    findings: Findings, answer: dict[str, Any]
) -> None:
    with pytest.raises(NotAnswered):
        [*findings(answer)]


def test_audit_that_cannot_run_raises_not_answered(tmp_path: Path) -> None:
    with pytest.raises(NotAnswered):
        run_audit([sys.executable, "-c", "raise OSError"], tmp_path, python_findings)
