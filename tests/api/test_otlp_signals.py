"""Logs and metrics over OTLP. `test_traces` tests traces."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from tests.api.conftest import Api
from tests.otel.made_logs import made_log, request_with
from tests.otel.made_traces import TRACE_ID, agent, body_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PROTOBUF, JSON = "application/x-protobuf", "application/json"
RUN = f"{TRACE_ID[:8]}-{TRACE_ID[8:12]}-{TRACE_ID[12:16]}-{TRACE_ID[16:20]}-{TRACE_ID[20:]}"


async def post(
    api: Api, path: str, body: bytes, media_type: str = PROTOBUF, **headers: str
) -> httpx2.Response:
    sent = {"Content-Type": media_type, **{k.replace("_", "-"): v for k, v in headers.items()}}
    return await api.client.post(path, content=body, headers=sent)


@pytest.mark.parametrize("packing", ["", "gzip", "deflate", "zstd"])
async def test_log_records_are_listed_with_their_spans(api: Api, packing: str) -> None:
    packs: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "zstd": zstd.compress,
    }
    pack = packs.get(packing, bytes)
    logs = request_with(
        made_log("asked", 2, span_id=1, prompt="Hi"), made_log("elsewhere", 1, span_id=9)
    )
    more = {"Content_Encoding": packing} if packing else {}
    answer = await post(api, "/v1/logs", pack(logs.SerializeToString()), **more)
    assert (answer.status_code, answer.content) == (200, b"")
    spans = await post(api, "/v1/traces", body_of(agent(1, "planner")), JSON)
    assert spans.status_code == 200
    await api.project()

    page: Any = await api.read(f"/api/runs/{RUN}/spans")

    assert [span["name"] for span in page["items"]] == ["invoke_agent planner"]
    assert [(each["name"], each["spanId"]) for each in page["logs"]] == [
        ("elsewhere", "0000000000000009"),
        ("asked", "0000000000000001"),
    ]
    assert page["logs"][1]["attributes"] == {"prompt": "Hi"}
    assert page["logsLeftOut"] == 0
    [item] = page["items"]
    of_record: Any = await api.read(f"/api/runs/{RUN}/spans", recordId=item["record"]["id"])
    assert [each["name"] for each in of_record["logs"]] == ["asked"]


async def test_rejected_log_records_give_a_partial_success(api: Api) -> None:
    request = request_with(made_log("fine", 1), made_log("half a trace", 1, trace_id="01" * 8))
    answer = await post(api, "/v1/logs", request.SerializeToString())

    partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_log_records == 1
    assert partial.error_message == (
        "invalid_log_record: Its trace id must be 16 bytes that are not all zero. (log record 1)"
    )
    in_json = await post(
        api,
        "/v1/logs",
        b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"01"}]}]}]}',
        JSON,
    )
    assert in_json.json()["partialSuccess"]["rejectedLogRecords"] == "1"
    metrics = (await api.client.get("/metrics")).text
    labels = 'code="invalid_log_record",source="logs"'
    assert f"tracer_ingest_refused_total{{{labels}}} 2.0" in metrics
    assert 'tracer_ingest_stored_total{source="logs"} 1.0' in metrics


async def test_log_records_that_nothing_reads_get_a_plain_success_and_are_counted(api: Api) -> None:
    request = request_with(made_log("fine", 1), made_log("startup", 1, trace_id="00" * 16))
    answer = await post(api, "/v1/logs", request.SerializeToString())
    assert (answer.status_code, answer.content) == (200, b"")
    in_json = await post(
        api, "/v1/logs", b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]}]}', JSON
    )
    assert (in_json.status_code, in_json.json()) == (200, {})

    metrics = (await api.client.get("/metrics")).text
    labels = 'code="unread_log_record",source="logs"'
    assert f"tracer_ingest_refused_total{{{labels}}} 2.0" in metrics
    assert 'tracer_ingest_stored_total{source="logs"} 1.0' in metrics


@pytest.mark.parametrize(
    ("scope", "attribute"),
    [
        ("codex_otel.log_only", "conversation.id"),
        ("com.anthropic.claude_code.events", "session.id"),
        ("gemini-cli", "session.id"),
    ],
)
async def test_log_record_of_a_session_is_stored_without_a_trace(
    api: Api, scope: str, attribute: str
) -> None:
    record = made_log("prompt", 1, trace_id="00" * 16)
    record.attributes.add(key=attribute).value.string_value = "s-1"
    await post(api, "/v1/logs", request_with(record, scope=scope).SerializeToString())
    metrics = (await api.client.get("/metrics")).text
    assert 'tracer_ingest_stored_total{source="logs"} 1.0' in metrics


async def test_malformed_log_request_is_rejected(api: Api) -> None:
    for body, media_type, status in (
        (b"{", JSON, 400),
        (b"\x0f\xff", PROTOBUF, 400),
        (b"", "text/plain", 415),
    ):
        assert (await post(api, "/v1/logs", body, media_type)).status_code == status


async def test_log_request_with_prefer_wait_waits_for_the_projection(api: Api) -> None:
    body = request_with(made_log("asked", 1)).SerializeToString()
    answer = await post(api, "/v1/logs", body, Prefer="wait=20")
    assert answer.headers["Preference-Applied"] == "wait=20"


async def test_otlp_metrics_are_received_whole(api: Api) -> None:
    """A client that sends more than the connection's buffers hold would otherwise wait forever."""
    left = [b"{", b" " * 1_000_000, b"}"]

    async def body() -> AsyncIterator[bytes]:
        while left:
            yield left.pop(0)

    answer = await api.client.post(
        "/v1/metrics", content=body(), headers={"Content-Type": "application/json"}
    )

    assert (answer.status_code, answer.content, left) == (200, b"{}", [])


async def test_otlp_metrics_get_an_empty_success_in_the_encoding_of_the_request(api: Api) -> None:
    for media_type, content in ((PROTOBUF, b""), (JSON, b"{}")):
        answer = await post(api, "/v1/metrics", b"any body", media_type)
        assert (answer.status_code, answer.content) == (200, content)
        assert answer.headers["Content-Type"] == media_type
    assert (await post(api, "/v1/metrics", b"", "text/plain")).status_code == 415
