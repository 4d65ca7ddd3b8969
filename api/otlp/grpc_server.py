"""OTLP over gRPC: three methods, which use the functions of the HTTP routes.

Clients call them as unary methods. The server declares the requests as streams: it then checks the
caller before it reads a message, and can reject a call with none or several.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc
from fastapi import FastAPI
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from api.dependencies import check_scope, writer_for
from api.middleware import log_request, request_id
from api.middleware.authentication import find_key_caller, is_loopback
from api.otlp.routes import LOGS, PROTOBUF, TRACES, Received, accept, check_backlog
from api.problems import LogEntry, log_crash, problem_of
from tracer.errors import BadRequest, ConfigurationError, TooBusy, TracerError
from tracer.logs import get_logger, request_bound
from tracer.records.access import Caller, Scope

MAX_MESSAGE_BYTES = 16 * 2**20
"""The largest message, compressed or not. The default of the OpenTelemetry Collector is 4 MiB."""

MESSAGE_SECONDS = 60.0
"""The longest wait for the message of a call."""

IDLE_SECONDS = 120.0
"""After how long a connection without calls is closed. The OpenTelemetry Collector and the SDKs
connect again."""

MAX_STREAMS = 128
"""The largest number of calls at the same time over one connection."""

DRAIN_SECONDS = 5

_COLLECTOR = "opentelemetry.proto.collector"
_SERVICES: Mapping[str, Received | None] = {
    f"{_COLLECTOR}.trace.v1.TraceService": TRACES,
    f"{_COLLECTOR}.logs.v1.LogsService": LOGS,
    f"{_COLLECTOR}.metrics.v1.MetricsService": None,
}
"""The signal that each service receives. None: its messages are accepted and not stored."""

_DETAILS = "grpc-status-details-bin"
_RETRY_INFO = "google.rpc.retryinfo-bin"
"""The metadata key at which older exporters look for `RetryInfo`."""

_STATUSES: Mapping[int, grpc.StatusCode] = {
    HTTPStatus.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}
"""The gRPC status of some HTTP statuses. Any other status below 500 becomes `INVALID_ARGUMENT`, and
any other from 500 on `INTERNAL`. Exporters retry neither of them."""

log = get_logger(__name__)


@dataclass(frozen=True)
class GrpcAddress:
    """Where and how to listen for gRPC: address and TLS files."""

    host: str
    port: int
    is_required: bool
    """Whether the server must not start if the port cannot be used."""
    certificate: Path | None = None
    """The file with the TLS certificate and its chain, in PEM. None: no encryption."""
    key: Path | None = None


@asynccontextmanager
async def grpc_serving(
    app: FastAPI, address: GrpcAddress, idle_seconds: float = IDLE_SECONDS
) -> AsyncIterator[int | None]:
    """Serve OTLP over gRPC with the components of an application. Yield the port.

    If an optional port cannot be used, log a warning and yield None.

    Args:
        app: The application.
        address: Where to listen.
        idle_seconds: See `IDLE_SECONDS`.

    Raises:
        ConfigurationError: A required port cannot be used, or the files for TLS cannot be read.
    """
    credentials = _credentials(address)
    problem = _why_not_free(address)
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.so_reuseport", 0),
            ("grpc.max_concurrent_streams", MAX_STREAMS),
            ("grpc.max_connection_idle_ms", round(idle_seconds * 1000)),
        ]
    )
    server.add_generic_rpc_handlers(tuple(_handlers(app.state)))
    shown = f"[{address.host}]" if ":" in address.host else address.host
    port = 0
    if problem is None:
        try:
            target = f"{shown}:{address.port}"
            if credentials is None:
                port = server.add_insecure_port(target)
            else:
                port = server.add_secure_port(target, credentials)
        except RuntimeError:
            problem = "it cannot be bound"
    if not port:
        what = f"Can't listen for gRPC on {address.host} port {address.port}: {problem}."
        if address.is_required:
            raise ConfigurationError(
                f"{what} Set TRACER_GRPC_PORT to another port, or to 0 to turn gRPC off."
            )
        log.warning("grpc_not_served", host=address.host, port=address.port, reason=problem)
        yield None
        return
    if not is_loopback(address.host):
        log.warning(
            "grpc_beyond_loopback",
            host=address.host,
            reason="gRPC does not limit the memory of unfinished headers",
            what_to_do="Make sure that only networks that you trust reach the port.",
        )
    await server.start()
    try:
        yield port
    finally:
        await server.stop(DRAIN_SECONDS)


def _credentials(address: GrpcAddress) -> grpc.ServerCredentials | None:
    if address.certificate is None and address.key is None:
        return None
    if address.certificate is None or address.key is None:
        raise ConfigurationError(
            "Set both TRACER_GRPC_CERTIFICATE and TRACER_GRPC_KEY, or neither of them."
        )
    try:
        pair = address.key.read_bytes(), address.certificate.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"The file {error.filename} of TRACER_GRPC_CERTIFICATE or TRACER_GRPC_KEY cannot be"
            f" read: {error.strerror}."
        ) from error
    return grpc.ssl_server_credentials([pair])


def _why_not_free(address: GrpcAddress) -> str | None:
    """Return why a port cannot be used; None if it can. gRPC itself does not report the reason."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((address.host, address.port))
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            return "another program uses it" if in_use else (error.strerror or "unknown")
    return None


