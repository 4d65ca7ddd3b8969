"""The format and the content of log lines."""

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tracer.errors import StoreUnavailable
from tracer.logs import bind_request_ids, configure_logs, get_logger, lineage_bound, request_bound
from tracer.records import new_id

logger = get_logger("tracer.something")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _same_logging_afterwards() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    # The capturing handlers stay open: configuring closes those that it finds.
    root.handlers[:] = []
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def stream() -> io.StringIO:
    stream = io.StringIO()
    configure_logs(stream=stream)
    return stream


def _lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_log_line_is_one_json_object_with_level_logger_and_time(stream: io.StringIO) -> None:
    logger.info("spool drained", events=3, name="any field name will do")
    logger.debug("not written")
    [line] = _lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "spool drained",
        "events": 3,
        "name": "any field name will do",
        "level": "info",
        "logger": "tracer.something",
    }


def test_log_message_contains_the_fields_if_the_program_configured_logging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger.warning("lease_not_renewed", error="ConnectError", password="s3cret", share="100%s")

    assert caplog.messages == [
        "lease_not_renewed error='ConnectError' password='(withheld)' share='100%s'"
    ]


def test_terminal_log_has_text_lines_instead_of_json() -> None:
    stream = Terminal()
    configure_logs(stream=stream)
    logger.warning("spool is full", events=3)
    assert "spool is full" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


REQUEST = {
    "method": "GET",
    "route": "/api/plans/{planId}/tree",
    "status": 200,
    "duration_ms": 3.1,
    "received_bytes": 0,
    "sent_bytes": 5_000,
    "client": "127.0.0.1",
}
TIME = r"\d\d:\d\d:\d\d"
AN_ID = "01939d1c-7a3e-7000-8000-00000000abcd"


def test_terminal_log_shows_a_request_as_one_short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    configure_logs(stream=stream)
    with request_bound("mine-1"):
        bind_request_ids(plan_id=UUID(AN_ID))
        logger.info("request", **REQUEST)
    logger.info("request", **REQUEST | {"status": 404, "code": "not_found", "route": "none"})
    logger.info("request", **REQUEST | {"status": 0})

    found, missing, given_up = stream.getvalue().splitlines()
    assert re.fullmatch(f"{TIME} GET /api/plans/{AN_ID}/tree 200 3.1 ms", found)
    assert len(found) <= 80
    assert re.fullmatch(f"{TIME} GET none 404 3.1 ms not_found", missing)
    assert re.fullmatch(TIME + r" GET /api/plans/{planId}/tree - 3.1 ms", given_up)


COLORS: list[tuple[dict[str, str], bool]] = [
    ({"TERM": "xterm", "NO_COLOR": ""}, True),
    ({"TERM": "xterm", "NO_COLOR": "1"}, False),
    ({"TERM": "dumb", "NO_COLOR": ""}, False),
]


@pytest.mark.parametrize(("environment", "has_colors"), COLORS)
def test_terminal_lines_have_colors_if_the_terminal_has_them(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], has_colors: bool
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    configure_logs(stream=stream)
    logger.info("request", **REQUEST)
    logger.warning("spool is full")

    assert [("\x1b[" in line) for line in stream.getvalue().splitlines()] == [has_colors] * 2


def test_terminal_log_shows_the_traceback_of_an_error() -> None:
    stream = Terminal()
    configure_logs(stream=stream)
    try:
        raise StoreUnavailable("the store is away")
    except StoreUnavailable:
        logger.exception("write failed")
    assert "the store is away" in stream.getvalue()
    assert __file__ in stream.getvalue()


def test_field_values_are_logged_as_json_or_as_text(stream: io.StringIO) -> None:
    an_id = new_id()
    logger.info("100 % done", share=0.5, count=2**53, none=None, id=an_id, path=Path("a"))
    [line] = _lines(stream)
    assert line["event"] == "100 % done"
    values = [line[name] for name in ("share", "count", "none", "id", "path")]
    assert values == [0.5, 2**53, None, str(an_id), "a"]


def test_log_line_with_any_text_can_be_written_to_an_ascii_stream() -> None:
    written = io.BytesIO()
    configure_logs(stream=io.TextIOWrapper(written, "ascii", write_through=True))
    logger.info("done", name="Ærø \N{PILE OF POO}\u2028", count=3)
    [line] = written.getvalue().splitlines()
    assert json.loads(line)["name"] == "Ærø \N{PILE OF POO}\u2028"
    assert json.loads(line)["count"] == 3


CIRCLE: dict[str, Any] = {}
CIRCLE["itself"] = CIRCLE


def test_log_value_that_json_cannot_represent_is_logged_as_text(stream: io.StringIO) -> None:
    values: list[object] = [2**64, "half \ud83d", {(1, 2): 3}, CIRCLE]
    for value in values:
        logger.info("done", odd=value, count=3)
    lines = _lines(stream)
    assert [line["event"] for line in lines] == ["done"] * len(values)
    assert [line["odd"] for line in lines] == [str(value) for value in values]


async def test_lineage_ids_are_logged_in_tasks_and_threads(stream: io.StringIO) -> None:
    root_plan_id = new_id()
    with lineage_bound(root_plan_id=root_plan_id, tool_call_id=None):
        await asyncio.create_task(_log("in a task"))
        await asyncio.to_thread(logger.info, "in a thread")
        with lineage_bound(tool_call_id="inner"):
            logger.info("further inside")
    logger.info("outside")
    in_task, in_thread, inner, outside = _lines(stream)
    assert inner["root_plan_id"] == str(root_plan_id)
    assert inner["tool_call_id"] == "inner"
    assert in_task["root_plan_id"] == in_thread["root_plan_id"] == str(root_plan_id)
    assert "tool_call_id" not in in_task
    assert "root_plan_id" not in outside


async def _log(event: str) -> None:
    logger.info(event)


def test_log_lines_do_not_contain_payloads(stream: io.StringIO) -> None:
    logger.info("called", arguments={"pin": "hush"}, result="hush")
    assert "hush" not in stream.getvalue()


def test_logged_traceback_omits_the_messages_of_other_libraries_errors(stream: io.StringIO) -> None:
    try:
        try:
            raise ExceptionGroup("hush-group", [ValueError("hush-" + "value")])
        except ExceptionGroup as error:
            raise StoreUnavailable("the store is away") from error
    except StoreUnavailable:
        logger.exception("write failed")
    [line] = _lines(stream)
    assert "the store is away" in line["exception"]
    assert "builtins.ValueError" in line["exception"]
    assert __file__ in line["exception"]
    assert "hush-value" not in line["exception"]


def test_access_lines_of_uvicorn_are_not_logged(stream: io.StringIO) -> None:
    arguments = ("127.0.0.1:50000", "GET", "/api/runs?q=hush", "1.1", 200)
    logging.getLogger("uvicorn.access").info('%s - "%s %s HTTP/%s" %d', *arguments)
    assert _lines(stream) == []


def test_warnings_of_other_libraries_are_logged_as_json(stream: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").warning("Invalid request, number %d", 7)
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("openai").info("a whole request")
    assert [line["event"] for line in _lines(stream)] == ["Invalid request, number 7"]
