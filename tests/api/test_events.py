"""Events over HTTP: invalid events are rejected one by one, and no body causes a server error."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.requests import MAX_BYTES
from api.routes.events import MAX_EVENTS, MAX_FIELDS
from tests.api.conftest import Api, client_of, parts_without_database
from tests.sample_runs import sample_run
from tracer.records import new_id
from tracer.records.events import PROTOCOL_HEADER, PROTOCOL_VERSION, Event, event_json

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
GZIP = {"Content-Encoding": "gzip"}


def plan_started(**fields: Any) -> dict[str, Any]:
    """Return the start of a run of its own, on the wire."""
    root = str(new_id())
    said = {"type": "plan_started", "at": "2026-11-21T22:21:52Z", "rootPlanId": root}
    return {**said, "planId": root, **fields}


def thought_started(**fields: Any) -> dict[str, Any]:
    ids = {"stepId": str(new_id()), "thinkActId": str(new_id()), "position": 0}
    return plan_started(type="thought_started", **ids, **fields)


def wire(events: list[Event]) -> list[dict[str, Any]]:
    return [json.loads(event_json(event)) for event in events]


def lines(*events: object) -> bytes:
    return "\n".join(json.dumps(each) for each in events).encode()


async def post(api: Api, body: bytes | str, headers: dict[str, str]) -> httpx2.Response:
    response = await api.client.post("/api/events", content=body, headers=headers)
    assert response.status_code < 500, response.text
    return response


async def answered(api: Api, body: bytes | str, headers: dict[str, str]) -> dict[str, Any]:
    response = await post(api, body, headers)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert isinstance(answer, dict)
    return answer


async def refused(api: Api, body: bytes | str, headers: dict[str, str]) -> tuple[int, str]:
    """Return the status and the code of a body that is refused as a whole."""
    response = await post(api, body, headers)
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem = response.json()
    assert problem["detail"].endswith(".")
    return response.status_code, problem["code"]


async def test_run_sent_over_http_equals_a_run_written_directly_to_the_store(api: Api) -> None:
    written = await api.record(sample_run())
    expected = shape(await api.read(f"/api/plans/{written.root}/tree"))
    for headers in (JSON, NDJSON, {**JSON, **GZIP}, {**NDJSON, **GZIP}):
        run = sample_run()
        sent = wire(run.events)
        is_json = headers["Content-Type"] == JSON["Content-Type"]
        body = json.dumps({"events": sent}).encode() if is_json else lines(*sent)
        if "Content-Encoding" in headers:
            body = gzip.compress(body)

        answer = await answered(api, body, headers)

        assert answer == {"stored": len(sent), "refused": []}, headers
        assert shape(await api.read(f"/api/plans/{run.root}/tree")) == expected, headers


def shape(node: Any) -> Any:
    """Return a tree without ids, times and revisions of its own."""
    if isinstance(node, list):
        return [shape(each) for each in node]
    if isinstance(node, dict):
        return {
            name: shape(each)
            for name, each in node.items()
            if not name.endswith(("Id", "At")) and name not in ("id", "revision")
        }
    return node


async def test_invalid_event_is_rejected_by_its_index_and_others_are_stored(
    api: Api,
) -> None:
    deleted, good, last = plan_started(), plan_started(), plan_started()
    await answered(api, lines(deleted), NDJSON)
    await api.client.delete(f"/api/runs/{deleted['rootPlanId']}")

    answer = await answered(
        api,
        b"\n".join(
            [
                lines(plan_started(titel="misspelt")),
                lines(good),
                b"",
                b"{not json",
                lines(deleted),
                lines({"type": "plan_begun"}),
                b"  \r",
                lines(7, None, [], {}),
                lines(last) + b"\r",
            ]
        ),
        NDJSON,
    )

    assert answer["stored"] == 2
    assert [(each["index"], each["code"]) for each in answer["refused"]] == [
        (0, "invalid_event"),
        (2, "not_json"),
        (3, "run_deleted"),
        (4, "invalid_event"),
        (5, "invalid_event"),
        (6, "invalid_event"),
        (7, "invalid_event"),
        (8, "invalid_event"),
    ]
    details = [each["detail"] for each in answer["refused"]]
    assert details[0] == "plan_started.titel: Extra inputs are not permitted."
    assert details[3].startswith("unknown type of event; use one of 'plan_started', ")
    for event in (good, last):
        await api.read(f"/api/runs/{event['rootPlanId']}")


async def test_rejections_of_1010_events_are_ordered_by_index(api: Api) -> None:
    events: list[object] = [plan_started() for _ in range(1010)]
    for index in (0, 999, 1000, 1001, 1009):
        events[index] = {"index": index}

    answer = await answered(api, json.dumps({"events": events}), JSON)

    assert answer["stored"] == 1005
    assert [each["index"] for each in answer["refused"]] == [0, 999, 1000, 1001, 1009]


async def test_events_sent_twice_are_recorded_once(api: Api) -> None:
    run = sample_run()
    sent = wire(run.events)

    once = await answered(api, lines(*sent), NDJSON)
    first = await api.read(f"/api/plans/{run.root}/tree")
    twice = await answered(api, lines(*sent, *sent), NDJSON)
    second = await api.read(f"/api/plans/{run.root}/tree")

    assert once["stored"] == len(sent)
    assert twice == {"stored": 2 * len(sent), "refused": []}
    assert shape(second) == shape(first)


UNREADABLE: list[tuple[bytes, dict[str, str], int, str]] = [
    (b"", JSON, 400, "bad_request"),
    (b"", NDJSON, 400, "bad_request"),
    (b"\n \n", NDJSON, 400, "bad_request"),
    (b"{", JSON, 400, "bad_request"),
    (b"\xff\xfe", JSON, 400, "bad_request"),
    (b"[]", JSON, 400, "bad_request"),
    (b"null", JSON, 400, "bad_request"),
    (b"{}", JSON, 400, "bad_request"),
    (b'{"events": {}}', JSON, 400, "bad_request"),
    (b'{"events": [], "event": []}', JSON, 400, "bad_request"),
    (b'{"events": [NaN]}', JSON, 400, "bad_request"),
    (b"[" * 100_000, JSON, 400, "bad_request"),
    (b"{}", {}, 415, "unknown_format"),
    (b"{}", {"Content-Type": "text/plain"}, 415, "unknown_format"),
    (b"{}", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "unknown_format"),
    (b"{}", {**JSON, "Content-Encoding": "br"}, 415, "unknown_format"),
    (b"{}", {**JSON, "Content-Encoding": "gzip, gzip"}, 415, "unknown_format"),
    (b"{}", {**JSON, **GZIP}, 400, "bad_request"),
    (b"", {**JSON, **GZIP}, 400, "bad_request"),
    (gzip.compress(b'{"events": []}', mtime=0)[:-9], {**JSON, **GZIP}, 400, "bad_request"),
    (gzip.compress(b'{"events": []}', mtime=0) + b"rest", {**JSON, **GZIP}, 400, "bad_request"),
    (gzip.compress(b" " * (MAX_BYTES + 1), mtime=0), {**JSON, **GZIP}, 413, "too_large"),
    (lines(*[0] * (MAX_EVENTS + 1)), NDJSON, 413, "too_large"),
    (json.dumps({"events": [0] * (MAX_EVENTS + 1)}).encode(), JSON, 413, "too_large"),
]


async def test_unreadable_body_is_rejected_as_a_whole(api: Api) -> None:
    failures = []
    for body, headers, status, code in UNREADABLE:
        found = await refused(api, body, headers)
        if found != (status, code):
            failures.append(
                f"{body[:40]!r} ({len(body)} bytes) with {headers}: "
                f"expected {(status, code)}, got {found}"
            )

    assert failures == []
    assert (await api.read("/api/runs"))["items"] == []


@pytest.mark.parametrize(
    "headers",
    [JSON, pytest.param(NDJSON, marks=pytest.mark.thorough), {**NDJSON, **GZIP}],
)
async def test_endless_body_is_read_only_up_to_the_size_limit(
    api: Api, headers: dict[str, str]
) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        packer = zlib.compressobj(0, wbits=31)
        while True:
            part = b" " * 2**20
            read += len(part)
            yield packer.compress(part) if "Content-Encoding" in headers else part

    response = await api.client.post("/api/events", content=endless(), headers=headers)

    assert response.status_code == 413
    assert read <= MAX_BYTES + 2 * 2**20


async def test_body_of_concatenated_gzip_members_is_read_completely(api: Api) -> None:
    body = b"".join(gzip.compress(lines(plan_started()) + b"\n") for _ in range(3))

    assert await answered(api, body, {**NDJSON, **GZIP}) == {"stored": 3, "refused": []}


async def test_deflate_encoded_body_is_accepted(api: Api) -> None:
    body = zlib.compress(lines(plan_started()))

    answer = await answered(api, body, {**NDJSON, "Content-Encoding": "deflate"})

    assert answer["stored"] == 1


async def test_content_type_with_parameters_is_accepted(api: Api) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}

    assert await answered(api, '{"events": []}', headers) == {"stored": 0, "refused": []}


async def test_nul_and_lone_surrogates_are_stored_escaped(api: Api) -> None:
    event = plan_started(title="a\0b\ud800c␛d800")

    for body, headers in ((lines(event), NDJSON), (json.dumps({"events": [event]}), JSON)):
        assert await answered(api, body, headers) == {"stored": 1, "refused": []}

    plan = await api.read(f"/api/plans/{event['planId']}")
    assert plan["title"] == "a␛0000b␛d800c␛d800"


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


STRANGE: list[tuple[str, Any]] = [
    ("a number for a time", plan_started(at=1)),
    ("a year that no database has", plan_started(at="9999-12-31T23:59:59Z")),
    ("another spelling of a field", plan_started(plan_id=str(new_id()))),
    ("an id that is none", plan_started(recorderId="x" * 36)),
    ("a huge position", plan_started(position=2**31)),
    ("a list for text", plan_started(title=["a"])),
    ("many wrong items", plan_started(tags=[1] * 100_000)),
    ("many unknown fields", plan_started(**{f"field{n}": n for n in range(MAX_FIELDS)})),
    (
        "many unknown fields below",
        plan_started(steps=[{f"f{n}": n for n in range(MAX_FIELDS + 1)}]),
    ),
    ("a sub-plan without an opener", plan_started(planId=str(new_id()))),
    ("a cost that is no number", thought_started(costUsd="NaN")),
]


async def test_invalid_event_is_rejected_alone_with_a_short_reason(api: Api) -> None:
    failures = []
    for name, event in STRANGE:
        answer = await answered(api, lines(event, plan_started()), NDJSON)
        indices = [each["index"] for each in answer["refused"]]
        if (answer["stored"], indices) != (1, [0]) or len(answer["refused"][0]["detail"]) >= 200:
            failures.append(
                f"{name}: expected event 0 refused in less than 200 characters and event 1 stored, "
                f"got {str(answer)[:300]}"
            )

    assert failures == []


async def test_deeply_nested_event_never_rejects_other_events(api: Api) -> None:
    failures = []
    for depth in (400, 900, 1000, 1020, 100_000):
        event = lines(thought_started(messages=[])).replace(
            b'"messages": []', b'"messages": ' + b"[" * depth + b"]" * depth
        )
        answer = await answered(api, event + b"\n" + lines(plan_started()), NDJSON)
        if answer["stored"] + len(answer["refused"]) != 2 or answer["stored"] < 1:
            failures.append(f"depth {depth}: expected 1 or 2 stored, got {str(answer)[:300]}")

    assert failures == []


async def test_event_with_nan_is_rejected_by_its_index_as_not_json(api: Api) -> None:
    event = lines(thought_started(messages=[])).replace(b'"messages": []', b'"messages": [NaN]')

    answer = await answered(api, event + b"\n" + lines(plan_started()), NDJSON)

    assert [(each["index"], each["code"]) for each in answer["refused"]] == [(0, "not_json")]


async def test_values_of_rejected_events_are_not_returned_in_the_response(api: Api) -> None:
    secret = "s3cret"
    fields = [*plan_started(), "steps", "position", "tags", "title", "recorderId", "error"]
    sent = [
        {**plan_started(), field: value}
        for field in fields
        for value in (secret, {secret: secret}, [secret], [{secret: secret}], 7, None)
    ]

    answer = await answered(api, lines(*sent, secret, {"type": {secret: secret}}), NDJSON)

    values = [each["detail"].replace(f".{secret}: Extra", "") for each in answer["refused"]]
    assert [each for each in values if secret in each] == []


@given(body=st.binary(), kind=st.sampled_from([JSON, NDJSON]), packed=st.booleans())
async def test_arbitrary_bytes_never_cause_a_server_error(
    api: Api, body: bytes, kind: dict[str, str], packed: bool
) -> None:
    await post(api, body, {**kind, **GZIP} if packed else kind)


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=8,
)


@given(index=st.integers(min_value=0), name=st.integers(min_value=0), value=any_json)
async def test_arbitrary_value_in_an_event_field_never_causes_a_server_error(
    api: Api, index: int, name: int, value: Any
) -> None:
    events = wire(sample_run().events)
    event = events[index % len(events)]
    sent = {**event, sorted(event)[name % len(event)]: value}

    answer = (await post(api, lines(sent, plan_started()), NDJSON)).json()

    assert answer["stored"] + len(answer["refused"]) == 2


async def test_events_get_503_with_retry_after_while_the_store_is_unavailable(
    tmp_path: Path,
) -> None:
    async with (
        parts_without_database(tmp_path) as parts,
        client_of(parts) as client,
    ):
        response = await client.post("/api/events", content=lines(plan_started()), headers=NDJSON)

    assert response.status_code == 503
    assert response.json()["code"] == "store_unavailable"
    assert response.headers["retry-after"] == "1"


async def test_cancel_requests_list_cancelled_and_deleted_runs(api: Api) -> None:
    wished, deleted, other = plan_started(), plan_started(), plan_started()
    await answered(api, lines(wished, deleted, other), NDJSON)
    await api.client.post(f"/api/runs/{wished['planId']}/cancel")
    await api.client.delete(f"/api/runs/{deleted['planId']}")

    asked = [each["planId"] for each in (wished, deleted, other)] + [str(new_id())]
    response = await api.client.get("/api/cancel-requests", params={"rootPlanId": asked})

    found = {UUID(each) for each in response.json()["rootPlanIds"]}
    assert found == {UUID(wished["planId"]), UUID(deleted["planId"])}
    none = await api.client.get("/api/cancel-requests")
    assert none.status_code == 422


async def test_field_of_a_newer_client_is_refused_with_what_to_upgrade(api: Api) -> None:
    first, second = (json.loads(event_json(each)) for each in sample_run().events[:2])
    newer = {PROTOCOL_HEADER: str(PROTOCOL_VERSION + 1)}

    answer = await api.client.post(
        "/api/events", json={"events": [first, {**second, "newField": 1}]}, headers=newer
    )
    same = await api.client.post("/api/events", json={"events": [{**second, "newField": 1}]})

    [refused] = answer.json()["refused"]
    assert answer.headers[PROTOCOL_HEADER] == str(PROTOCOL_VERSION)
    assert (answer.json()["stored"], refused["index"]) == (1, 1)
    assert refused["code"] == "invalid_event"
    assert refused["detail"].endswith(
        f"this server version {PROTOCOL_VERSION}. To record such events, upgrade the server."
    )
    assert "upgrade" not in same.json()["refused"][0]["detail"]
