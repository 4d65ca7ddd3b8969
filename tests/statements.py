"""Which statements of the storage a real Citus cluster has executed.

`citus_statements.txt` has a fingerprint of each statement that `tracer/storage` sent to a cluster
in a test that passed, under the date and the commit. Tests on a cluster add to the file. Other test
runs print how many of their statements are not in it, and fail with `--no-new-statements`.
Single statements that have another form on Citus (`is_spread`) are listed apart.

A statement that is not in the file also fails a test of `tests/storage` if it has a form that Citus
is known to reject (`citus_forms.py`).
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from psycopg._queries import PostgresQuery, PostgresRawQuery

from tests.citus_databases import tests_run_on_citus
from tests.citus_forms import rejected_forms

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_name("citus_statements.txt")

_STORAGE = str(ROOT / "tracer/storage/postgres")
_OURS = (_STORAGE, str(ROOT / "tests"), str(ROOT / "benchmarks"))
_PASSED_ON = tuple(f"{_STORAGE}/{name}.py" for name in ("pool", "rows", "session"))
"""Modules that send the statements of their callers."""
_OTHER_FORMS = ("analysts.py", "event_rows.py", "lists.py", "search_pages.py")
"""Files whose statements have another form on Citus, or are not sent there. They are recorded only
on a cluster, where tests of the contract send the other forms."""
_QUERY = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE|COPY|DECLARE)\b", re.IGNORECASE)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(?:[+-]\d\d(?::\d\d)?)?")
"""A literal in ISO format, as statistics of tools have them."""
_OUTPUT = "statements"  # sent by a worker of pytest-xdist to the controller

_sent: dict[str, str] = {}
"""The statements that the current test has sent, with the functions that sent them."""
_passed: dict[str, str] = {}
"""The functions that sent the statements of passed tests, by fingerprint."""


def fingerprint(statement: str) -> str:
    """Return a short hash of a statement, regardless of its spaces, literal numbers and moments."""
    plain = _MOMENT.sub("0", " ".join(statement.split()))
    return sha256(re.sub(r"\b\d+\b", "0", plain).encode()).hexdigest()[:10]


def sections_of_file() -> dict[str, set[str]]:
    """Return the fingerprints in the file by the headings above them."""
    sections: dict[str, set[str]] = {}
    for line in FILE.read_text("utf-8").splitlines() if FILE.exists() else ():
        if line.startswith("# "):
            found = sections.setdefault(line[2:], set())
        else:
            found.update(line.split())
    return sections


def _proven_ones() -> set[str]:
    return {key for section in sections_of_file().values() for key in section}


_proven = _proven_ones()


def _sender() -> str | None:
    """Return the function of the storage that sends a statement; None: a test sends it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_OURS) and code.co_filename not in _PASSED_ON:
            is_storage = code.co_filename.startswith(_STORAGE)
            return f"{Path(code.co_filename).name} {code.co_qualname}" if is_storage else None
        frame = frame.f_back
    return None


def _recording(convert: Any) -> Any:
    def recorded(self: PostgresQuery, query: Any, values: Any) -> Any:
        text = query.decode() if isinstance(query, bytes) else str(query)
        if text not in _sent and _QUERY.match(text):
            sender = _sender()
            if sender and (tests_run_on_citus() or not sender.startswith(_OTHER_FORMS)):
                _sent[text] = sender
        return convert(self, query, values)

    return recorded


PostgresQuery.convert = _recording(PostgresQuery.convert)  # type: ignore[method-assign]
PostgresRawQuery.convert = _recording(PostgresRawQuery.convert)  # type: ignore[method-assign]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption(
        "--no-new-statements",
        action="store_true",
        help="fail if a statement was sent that no Citus cluster has executed",
    )
    parser.addoption(
        "--only-on-one-postgres",
        action="store_true",
        help="record the new statements of this run as forms that Citus never receives",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test of the storage that sent a statement of a form that Citus rejects."""
    result = yield
    is_checked = "tests/storage" in item.path.as_posix() and not tests_run_on_citus()
    unproven = _sent.copy() if is_checked else {}  # threads of the server may send more
    for text, sender in unproven.items():
        if fingerprint(text) not in _proven and (reasons := rejected_forms(text)):
            pytest.fail(f"Citus rejects a statement of {sender}: {'; '.join(reasons)}\n{text}")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count the statements of a test that passed."""
    if report.when == "call" and report.passed:
        _passed.update((fingerprint(text), sender) for text, sender in _sent.copy().items())
    if report.when == "teardown":
        _sent.clear()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send a worker's statements to the controller."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_OUTPUT] = _passed
    elif tests_run_on_citus():
        _add_to_file(f"{datetime.now(UTC).date()} {_commit()}")
    elif session.config.option.only_on_one_postgres:
        _add_to_file("Only on one Postgres: Citus receives another form")
    elif session.config.option.no_new_statements and _new():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receive the statements of a pytest-xdist worker."""
    _passed.update(getattr(node, "workeroutput", {}).get(_OUTPUT, {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many statements are new to Citus, and who sent them."""
    if new := _new():
        senders = ", ".join(sorted({*new.values()}))
        terminalreporter.write_line(
            f"{len(new)} of {len(_passed)} statements were never executed on a Citus cluster:"
            f" {senders}. See CONTRIBUTING.md."
        )


def _new() -> dict[str, str]:
    proven = _proven_ones()
    return {key: sender for key, sender in _passed.items() if key not in proven}


def _add_to_file(heading: str) -> None:
    if new := _new():
        sections = sections_of_file()
        sections.setdefault(heading, set()).update(new)
        parts = [
            f"# {heading}\n{textwrap.fill(' '.join(sorted(keys)), width=98)}\n"
            for heading, keys in sections.items()
        ]
        FILE.write_text("\n".join(parts), encoding="utf-8")


def _commit() -> str:
    git = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
