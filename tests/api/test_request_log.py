"""The request log: one line for each request, with ids and without request contents."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.middleware import request_id
from tests.api.conftest import Api, client_of, parts_without_database
from tests.otel.made_traces import body_of, make_span
from tests.sample_runs import sample_run
from tracer.logs import configure_logs
from tracer.records import new_id
from tracer.records.events import event_json

NDJSON = {"Content-Type": "application/x-ndjson"}
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    root.handlers[:] = []  # configuring closes those that it finds
    stream = io.StringIO()
    configure_logs(stream=stream)
    yield stream
    root.setLevel(level)
    root.handlers[:] = handlers


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_each_request_logs_one_line_with_all_ids(api: Api, stream: io.StringIO) -> None:
    run = await api.record(sample_run())
    answer = await api.get(f"/api/runs/{run.root}")

    [line] = [each for each in lines(stream) if each["event"] == "request"]
    assert line["request_id"] == answer.headers["x-request-id"]
    assert line["root_plan_id"] == str(run.root)
    assert (line["level"], line["method"], line["route"], line["status"]) == (
        *("info", "GET", "/api/runs/{rootPlanId}"),
        200,
    )
    assert line["sent_bytes"] == len(answer.content)
    assert line["duration_ms"] > 0


async def test_log_line_of_one_run_has_run_and_recorder_ids(api: Api, stream: io.StringIO) -> None:
    run, other, recorder_id = sample_run(), sample_run(), new_id()
    one = [each.model_copy(update={"recorder_id": recorder_id}) for each in run.events]
    for events in (one, [*one, *other.events]):
        body = b"\n".join(map(event_json, events))
        await api.client.post("/api/events", content=body, headers=NDJSON)

    alone, together = (each for each in lines(stream) if each["event"] == "request")
    assert alone["root_plan_id"] == str(run.root)
    assert alone["recorder_id"] == str(recorder_id)
    assert "root_plan_id" not in together
    assert "recorder_id" not in together


async def test_log_lines_have_the_request_id_and_problem_code(
    tmp_path: Path, stream: io.StringIO
) -> None:
    async with (
        parts_without_database(tmp_path) as away,
        client_of(away) as client,
    ):
        answer = await client.get("/api/runs", headers={"X-Request-Id": "mine-1"})

    assert answer.status_code == 503
    assert answer.headers["x-request-id"] == "mine-1"
    logged = {
        each["event"]: each["code"] for each in lines(stream) if each.get("request_id") == "mine-1"
    }
    assert logged == {"request_failed": "store_unavailable", "request": "store_unavailable"}


async def test_internal_error_is_returned_and_logged_with_the_request_id(
    tmp_path: Path, stream: io.StringIO
) -> None:
    async with (
        parts_without_database(tmp_path) as parts,
        client_of(parts) as client,
    ):
        object.__setattr__(parts, "reader", None)  # a mistake of ours
        answer = await client.get("/readyz")

    assert answer.status_code == 500
    crashed, request = (
        next(each for each in lines(stream) if each["event"] == event)
        for event in ("request_crashed", "request")
    )
    assert crashed["request_id"] == request["request_id"] == answer.headers["x-request-id"]
    assert (request["status"], request["code"]) == (500, answer.json()["code"])
    assert crashed["level"] == "error"


REQUEST_IDS: list[tuple[dict[str, str], str | None]] = [
    ({"x-request-id": "abc-1.2:3"}, "abc-1.2:3"),
    ({"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}, TRACE),
    ({"x-request-id": "a", "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}, "a"),
    ({"x-request-id": "two words"}, None),
    ({"x-request-id": "x" * 65}, None),
    ({"x-request-id": 'a"}\n{'}, None),
    ({"traceparent": f"00-{'0' * 32}-b7ad6b7169203331-01"}, None),
    ({"traceparent": f"ff-{TRACE}-b7ad6b7169203331-01"}, None),
    ({"traceparent": TRACE}, None),
    ({}, None),
]


def test_only_valid_client_request_ids_are_used() -> None:
    failures = []
    for headers, expected in REQUEST_IDS:
        sent = [(name.encode(), value.encode()) for name, value in headers.items()]
        found, again = request_id(sent), request_id(sent)
        is_new = len(found) == 32 and found != again
        if found != expected and not (expected is None and is_new):
            failures.append(f"{headers}: expected {expected or 'a new id'!r}, got {found!r}")

    assert failures == []


async def test_request_log_contains_no_values_from_the_request(
    api: Api, stream: io.StringIO
) -> None:
    logging.getLogger().setLevel(logging.DEBUG)
    hush = "canary-hush"
    run = sample_run(title=hush)
    body = b"\n".join(map(event_json, run.events))
    attributes = {"gen_ai.tool.call.arguments": hush, "gen_ai.tool.name": hush}
    sent: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/api/events", {"content": body, "headers": NDJSON}),
        ("POST", "/api/events", {"json": {"events": [{"type": hush, hush: hush}]}}),
        ("POST", "/api/events", {"content": hush, "headers": NDJSON}),
        ("POST", "/api/events", {"content": hush, "headers": {"Content-Type": hush}}),
        ("POST", "/v1/traces", {"content": body_of(make_span(1, hush, attributes))}),
        ("GET", "/api/runs", {"params": {"q": hush}}),
        ("GET", "/api/runs", {"params": {hush: hush}}),
        ("GET", f"/api/runs/{hush}", {}),
        ("GET", f"/{hush}", {}),
        (hush.upper(), "/api/runs", {}),
        ("GET", "/api/runs", {"headers": {"X-Request-Id": f"{hush} {hush}", "Cookie": hush}}),
        ("POST", "/api/runs", {"json": {"request": hush, "title": hush, "agent": hush}}),
        ("POST", "/api/sign-in", {"json": {"key": hush}}),
    ]
    for method, path, given in sent:
        given.setdefault("headers", {}).setdefault("Content-Type", "application/json")
        await api.client.request(method, path, **given)

    logged = [each for each in lines(stream) if each["event"] == "request"]
    assert len(logged) == len(sent)
    assert hush not in stream.getvalue().lower()
