"""The pytest plugin, in test sessions of their own."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.testing.sessions import run_pytest

AGENT = """\
import tracer

tracing = tracer.connect({address})

def run(name="find"):
    with tracing.plan("Ask", agent="nurse"):
        with tracing.tool_call(name, {{"invoice": "INV-42"}}) as call:
            call.finish("done")
"""
TESTS = """\
import agent

def test_first(recorded):
    agent.run()
    assert recorded.run().calls("find").single().arguments == {"invoice": "INV-42"}
    recorded.run().assert_matches("files/find.yaml")

def test_second_begins_empty(recorded):
    assert recorded.runs() == []

def test_failure(recorded):
    agent.run("other")
    assert recorded.run().calls("find").single()

def test_two_runs(recorded):
    agent.run("a")
    agent.run("b")
    assert [run.calls().single().name for run in recorded.runs()] == ["a", "b"]
    recorded.run()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT.format(address=""))
    (tmp_path / "test_agent.py").write_text(TESTS)
    return tmp_path


def test_session_records_in_memory_and_shows_trees(project: Path) -> None:
    """No address is contacted, no spool is written, and each test begins empty."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        (project / "agent.py").write_text(AGENT.format(address=repr(url)))
        session = run_pytest(
            *(project, "-p", "tracer.testing", "--update-trajectories", "-n", "2"),
            TRACER_URL=url,
            TRACER_DISABLED="1",
        )
        with pytest.raises(TimeoutError):
            server.accept()

    assert "2 failed, 2 passed" in session.output, session.output
    assert not (project / "home").exists()
    assert "Expected one call, and found 0: none." in session.output
    assert '      other {"invoice": "INV-42"}' in session.output
    assert "Expected one run, and 2 were recorded." in session.output
    assert "call: find" in (project / "files" / "find.yaml").read_text()


def test_missing_file_is_explained(project: Path) -> None:
    (project / "conftest.py").write_text('pytest_plugins = ["tracer.testing"]\n')

    session = run_pytest(project, "-k", "first or second")

    assert "1 failed, 1 passed" in session.output
    assert "find.yaml does not exist. Run pytest --update-trajectories" in session.output


def test_connection_that_was_opened_too_early_ends_the_session(project: Path) -> None:
    text = 'import agent\n\npytest_plugins = ["tracer.testing"]\n'
    (project / "conftest.py").write_text(text)

    session = run_pytest(project, TRACER_URL="http://127.0.0.1:1")

    assert session.code == 4
    assert "was opened before the plugin tracer.testing was loaded" in session.output
    assert run_pytest(project, "-p", "tracer.testing", "-k", "second").code == 0
