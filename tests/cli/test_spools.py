"""Each key has its own spool of events, and only `tracer spool` sends it with another key."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import tracer as library
from tests.api.commands import Tracer, serving_here

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The library's log lines, also while a server in this process replaces the root's handlers."""
    logger = logging.getLogger("tracer")
    logger.addHandler(caplog.handler)
    logger.propagate = False
    yield caplog
    logger.propagate = True
    logger.removeHandler(caplog.handler)


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def record(title: str, url: str, key: str | None = None) -> None:
    with library.connect(url, api_key=key) as tracing, tracing.plan(title):
        pass


def new_key(tracer: Tracer, folder: Path, url: str, project: str, *scopes: str) -> str:
    options = [part for scope in scopes for part in ("--scope", scope)]
    done = tracer(
        folder,
        *("keys", "create", project, "--project", project, *options, "--json"),
        TRACER_DATABASE_URL=url,
    )
    assert done.code == 0, done.stderr
    secret: str = json.loads(done.stdout)["secret"]
    return secret


def titles(url: str, key: str = "") -> list[str]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    answer = httpx2.get(f"{url}/api/runs", headers=headers, timeout=60).json()
    return sorted(each["title"] for each in answer["items"])


def spools(tracer: Tracer, home: Path, **environment: str) -> dict[str, dict[str, Any]]:
    """Return the listed spool files that hold events, by name."""
    done = tracer(home, "spool", "list", "--json", **environment)
    assert done.code == 0, done.stderr
    return {each["file"]: each for each in json.loads(done.stdout) if each["events"]}


def test_spooled_events_are_never_sent_with_another_key(
    tracer: Tracer,
    database_url: str,
    tmp_path: Path,
    home: Path,
    free_port: int,
    log: pytest.LogCaptureFixture,
) -> None:
    one = new_key(tracer, tmp_path, database_url, "one", "record", "read")
    two = new_key(tracer, tmp_path, database_url, "two", "record", "read")
    read_only = new_key(tracer, tmp_path, database_url, "one", "read")
    url = f"http://127.0.0.1:{free_port}"
    record("one, before the server started", url, one)
    with serving_here(database_url, tmp_path, port=free_port):
        record("without a key", url)
        record("with a wrong key", url, "tracer_wrong")
        record("with a read-only key", url, read_only)
        log.clear()
        record("two", url, two)
        assert titles(url, two) == ["two"]
        assert titles(url, one) == []
        [line] = [each for each in log.messages if "events_wait_in_other_spools" in each]
        assert "tracer spool list" in line
        assert "waiting_events=8" in line
        listed = spools(tracer, home, TRACER_API_KEY=read_only)
        assert sorted((each["key"], each["events"]) for each in listed.values()) == [
            ("TRACER_API_KEY", 2),
            ("another", 2),
            ("another", 2),
            ("none", 2),
        ]
        assert {each["address"] for each in listed.values()} == {url}
        record("one", url, one)

        assert titles(url, one) == ["one", "one, before the server started"]
        assert titles(url, two) == ["two"]
        assert len(spools(tracer, home)) == 3


def test_send_command_sends_spooled_events_with_the_configured_key(
    tracer: Tracer, database_url: str, tmp_path: Path, home: Path
) -> None:
    key = new_key(tracer, tmp_path, database_url, "one", "record", "read")
    with serving_here(database_url, tmp_path) as url:
        record("moved", url, "tracer_wrong")
        [file] = spools(tracer, home)
        refused = tracer(home, "spool", "send", file, TRACER_API_KEY="tracer_wrong")
        done = tracer(home, "spool", "send", file, TRACER_API_KEY=key)

        assert refused.code == 1
        assert "2 events not sent; they stay in" in refused.stderr
        assert "TRACER_API_KEY" in refused.stderr
        assert done.code == 0, done.stderr
        assert "Sent 2 events." in done.stderr
        assert titles(url, key) == ["moved"]
    assert not (home / "spool" / file).exists()


def test_spool_is_not_sent_to_a_server_other_than_its_own(tracer: Tracer, home: Path) -> None:
    record("waits", NOBODY, "tracer_wrong")
    [file] = spools(tracer, home)
    done = tracer(home, "spool", "send", file, TRACER_URL="http://127.0.0.1:2")

    assert done.code == 1
    assert f"belong to {NOBODY}, and TRACER_URL is http://127.0.0.1:2" in done.stderr


def test_discard_deletes_a_spool_after_confirmation(tracer: Tracer, home: Path) -> None:
    record("waits", NOBODY)
    [file] = spools(tracer, home)
    kept = tracer(home, "spool", "discard", file, stdin="n\n")
    assert spools(tracer, home)
    done = tracer(home, "spool", "discard", file, "--yes")

    assert kept.code == 1
    assert (done.code, "Deleted 2 events." in done.stderr) == (0, True)
    assert list((home / "spool").iterdir()) == []


def test_spool_opened_by_a_process_is_neither_sent_nor_discarded(
    tracer: Tracer, home: Path
) -> None:
    with library.connect(NOBODY) as tracing, tracing.plan("waits"):
        [listed] = spools(tracer, home).values()
        sent = tracer(home, "spool", "send", listed["file"])
        discarded = tracer(home, "spool", "discard", listed["file"], "--yes")

    assert listed["isOpen"]
    assert (sent.code, discarded.code) == (1, 1)
    assert "has this spool open" in sent.stderr
    assert "has this spool open" in discarded.stderr
    assert spools(tracer, home)[listed["file"]]["events"] == 2


@pytest.mark.parametrize("command", ["send", "discard"])
def test_file_that_is_not_a_spool_is_not_changed(tracer: Tracer, home: Path, command: str) -> None:
    (home / "notes.txt").write_text("not a spool")
    for file in ("missing.sqlite3", str(home / "notes.txt")):
        done = tracer(home, "spool", command, file)
        assert done.code == 1
        assert "spool" in done.stderr
    assert (home / "notes.txt").read_text() == "not a spool"
