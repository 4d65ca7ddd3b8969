"""Hostile and damaged bodies are stored in part or rejected, and never cause a server error."""

from __future__ import annotations

import gzip
import json
import sys
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.otlp.routes import MAX_BYTES
from api.requests import MAX_BYTES as MAX_EVENT_BYTES
from tests.api.conftest import Api
from tests.otel.captured import NAMES, bodies, spans_of
from tests.otel.decoded import spans_in
from tests.otel.made_traces import TRACE_ID, make_span
from tests.otel.projections import project
from tests.otel.sent import encode_json
from tests.otel.wire import bytes_field
from tests.profiles import quick_among, scaled
from tests.sample_runs import sample_run
from tracer.otel.otlp import decode_json
from tracer.records import new_id
from tracer.records.events import event_json

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PROTOBUF, JSON, NDJSON = "application/x-protobuf", "application/json", "application/x-ndjson"
MIB = 2**20
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}
HARMLESS = {200, 400, 413, 415, 422}

fuzzed = settings(max_examples=scaled(150))


async def post(
    api: Api,
    path: str,
    body: bytes | AsyncIterator[bytes],
    media_type: str,
    encoding: str = "identity",
) -> httpx2.Response:
    headers = {"Content-Type": media_type, "Content-Encoding": encoding}
    response = await api.client.post(path, content=body, headers=headers)
    assert response.status_code in HARMLESS, response.text
    return response


