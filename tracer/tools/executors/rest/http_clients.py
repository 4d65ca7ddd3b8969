"""HTTP connections of tools. The address guard checks them. Proxies and cookies are not used."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Protocol, runtime_checkable

import httpcore2
import httpx2

from tracer.context import ToolContext
from tracer.errors import ConfigurationError
from tracer.tools.executors.rest.address_guard import GuardedBackend, Resolve, resolve

MAX_CONNECTIONS = 100
"""How many connections to the hosts of one allow-list are open at once; other requests wait."""
IDLE_CONNECTIONS = 20
IDLE_SECONDS = 15.0


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to the addresses that tools may reach, over pooled connections.

    The class uses httpcore2's public API, because httpx2's transport has no parameter for a network
    backend. Setting a private attribute of that transport would be unsafe: if a later version
    renamed the attribute, the guard would silently be disabled.
    """

    def __init__(self, backend: GuardedBackend, ssl_context: ssl.SSLContext) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_SECONDS,
            retries=0,
            network_backend=backend,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and return the response, with its body unread.

        Raises:
            AddressRefused: Tools may not reach the address.
            httpx2.TransportError: There is no response.
        """
        if request.url.scheme not in ("http", "https"):
            raise httpx2.UnsupportedProtocol(
                "Unsupported URL scheme: only http and https are allowed."
            )
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        with _errors_of_httpx2():
            response = await self._pool.handle_async_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(
                        scheme=request.url.raw_scheme,
                        host=request.url.raw_host,
                        port=request.url.port,
                        target=request.url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        return httpx2.Response(
            response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
            request=request,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        stream = self._response.stream
        assert isinstance(stream, AsyncIterable)
        with _errors_of_httpx2():
            async for part in stream:
                yield part

    async def aclose(self) -> None:
        await self._response.aclose()


@contextmanager
def _errors_of_httpx2() -> Iterator[None]:
    try:
        yield
    except (
        httpcore2.TimeoutException,
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.UnsupportedProtocol,
    ) as error:
        # httpcore2 and httpx2 have error classes of the same names.
        raise getattr(httpx2, type(error).__name__)(str(error)) from error


class HttpClients:
    """The HTTP connections of a run or a service, until it is closed.

    Tools with different allow-lists share no connections. Otherwise a tool could use a connection
    to a host that its allow-list lacks.
    """

    def __init__(
        self, *, resolve: Resolve = resolve, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        """Create the pools; connections are opened when they are needed.

        Args:
            resolve: The resolver of names.
            ssl_context: How servers are verified; by default, with the system's certificates.
        """
        self._resolve = resolve
        self._custom_ssl_context = ssl_context
        self._transports: dict[frozenset[str], GuardedTransport] = {}
        self._is_closed = False

    def transport(self, allowed_hosts: Iterable[str] = ()) -> GuardedTransport:
        """Return the transport for tools with this allow-list (see `GuardedBackend`).

        Raises:
            ConfigurationError: The connections are closed, or an entry of the list is invalid.
        """
        if self._is_closed:
            raise ConfigurationError(
                "The HTTP connections for tools are closed, so no request can be sent."
            )
        key = frozenset(allowed_hosts)
        if key not in self._transports:
            backend = GuardedBackend(key, self._resolve)
            self._transports[key] = GuardedTransport(backend, self._ssl_context)
        return self._transports[key]

    async def aclose(self) -> None:
        """Close all connections, and open no more."""
        self._is_closed = True
        while self._transports:
            await self._transports.popitem()[1].aclose()

    @cached_property
    def _ssl_context(self) -> ssl.SSLContext:
        # Created when first needed, because loading the certificates takes 20 ms.
        return self._custom_ssl_context or httpx2.create_ssl_context(trust_env=False)


@runtime_checkable
class HasHttp(Protocol):
    """The part of a run that REST tools need."""

    @property
    def http(self) -> HttpClients:
        """The connections that the run's tools share."""
        ...


def http_of(context: ToolContext) -> HttpClients:
    """Return the connections of the run that a call belongs to.

    Raises:
        ConfigurationError: The call belongs to no run, or to one without HTTP connections.
    """
    if not isinstance(context.run, HasHttp):
        raise ConfigurationError(
            "This tool needs HTTP connections, so only a run or a tool service can call it."
        )
    return context.run.http
