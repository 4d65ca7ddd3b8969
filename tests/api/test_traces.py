"""Traces over HTTP: OTLP in protobuf and JSON, compressed bodies, and the responses."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from api.otlp.routes import MAX_BYTES
from tests.api.conftest import Api, client_of, parts_without_database
from tests.otel.captured import NAMES, bodies, spans_of
from tests.otel.sent import encode_json
from tracer.otel.otlp.spans import encode_protobuf
from tracer.records.spans import Span

PROTOBUF, JSON = "application/x-protobuf", "application/json"
ONE_RUN = "pydantic-ai-default-single"


async def _post(
    api: Api, body: bytes, media_type: str = PROTOBUF, **headers: str
) -> httpx2.Response:
    given = {"Content-Type": media_type} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return await api.client.post("/v1/traces", content=body, headers=given)


async def _record(api: Api, body: bytes, media_type: str = PROTOBUF, **headers: str) -> None:
    response = await _post(api, body, media_type, **headers)
    assert (response.status_code, response.headers["content-type"]) == (200, media_type)
    assert response.content == (b"" if media_type == PROTOBUF else b"{}")
    await api.project()


async def _trees(api: Api) -> dict[str, Any]:
    await api.project()
    runs: Any = (await api.read("/api/runs", limit=100))["items"]
    return {
        run["rootPlanId"]: await api.read(f"/api/plans/{run['rootPlanId']}/tree", payloads="full")
        for run in runs
    }


async def test_captured_spans_give_the_expected_tree(api: Api) -> None:
    for body in bodies(ONE_RUN):
        await _record(api, body)

    ((_, tree),) = (await _trees(api)).items()

    assert tree["agentName"] == "planner"
    assert tree["cumulative"]["toolCalls"] == 8
    assert (tree["cumulative"]["inputTokens"], tree["cumulative"]["outputTokens"]) == (5742, 366)
    assert tree["subPlanCount"] == 2
    assert tree["unplaced"] == []


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == ONE_RUN else pytest.mark.thorough) for name in NAMES],
)
async def test_tree_is_independent_of_order_split_and_concurrency_of_requests(
    api: Api, name: str
) -> None:
    for body in bodies(name):
        await _record(api, body)
    expected = await _trees(api)
    for run in expected:
        await api.client.delete(f"/api/runs/{run}")
    spans = [_in_another_trace(span) for span in spans_of(name)]
    random.Random(name).shuffle(spans)
    batches = [spans[start : start + 7] for start in range(0, len(spans), 7)]

    async def send(batches: list[list[Span]]) -> None:
        for batch in batches:
            await _record(api, encode_protobuf(batch))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send, batches)
        tasks.start_soon(send, batches[::-1])

    seen = await _trees(api)
    assert sorted(map(_shape, seen.values())) == sorted(map(_shape, expected.values()))


def _in_another_trace(span: Span) -> Span:
    """Return the span in the trace whose id has all bits turned."""
    trace_id = bytes(each ^ 0xFF for each in span.trace_id)
    request = ExportTraceServiceRequest.FromString(encode_protobuf([span]))
    request.resource_spans[0].scope_spans[0].spans[0].trace_id = trace_id
    (resource_spans,) = request.resource_spans
    return Span(
        **{
            name: getattr(span, name) for name in Span.__slots__ if name not in ("trace_id", "body")
        },
        trace_id=trace_id,
        body=resource_spans.SerializeToString(deterministic=True),
    )


def _shape(tree: Any) -> str:
    """Return the tree as text without its ids, which come from the trace's, and revisions."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: plain(each)
                for name, each in value.items()
                if name not in ("id", "revision")
                and (not name.endswith("Id") or name == "providerCallId")
            }
        return [plain(each) for each in value] if isinstance(value, list) else value

    return json.dumps(plain(tree), sort_keys=True)


@pytest.mark.parametrize(
    ("media_type", "encoding"),
    [
        (PROTOBUF, "gzip"),
        (JSON, "deflate"),
        pytest.param(PROTOBUF, "deflate", marks=pytest.mark.thorough),
        pytest.param(JSON, "gzip", marks=pytest.mark.thorough),
    ],
)
async def test_compressed_body_is_accepted(api: Api, media_type: str, encoding: str) -> None:
    spans = spans_of(ONE_RUN)
    body = encode_protobuf(spans) if media_type == PROTOBUF else encode_json(spans)
    compress = gzip.compress if encoding == "gzip" else zlib.compress

    await _record(api, compress(body), media_type, Content_Encoding=encoding)

    ((_, tree),) = (await _trees(api)).items()
    assert tree["cumulative"]["toolCalls"] == 8


async def test_valid_spans_next_to_invalid_spans_are_stored(api: Api) -> None:
    request = ExportTraceServiceRequest.FromString(encode_protobuf(spans_of(ONE_RUN)))
    request.resource_spans[0].scope_spans[0].spans.add(name="nobody's", span_id=b"12345678")
    request.resource_spans[0].scope_spans[0].spans.add(name="no id", trace_id=b"1" * 16)

    response = await _post(api, request.SerializeToString())

    assert response.status_code == 200
    answer = ExportTraceServiceResponse.FromString(response.content).partial_success
    assert answer.rejected_spans == 2
    first, second = answer.error_message.splitlines()
    assert first.startswith("invalid_span: Its trace id must be")
    assert first.endswith("(span 1)")
    assert second.startswith("invalid_span: Its span id must be")
    await api.project()
    ((_, tree),) = (await _trees(api)).items()
    assert tree["cumulative"]["toolCalls"] == 8


