"""Runs of a server: `tracer.read` and `tracer check`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import tracer as client
from tests.api.commands import Result, serving_here, tracer
from tests.testing.conftest import record_by_hand
from tracer.errors import StoreUnavailable
from tracer.reading import Refused
from tracer.testing.trajectory import trajectory_of, write_file

FIND = ("find", {"invoice": "INV-42"})
REFUND = ("refund", {"invoice": "INV-42", "note": "`x` ``` <b>@ann</b>"})


@dataclass(frozen=True)
class Server:
    home: Path
    url: str
    keys: dict[str, str]
    runs: list[str]
    """The ids of two runs, the first without and the second with a refund."""

    def read(self, key: str = "reader") -> client.reading.ServerReader:
        return client.read(self.url, self.keys[key])

    def check(self, *arguments: str, key: str = "reader") -> Result:
        return tracer(
            self.home,
            "check",
            *arguments,
            TRACER_URL=self.url,
            TRACER_API_KEY=self.keys[key],
        )


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[Server]:
    keys = {}
    for name, scope, project in (
        *(("writer", "record", "mine"), ("reader", "read", "mine")),
        ("stranger", "read", "other"),
    ):
        made = tracer(
            tmp_path,
            *("keys", "create", name, "--scope", scope, "--project", project, "--json"),
            TRACER_DATABASE_URL=database_url,
        )
        keys[name] = json.loads(made.stdout)["secret"]
    with serving_here(database_url, tmp_path / "server") as url:
        runs = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRACER_HOME", str(tmp_path / "home"))
            with client.connect(url, api_key=keys["writer"]) as tracing:
                for rounds in (([FIND],), ([FIND], [REFUND])):
                    runs.append(record_by_hand(tracing, "billing", rounds))
        yield Server(tmp_path, url, keys, runs)


def test_runs_are_read_as_objects(server: Server) -> None:
    with server.read() as reader:
        latest, earliest = reader.runs(agent="billing")
        run = reader.run(latest.id)
        by_handle = reader.run(f"r{latest.id[-10:]}")
        none = list(reader.runs(since=datetime.now(UTC) + timedelta(days=1)))
        failed = list(reader.runs(status="failed"))

    assert [earliest.id, latest.id] == server.runs
    assert (latest.status, latest.tool_calls, latest.title) == ("succeeded", 2, "Refund INV-42")
    assert (run.id, run.agent, run.status, run.tokens) == (latest.id, "billing", "succeeded", 30)
    assert run.calls("refund").single().arguments == REFUND[1]
    assert [[call.name for call in each.calls] for each in run.rounds] == [["find"], ["refund"]]
    assert "refund" in run.text(300)
    assert by_handle.id == run.id
    assert (none, failed) == ([], [])


def test_all_pages_of_runs_are_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracer.reading.PAGE_SIZE", "1")

    with server.read() as reader:
        assert [each.id for each in reader.runs(sort="start")] == server.runs


def test_other_projects_and_missing_scopes_are_refused(server: Server) -> None:
    for key, status in (("stranger", 404), ("writer", 403)):
        with server.read(key) as reader, pytest.raises(Refused) as refused:
            reader.run(server.runs[0])
        assert refused.value.status == status
        done = server.check(server.runs[0], "--against", server.runs[1], key=key)
        assert (done.code, done.stdout) == (3 if status == 404 else 1, "")
        assert f"The server answered {status}" in done.stderr
    with pytest.raises(StoreUnavailable, match="does not answer"):
        client.read("http://127.0.0.1:1").run(server.runs[0])


def test_run_is_checked_against_a_file_and_another_run(server: Server, tmp_path: Path) -> None:
    short, long = server.runs
    file = tmp_path / "refund.yaml"
    with server.read() as reader:
        write_file(file, trajectory_of(reader.run(long)))

    same = server.check(long, "--against", str(file))
    missing = server.check(short, "--against", str(file))
    added = server.check(long, "--against", short)

    assert (same.code, same.stdout.splitlines()[0]) == (0, f"The run matches {file}.")
    assert missing.code == added.code == 3
    assert "1. billing: the call `refund` is missing." in missing.stdout
    assert "1. billing, round 2: the call `refund` is not expected." in added.stdout
    assert server.check(long, "--against", str(tmp_path / "none.yaml")).code == 1


def test_markdown_summary_contains_recorded_texts_in_a_code_block_only(server: Server) -> None:
    done = server.check(server.runs[1], "--against", server.runs[0], "--markdown")

    heading, _, figures, _, fence, *block, end = done.stdout.splitlines()
    assert heading == f"### The run differs from {server.runs[0]}"
    assert figures.startswith("rounds 2, tokens 30, cost unknown, seconds ")
    assert (fence, end) == ("````text", "````")
    assert any("<b>@ann</b>" in line for line in block)
    assert "````" not in "\n".join(block)
