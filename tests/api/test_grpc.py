"""OTLP over gRPC: a real client calls a server on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from api.app import create_app
from api.metrics import Metrics
from api.otlp import GrpcAddress, grpc_serving
from api.otlp.grpc_server import MAX_MESSAGE_BYTES
from api.parts import Parts
from api.requests import Intake
from tests.api.commands import serving_here, tracer
from tests.api.conftest import parts_without_database, serving_parts
from tests.otel.made_logs import made_log, request_with
from tests.otel.made_traces import TRACE_ID, agent, spans_from
from tests.projecting import DatabaseProjection, project
from tests.stored import read_logs
from tracer.errors import ConfigurationError
from tracer.otel.otlp.spans import encode_protobuf, root_plan_id
from tracer.records.access import EVERYBODY
from tracer.runtime.scripted_model import ScriptedModel
from tracer.storage.postgres import connection_options

RUN = root_plan_id(bytes.fromhex(TRACE_ID))
SECONDS = 60


@asynccontextmanager
async def served_by_grpc(parts: Parts, **options: Any) -> AsyncIterator[str]:
    """Serve parts by gRPC on loopback, and give the address."""
    address = GrpcAddress("127.0.0.1", 0, is_required=True)
    async with grpc_serving(create_app(parts, **options), address) as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
async def parts(database_url: str, tmp_path: Path) -> AsyncIterator[Parts]:
    async with serving_parts(database_url, tmp_path, ScriptedModel([])) as parts:
        yield parts


def a_trace(*names: str) -> ExportTraceServiceRequest:
    spans = spans_from(*(agent(number, name) for number, name in enumerate(names, 1)))
    return ExportTraceServiceRequest.FromString(encode_protobuf(spans))


async def test_grpc_accepts_all_signals_with_and_without_compression(
    parts: Parts, database_url: str
) -> None:
    metrics = Metrics()
    async with (
        served_by_grpc(parts, metrics=metrics) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        traces, logs = stub_of(TraceServiceStub, channel), stub_of(LogsServiceStub, channel)
        answer = await traces.Export(a_trace("planner"), timeout=SECONDS)
        assert answer.SerializeToString() == b""
        await logs.Export(
            request_with(made_log("asked", 1, span_id=1)),
            timeout=SECONDS,
            compression=grpc.Compression.Gzip,
        )
        request = ExportMetricsServiceRequest()
        request.resource_metrics.add().scope_metrics.add().metrics.add(name="tokens")
        dropped = await stub_of(MetricsServiceStub, channel).Export(request, timeout=SECONDS)
        assert dropped.SerializeToString() == b""
    await project(DatabaseProjection(connection_options(database_url)))

    assert (await parts.reader.read_run(RUN)).agent_name == "planner"
    assert [each.name for each in await read_logs(parts.reader, RUN)] == ["asked"]
    counted = metrics.text(()).decode()
    assert 'tracer_ingest_stored_total{source="logs"} 1.0' in counted
    labels = 'method="POST",route="/opentelemetry.proto.collector.trace.v1.TraceService/Export"'
    assert f'tracer_http_requests_total{{{labels},status="200"}} 1.0' in counted


async def test_rejected_records_give_a_grpc_partial_success(parts: Parts) -> None:
    request = request_with(made_log("fine", 1), made_log("half a trace", 1, trace_id="01" * 8))
    async with (
        served_by_grpc(parts) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        answer: ExportLogsServiceResponse = await stub_of(LogsServiceStub, channel).Export(
            request, timeout=SECONDS
        )
    assert answer.partial_success.rejected_log_records == 1
    assert "invalid_log_record" in answer.partial_success.error_message


def stub_of(kind: Any, channel: Any) -> Any:
    """Return a generated stub, whose types know channels without asyncio only."""
    return kind(channel)


async def refusal(stub: Any, request: object, **options: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Export(request, timeout=SECONDS, **options)
    return refused.value


def retry_of(error: grpc.aio.AioRpcError) -> int | None:
    """Return after how many seconds to send the same again; None if that is of no use."""
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    status = Status.FromString(details)
    assert (status.code, status.message) == (error.code().value[0], error.details())
    for each in status.details:
        retry = RetryInfo()
        if each.Unpack(retry):
            return int(retry.retry_delay.seconds)
    return None


async def test_busy_grpc_server_returns_a_retry_delay(parts: Parts) -> None:
    intake = Intake(max_requests=1)
    async with (
        served_by_grpc(parts, intake=intake) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        traces = stub_of(TraceServiceStub, channel)
        async with intake.slot(EVERYBODY.project_id):
            error = await refusal(traces, a_trace("planner"))
        await traces.Export(a_trace("planner"), timeout=SECONDS)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert retry_of(error) == 1


async def test_grpc_request_without_a_store_gets_unavailable_with_retry_delay(
    tmp_path: Path,
) -> None:
    async with (
        parts_without_database(tmp_path) as parts,
        served_by_grpc(parts) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        error = await refusal(stub_of(TraceServiceStub, channel), a_trace("planner"))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert retry_of(error) == 1


async def test_malformed_grpc_message_gets_invalid_argument(parts: Parts) -> None:
    async with (
        served_by_grpc(parts) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        call: Any = channel.unary_unary(method)
        no_method: Any = channel.unary_unary("/no.Service/Export")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(b"\x0f\xff", timeout=SECONDS)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert retry_of(refused.value) is None

        for size, compression in (
            (MAX_MESSAGE_BYTES + 1, grpc.Compression.NoCompression),
            (MAX_MESSAGE_BYTES + 1, grpc.Compression.Gzip),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(bytes(size), timeout=SECONDS, compression=compression)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await no_method(b"", timeout=SECONDS)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_grpc_requests_need_a_key_after_the_first_key_is_created(
    database_url: str, tmp_path: Path
) -> None:
    port = free_port()
    key, read = [
        tracer(
            tmp_path, "keys", "create", scope, "--scope", scope, TRACER_DATABASE_URL=database_url
        ).stdout.split()[-1]
        for scope in ("record", "read")
    ]
    with (
        serving_here(database_url, tmp_path, grpc_host="127.0.0.1", grpc_port=port),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stub = stub_of(TraceServiceStub, channel)

        def code(*metadata: tuple[str, str]) -> grpc.StatusCode:
            try:
                stub.Export(a_trace("planner"), timeout=SECONDS, metadata=metadata)
            except grpc.RpcError as error:
                return error.code()
            return grpc.StatusCode.OK

        assert code() is grpc.StatusCode.UNAUTHENTICATED
        assert code(("authorization", "Bearer tracer_no")) is grpc.StatusCode.UNAUTHENTICATED
        assert code(("authorization", f"Bearer {read}")) is grpc.StatusCode.PERMISSION_DENIED
        assert code(("authorization", f"Bearer {key}")) is grpc.StatusCode.OK


async def test_python_otlp_grpc_exporter_needs_only_the_endpoint(
    parts: Parts, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served_by_grpc(parts) as address:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{address}")
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))

        def trace() -> int:
            with provider.get_tracer("mine").start_as_current_span("invoke_agent nurse") as span:
                span.set_attribute("gen_ai.operation.name", "invoke_agent")
                span.set_attribute("gen_ai.agent.name", "nurse")
            provider.shutdown()
            return span.get_span_context().trace_id

        trace_id = await asyncio.to_thread(trace)
    await project(DatabaseProjection(connection_options(database_url)))
    assert (await parts.reader.read_run(UUID(int=trace_id))).agent_name == "nurse"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


async def test_grpc_port_in_use_is_an_error_only_if_it_is_configured(parts: Parts) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        chosen = GrpcAddress("127.0.0.1", port, is_required=True)
        with pytest.raises(ConfigurationError, match=f"{port}.*another program.*TRACER_GRPC_PORT"):
            async with grpc_serving(create_app(parts), chosen):
                pass
        default = GrpcAddress("127.0.0.1", port, is_required=False)
        async with grpc_serving(create_app(parts), default) as bound:
            assert bound is None


async def test_incomplete_or_missing_tls_files_are_a_configuration_error(
    parts: Parts, tmp_path: Path
) -> None:
    for files in ((tmp_path / "none.pem", None), (tmp_path / "none.pem", tmp_path / "none.key")):
        address = GrpcAddress("127.0.0.1", 0, True, *files)
        with pytest.raises(ConfigurationError, match="TRACER_GRPC_CERTIFICATE"):
            async with grpc_serving(create_app(parts), address):
                pass