async def test_rejection_of_a_deleted_run_uses_the_encoding_of_the_request(api: Api) -> None:
    spans = spans_of(ONE_RUN)
    await _record(api, encode_json(spans), JSON)
    ((run, _),) = (await _trees(api)).items()
    await api.client.delete(f"/api/runs/{run}")

    response = await _post(api, encode_json(spans), JSON)

    assert response.status_code == 200
    partial = response.json()["partialSuccess"]
    assert partial["rejectedSpans"] == str(len(spans))
    assert partial["errorMessage"].startswith("run_deleted: The run was deleted")
    assert partial["errorMessage"].endswith(f"\nAnd {len(spans) - 10} more.")


async def test_empty_request_succeeds_in_both_encodings(api: Api) -> None:
    await _record(api, b"", PROTOBUF)
    await _record(api, b"{}", JSON)


async def test_malformed_protobuf_body_gets_an_error_status_in_protobuf(api: Api) -> None:
    for body in (b"\xff", b"\x0a\x7fcut", b"{}"):
        response = await _post(api, body)

        assert (response.status_code, response.headers["content-type"]) == (400, PROTOBUF), body
        assert response.content[:1] == b"\x12", body  # field 2 of google.rpc.Status: the message
        assert b"OTLP" in response.content, body


async def test_malformed_json_body_gets_an_error_status_in_json(api: Api) -> None:
    for body in (b"", b"{", b"[]", b'{"resourceSpans": 1}', b"[" * 100_000):
        response = await _post(api, body, JSON)

        assert (response.status_code, response.headers["content-type"]) == (400, JSON), body[:40]
        assert list(response.json()) == ["message"], body[:40]


async def test_unsupported_content_type_or_encoding_gets_415(api: Api) -> None:
    for media_type in ("text/plain", "application/grpc", ""):
        assert (await _post(api, b"", media_type)).status_code == 415

    response = await _post(api, b"", Content_Encoding="br")
    assert (response.status_code, response.headers["content-type"]) == (415, PROTOBUF)


async def test_traces_path_rejects_query_parameters_and_other_methods(api: Api) -> None:
    body = encode_protobuf(spans_of(ONE_RUN))
    asked = await api.client.post("/v1/traces?project=1", content=body)
    read = await api.client.get("/v1/traces")

    assert [(each.status_code, each.json()["code"]) for each in (asked, read)] == [
        (400, "bad_request"),
        (405, "method_not_allowed"),
    ]
    assert await _trees(api) == {}


async def test_body_that_contradicts_its_content_encoding_is_rejected(api: Api) -> None:
    assert (await _post(api, b"plain", Content_Encoding="gzip")).status_code == 400
    cut = gzip.compress(encode_protobuf(spans_of(ONE_RUN)))[:-20]
    assert (await _post(api, cut, Content_Encoding="gzip")).status_code == 400
    assert await _trees(api) == {}


async def test_body_that_exceeds_the_limit_after_decompression_gets_413(api: Api) -> None:
    packed = gzip.compress(bytes(MAX_BYTES + 1))

    response = await _post(api, packed, Content_Encoding="gzip")

    assert (response.status_code, response.headers["content-type"]) == (413, PROTOBUF)


async def test_spans_get_retry_after_while_the_store_is_unavailable(
    tmp_path: Path,
) -> None:
    async with (
        parts_without_database(tmp_path) as parts,
        client_of(parts) as client,
    ):
        body = encode_protobuf(spans_of(ONE_RUN))
        response = await client.post("/v1/traces", content=body, headers={"Content-Type": PROTOBUF})

    assert (response.status_code, response.headers["content-type"]) == (503, PROTOBUF)
    assert int(response.headers["retry-after"]) >= 1


async def test_hostile_spans_never_cause_a_server_error(api: Api) -> None:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number, (start, end) in enumerate([(0, 0), (2**63 - 1, 2**63 - 1), (2**64 - 1, 5), (9, 1)]):
        span = spans.add(
            trace_id=bytes([number + 1]) * 16,
            span_id=b"12345678",
            name="chat \0 of\ud83d".encode("utf-8", "replace").decode(),
            start_time_unix_nano=start,
            end_time_unix_nano=end,
        )
        span.attributes.add(key="gen_ai.operation.name").value.string_value = "chat"
        for key in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"):
            span.attributes.add(key=key).value.int_value = [-5, 2**63 - 1, 0, -(2**63)][number]
    for each in range(10_000):
        spans[0].attributes.add(key=f"key {each}").value.string_value = "\0"

    response = await _post(api, request.SerializeToString())

    assert response.status_code == 200
    answer = ExportTraceServiceResponse.FromString(response.content).partial_success
    assert answer.rejected_spans == 0
    await api.project()
    assert len(await _trees(api)) == 4