def _handlers(state: Any) -> Iterator[grpc.GenericRpcHandler]:
    for service, received in _SERVICES.items():
        # Without (de)serializers, because the decoder checks the bytes before it parses them.
        answer = _Export(state, service, received).answer
        handler: Any = grpc.stream_unary_rpc_method_handler(answer)
        yield grpc.method_handlers_generic_handler(service, {"Export": handler})


class _Export:
    """The method `Export` of one service."""

    def __init__(self, state: Any, service: str, received: Received | None) -> None:
        self._state = state
        self._route = f"/{service}/Export"
        self._received = received
        self._answering: set[asyncio.Task[Any]] = set()

    async def answer(self, messages: AsyncIterator[bytes], context: Any) -> bytes:
        """Store the items of the only message of a call."""
        metadata = [
            (key.encode(), value.encode("latin-1", "replace"))
            for key, value in context.invocation_metadata() or ()
            if isinstance(value, str)
        ]
        entry = LogEntry(request_id(metadata))
        authorization = dict(metadata).get(b"authorization", b"").decode("latin-1")
        client = _client_of(context.peer())
        # As by HTTP, a request continues if its client leaves.
        task = asyncio.create_task(self._logged(messages, authorization, entry, client))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        content, problem = await asyncio.shield(task)
        if content is None:
            await _abort(context, entry, problem)
        return content

    async def _logged(
        self,
        messages: AsyncIterator[bytes],
        authorization: str,
        entry: LogEntry,
        client: str | None,
    ) -> tuple[bytes | None, str]:
        """Return the response. If the request failed, return None and the error message."""
        state, begin = self._state, time.perf_counter()
        caller: Caller | None = None
        content, problem = None, ""
        with request_bound(entry.request_id), state.metrics.requests_in_progress.track_inprogress():
            try:
                caller = await find_key_caller(state.access.authenticator, authorization)
                check_scope(caller, Scope.RECORD)
                content = await self._accept(messages, caller, entry)
                entry.status, entry.sent = HTTPStatus.OK, len(content)
            except TracerError as error:
                entry.status, entry.problem = problem_of(error)
                problem = str(error)
            except Exception as error:
                entry.status, entry.problem = HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error"
                problem = log_crash(entry.request_id, error)
            seconds = time.perf_counter() - begin
            log_request(state.metrics, entry, ("POST", self._route), seconds, caller, client)
        return content, problem

    async def _accept(
        self,
        messages: AsyncIterator[bytes],
        caller: Caller,
        entry: LogEntry,
    ) -> bytes:
        received, state = self._received, self._state
        if received is not None:
            check_backlog(state.parts.backlog)
        async with state.intake.slot(caller.project_id):
            message = await _only_message(messages)
            entry.received = len(message)
            if received is None:
                return b""
            writer = await writer_for(state.parts, caller)
            accepted = await accept(
                message, received, PROTOBUF, writer, state.intake, state.metrics
            )
        content: bytes = received.answer(accepted).SerializeToString()
        return content


async def _only_message(messages: AsyncIterator[bytes]) -> bytes:
    """Return the message of a call.

    Raises:
        BadRequest: The call has none, several, or one that is cut off.
        TooBusy: The message arrives too slowly.
    """
    try:
        async with asyncio.timeout(MESSAGE_SECONDS):
            found: list[bytes] = []
            async for message in messages:
                found.append(message)
                if len(found) > 1:
                    break
    except TimeoutError as error:
        raise TooBusy("The message arrived too slowly. Send it again later.") from error
    if len(found) != 1:
        raise BadRequest("A call must have one complete message.")
    return found[0]


def _client_of(peer: str) -> str | None:
    """Return the host of a gRPC peer such as `ipv4:127.0.0.1:47` or `ipv6:%5B::1%5D:47`."""
    kind, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else None


async def _abort(context: Any, entry: LogEntry, detail: str) -> NoReturn:
    code = _STATUSES.get(entry.status)
    if entry.problem == "too_busy":
        code = grpc.StatusCode.RESOURCE_EXHAUSTED
    if code is None:
        is_of_client = entry.status < HTTPStatus.INTERNAL_SERVER_ERROR
        code = grpc.StatusCode.INVALID_ARGUMENT if is_of_client else grpc.StatusCode.INTERNAL
    status_proto = Status(code=code.value[0], message=detail)
    trailing: list[tuple[str, str | bytes]] = [("x-request-id", entry.request_id)]
    if entry.status == HTTPStatus.SERVICE_UNAVAILABLE:
        # Exporters retry `RESOURCE_EXHAUSTED` only with this.
        retry = RetryInfo(retry_delay=Duration(seconds=1))
        status_proto.details.add().Pack(retry)
        trailing.append((_RETRY_INFO, retry.SerializeToString()))
    trailing.append((_DETAILS, status_proto.SerializeToString()))
    await context.abort(code, detail, tuple(trailing))
    raise AssertionError("`abort` raises")