async def all_is_readable(api: Api) -> list[Any]:
    """Return all runs, each read with its tree and its spans."""
    page: Any = await api.read("/api/runs", limit=500, otherTraces="true")
    for run in page["items"]:
        await api.read(f"/api/plans/{run['rootPlanId']}/tree")
        await api.read(f"/api/runs/{run['rootPlanId']}/spans", limit=500)
    items = page["items"]
    assert isinstance(items, list)
    return items


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Draw a body with some bytes changed, cut out, put in or repeated, and the end cut off."""
    body = bytearray(whole)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(0, len(body) - 1)))
        match draw(st.sampled_from(["change", "cut", "insert", "repeat"])):
            case "change" if body:
                body[at] = draw(st.integers(0, 255))
            case "cut":
                del body[at : at + draw(st.integers(1, 50))]
            case "insert":
                body[at:at] = draw(st.binary(max_size=20))
            case _:
                body[at:at] = body[at : at + draw(st.integers(1, 500))]
    return bytes(body[: draw(st.integers(0, len(body)))] if draw(st.booleans()) else body)


@dataclass(frozen=True)
class Sent:
    """A damaged body, and what it says that it is."""

    body: bytes
    media_type: str
    encoding: str


@st.composite
def damaged_and_packed(draw: st.DrawFn, whole: dict[str, list[bytes]]) -> Sent:
    """Draw one of the bodies of any media type, damaged before or after it is packed."""
    media_type = draw(st.sampled_from(sorted(whole)))
    body = draw(st.sampled_from(whole[media_type]))
    encoding = draw(st.sampled_from(sorted(PACKERS)))
    if draw(st.booleans()):
        return Sent(PACKERS[encoding](draw(damaged(body))), media_type, encoding)
    return Sent(draw(damaged(PACKERS[encoding](body))), media_type, encoding)


CAPTURED = {
    PROTOBUF: [body for name in NAMES for body in bodies(name)],
    JSON: [encode_json(spans_of(name)[:5]) for name in NAMES],
}
_EVENTS = [event_json(event) for event in sample_run().events]
EVENTS = {
    NDJSON: [b"\n".join(_EVENTS)],
    JSON: [b'{"events": [' + b",".join(_EVENTS) + b"]}"],
}


@fuzzed
@given(damaged_and_packed(CAPTURED))
async def test_damaged_capture_never_causes_a_server_error(api: Api, sent: Sent) -> None:
    response = await post(api, "/v1/traces", sent.body, sent.media_type, sent.encoding)

    assert response.headers["content-type"] == sent.media_type


@pytest.mark.thorough
async def test_runs_of_damaged_captures_can_be_read(api: Api) -> None:
    for name in NAMES[::4]:
        for number, body in enumerate(bodies(name)):
            for at in range(number, len(body), max(1, len(body) // 5)):
                hurt = body[:at] + bytes([body[at] ^ (1 << at % 8)]) + body[at + 1 :]
                await post(api, "/v1/traces", hurt, PROTOBUF)

    assert len(await all_is_readable(api)) > 0


@fuzzed
@given(damaged_and_packed(EVENTS))
async def test_damaged_events_never_cause_a_server_error(api: Api, sent: Sent) -> None:
    await post(api, "/api/events", sent.body, sent.media_type, sent.encoding)


@pytest.mark.parametrize(
    ("path", "media_type", "most"),
    [("/v1/traces", PROTOBUF, MAX_BYTES), ("/api/events", NDJSON, MAX_EVENT_BYTES)],
)
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.thorough
async def test_reading_a_100_mb_body_stops_at_the_limit(
    api: Api, path: str, media_type: str, most: int, encoding: str
) -> None:
    read = 0
    packer = zlib.compressobj(0, wbits=31)

    async def hundred_megabytes() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(100):
            read += MIB
            part = b"\n" * MIB
            yield packer.compress(part) if encoding == "gzip" else part

    response = await post(api, path, hundred_megabytes(), media_type, encoding)

    assert response.status_code == 413
    assert read <= most + 2 * MIB


@pytest.mark.parametrize(
    ("path", "media_type"), [("/v1/traces", PROTOBUF), ("/api/events", NDJSON)]
)
async def test_body_with_content_length_of_100_mb_gets_413_unread(
    api: Api, path: str, media_type: str
) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield b"\n"

    headers = {"Content-Type": media_type, "Content-Length": str(100 * MIB)}
    response = await api.client.post(path, content=body(), headers=headers)

    assert response.status_code == 413
    assert read == 0


@pytest.mark.parametrize(
    ("unit", "media_type"),
    [(b"[],", JSON), pytest.param(b'{"a":0},', NDJSON, marks=pytest.mark.thorough)],
)
async def test_body_with_too_many_values_is_rejected_before_it_is_decoded(
    api: Api, unit: bytes, media_type: str
) -> None:
    """Gzipped, 134 KiB of such a body took 0.7 GB."""
    body = b'{"events":[' + unit * (6 * MIB // len(unit)) + b"0]}"
    tracemalloc.start()
    try:
        response = await post(api, "/api/events", gzip.compress(body), media_type, "gzip")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert response.status_code == 413
    assert "values" in response.json()["detail"]
    assert peak < 5 * len(body)


async def test_value_limit_ignores_commas_and_brackets_in_strings(api: Api) -> None:
    title = "[1," * 1_000_000
    event = {"type": "plan_started", "at": "2026-11-21T22:21:52Z", "title": title}
    event |= dict.fromkeys(("rootPlanId", "planId"), str(new_id()))

    response = await post(api, "/api/events", json.dumps({"events": [event]}).encode(), JSON)

    assert response.json()["stored"] == 1


async def test_payload_with_too_many_secrets_is_replaced_by_a_mask_with_its_size(api: Api) -> None:
    """Redacting this took 25 seconds: it was answered 503 and had to be sent again, for ever."""
    text, run_id = "password=x " * 2_500_000, str(new_id())
    event = {"type": "plan_started", "at": "2026-11-21T22:21:52Z", "userRequest": text}
    event |= dict.fromkeys(("rootPlanId", "planId"), run_id)

    response = await post(
        api, "/api/events", gzip.compress(json.dumps({"events": [event]}).encode()), JSON, "gzip"
    )

    assert response.json() == {"stored": 1, "refused": []}
    plan: Any = await api.read(f"/api/plans/{run_id}")
    assert plan["userRequest"] == f"[masked: payload of {len(text)} bytes]"
    assert plan["masked"] == ["userRequest"]


@pytest.mark.parametrize("path", quick_among(["/api/events", "/v1/traces"], ["/api/events"]))
async def test_request_with_too_many_secrets_is_rejected(api: Api, path: str) -> None:
    text = "password=x " * 9_000
    if path == "/api/events":
        event = {"type": "plan_started", "at": "2026-11-21T22:21:52Z", "userRequest": text}
        events = [event | dict.fromkeys(("rootPlanId", "planId"), str(new_id()))] * 100
        body = json.dumps({"events": events}).encode()
    else:
        spans = [make_span(n, f"span {n}", {"gen_ai.input.messages": text}) for n in range(1, 101)]
        body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()

    response = await post(api, path, body, JSON)

    assert response.status_code == 422
    assert "more secrets" in response.text
    assert await all_is_readable(api) == []


STRANGE: list[dict[str, Any]] = [
    {"traceId": "ab" * 15},
    {"traceId": "ab" * 17},
    {"traceId": ""},
    {"traceId": "00" * 16},
    {"spanId": "ab" * 7},
    {"spanId": "00" * 8},
    {"events": [7]},
]
ALLOWED: list[dict[str, Any]] = [
    {"startTimeUnixNano": "-1"},
    {"endTimeUnixNano": str(2**64)},
    {"startTimeUnixNano": str(2**63)},
    {"startTimeUnixNano": "0", "endTimeUnixNano": "0"},
    {"startTimeUnixNano": "9", "endTimeUnixNano": "1"},
    {"startTimeUnixNano": str(2**63 - 1), "endTimeUnixNano": str(2**63 - 1)},
    {"name": ""},
    {"parentSpanId": f"{40:016x}"},
    {"links": [{"traceId": "ab", "spanId": "cd"}]},
    {"attributes": [{"key": f"key {n}", "value": {"stringValue": "\0"}} for n in range(10_000)]},
    {"attributes": [{"key": "", "value": {}}, {"key": "", "value": {"doubleValue": "NaN"}}]},
    {"attributes": [{"key": "n", "value": {"doubleValue": 10**400}}]},
    {"links": [{"traceId": "zz"}]},
    {"parentSpanId": "abcd"},
    {"attributes": [{"key": "n", "value": {"intValue": str(2**70)}}]},
    {"attributes": {"not": "a list"}},
    {"kind": 99, "status": {"code": 99}},
]


async def test_valid_spans_next_to_invalid_spans_are_stored(api: Api) -> None:
    operation = {"gen_ai.operation.name": "execute_tool"}
    strange = [
        {**make_span(n, f"execute_tool bad {n}", operation), **s} for n, s in enumerate(STRANGE)
    ]
    allowed = [
        {**make_span(n + 40, f"execute_tool good {n}", operation), **each}
        for n, each in enumerate(ALLOWED)
    ]
    mixed: list[Any] = [*strange[:7], *allowed, *strange[7:], None, 7, "x", []]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": mixed}]}]}).encode()

    response = await post(api, "/v1/traces", body, JSON)

    assert response.status_code == 200
    partial = response.json()["partialSuccess"]
    assert partial["rejectedSpans"] == str(len(STRANGE) + 4)
    (run,) = await all_is_readable(api)
    page: Any = await api.read(f"/api/runs/{run['rootPlanId']}/spans", limit=500)
    assert {each["spanId"] for each in page["items"]} == {each["spanId"] for each in allowed}


HOSTILE_VALUES = {
    "null": "null",
    "boolean": "true",
    "zero": "0",
    "negative": "-1",
    "fraction": "0.5",
    "infinite": "1e999",
    "beyond 64 bits": "18446744073709551616",
    "5,000 digits": "9" * 5_000,
    "digits as text": f'"{"9" * 5_000}"',
    "not a number": '"NaN"',
    "empty text": '""',
    "NUL": r'"\u0000"',
    "lone surrogate": r'"\ud800"',
    "array": "[]",
    "null in an array": "[null]",
    "text in an array": '["x"]',
    "object": "{}",
    "null in an object": '{"key": null, "value": null}',
    "deep array": "[" * 900 + "]" * 900,
    "deeper array": "[" * 5_000 + "]" * 5_000,
    "deep value": '{"arrayValue":{"values":[' * 300 + "{}" + "]}}" * 300,
    "deeper value": '{"kvlistValue":{"values":[{"value":' * 2_000 + "0" + "}]}}" * 2_000,
}
_HOLE = "a hostile value"


def _spans_with_a_hole() -> list[dict[str, Any]]:
    """Return copies of a span, each with another of its values replaced by `_HOLE`."""
    asked = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t", "some": [{"a": 1}]}
    said = {"gen_ai.usage.input_tokens": 5, "gen_ai.tool.call.arguments": "{}", "ratio": 0.5}
    whole = make_span(1, "execute_tool t", asked | said, parent=1_000, failed="it broke") | {
        "traceState": "a=b",
        "flags": 1,
        "droppedAttributesCount": 1,
        "events": [
            {
                "name": "exception",
                "timeUnixNano": "5",
                "attributes": make_span(1, "", asked)["attributes"],
            }
        ],
        "links": [
            {"traceId": TRACE_ID, "spanId": "0000000000000009", "traceState": "", "flags": 1}
        ],
        "unknown": {"field": [1]},
    }
    spans = []
    for number, pointer in enumerate(_places(whole), 2):
        span = json.loads(json.dumps(whole | {"spanId": f"{number:016x}"}))
        *above, last = pointer
        parent = span
        for name in above:
            parent = parent[name]
        parent[last] = _HOLE
        spans.append(span)
    return [*spans, _HOLE]


def _places(value: Any) -> list[tuple[Any, ...]]:
    """Return the path of each value within a value."""
    if isinstance(value, dict):
        inner = list(value.items())
    else:
        inner = list(enumerate(value)) if isinstance(value, list) else []
    return [(name, *rest) for name, each in inner for rest in [(), *_places(each)]]


_STORED = ("5,000 digits", "lone surrogate", "deeper value")
"""Values that are also stored and read. The others are only decoded and projected."""


@pytest.mark.parametrize("name", quick_among(HOSTILE_VALUES, (*_STORED, "null", "array", "object")))
def test_hostile_value_in_a_json_span_rejects_no_other_span(name: str) -> None:
    body, count = _request_with(HOSTILE_VALUES[name])

    decoded = decode_json(body)

    spans = spans_in(decoded)
    stored = {int.from_bytes(span.span_id) for span in spans}
    assert {0x5000, 0x5001, 0x5002} <= stored
    assert len(spans) + len(decoded.refused) == decoded.count == count
    assert decoded.refused
    project(spans)


@pytest.mark.parametrize("name", _STORED)
async def test_spans_with_a_hostile_value_can_be_read(api: Api, name: str) -> None:
    body, count = _request_with(HOSTILE_VALUES[name])

    response = await api.client.post("/v1/traces", content=body, headers={"Content-Type": JSON})

    assert response.status_code == 200, response.text
    page: Any = await api.read(f"/api/runs/{UUID(TRACE_ID)}/spans", limit=500)
    rejected = int(response.json()["partialSuccess"]["rejectedSpans"])
    assert len(page["items"]) <= count - rejected < count
    assert await all_is_readable(api)


def _request_with(value: str) -> tuple[bytes, int]:
    """Return a request with a JSON value in all places of its spans, and the number of spans."""
    hostile = _spans_with_a_hole()
    first, last = make_span(0x5000, "first"), make_span(0x5001, "last")
    around: list[dict[str, Any]] = [
        {"resource": _HOLE},
        {"resource": {"attributes": _HOLE}},
        {"schemaUrl": _HOLE},
    ]
    request: dict[str, list[dict[str, Any]]] = {
        "resourceSpans": [
            {"scopeSpans": [{"spans": [first, *hostile, last]}]},
            *({**each, "scopeSpans": [{"spans": [make_span(1, "x")]}]} for each in around),
            {"scopeSpans": [{"scope": _HOLE, "spans": [make_span(1, "x")]}]},
            {"scopeSpans": [{"spans": [make_span(0x5002, "other resource")]}]},
        ]
    }
    body = json.dumps(request).replace(f'"{_HOLE}"', value)
    return body.encode(), len(hostile) + 7


async def test_large_resource_repeated_for_1000_spans_gets_413(api: Api) -> None:
    span = bytes_field(1, b"1" * 16) + bytes_field(2, b"12345678")
    resource = bytes_field(1, bytes_field(1, b"k") + bytes_field(2, bytes_field(1, b"x" * MIB)))
    body = bytes_field(1, bytes_field(1, resource) + bytes_field(2, bytes_field(2, span) * 1000))

    response = await post(api, "/v1/traces", body, PROTOBUF)

    assert response.status_code == 413
    assert await all_is_readable(api) == []
