"""OTLP over gRPC. Each call becomes an ASGI request, which the application handles like HTTP.

The handlers are registered as client-streaming, although each call has only one message. With unary
handlers, gRPC would read the message before it calls the handler. With client-streaming handlers,
the message is read only when the application asks for it, after it has authenticated the caller.
Clients do not notice the difference.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc
import orjson
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from starlette.types import ASGIApp, Message

from api.http.log_entry import log_entry
from api.http.request_bodies import GRPC_SCHEME
from api.otlp.encodings import GRPC_METHODS, PROTOBUF
from tracer.errors import ConfigurationError
from tracer.logs import get_logger

MAX_MESSAGE_BYTES = 16 * 2**20
"""The largest message, compressed or not. The default of the OpenTelemetry Collector is 4 MiB."""

MESSAGES_AT_ONCE = 16
"""How many messages are received at the same time. gRPC holds each complete message in memory."""

DRAIN_SECONDS = 5

_HEADERS = frozenset({"authorization", "prefer", "traceparent", "user-agent", "x-request-id"})
"""The metadata that the application receives. Headers of browsers and proxies are dropped, because
they have no meaning in a gRPC call."""

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
async def grpc_serving(app: ASGIApp, address: GrpcAddress) -> AsyncIterator[int | None]:
    """Serve an application's OTLP routes over gRPC. Yield the port.

    If an optional port cannot be used, log a warning and yield None.

    Raises:
        ConfigurationError: A required port cannot be used, or the files for TLS cannot be read.
    """
    credentials = _credentials(address)
    problem = _why_not_free(address)
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.so_reuseport", 0),
        ]
    )
    server.add_generic_rpc_handlers((_Handlers(app),))
    shown = f"[{address.host}]" if ":" in address.host else address.host
    port = 0
    if problem is None:
        try:
            port = _bound(server, f"{shown}:{address.port}", credentials)
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
    await server.start()
    try:
        yield port
    finally:
        await server.stop(DRAIN_SECONDS)


def _bound(server: grpc.aio.Server, target: str, credentials: Any) -> int:
    if credentials is None:
        return int(server.add_insecure_port(target))
    return int(server.add_secure_port(target, credentials))


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


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, app: ASGIApp) -> None:
        self._calls = {path: _Calls(app, path) for path in GRPC_METHODS}
        turns = asyncio.Semaphore(MESSAGES_AT_ONCE)
        for each in self._calls.values():
            each.turns = turns

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler[Any, Any] | None:
        calls = self._calls.get(handler_call_details.method)
        if calls is None:
            return None
        # Without (de)serializers, because the application receives and returns bytes.
        return grpc.stream_unary_rpc_method_handler(calls.answer)


class _Calls:
    """The handler of all calls of one gRPC method."""

    turns: asyncio.Semaphore

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path
        self._answering: set[asyncio.Task[None]] = set()

    async def answer(self, messages: AsyncIterator[bytes], context: Any) -> bytes:
        """Pass a call to the application as an ASGI request. Return the application's response."""
        exchange = _Exchange(messages, self.turns)
        scope = self._scope(context)
        # As by HTTP, a request continues if its client leaves.
        answering = asyncio.create_task(self._app_answers(scope, exchange))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)
        await asyncio.shield(answering)
        if exchange.status == HTTPStatus.OK:
            return b"".join(exchange.body)
        entry = log_entry(scope)
        await _abort(context, exchange, None if entry is None else entry.problem)

    async def _app_answers(self, scope: dict[str, Any], exchange: _Exchange) -> None:
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            # Starlette has logged and answered the error; it raises it again.
            exchange.status = exchange.status or HTTPStatus.INTERNAL_SERVER_ERROR

    def _scope(self, context: Any) -> dict[str, Any]:
        metadata = [
            (key.encode(), value.encode("latin-1", "replace"))
            for key, value in context.invocation_metadata() or ()
            if key in _HEADERS and isinstance(value, str)
        ]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "2",
            "method": "POST",
            "scheme": GRPC_SCHEME,
            "path": self._path,
            "raw_path": self._path.encode(),
            "root_path": "",
            "query_string": b"",
            # Browsers cannot send gRPC, so no page can reach the server by another name.
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", PROTOBUF.encode()),
                *metadata,
            ],
            "client": _client_of(context.peer()),
            "server": None,
            "state": {},
        }


def _client_of(peer: str) -> tuple[str, int] | None:
    """Return host and port of a gRPC peer such as `ipv4:127.0.0.1:47` or `ipv6:%5B::1%5D:47`."""
    kind, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return host.strip("[]"), int(port)


class _Exchange:
    """The ASGI request for one gRPC call, and the application's response."""

    def __init__(self, messages: AsyncIterator[bytes], turns: asyncio.Semaphore) -> None:
        self._messages = messages
        self._turns = turns
        self._is_received = False
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body: list[bytes] = []

    async def receive(self) -> Message:
        if self._is_received:
            return {"type": "http.disconnect"}
        self._is_received = True
        async with self._turns:
            try:
                message = await anext(self._messages, b"")
            except (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
                return {"type": "http.disconnect"}
        return {"type": "http.request", "body": message, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = dict(message["headers"])
        else:
            self.body.append(message.get("body", b""))

    @property
    def detail(self) -> str:
        """The error message in the response."""
        content = b"".join(self.body)
        try:
            if self.headers.get(b"content-type") == PROTOBUF.encode():
                return str(Status.FromString(content).message)
            return str(orjson.loads(content)["detail"])
        except (DecodeError, orjson.JSONDecodeError, KeyError, TypeError):
            return "The server failed."


async def _abort(context: Any, exchange: _Exchange, problem: str | None) -> NoReturn:
    status, detail = exchange.status, exchange.detail
    code = _STATUSES.get(status)
    if problem == "too_busy":
        code = grpc.StatusCode.RESOURCE_EXHAUSTED
    if code is None:
        is_of_client = status < HTTPStatus.INTERNAL_SERVER_ERROR
        code = grpc.StatusCode.INVALID_ARGUMENT if is_of_client else grpc.StatusCode.INTERNAL
    status_proto = Status(code=code.value[0], message=detail)
    trailing: list[tuple[str, str | bytes]] = []
    retry_after = exchange.headers.get(b"retry-after", b"")
    if retry_after.isdigit():
        # Exporters retry `RESOURCE_EXHAUSTED` only with this.
        retry = RetryInfo(retry_delay=Duration(seconds=int(retry_after)))
        status_proto.details.add().Pack(retry)
        trailing.append((_RETRY_INFO, retry.SerializeToString()))
    trailing.append((_DETAILS, status_proto.SerializeToString()))
    if request_id := exchange.headers.get(b"x-request-id"):
        trailing.append(("x-request-id", request_id.decode()))
    await context.abort(code, detail, tuple(trailing))
    raise AssertionError("`abort` raises")
