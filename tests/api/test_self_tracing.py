"""The server's own spans: their contents and destination; exporting them creates no more spans."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
import uvicorn
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from api.app import create_app
from api.observability.self_tracing import (
    AGENT,
    SelfTracing,
    self_tracing,
    wanted_exporter,
)
from tests.api.conftest import parts_without_database, serving_parts
from tests.sample_runs import sample_run
from tracer.assembly import Parts
from tracer.errors import ConfigurationError
from tracer.otel.otlp.blocks import spans_of, unpack_block
from tracer.records.events import event_json
from tracer.runtime.scripted_model import ScriptedModel

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Made:
    """Own spans that stay here."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.spans = SelfTracing(provider.get_tracer("tracer"))

    def finished(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}


async def send(
    parts: Parts, spans: SelfTracing, *requests: tuple[str, str, dict[str, Any]]
) -> list[int]:
    """Send requests to a server that makes `spans`, and return the statuses."""
    transport = httpx2.ASGITransport(create_app(parts, spans=spans), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://tracer") as client:
        return [
            (await client.request(method, path, **given)).status_code
            for method, path, given in requests
        ]


async def test_spans_of_requests_and_store_calls_contain_no_payloads(
    database_url: str, tmp_path: Path
) -> None:
    made, run = Made(), sample_run(title="canary-hush")
    body = b"\n".join(map(event_json, run.events))
    ndjson = {"Content-Type": "application/x-ndjson"}
    parent = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}

    async with serving_parts(database_url, tmp_path, ScriptedModel([])) as parts:
        await send(
            parts,
            made.spans,
            ("POST", "/api/events", {"content": body, "headers": ndjson}),
            ("GET", "/api/runs", {"params": {"q": "canary-hush"}, "headers": parent}),
            ("GET", "/canary-hush", {}),
        )

    told = made.finished()
    assert {"POST /api/events", "store write", "GET /api/runs", "store list_runs", "GET"} == {*told}
    request, reading = told["GET /api/runs"], told["store list_runs"]
    assert request.kind is SpanKind.SERVER
    assert request.attributes is not None
    assert dict(request.attributes) == {
        "http.request.method": "GET",
        "http.route": "/api/runs",
        "http.response.status_code": 200,
        "url.scheme": "http",
    }
    assert request.context is not None
    assert f"{request.context.trace_id:032x}" == TRACE
    assert reading.parent is not None
    assert reading.parent.span_id == request.context.span_id
    assert reading.attributes is not None
    assert reading.attributes["db.operation.name"] == "list_runs"
    assert "canary" not in "".join(span.to_json() for span in told.values())


async def test_span_of_a_failed_request_contains_only_the_error_type(tmp_path: Path) -> None:
    made = Made()

    async with parts_without_database(tmp_path) as parts:
        await send(parts, made.spans, ("GET", "/api/runs", {}))

    told = made.finished()
    for name, error in (("GET /api/runs", "503"), ("store list_runs", "StoreUnavailable")):
        attributes = told[name].attributes
        assert attributes is not None
        assert attributes["error.type"] == error
        assert not told[name].status.is_ok
        assert told[name].events == ()


async def test_server_that_exports_to_itself_creates_no_endless_spans(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        async with serving_parts(database_url, tmp_path, ScriptedModel([])) as parts:
            async with self_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": address}) as spans:
                app = create_app(parts, spans=spans)
                server = uvicorn.Server(uvicorn.Config(app, log_config=None))
                serving = asyncio.create_task(server.serve(sockets=[listener]))
                async with httpx2.AsyncClient(base_url=address, timeout=60) as client:
                    assert (await client.get("/api/runs")).status_code == 200
            server.should_exit = True
            await serving
    with psycopg.connect(database_url) as connection:
        stored = connection.execute("SELECT body FROM otel_block").fetchall()

    stored_spans = spans_of(unpack_block(body) for (body,) in stored)
    assert sorted(span.name for span in stored_spans) == ["GET /api/runs", "store list_runs"]


async def test_exports_from_another_tracer_server_create_no_spans(
    database_url: str, tmp_path: Path
) -> None:
    made = Made()

    async with serving_parts(database_url, tmp_path, ScriptedModel([])) as parts:
        await send(parts, made.spans, ("POST", "/v1/traces", {"headers": {"User-Agent": AGENT}}))

    assert made.finished() == {}


@pytest.mark.thorough
def test_global_tracer_provider_receives_no_spans_of_the_server() -> None:
    told = subprocess.run(
        [sys.executable, "-c", TRACED_PROCESS], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[]"


TRACED_PROCESS = """
import asyncio
import httpx2
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from api.app import create_app

exporter = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))

async def ask():
    transport = httpx2.ASGITransport(create_app(), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await client.get("/healthz", params={"q": "hush"})

asyncio.run(ask())
print([span.name for span in exporter.get_finished_spans()])
"""


EXPORTERS: list[tuple[dict[str, str], str | None]] = [
    ({}, None),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "otlp_proto_http"),
    ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, "otlp_proto_http"),
    ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp_proto_http"),
    ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
    ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, None),
    ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, None),
    (
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        "otlp_proto_grpc",
    ),
]


def test_self_tracing_exporter_is_chosen_by_environment_variables() -> None:
    failures = [
        f"{environment}: expected {exporter}, got {found}"
        for environment, exporter in EXPORTERS
        if (found := wanted_exporter(environment)) != exporter
    ]

    assert failures == []


async def test_missing_exporter_package_is_a_configuration_error() -> None:
    with pytest.raises(
        ConfigurationError, match=r"OTEL_TRACES_EXPORTER .*tracer-lineage\[server\]"
    ):
        async with self_tracing({"OTEL_TRACES_EXPORTER": "zipkin"}):
            pass


async def test_store_is_not_traced_if_no_exporter_is_configured() -> None:
    async with self_tracing({}) as spans:
        store = object()
        assert spans.around(store) is store
