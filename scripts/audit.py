"""Check the pinned versions for known vulnerabilities: `make audit`.

Dependencies of the server must have none. If the advisories cannot be reached, it prints that and
passes: a machine without network is no reason to fail.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

Findings = Callable[[dict[str, Any]], Iterator[str]]


class NotAnswered(Exception):
    """The advisories cannot be reached."""


def python_findings(answer: dict[str, Any]) -> Iterator[str]:
    """Yield what `pip-audit` found.

    Raises:
        NotAnswered: It passed packages over.
    """
    if "dependencies" not in answer:
        raise NotAnswered
    packages = answer["dependencies"]
    if any("skip_reason" in each for each in packages) and not any(
        each.get("vulns") for each in packages
    ):
        raise NotAnswered
    for package in packages:
        for each in package.get("vulns", ()):
            fixed = ", ".join(each["fix_versions"]) or "no version yet"
            yield f"{package['name']} {package['version']}: {each['id']}, mended in {fixed}"


def node_findings(answer: dict[str, Any]) -> Iterator[str]:
    """Yield what `npm audit` found.

    Raises:
        NotAnswered: It could not ask.
    """
    if "vulnerabilities" not in answer:
        raise NotAnswered
    for name, each in answer["vulnerabilities"].items():
        yield f"{name} {each['range']}: {each['severity']}"


def run_audit(command: list[str], folder: Path, findings: Findings) -> list[str]:
    """Run an audit and return its findings.

    Args:
        command: Prints its result as JSON.
        folder: Where to run it.
        findings: Extracts the findings from the result.

    NotAnswered: The advisories cannot be reached.
        NotAnswered: The advisories cannot be reached.
    """
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    try:
        answer = json.loads(ran.stdout)
    except ValueError:
        raise NotAnswered from None
    return [*findings(answer)]


def main() -> int:
    """Run all audits, print the findings, and return the exit code."""
    # By OSV's advisories, since a mirror of the packages need not have any.
    pip_audit = [
        *(sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes"),
        *("--vulnerability-service", "osv", "--format", "json", "--progress-spinner", "off"),
        *("--timeout", "10", "--requirement", "requirements-runtime.lock"),
    ]
    npm_audit = ["npm", "audit", "--omit", "dev", "--json"]
    is_sound = True
    for what, command, folder, findings in (
        ("Python packages", pip_audit, ROOT, python_findings),
        ("The viewer's packages", npm_audit, ROOT / "web", node_findings),
    ):
        try:
            vulnerabilities = run_audit(command, folder, findings)
        except NotAnswered:
            print(f"{what}: not audited, because the advisories cannot be reached.")
            continue
        print(
            f"{what}: {len(vulnerabilities)} known vulnerabilities.", *vulnerabilities, sep="\n  "
        )
        is_sound = is_sound and not vulnerabilities
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
