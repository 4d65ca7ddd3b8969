"""A store outage is logged once at its start and once at its end, with the cause."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import psycopg
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

import tracer as library
from tests.api.commands import Tracer, serving_here
from tests.cli.test_spools import new_key, titles
from tests.recorder.plans import plan_started
from tracer.recorder import Recorder, spool_for
from tracer.storage.http import HttpWriter

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The recorder's log lines. A server in this process replaces the root's handlers."""
    logger = logging.getLogger("tracer.recorder")
    logger.addHandler(caplog.handler)
    logger.propagate = False
    yield caplog
    logger.propagate = True
    logger.removeHandler(caplog.handler)


def soon(log: pytest.LogCaptureFixture, words: str) -> str:
    """Return the log line with these words once there is one."""
    retrying = Retrying(
        retry=retry_if_result(lambda found: not found),
        wait=wait_fixed(0.05),
        stop=stop_after_delay(60),
    )
    [line] = retrying(lambda: [each for each in log.messages if words in each])
    return str(line)


def set_revoked(database_url: str, name: str, *, is_revoked: bool) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE api_key SET revoked_at = %s WHERE name = %s",
            [datetime.now(UTC) if is_revoked else None, name],
        )


def test_outage_interrupted_by_a_rejected_key_is_logged_once(
    tracer: Tracer, database_url: str, tmp_path: Path, home: Path, log: pytest.LogCaptureFixture
) -> None:
    one = new_key(tracer, tmp_path, database_url, "one", "record", "read")
    two = new_key(tracer, tmp_path, database_url, "two", "record", "read")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with library.connect(url, api_key=one) as tracing:
        for number in range(20):
            with tracing.plan(f"during the outage, {number}"):
                pass
        soon(log, "connection refused")
        set_revoked(database_url, "one", is_revoked=True)
        with serving_here(database_url, tmp_path, port=port):
            soon(log, "401")
            with library.connect(url, api_key=two) as other, other.plan("two"):
                pass
            assert titles(url, two) == ["two"]
            set_revoked(database_url, "one", is_revoked=False)
            soon(log, "store_available_again")
            with tracing.plan("after the outage"):
                pass
            assert tracing.flush(60)
            lines = [each for each in log.messages if each.startswith("store_")]
            tracing.close()

            assert len(titles(url, one)) == 21
            assert titles(url, two) == ["two"]
    begin, change, end = lines
    [file] = {each.name for each in (home / "spool").glob("*.sqlite3")} & set(
        re.findall(r"\w+\.sqlite3", begin)
    )
    assert f"address='{url}'" in begin
    assert "problem='connection refused'" in begin
    assert "TRACER_URL" in begin
    assert "waiting_events=1 " in begin
    assert "problem='401: the server does not accept this key'" in change
    assert "TRACER_API_KEY" in change
    assert "waiting_events=40 " in change
    assert f"address='{url}'" in end
    assert file in end
    assert not [each for each in lines if UUID.search(each) or ".py" in each]


def answering(status: int, detail: str | None) -> httpx2.AsyncBaseTransport:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if detail is None:
            return httpx2.Response(status, text="<html>Hello</html>")
        problem = json.dumps({"code": "a_code", "detail": detail})
        headers = {"Content-Type": "application/problem+json"}
        return httpx2.Response(status, content=problem, headers=headers)

    return httpx2.MockTransport(answer)


@asynccontextmanager
async def recording(
    url: str, key: str | None, home: Path, transport: httpx2.AsyncBaseTransport | None
) -> AsyncIterator[Recorder]:
    async with (
        aclosing(HttpWriter(url, key, transport=transport)) as writer,
        Recorder(writer, spool_for(home, url, api_key=key), patience=60) as recorder,
    ):
        yield recorder


@pytest.mark.parametrize(
    ("status", "key", "detail", "problem", "setting"),
    [
        (401, None, "", "401: the server requires a key and none was sent", "TRACER_API_KEY"),
        (401, "k3y", "", "401: the server does not accept this key", "TRACER_API_KEY"),
        (403, "k3y", "It lacks a scope.", "403: It lacks a scope", "TRACER_API_KEY"),
        (404, None, None, "404: the response is not from a tracer server", "TRACER_URL"),
        (200, None, None, "200: the response is not from a tracer server", "TRACER_URL"),
        (503, None, "It is busy.", "503: It is busy", "the server's log"),
    ],
)
async def test_outage_log_line_names_the_problem_and_the_setting(
    status: int,
    key: str | None,
    detail: str | None,
    problem: str,
    setting: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    url = "http://tracer.example:8420"
    async with recording(url, key, tmp_path, answering(status, detail)) as recorder:
        await recorder.record(plan_started(recorder))
        await recorder.record(plan_started(recorder))

    [line] = [each for each in caplog.messages if each.startswith("store_")]
    assert f"problem='{problem}'" in line
    assert f"address='{url}'" in line
    assert setting in line
    assert "waiting_events=1 " in line
    assert str(tmp_path / "spool") in line
    assert "k3y" not in line


async def test_outage_log_line_names_a_host_that_cannot_be_resolved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with recording("http://nobody.invalid", None, tmp_path, None) as recorder:
        await recorder.record(plan_started(recorder))

    [line] = [each for each in caplog.messages if each.startswith("store_")]
    assert "the name 'nobody.invalid' cannot be resolved" in line


def test_unreachable_database_is_logged_once_without_its_password(
    home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracer.storage.postgres.pool.ANSWER_SECONDS", 1.0)
    url = "postgresql://someone:s3cret@127.0.0.1:1/traces"
    with library.connect(url) as tracing:
        for _ in range(3):
            with tracing.plan("waits"):
                pass
        soon(caplog, "store_unavailable")

    [line] = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert "address='postgresql://127.0.0.1:1/traces'" in line
    assert "problem='the database does not answer: Connection refused'" in line
    assert "TRACER_DATABASE_URL" in line
    assert "s3cret" not in caplog.text
